"""Token counts and why an answer ended, both ways."""

from typing import Any

from weft.codec.base import Losses, members
from weft.codec.lenient import count_of
from weft.codec.refusals import declined
from weft.codec.reports import report_stop
from weft.model import JsonObject, Stop, StopKind, Usage

from .wire import INCOMPLETE, INCOMPLETE_WORDS, POLICIES, PROTOCOL

SAME_WORD: frozenset[StopKind] = frozenset({"end", "length", "tool", "filter"})
"""Stop reasons that this protocol has a word for, or that its items tell."""


def decode_usage(raw: Any) -> Usage | None:
    usage = members(raw)
    if usage is None:
        return None
    into = members(usage.get("input_tokens_details")) or {}
    out = members(usage.get("output_tokens_details")) or {}
    return Usage(
        input=count_of(usage, "input_tokens"),
        output=count_of(usage, "output_tokens"),
        cached=count_of(into, "cached_tokens"),
        written=count_of(into, "cache_write_tokens"),
        reasoning=count_of(out, "reasoning_tokens"),
        raw={PROTOCOL: usage},
    )


def encode_usage(usage: Usage | None) -> JsonObject | None:
    """The counts as this vendor writes them; its schema demands every one."""
    if usage is None:
        return None
    if usage.raw is not None and PROTOCOL in usage.raw:
        return usage.raw[PROTOCOL]
    into = {"cached_tokens": usage.cached or 0, "cache_write_tokens": usage.written or 0}
    return {
        "input_tokens": usage.input or 0,
        "input_tokens_details": into,
        "output_tokens": usage.output or 0,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": (usage.input or 0) + (usage.output or 0),
    }


def decode_stop(response: JsonObject, *, called: bool, refused: bool) -> Stop | None:
    """Why it ended. The wire says only `completed`; what was completed says the rest.

    What a policy forbids is a refusal, as it is on wires that have no failure for it.
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
        why = {"category": POLICIES[code], "explanation": error.get("message")}
        return Stop("refusal", code, details=why)
    if status == "incomplete":
        return Stop(INCOMPLETE.get(str(reason), "other"), reason or status)
    return Stop("other", str(status))


def refused_by(response: JsonObject) -> tuple[str, JsonObject] | None:
    """The policy by which a failed response was refused, and its error; none where it broke."""
    error = members(response.get("error"))
    code = error.get("code") if error is not None else None
    if error is None or response.get("status") != "failed" or code not in POLICIES:
        return None
    return str(code), error


def encode_status(
    stop: Stop | None, losses: Losses, *, refused: bool = False
) -> tuple[str, JsonObject | None]:
    """The words `status` and `incomplete_details` for an answer of another protocol.

    A refusal in words is a whole answer here, as the vendor's own are:
    https://platform.openai.com/docs/guides/structured-outputs#refusals
    """
    if stop is not None and declined(stop, refused=refused):
        return "completed", None
    report_stop(stop, SAME_WORD, losses)
    reason = INCOMPLETE_WORDS.get(stop.kind) if stop is not None else None
    return ("completed", None) if reason is None else ("incomplete", {"reason": reason})
