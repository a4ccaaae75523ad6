"""Token counts and stop reasons, both ways.

Anthropic's `input_tokens` excludes cached input. `Usage.input` includes it.
"""

from typing import Any

from msgspec import structs

from weft.codec.base import Losses, members
from weft.codec.lenient import count_of
from weft.codec.read import optional
from weft.codec.refusals import explanation
from weft.codec.reports import report_stop
from weft.model import JsonObject, Stop, Usage

from .wire import KIND_STOP_REASON, PROTOCOL, STOP_REASONS

EXACT_STOPS = frozenset(STOP_REASONS.values())
"""Stop kinds that this protocol can express exactly."""


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
    """Tokens written to the cache: the reported total, else the sum over the cache lifetimes."""
    total = count_of(usage, "cache_creation_input_tokens")
    by_lifetime = members(usage.get("cache_creation"))
    if total is not None or not by_lifetime:
        return total
    return sum(count for count in by_lifetime.values() if isinstance(count, int))


def decode_final_usage(first: JsonObject, raw: Any) -> Usage | None:
    """The usage at the end of a stream.

    The last event omits counts that were in the first event (`first`), but the total input needs
    both. `raw` keeps only the last event.
    """
    last = members(raw)
    if last is None:
        return None
    counts = {key: value for key, value in last.items() if value is not None}
    usage = decode_usage({**first, **counts})
    return None if usage is None else structs.replace(usage, raw={PROTOCOL: last})


def encode_usage(usage: Usage | None, *, partial: bool = False) -> JsonObject:
    """The counts in Anthropic's form; with `partial`, unknown counts are omitted."""
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
    reason = optional(raw, "stop_reason", str)
    if reason is None:
        return None
    return Stop(
        STOP_REASONS.get(reason, "other"),
        reason,
        optional(raw, "stop_sequence", str),
        raw.get("stop_details"),
    )


def stop_reason(stop: Stop | None, losses: Losses, *, native: bool) -> str | None:
    """The original reason of an Anthropic answer, else the nearest one; inexact ones are reported.

    Details that `stop_details` writes are not reported as lost.
    """
    if stop is None or (native and stop.raw is not None):
        return stop.raw if stop is not None else None
    reported_stop = structs.replace(stop, details=None) if explanation(stop) else stop
    report_stop(reported_stop, EXACT_STOPS, losses, "sequence")
    return KIND_STOP_REASON[stop.kind]


def stop_details(stop: Stop | None) -> JsonObject | None:
    """The `stop_details` for another protocol's explanation of a refusal, if there is one."""
    text = explanation(stop)
    if stop is None or not text:
        return None
    category = (members(stop.details) or {}).get("category")
    return {"type": "refusal", "category": category, "explanation": text}
