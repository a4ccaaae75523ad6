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
    why = f"{model.name} is told how hard to think, not how long"
    losses.param("reasoning.budget", f"the budget {budget}, now the effort {effort!r}", why)
    added = f"nothing: the effort {effort!r} was added"
    losses.param("reasoning.effort", added, "it stands for the budget", "form")
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
        what, level = f"the effort {effort!r}", "form" if effort == "none" else "meaning"
        losses.param(said, what, f"{model.name} cannot be told one", level)
        return None
    at = ORDER.index(effort)
    nearest = min(known, key=lambda word: (abs(ORDER.index(word) - at), -ORDER.index(word)))
    why = f"{model.name} takes {', '.join(known)}"
    losses.param(said, f"the effort {effort!r}, now {nearest!r}", why)
    return nearest
