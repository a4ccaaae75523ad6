"""Anthropic Messages, in its own words: https://platform.claude.com/docs/en/api/messages"""

import re

from weft.model import ErrorKind, StopKind

PROTOCOL = "anthropic"
VERSION = "2023-06-01"

REQUEST_SETUP = frozenset({"model", "messages", "system", "tools"})
"""Members that the conversation and the tools are made of; the rest are parameters."""

CALL_ID = re.compile(r"^[a-zA-Z0-9_-]+\Z")
CALL_ID_REFUSES = re.compile(r"[^a-zA-Z0-9_-]")

STOP_REASONS: dict[str, StopKind] = {
    "end_turn": "end",
    "max_tokens": "length",
    "tool_use": "tool",
    "stop_sequence": "sequence",
    "refusal": "refusal",
    "pause_turn": "pause",
    "model_context_window_exceeded": "context",
}

STOP_WORDS: dict[StopKind, str] = {
    **{kind: word for word, kind in STOP_REASONS.items()},
    "filter": "refusal",
    "other": "end_turn",
}

FAILED_STOPS: dict[str, ErrorKind] = {"error": "server"}
"""Stop reasons that mean a failure. The vendor has none; servers that translate another protocol
into this one pass theirs on."""

MAX_MARKS = 4
"""Breakpoints that one request may carry."""
