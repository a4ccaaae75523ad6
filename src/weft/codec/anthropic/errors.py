"""Anthropic's error body, both ways: https://platform.claude.com/docs/en/api/errors"""

from typing import Any

from weft.codec.base import members
from weft.codec.errors import KIND_STATUS, NO_REASON, error_status, error_text, kind_of
from weft.model import ApiError, ErrorKind, JsonObject

from .wire import PROTOCOL

TYPES: dict[str, ErrorKind] = {
    "invalid_request_error": "invalid_request",
    "authentication_error": "authentication",
    "billing_error": "billing",
    "permission_error": "permission",
    "not_found_error": "not_found",
    "request_too_large": "too_large",
    "rate_limit_error": "rate_limit",
    "timeout_error": "timeout",
    "api_error": "server",
    "overloaded_error": "overloaded",
}

KIND_TYPE: dict[ErrorKind, str] = {
    **{kind: name for name, kind in TYPES.items()},
    "context_length": "invalid_request_error",
}

STATUSES: dict[ErrorKind, int] = {**KIND_STATUS, "overloaded": 529}


def decode_error(body: Any, status: int) -> ApiError:
    """Read an error body; any other body is accepted too, and its text becomes the message."""
    envelope = members(body) or {}
    error = members(envelope.get("error")) or {}
    error_type = error.get("type")
    message = error_text(body) or NO_REASON
    kind = kind_of(status, message, TYPES.get(str(error_type)))
    other_members = {key: value for key, value in envelope.items() if key not in ("type", "error")}
    return ApiError(
        kind,
        message,
        status or STATUSES[kind],
        error_type if isinstance(error_type, str) else None,
        ext={PROTOCOL: other_members} if other_members else None,
    )


def encode_error(error: ApiError) -> tuple[int, JsonObject]:
    """The status and body that an Anthropic client understands.

    Claude Code compacts when it reads "prompt is too long", so the message for a full context
    window begins with that phrase.
    """
    error_type = error.type if error.type in TYPES else KIND_TYPE[error.kind]
    message = error.message
    if error.kind == "context_length" and "prompt is too long" not in message.lower():
        message = f"prompt is too long: {message}"
    if error.param is not None and error.param not in message:
        message = f"{error.param}: {message}"
    body: JsonObject = {"type": "error", "error": {"type": error_type, "message": message}}
    if error.ext is not None:
        body.update(error.ext.get(PROTOCOL, {}))
    return error_status(error, STATUSES), body
