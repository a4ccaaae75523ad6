"""Values of parameters that a vendor refuses, brought within its limits.

Each wire states in `Limits` what its vendor takes. A value beyond is moved to the nearest that is
taken, and reported: the caller meant "as much as can be". Where no value near says the same, the
request is refused here, with the caller's own path, and not by the vendor.
"""

from msgspec import Struct, structs

from weft.errors import Refused
from weft.model import Params

from .base import Losses


class Limits(Struct, frozen=True):
    """`tokens` is the least limit on an answer that is taken; `silence` whether none is, too."""

    temperature: tuple[float, float] = (0, 2)
    stops: int | None = None
    blank_stops: bool = True
    tokens: int = 1
    silence: bool = False


def within(params: Params, limits: Limits, losses: Losses) -> Params:
    """The parameters as the vendor takes them; raises `Refused` where none would do."""
    changed = {
        "max_tokens": _tokens(params.max_tokens, limits, losses),
        "stop": _stops(params.stop, limits, losses),
        "temperature": _temperature(params.temperature, limits, losses),
    }
    if all(getattr(params, name) == value for name, value in changed.items()):
        return params
    return structs.replace(params, **changed)


def _temperature(given: float | None, limits: Limits, losses: Losses) -> float | None:
    if given is None:
        return None
    low, high = limits.temperature
    taken = min(max(given, low), high)
    if taken != given:
        what = f"the temperature {given}, now {taken}"
        losses.param("temperature", what, f"it goes from {low} to {high} here")
    return taken if taken != given else given


def _stops(given: tuple[str, ...] | None, limits: Limits, losses: Losses) -> tuple[str, ...] | None:
    if not given:
        return given
    taken = given
    if not limits.blank_stops:
        taken = tuple(stop for stop in given if stop and not stop.isspace())
        if taken != given:
            losses.param("stop", "a blank stop sequence", "it must say something here")
    if limits.stops is not None and len(taken) > limits.stops:
        what = f"the stop sequences after {taken[limits.stops - 1]!r}"
        losses.param("stop", what, f"there are at most {limits.stops} here")
        taken = taken[: limits.stops]
    return taken or None


def _tokens(given: int | None, limits: Limits, losses: Losses) -> int | None:
    if given is None or given >= limits.tokens or (given == 0 and limits.silence):
        return given
    if given < 1:
        path = losses.path(("params", "max_tokens"))
        raise Refused(f"is {given}: an answer of no tokens cannot be asked for", param=path)
    what = f"the limit {given}, now {limits.tokens}"
    losses.param("max_tokens", what, "a smaller one is refused here")
    return limits.tokens
