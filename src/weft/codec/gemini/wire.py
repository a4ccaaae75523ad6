"""Gemini's generateContent, in its own words: https://ai.google.dev/api/generate-content"""

from weft.model import ErrorKind, StopKind

PROTOCOL = "gemini"

FORM = "@form"
"""The key of `Request.raw` that keeps how a body was spelt. It is never sent."""

REQUEST_SETUP = frozenset({"contents", "systemInstruction", "system_instruction", "tools", FORM})
"""Members that the conversation and the tools are made of; the rest are parameters."""

ROLES = {"user": "user", "model": "assistant", "function": "user"}
ROLE_WORDS = {"user": "user", "assistant": "model", "tool": "user"}

STORED = ("gs://", "https://generativelanguage.googleapis.com/")
"""How the address of a file begins that only Google can open; any other is a public URL."""

UNSIGNED = "skip_thought_signature_validator"
"""The signature of a call that another model made, for models which demand one:
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
"""Finish reasons that mean a failure, whatever came before them."""

FAILED_WITHOUT_CALL: dict[str, ErrorKind] = {
    "TOO_MANY_TOOL_CALLS": "server",
    "UNEXPECTED_TOOL_CALL": "server",
}
"""Finish reasons about a call that was not expected. Where the answer holds the call, its caller
can deal with it; where it does not, nothing was answered."""

FINISH_WORDS: dict[StopKind, str] = {
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

SAME_WORD: frozenset[StopKind] = frozenset({"end", "tool", "length", "filter"})
"""Stop reasons that this protocol has a word for, or that its parts tell."""
