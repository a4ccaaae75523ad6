"""Values of parameters that a vendor refuses, brought within its limits.

Each wire states in `Limits` what its vendor takes. A value beyond is moved to the nearest that is
taken, and reported: the caller meant "as much as can be". Where no value near says the same, the
request is refused here, with the caller's own path, and not by the vendor. Sampling that a model
does not let its callers choose, and stop sequences that it does not take, are left out, as the
catalogue tells.
"""

from itertools import takewhile

from msgspec import Struct, structs

from weft.catalog import Model
from weft.errors import Refused
from weft.model import Format, Params, Request, texts

from .base import Losses
from .call_ids import marked_id

OPENAI_EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"})
"""https://platform.openai.com/docs/api-reference/chat/create#chat-create-reasoning_effort"""


class Limits(Struct, frozen=True):
    """`tokens` is the least limit on an answer that is taken, `silence` whether none is, too;
    `seed` is the greatest number for one, `user` the longest name of one; `unthinking` is whether a
    model that is told not to think lets its callers choose the sampling."""

    temperature: tuple[float, float] = (0, 2)
    stops: int | None = None
    blank_stops: bool = True
    tokens: int = 1
    silence: bool = False
    seed: int | None = None
    user: int | None = None
    unthinking: bool = False


def within(params: Params, limits: Limits, model: Model, losses: Losses) -> Params:
    """The parameters as the vendor takes them; raises `Refused` where none would do."""
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
    """The parameters without the sampling that a model refuses: all of it, or one of the two."""
    free = limits.unthinking and params.reasoning is not None and params.reasoning.effort == "none"
    if not model.temperature and not free:
        for name in ("temperature", "top_p", "top_k"):
            params = _leave(params, name, losses)
    elif model.one_sampler and params.temperature is not None and params.top_p is not None:
        name = "temperature" if params.temperature == 1 else "top_p"
        params = _leave(params, name, losses)
    return params


def _leave(params: Params, name: str, losses: Losses) -> Params:
    value = getattr(params, name)
    if value is None:
        return params
    usual = value == 1 and name != "top_k"
    losses.param(name, "sampling_unsupported", f"{name} {value}", "form" if usual else "meaning")
    return structs.replace(params, **{name: None})


def _seed(given: int | None, limits: Limits, losses: Losses) -> int | None:
    if given is None or limits.seed is None or abs(given) <= limits.seed:
        return given
    losses.param("seed", "seed_dropped", given)
    return None


def _user(given: str | None, limits: Limits, losses: Losses) -> str | None:
    if given is None or limits.user is None or len(given) <= limits.user:
        return given
    losses.param("user", "user_shortened", given)
    return marked_id(given, limits.user)


def _temperature(given: float | None, limits: Limits, losses: Losses) -> float | None:
    if given is None:
        return None
    low, high = limits.temperature
    taken = min(max(given, low), high)
    if taken != given:
        losses.param("temperature", "temperature_clamped", f"{given} -> {taken}")
    return taken if taken != given else given


def _stops(
    given: tuple[str, ...] | None, limits: Limits, model: Model, losses: Losses
) -> tuple[str, ...] | None:
    if not given:
        return given
    if not model.stop:
        losses.param("stop", "stop_sequences_dropped", len(given))
        return None
    taken = given
    if not limits.blank_stops:
        taken = tuple(stop for stop in given if stop and not stop.isspace())
        if taken != given:
            losses.param("stop", "stop_sequences_dropped", len(given) - len(taken))
    if limits.stops is not None and len(taken) > limits.stops:
        f"the stop sequences after {taken[limits.stops - 1]!r}"
        losses.param("stop", "stop_sequences_dropped", len(taken) - limits.stops)
        taken = taken[: limits.stops]
    return taken or None


def _tokens(given: int | None, limits: Limits, losses: Losses) -> int | None:
    if given is None or given >= limits.tokens or (given == 0 and limits.silence):
        return given
    if given < 1:
        path = losses.path(("params", "max_tokens"))
        raise Refused(f"is {given}: an answer of no tokens cannot be asked for", param=path)
    losses.param("max_tokens", "max_tokens_raised", f"{given} -> {limits.tokens}")
    return limits.tokens


def with_named_json(request: Request, params: Params, model: Model, losses: Losses) -> Params:
    """The parameters, with the schema of any object for a model that answers in JSON only where
    somebody speaks of it, and nobody does before its first answer: whatever is said later changes
    no more how a request begins, of which the schema is a part for the vendor's cache.
    https://platform.openai.com/docs/guides/structured-outputs#json-mode"""
    shape = params.format
    if shape is None or shape.kind != "json" or not model.json_named:
        return params
    first = takewhile(lambda said: said.role != "assistant", request.messages)
    if any("json" in text.lower() for said in first for text in texts(said.blocks)):
        return params
    losses.param("format", "format_as_schema")
    return structs.replace(params, format=Format("schema", {"type": "object"}))
