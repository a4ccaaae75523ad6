"""Brings parameters within the limits of a vendor and a model.

`Limits` states what a vendor accepts. A value outside is moved to the nearest accepted value, and
reported. If no near value means the same, the request is refused here, with the caller's path,
instead of by the vendor. Parameters that the catalogue says a model refuses are dropped.

For models with `thinking = "effort"`, a thinking-token budget is converted to an effort level: up
to 2048 tokens are `low`, up to 8192 are `medium`, more are `high`. An effort that the caller names
is kept, or replaced by the nearest one that the model supports.
"""

from itertools import takewhile

from msgspec import Struct, structs

from weft.catalog import Model
from weft.errors import Refused
from weft.model import Format, Params, Reasoning, Request, texts

from .base import Losses
from .calls import marked_id

ORDER = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
STEPS = ((2048, "low"), (8192, "medium"))
MOST = "high"


def with_effort(reasoning: Reasoning, model: Model, losses: Losses) -> Reasoning:
    """The reasoning settings, with a token budget converted for models that take an effort."""
    budget = reasoning.budget
    if budget is None or reasoning.effort is not None or model.thinking != "effort":
        return reasoning
    effort = next((word for most, word in STEPS if budget <= most), MOST)
    losses.param("reasoning.budget", "thinking_budget_as_effort", f"{budget} -> {effort}")
    losses.param("reasoning.effort", "effort_added", effort)
    return structs.replace(reasoning, effort=effort, budget=None)


def fitting_effort(
    effort: str | None, model: Model, losses: Losses, name: str = "reasoning.effort"
) -> str | None:
    """The nearest effort that the model supports; `None` if it supports none.

    `name` is the parameter that a loss is reported for.
    """
    supported = model.efforts
    if effort not in ORDER or supported is None or effort in supported:
        return effort
    if not supported:
        level = "form" if effort == "none" else "meaning"
        losses.param(name, "effort_unsupported", effort, level)
        return None
    at = ORDER.index(effort)
    nearest = min(supported, key=lambda word: (abs(ORDER.index(word) - at), -ORDER.index(word)))
    losses.param(name, "effort_changed", f"{effort} -> {nearest}")
    return nearest


OPENAI_EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"})
"""https://platform.openai.com/docs/api-reference/chat/create#chat-create-reasoning_effort"""


class Limits(Struct, frozen=True):
    """The limits of a vendor.

    - `temperature`: the range of temperatures.
    - `stops`: the largest number of stop sequences; `blank_stops`: whether blank ones are allowed.
    - `tokens`: the smallest `max_tokens`; `allows_zero_tokens`: whether 0 is allowed besides.
    - `seed`: the largest seed. `user`: the longest user id, in characters.
    - `sampling_if_reasoning_off`: whether a model that refuses sampling parameters takes them while
      its reasoning is off.
    """

    temperature: tuple[float, float] = (0, 2)
    stops: int | None = None
    blank_stops: bool = True
    tokens: int = 1
    allows_zero_tokens: bool = False
    seed: int | None = None
    user: int | None = None
    sampling_if_reasoning_off: bool = False


def within(params: Params, limits: Limits, model: Model, losses: Losses) -> Params:
    """The parameters within the vendor's limits; raises `Refused` if no valid value is close."""
    params = _sampling(params, limits, model, losses)
    changed = {
        "max_tokens": _tokens(params.max_tokens, limits, losses),
        "stop": _stops(params.stop, limits, model, losses),
        "temperature": _temperature(params.temperature, limits, losses),
        "seed": _seed(params.seed, limits, losses),
        "user": _user(params.user, limits, losses),
    }
    if all(getattr(params, name) == value for name, value in changed.items()):
        return params
    return structs.replace(params, **changed)


def _sampling(params: Params, limits: Limits, model: Model, losses: Losses) -> Params:
    """The parameters without the sampling that the model refuses."""
    reasoning = params.reasoning
    is_off = reasoning is not None and reasoning.effort == "none"
    free = limits.sampling_if_reasoning_off and is_off
    if not model.temperature and not free:
        for name in ("temperature", "top_p", "top_k"):
            params = _drop_sampling(params, name, losses)
    elif model.one_sampler and params.temperature is not None and params.top_p is not None:
        name = "temperature" if params.temperature == 1 else "top_p"
        params = _drop_sampling(params, name, losses)
    return params


def _drop_sampling(params: Params, name: str, losses: Losses) -> Params:
    value = getattr(params, name)
    if value is None:
        return params
    usual = value == 1 and name != "top_k"
    losses.param(name, "sampling_unsupported", f"{name} {value}", "form" if usual else "meaning")
    return structs.replace(params, **{name: None})


def _seed(value: int | None, limits: Limits, losses: Losses) -> int | None:
    if value is None or limits.seed is None or abs(value) <= limits.seed:
        return value
    losses.param("seed", "seed_dropped", value)
    return None


def _user(value: str | None, limits: Limits, losses: Losses) -> str | None:
    if value is None or limits.user is None or len(value) <= limits.user:
        return value
    losses.param("user", "user_shortened", value)
    return marked_id(value, limits.user)


def _temperature(value: float | None, limits: Limits, losses: Losses) -> float | None:
    if value is None:
        return None
    low, high = limits.temperature
    accepted = min(max(value, low), high)
    if accepted != value:
        losses.param("temperature", "temperature_clamped", f"{value} -> {accepted}")
    return accepted if accepted != value else value


def _stops(
    value: tuple[str, ...] | None, limits: Limits, model: Model, losses: Losses
) -> tuple[str, ...] | None:
    if not value:
        return value
    if not model.stop:
        losses.param("stop", "stop_sequences_dropped", len(value))
        return None
    accepted = value
    if not limits.blank_stops:
        accepted = tuple(stop for stop in value if stop and not stop.isspace())
        if accepted != value:
            losses.param("stop", "stop_sequences_dropped", len(value) - len(accepted))
    if limits.stops is not None and len(accepted) > limits.stops:
        losses.param("stop", "stop_sequences_dropped", len(accepted) - limits.stops)
        accepted = accepted[: limits.stops]
    return accepted or None


def _tokens(value: int | None, limits: Limits, losses: Losses) -> int | None:
    if value is None or value >= limits.tokens or (value == 0 and limits.allows_zero_tokens):
        return value
    if value < 1:
        path = losses.path(("params", "max_tokens"))
        raise Refused(f"must be at least 1 for this target, not {value}", param=path)
    losses.param("max_tokens", "max_tokens_raised", f"{value} -> {limits.tokens}")
    return limits.tokens


def with_named_json(request: Request, params: Params, model: Model, losses: Losses) -> Params:
    """The parameters, with JSON mode replaced by a schema where the vendor would refuse it.

    OpenAI's JSON mode needs the word "JSON" in the conversation; without it, the schema of any
    object does the same: https://platform.openai.com/docs/guides/structured-outputs#json-mode.
    Only the messages before the first answer count, because the schema is part of the prefix that
    the vendor caches: a later message must not change it.
    """
    shape = params.format
    if shape is None or shape.kind != "json" or not model.json_named:
        return params
    before = takewhile(lambda message: message.role != "assistant", request.messages)
    if any("json" in text.lower() for message in before for text in texts(message.blocks)):
        return params
    losses.param("format", "format_as_schema")
    return structs.replace(params, format=Format("schema", {"type": "object"}))
