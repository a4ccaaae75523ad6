"""Token counts and finish reasons, both ways: https://ai.google.dev/api/generate-content#UsageMetadata

- `promptTokenCount` includes cached input.
- `candidatesTokenCount` excludes thoughts; `Usage.output` includes them.
- Tokens that Gemini's own tools read count as input.
"""

from typing import Any

from weft.codec.base import members
from weft.codec.lenient import count_of
from weft.model import JsonObject, Stop, Usage

from .wire import FINISH_REASONS, KIND_FINISH_REASON, PROTOCOL


def decode_usage(raw: Any) -> Usage | None:
    usage = members(raw)
    if usage is None:
        return None
    thoughts = count_of(usage, "thoughtsTokenCount")
    return Usage(
        input=_sum(count_of(usage, "promptTokenCount"), count_of(usage, "toolUsePromptTokenCount")),
        output=_sum(count_of(usage, "candidatesTokenCount"), thoughts),
        cached=count_of(usage, "cachedContentTokenCount"),
        reasoning=thoughts,
        raw={PROTOCOL: usage},
    )


def encode_usage(usage: Usage | None) -> JsonObject | None:
    """The counts in Gemini's form; `None` if there are none."""
    if usage is None:
        return None
    if usage.raw is not None and PROTOCOL in usage.raw:
        return dict(usage.raw[PROTOCOL])
    body: JsonObject = {}
    if usage.input is not None:
        body["promptTokenCount"] = usage.input
    if usage.cached is not None:
        body["cachedContentTokenCount"] = usage.cached
    if usage.output is not None:
        body["candidatesTokenCount"] = max(0, usage.output - (usage.reasoning or 0))
    if usage.reasoning is not None:
        body["thoughtsTokenCount"] = usage.reasoning
    if body:
        body["totalTokenCount"] = (usage.input or 0) + (usage.output or 0)
    return body or None


def decode_stop(candidate: JsonObject, called: bool) -> Stop | None:
    """Why a candidate ended; `called` tells apart calls and text, which both end with `STOP`."""
    reason = candidate.get("finishReason")
    if not isinstance(reason, str):
        return None
    kind = FINISH_REASONS.get(reason, "other")
    if called and kind == "end":
        kind = "tool"
    return Stop(kind, reason, details=candidate.get("finishMessage"))


def decode_block(feedback: Any) -> Stop | None:
    """The stop of a prompt that was blocked before any answer."""
    raw = members(feedback)
    if raw is None or "blockReason" not in raw:
        return None
    return Stop("filter", str(raw["blockReason"]), details=raw)


def finish_reason(stop: Stop) -> str:
    """The original reason of a Gemini answer, else the nearest one."""
    reason = stop.raw or ""
    if reason.isupper() and FINISH_REASONS.get(reason, "other") in (stop.kind, "end"):
        return reason
    return KIND_FINISH_REASON[stop.kind]


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None and second is None else (first or 0) + (second or 0)
