"""Constants of Gemini's generateContent: https://ai.google.dev/api/generate-content"""

from weft.model import ErrorKind, StopKind

PROTOCOL = "gemini"

FORM = "@form"
"""The key in `Request.raw` for the original spelling of a body. It is never sent."""

REQUEST_SETUP = frozenset({"contents", "systemInstruction", "system_instruction", "tools", FORM})
"""Members for the conversation and the tools; all others are parameters."""

ROLES = {"user": "user", "model": "assistant", "function": "user"}
GEMINI_ROLES = {"user": "user", "assistant": "model", "tool": "user"}

STORED = ("gs://", "https://generativelanguage.googleapis.com/")
"""Prefixes of file addresses that only Google can open; any other address is a public URL."""

UNSIGNED = "skip_thought_signature_validator"
"""A placeholder signature for calls of other models, if the target requires a signature:
https://ai.google.dev/gemini-api/docs/thought-signatures"""

FINISH_REASONS: dict[str, StopKind] = {
    "STOP": "end",
    "MAX_TOKENS": "length",
    "SAFETY": "filter",
    "RECITATION": "filter",
    "LANGUAGE": "filter",
    "BLOCKLIST": "filter",
    "PROHIBITED_CONTENT": "filter",
    "SPII": "filter",
    "IMAGE_SAFETY": "filter",
    "IMAGE_PROHIBITED_CONTENT": "filter",
    "IMAGE_RECITATION": "filter",
}
"""https://ai.google.dev/api/generate-content#FinishReason; the others are `other`."""

FAILED_STOPS: dict[str, ErrorKind] = {
    "MALFORMED_FUNCTION_CALL": "server",
    "MALFORMED_RESPONSE": "server",
    "MISSING_THOUGHT_SIGNATURE": "invalid_request",
}
"""Finish reasons that always mean a failure, even after some content."""

FAILED_WITHOUT_CALL: dict[str, ErrorKind] = {
    "TOO_MANY_TOOL_CALLS": "server",
    "UNEXPECTED_TOOL_CALL": "server",
}
"""Finish reasons that mean a failure only if the answer does not contain the unexpected call. If
it does, the client can handle the call."""

KIND_FINISH_REASON: dict[StopKind, str] = {
    "end": "STOP",
    "tool": "STOP",
    "sequence": "STOP",
    "length": "MAX_TOKENS",
    "context": "MAX_TOKENS",
    "filter": "SAFETY",
    "refusal": "SAFETY",
    "pause": "OTHER",
    "other": "OTHER",
}

EXACT_STOPS: frozenset[StopKind] = frozenset({"end", "tool", "length", "filter"})
"""Stop kinds that this protocol can express exactly, with the parts of the answer."""
