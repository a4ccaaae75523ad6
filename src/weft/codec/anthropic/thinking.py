"""How a model is told to think, and what may not stand beside it:
https://platform.claude.com/docs/en/build-with-claude/extended-thinking

Older models are given a budget, which the whole answer must be longer than; newer ones decide by
themselves, and refuse one. Whoever thinks cannot be forced to call a tool, and takes no sampling
but the default's.
"""

from msgspec import structs

from weft.codec.base import Losses, Target
from weft.model import JsonObject, Params

LEAST_BUDGET = 1024
FORCED = frozenset({"any", "tool"})
BESIDE = "it is refused beside thinking"


def write_thinking(params: Params, limit: int, target: Target, losses: Losses) -> JsonObject | None:
    """The member `thinking`; `limit` is the length of the whole answer."""
    reasoning = params.reasoning
    if reasoning is None:
        return None
    if reasoning.summary is not None:
        what = f"the wish for a summary, {reasoning.summary!r}"
        losses.param("reasoning.summary", what, "thinking is shown as its model decides", "form")
    if reasoning.mode == "off" or reasoning.effort == "none":
        return {"type": "disabled"}
    budget = reasoning.budget
    if budget is None and reasoning.mode is None:
        return None
    name = "reasoning.mode" if budget is None else "reasoning.budget"
    if params.tool_choice is not None and params.tool_choice.kind in FORCED:
        losses.param(name, "the wish to think", "a tool must be called, which excludes it here")
        return None
    if target.model.thinking == "adaptive":
        if budget is not None:
            why = f"{target.model.name} decides by itself how long it thinks"
            losses.param(name, f"the budget {budget}", why)
        return {"type": "adaptive"}
    if budget is None:
        losses.param(name, "the wish to think", f"{target.model.name} needs a budget for it")
        return None
    return _budget(budget, limit, losses)


def _budget(given: int, limit: int, losses: Losses) -> JsonObject | None:
    taken = min(max(given, LEAST_BUDGET), limit - 1)
    if taken < LEAST_BUDGET:
        why = f"an answer of {limit} tokens has no room for thinking here"
        losses.param("reasoning.budget", f"the budget {given}", why)
        return None
    if taken != given:
        why = f"it goes from {LEAST_BUDGET} to below the limit of the answer, {limit}"
        losses.param("reasoning.budget", f"the budget {given}, now {taken}", why)
    return {"type": "enabled", "budget_tokens": taken}


def beside_thinking(params: Params, losses: Losses) -> Params:
    """The parameters without the sampling that thinking excludes."""
    refused = {
        "temperature": params.temperature not in (None, 1),
        "top_p": params.top_p is not None and not 0.95 <= params.top_p <= 1,
        "top_k": params.top_k is not None,
    }
    for name in (name for name, is_refused in refused.items() if is_refused):
        losses.param(name, f"the {name} {getattr(params, name)}", BESIDE)
        params = structs.replace(params, **{name: None})
    return params
