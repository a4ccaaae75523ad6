"""Token counts and stop reasons, both ways.

Anthropic counts cached input beside `input_tokens`; the model counts all input as one figure.
"""

from typing import Any

from msgspec import structs

from weft.codec.base import Losses, members
from weft.codec.lenient import count_of
from weft.codec.read import optional
from weft.codec.refusals import explanation
from weft.codec.reports import report_stop
from weft.model import JsonObject, Stop, Usage

from .wire import PROTOCOL, STOP_REASONS, STOP_WORDS

SAME_WORD = frozenset(STOP_REASONS.values())
"""Stop reasons that this protocol has a word for."""


def decode_usage(raw: Any) -> Usage | None:
    usage = members(raw)
    if usage is None:
        return None
    fresh = count_of(usage, "input_tokens")
    cached = count_of(usage, "cache_read_input_tokens")
    written = _written(usage)
    details = members(usage.get("output_tokens_details")) or {}
    return Usage(
        input=None if fresh is None else fresh + (cached or 0) + (written or 0),
        output=count_of(usage, "output_tokens"),
        cached=cached,
        written=written,
        reasoning=count_of(details, "thinking_tokens"),
        raw={PROTOCOL: usage},
    )


def _written(usage: JsonObject) -> int | None:
    """What went into the cache: the sum that is told, else the sum of what each lifetime took."""
    told = count_of(usage, "cache_creation_input_tokens")
    lives = members(usage.get("cache_creation"))
    if told is not None or not lives:
        return told
    return sum(count for count in lives.values() if isinstance(count, int))


def decode_rest(first: JsonObject, raw: Any) -> Usage | None:
    """The counts of the last event of a stream, which leaves out those that the first one told:
    the sum of all input needs both. They are kept as they came."""
    last = members(raw)
    if last is None:
        return None
    told = {key: value for key, value in last.items() if value is not None}
    usage = decode_usage({**first, **told})
    return None if usage is None else structs.replace(usage, raw={PROTOCOL: last})


def encode_usage(usage: Usage | None, *, partial: bool = False) -> JsonObject:
    """The counts as Anthropic writes them; `partial` leaves out what is not known yet."""
    if usage is not None and usage.raw is not None and PROTOCOL in usage.raw:
        return dict(usage.raw[PROTOCOL])
    usage = usage or Usage()
    body: JsonObject = {}
    if usage.input is not None or not partial:
        body["input_tokens"] = max(
            0, (usage.input or 0) - (usage.cached or 0) - (usage.written or 0)
        )
    if usage.written is not None:
        body["cache_creation_input_tokens"] = usage.written
    if usage.cached is not None:
        body["cache_read_input_tokens"] = usage.cached
    body["output_tokens"] = usage.output or 0
    return body


def decode_stop(raw: JsonObject) -> Stop | None:
    word = optional(raw, "stop_reason", str)
    if word is None:
        return None
    return Stop(
        STOP_REASONS.get(word, "other"),
        word,
        optional(raw, "stop_sequence", str),
        raw.get("stop_details"),
    )


def stop_word(stop: Stop | None, losses: Losses, *, native: bool) -> str | None:
    """Anthropic's own word where it was Anthropic's, else the nearest one, reported."""
    if stop is None or (native and stop.raw is not None):
        return stop.raw if stop is not None else None
    told = structs.replace(stop, details=None) if explanation(stop) else stop
    report_stop(told, SAME_WORD, losses, "sequence")
    return STOP_WORDS[stop.kind]


def stop_details(stop: Stop | None) -> JsonObject | None:
    """What another protocol's maker explains about a refusal, where this one does."""
    words = explanation(stop)
    if stop is None or not words:
        return None
    category = (members(stop.details) or {}).get("category")
    return {"type": "refusal", "category": category, "explanation": words}
