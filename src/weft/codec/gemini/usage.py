"""Token counts and finish reasons, both ways: https://ai.google.dev/api/generate-content#UsageMetadata

Gemini counts cached input inside `promptTokenCount`, and thoughts beside the answer's own tokens;
the model counts all output as one figure. What its own tools read is input, too.
"""

from typing import Any

from weft.codec.base import members
from weft.codec.lenient import count_of
from weft.model import JsonObject, Stop, Usage

from .wire import FINISH_REASONS, FINISH_WORDS, PROTOCOL


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
    """The counts as Gemini writes them; nothing where nothing was counted."""
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
    """Why a candidate ended. Gemini says `STOP` for calls, too: `called` is whether it made any."""
    word = candidate.get("finishReason")
    if not isinstance(word, str):
        return None
    kind = FINISH_REASONS.get(word, "other")
    if called and kind == "end":
        kind = "tool"
    return Stop(kind, word, details=candidate.get("finishMessage"))


def decode_block(feedback: Any) -> Stop | None:
    """A prompt that was refused before any answer."""
    raw = members(feedback)
    if raw is None or "blockReason" not in raw:
        return None
    return Stop("filter", str(raw["blockReason"]), details=raw)


def finish_word(stop: Stop) -> str:
    """Gemini's own word where it was Gemini's, else the nearest one."""
    word = stop.raw or ""
    if word.isupper() and FINISH_REASONS.get(word, "other") in (stop.kind, "end"):
        return word
    return FINISH_WORDS[stop.kind]


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None and second is None else (first or 0) + (second or 0)
