"""Token counts and stop reasons, both ways."""

from typing import Any

from weft.codec.base import Losses, members
from weft.codec.lenient import count_of
from weft.codec.refusals import declined
from weft.codec.reports import report_stop
from weft.model import JsonObject, Stop, StopKind, Usage

from .wire import INCOMPLETE_REASONS, KIND_INCOMPLETE_REASON, POLICIES, PROTOCOL

EXACT_STOPS: frozenset[StopKind] = frozenset({"end", "length", "tool", "filter"})
"""Stop kinds that this protocol can express exactly, with the items of the answer."""


def decode_usage(raw: Any) -> Usage | None:
    usage = members(raw)
    if usage is None:
        return None
    input_details = members(usage.get("input_tokens_details")) or {}
    output_details = members(usage.get("output_tokens_details")) or {}
    return Usage(
        input=count_of(usage, "input_tokens"),
        output=count_of(usage, "output_tokens"),
        cached=count_of(input_details, "cached_tokens"),
        written=count_of(input_details, "cache_write_tokens"),
        reasoning=count_of(output_details, "reasoning_tokens"),
        raw={PROTOCOL: usage},
    )


def encode_usage(usage: Usage | None) -> JsonObject | None:
    """The counts in OpenAI's form; its schema requires all of them."""
    if usage is None:
        return None
    if usage.raw is not None and PROTOCOL in usage.raw:
        return usage.raw[PROTOCOL]
    input_details = {"cached_tokens": usage.cached or 0, "cache_write_tokens": usage.written or 0}
    return {
        "input_tokens": usage.input or 0,
        "input_tokens_details": input_details,
        "output_tokens": usage.output or 0,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": (usage.input or 0) + (usage.output or 0),
    }


def decode_stop(response: JsonObject, *, called: bool, refused: bool) -> Stop | None:
    """Why a response ended.

    The `status` is `completed` for text, tool calls and refusals alike; `called` and `refused` tell
    them apart. A failure because of a policy becomes a refusal, as other protocols have it.
    """
    status = response.get("status")
    if status is None:
        return None
    if status == "completed":
        return Stop("tool" if called else "refusal" if refused else "end", "completed")
    details = members(response.get("incomplete_details")) or {}
    reason = details.get("reason")
    policy = refused_by(response)
    if policy is not None:
        code, error = policy
        refusal_details = {"category": POLICIES[code], "explanation": error.get("message")}
        return Stop("refusal", code, details=refusal_details)
    if status == "incomplete":
        return Stop(INCOMPLETE_REASONS.get(str(reason), "other"), reason or status)
    return Stop("other", str(status))


def refused_by(response: JsonObject) -> tuple[str, JsonObject] | None:
    """The policy code and the error of a response that a policy refused, else `None`."""
    error = members(response.get("error"))
    code = error.get("code") if error is not None else None
    if error is None or response.get("status") != "failed" or code not in POLICIES:
        return None
    return str(code), error


def encode_status(
    stop: Stop | None, losses: Losses, *, refused: bool = False
) -> tuple[str, JsonObject | None]:
    """The `status` and `incomplete_details` for an answer of another protocol.

    A refusal with text is a complete answer, as it is in OpenAI's own answers:
    https://platform.openai.com/docs/guides/structured-outputs#refusals
    """
    if stop is not None and declined(stop, refused=refused):
        return "completed", None
    report_stop(stop, EXACT_STOPS, losses)
    reason = KIND_INCOMPLETE_REASON.get(stop.kind) if stop is not None else None
    return ("completed", None) if reason is None else ("incomplete", {"reason": reason})
