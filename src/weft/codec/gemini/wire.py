"""Constants of Gemini's generateContent: https://ai.google.dev/api/generate-content"""

from weft.model import ErrorKind, StopKind

PROTOCOL = "gemini"

FORM = "@form"
"""The key in `Request.raw` for the original spelling of a body. It is never sent."""

DECODED_MEMBERS = frozenset({"contents", "systemInstruction", "system_instruction", "tools", FORM})
"""Members that `Request.raw` does not keep, because they are decoded completely. Only nulls are
kept."""

ROLES = {"user": "user", "model": "assistant", "function": "user"}
GEMINI_ROLES = {"user": "user", "assistant": "model", "tool": "user"}

GOOGLE_FILE_PREFIXES = ("gs://", "https://generativelanguage.googleapis.com/")
"""Prefixes of file URIs that only Google can open; any other URI is a public URL."""

PLACEHOLDER_SIGNATURE = "skip_thought_signature_validator"
"""The signature for calls of other models, if the target requires one:
https://ai.google.dev/gemini-api/docs/thought-signatures"""

STOP_KINDS: dict[str, StopKind] = {
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
"""The stop kind of each `finishReason`; all others are decoded to `other`:
https://ai.google.dev/api/generate-content#FinishReason"""

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
"""Finish reasons that mean a failure only if the answer contains no call. If it contains one, the
client can handle it."""

STOP_REASON_BY_KIND: dict[StopKind, str] = {
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
"""The `finishReason` for each stop kind."""

EXACT_STOPS: frozenset[StopKind] = frozenset({"end", "tool", "length", "filter"})
"""Stop kinds that this protocol can express exactly, with the parts of the answer."""
