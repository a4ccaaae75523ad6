"""Token counts and finish reasons, both ways.

`prompt_tokens` counts all input, cached and written included, as the model does.
"""

from typing import Any

from weft.codec.base import Losses, members
from weft.codec.lenient import count_of
from weft.codec.refusals import declined
from weft.codec.reports import report_stop
from weft.model import JsonObject, Stop, StopKind, Usage

from .wire import FINISH_REASONS, FINISH_WORDS, PROTOCOL

SAME_WORD: frozenset[StopKind] = frozenset({"end", "length", "tool", "filter"})
"""Stop reasons that this protocol has a word for."""


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
    """The counts as this wire writes them; `None` where nothing was counted."""
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
    known = {key: value for key, value in details.items() if value is not None}
    if known:
        body["prompt_tokens_details"] = known
    if usage.reasoning is not None:
        body["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning}
    return body


def decode_stop(word: Any, *, calls: bool, refused: bool = False) -> Stop:
    """Why a whole answer ended.

    Some servers give no reason, and some say `stop` beside tool calls: the answer waits for their
    results all the same. A model that declines has ended its answer, too: only its words tell.
    """
    kind = FINISH_REASONS.get(str(word), "other") if word else "end"
    if kind == "end":
        kind = "tool" if calls else "refusal" if refused else kind
    return Stop(kind, None if word is None else str(word))


def finish_word(stop: Stop | None, losses: Losses, *, calls: bool, refused: bool = False) -> str:
    """The nearest word for another protocol's stop; what it does not say is reported.

    A refusal in words is a whole answer here, as the vendor's own are:
    https://platform.openai.com/docs/guides/structured-outputs#refusals
    """
    if stop is None:
        return "tool_calls" if calls else "stop"
    if stop.kind == "end" and calls:
        return "tool_calls"
    if declined(stop, refused=refused):
        return "stop"
    report_stop(stop, SAME_WORD, losses)
    return FINISH_WORDS[stop.kind]
