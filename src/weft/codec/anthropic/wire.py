"""Constants of Anthropic Messages: https://platform.claude.com/docs/en/api/messages"""

import re

from weft.model import ErrorKind, StopKind

PROTOCOL = "anthropic"
VERSION = "2023-06-01"

DECODED_MEMBERS = frozenset({"model", "messages", "system", "tools"})
"""Members that `Request.raw` does not keep, because they are decoded completely. Only an empty or
null `tools` is kept."""

VALID_CALL_ID = re.compile(r"^[a-zA-Z0-9_-]+\Z")
INVALID_CALL_ID_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")

STOP_KINDS: dict[str, StopKind] = {
    "end_turn": "end",
    "max_tokens": "length",
    "tool_use": "tool",
    "stop_sequence": "sequence",
    "refusal": "refusal",
    "pause_turn": "pause",
    "model_context_window_exceeded": "context",
}
"""The stop kind of each `stop_reason`."""

STOP_REASON_BY_KIND: dict[StopKind, str] = {
    **{kind: reason for reason, kind in STOP_KINDS.items()},
    "filter": "refusal",
    "other": "end_turn",
}
"""The `stop_reason` for each stop kind."""

FAILED_STOPS: dict[str, ErrorKind] = {"error": "server"}
"""Stop reasons that mean a failure. Anthropic has none, but some servers that translate another
protocol into this one send this one."""

MAX_MARKS = 4
"""The maximum number of cache breakpoints in one request."""
