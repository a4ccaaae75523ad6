"""Errors of Responses: OpenAI's common error body, and two forms that only streams have.

An `error` event is the error itself. A `response.failed` event has it inside the response:
https://platform.openai.com/docs/api-reference/responses-streaming/response/failed
"""

from typing import Any

from weft.codec.base import members
from weft.codec.errors import NO_REASON
from weft.codec.openai_errors import decode_error, encode_error
from weft.model import ApiError, ErrorKind, JsonObject

CODES: dict[ErrorKind, str] = {
    "context_length": "context_length_exceeded",
    "rate_limit": "rate_limit_exceeded",
    "billing": "insufficient_quota",
    "invalid_request": "invalid_prompt",
    "overloaded": "server_is_overloaded",
}
"""The `code` to send in a stream for each kind; all other kinds are `server_error`."""


def decode_failure(error: Any) -> ApiError:
    """The reason of a failed response, or the members of an `error` event."""
    if isinstance(error, str) and error:
        return decode_error({"error": error}, 0)
    fields = members(error) or {}
    inner = members(fields.get("error")) or fields
    if not inner:
        return ApiError("server", NO_REASON)
    return decode_error({"error": {**inner, "type": inner.get("error_type")}}, 0)


def encode_failure(error: ApiError) -> JsonObject:
    """The `error` of a failed response."""
    return {"code": CODES.get(error.kind, "server_error"), "message": error.message}


__all__ = ["decode_error", "decode_failure", "encode_error", "encode_failure"]
