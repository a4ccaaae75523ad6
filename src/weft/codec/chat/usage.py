"""Token counts and finish reasons, both ways.

`prompt_tokens` counts all input, including tokens read from and written to the cache, like
`Usage.input`.
"""

from typing import Any

from weft.codec.base import Losses, members
from weft.codec.lenient import count_of
from weft.codec.refusals import declined
from weft.codec.reports import report_stop
from weft.model import JsonObject, Stop, StopKind, Usage

from .wire import FINISH_REASONS, KIND_FINISH_REASON, PROTOCOL

EXACT_STOPS: frozenset[StopKind] = frozenset({"end", "length", "tool", "filter"})
"""Stop kinds that this protocol can express exactly."""


def decode_usage(raw: Any) -> Usage | None:
    usage = members(raw)
    if usage is None:
        return None
    prompt = members(usage.get("prompt_tokens_details")) or {}
    completion = members(usage.get("completion_tokens_details")) or {}
    return Usage(
        input=count_of(usage, "prompt_tokens"),
        output=count_of(usage, "completion_tokens"),
        cached=count_of(prompt, "cached_tokens"),
        written=count_of(prompt, "cache_write_tokens"),
        reasoning=count_of(completion, "reasoning_tokens"),
        raw={PROTOCOL: usage},
    )


def encode_usage(usage: Usage | None) -> JsonObject | None:
    """The counts in this protocol's form; `None` if there are none."""
    if usage is None:
        return None
    if usage.raw is not None and PROTOCOL in usage.raw:
        return dict(usage.raw[PROTOCOL])
    input_tokens, output_tokens = usage.input or 0, usage.output or 0
    body: JsonObject = {
        "prompt_tokens": input_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
    }
    details = {"cached_tokens": usage.cached, "cache_write_tokens": usage.written}
    details = {key: value for key, value in details.items() if value is not None}
    if details:
        body["prompt_tokens_details"] = details
    if usage.reasoning is not None:
        body["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning}
    return body


def decode_stop(reason: Any, *, calls: bool, refused: bool = False) -> Stop:
    """Why an answer ended.

    Some servers send no reason, or `stop` for an answer with tool calls. The kind is `tool` then.
    An answer with a refusal also ends with `stop`; its kind is `refusal`.
    """
    kind = FINISH_REASONS.get(str(reason), "other") if reason else "end"
    if kind == "end":
        kind = "tool" if calls else "refusal" if refused else kind
    return Stop(kind, None if reason is None else str(reason))


def finish_reason(stop: Stop | None, losses: Losses, *, calls: bool, refused: bool = False) -> str:
    """The nearest reason for another protocol's stop; an inexact one is reported.

    A refusal with text is a complete answer, as it is in OpenAI's own answers:
    https://platform.openai.com/docs/guides/structured-outputs#refusals
    """
    if stop is None:
        return "tool_calls" if calls else "stop"
    if stop.kind == "end" and calls:
        return "tool_calls"
    if declined(stop, refused=refused):
        return "stop"
    report_stop(stop, EXACT_STOPS, losses)
    return KIND_FINISH_REASON[stop.kind]
