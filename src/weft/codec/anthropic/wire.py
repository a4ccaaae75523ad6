"""Constants of Anthropic Messages: https://platform.claude.com/docs/en/api/messages"""

import re

from weft.model import ErrorKind, StopKind

PROTOCOL = "anthropic"
VERSION = "2023-06-01"

DECODED_MEMBERS = frozenset({"model", "messages", "system", "tools"})
"""Members that are decoded completely. `Request.raw` keeps all others."""

LEGAL_CALL_ID = re.compile(r"^[a-zA-Z0-9_-]+\Z")
REFUSED_IN_CALL_ID = re.compile(r"[^a-zA-Z0-9_-]")

STOP_REASONS: dict[str, StopKind] = {
    "end_turn": "end",
    "max_tokens": "length",
    "tool_use": "tool",
    "stop_sequence": "sequence",
    "refusal": "refusal",
    "pause_turn": "pause",
    "model_context_window_exceeded": "context",
}

KIND_STOP_REASON: dict[StopKind, str] = {
    **{kind: reason for reason, kind in STOP_REASONS.items()},
    "filter": "refusal",
    "other": "end_turn",
}

FAILED_STOPS: dict[str, ErrorKind] = {"error": "server"}
"""Stop reasons that mean a failure. Anthropic has none, but some servers that translate another
protocol into this one send this one."""

MAX_MARKS = 4
"""The maximum number of cache breakpoints in one request."""
