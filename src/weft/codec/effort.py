"""A budget of thinking as an effort, for models that are told how hard to think and not how long.

The steps are those by which others, too, turn the one into the other: up to 2048 tokens are little,
up to 8192 are some, and more are much. Where a caller named an effort himself, it stands, or the
nearest to it that the model takes.
"""

from msgspec import structs

from weft.catalog import Model
from weft.model import Reasoning

from .base import Losses

ORDER = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
STEPS = ((2048, "low"), (8192, "medium"))
MOST = "high"


def with_effort(reasoning: Reasoning, model: Model, losses: Losses) -> Reasoning:
    """What to say to a model about thinking; a budget that became an effort is reported."""
    budget = reasoning.budget
    if budget is None or reasoning.effort is not None or model.thinking != "effort":
        return reasoning
    effort = next((word for most, word in STEPS if budget <= most), MOST)
    losses.param("reasoning.budget", "thinking_budget_as_effort", f"{budget} -> {effort}")
    losses.param("reasoning.effort", "effort_added", effort)
    return structs.replace(reasoning, effort=effort, budget=None)


def fitting_effort(
    effort: str | None, model: Model, losses: Losses, said: str = "reasoning.effort"
) -> str | None:
    """The word that a model takes nearest to this one, or `None` where it takes none; reported as
    what the caller `said`."""
    known = model.efforts
    if effort not in ORDER or known is None or effort in known:
        return effort
    if not known:
        level = "form" if effort == "none" else "meaning"
        losses.param(said, "effort_unsupported", effort, level)
        return None
    at = ORDER.index(effort)
    nearest = min(known, key=lambda word: (abs(ORDER.index(word) - at), -ORDER.index(word)))
    f"{model.name} takes {', '.join(known)}"
    losses.param(said, "effort_changed", f"{effort} -> {nearest}")
    return nearest
