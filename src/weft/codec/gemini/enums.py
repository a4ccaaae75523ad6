"""Names of enum values that are written as numbers.

Google's REST clients ask for `$alt=json;enum-encoding=int`, so that enums come as the numbers of
the protocol buffers, and they send numbers too. The two APIs number some finish reasons
differently:

https://github.com/googleapis/googleapis/blob/master/google/cloud/aiplatform/v1/content.proto
https://github.com/googleapis/googleapis/blob/master/google/ai/generativelanguage/v1beta/generative_service.proto
"""

from collections.abc import Sequence
from typing import Any

from weft.codec.base import as_object
from weft.model import JsonObject

UNSPECIFIED = "FINISH_REASON_UNSPECIFIED"
"""The first value of the enum. The answer has not stopped."""

VERTEX_REASONS = (
    UNSPECIFIED,
    "STOP",
    "MAX_TOKENS",
    "SAFETY",
    "RECITATION",
    "OTHER",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "MALFORMED_FUNCTION_CALL",
    "MODEL_ARMOR",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
    "IMAGE_OTHER",
    "UNEXPECTED_TOOL_CALL",
    "NO_IMAGE",
)
GEMINI_REASONS = (
    UNSPECIFIED,
    "STOP",
    "MAX_TOKENS",
    "SAFETY",
    "RECITATION",
    "OTHER",
    "LANGUAGE",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "MALFORMED_FUNCTION_CALL",
    "IMAGE_SAFETY",
    "UNEXPECTED_TOOL_CALL",
    "TOO_MANY_TOOL_CALLS",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_OTHER",
    "NO_IMAGE",
    "IMAGE_RECITATION",
)
BLOCK_REASONS = (
    "BLOCK_REASON_UNSPECIFIED",
    "SAFETY",
    "OTHER",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
)
"""The block reasons that both APIs number alike; all others are blocks, too."""

SCHEMA_TYPES = (
    "TYPE_UNSPECIFIED",
    "STRING",
    "NUMBER",
    "INTEGER",
    "BOOLEAN",
    "ARRAY",
    "OBJECT",
    "NULL",
)
CALLING_MODES = ("MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED", "VALIDATED")
"""`VALIDATED` is 4 in one API and 5 in the other."""
THINKING_LEVELS = ("THINKING_LEVEL_UNSPECIFIED", "LOW", "MEDIUM", "HIGH")


def enum_name(value: Any, names: Sequence[str]) -> Any:
    """The name of a number; any other value is unchanged, and an unknown number becomes text."""
    if type(value) is not int:
        return value
    return names[value] if 0 <= value < len(names) else str(value)


def is_vertex(body: JsonObject) -> bool:
    """Whether an answer is from Vertex AI, by members that only Vertex AI has."""
    return "createTime" in body or "trafficType" in (as_object(body.get("usageMetadata")) or {})


def finish_reasons(body: JsonObject) -> tuple[str, ...]:
    """The numbering of the API that an answer is from."""
    return VERTEX_REASONS if is_vertex(body) else GEMINI_REASONS
