"""Google's error body, both ways: https://cloud.google.com/apis/design/errors

- `status` is a name from google.rpc.Code.
- `code` is the HTTP status.
- `details` names the invalid field, or says that the API key is invalid.
"""

from typing import Any, cast

from weft.codec.base import members
from weft.codec.errors import (
    KIND_STATUS,
    NO_REASON,
    STATUS_KINDS,
    error_status,
    error_text,
    kind_of,
)
from weft.model import ApiError, ErrorKind, JsonObject

from .wire import PROTOCOL

STATUSES: dict[str, ErrorKind] = {
    "INVALID_ARGUMENT": "invalid_request",
    "FAILED_PRECONDITION": "invalid_request",
    "OUT_OF_RANGE": "invalid_request",
    "ALREADY_EXISTS": "invalid_request",
    "ABORTED": "server",
    "CANCELLED": "timeout",
    "UNAUTHENTICATED": "authentication",
    "PERMISSION_DENIED": "permission",
    "NOT_FOUND": "not_found",
    "RESOURCE_EXHAUSTED": "rate_limit",
    "INTERNAL": "server",
    "UNKNOWN": "server",
    "DATA_LOSS": "server",
    "UNIMPLEMENTED": "invalid_request",
    "UNAVAILABLE": "overloaded",
    "DEADLINE_EXCEEDED": "timeout",
}
"""https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto"""

KIND_STATUS_NAME: dict[ErrorKind, str] = {
    "invalid_request": "INVALID_ARGUMENT",
    "context_length": "INVALID_ARGUMENT",
    "too_large": "INVALID_ARGUMENT",
    "authentication": "UNAUTHENTICATED",
    "permission": "PERMISSION_DENIED",
    "billing": "FAILED_PRECONDITION",
    "not_found": "NOT_FOUND",
    "rate_limit": "RESOURCE_EXHAUSTED",
    "overloaded": "UNAVAILABLE",
    "timeout": "DEADLINE_EXCEEDED",
    "server": "INTERNAL",
}

BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"
TOO_LONG = "the input token count exceeds the maximum number of tokens allowed"


def decode_error(body: Any, status: int) -> ApiError:
    """Read an error body; any other body is accepted too, and its text becomes the message."""
    items = cast("list[Any]", body) if isinstance(body, list) else []
    if items:  # a stream without SSE is a JSON array
        return decode_error(items[0], status)
    envelope = members(body) or {}
    error = members(envelope.get("error")) or {}
    status_name = error.get("status")
    message = error_text(cast(Any, body)) or NO_REASON
    code = error.get("code")
    status = status or (code if isinstance(code, int) else 0)
    details = _details(error)
    kind = STATUSES.get(str(status_name))
    if any(detail.get("reason") == "API_KEY_INVALID" for detail in details):
        kind = "authentication"
    if kind == "invalid_request" and status in STATUS_KINDS:
        kind = STATUS_KINDS[status]
    kind = kind_of(status, message, kind)
    other_members = {
        key: value for key, value in error.items() if key not in ("code", "message", "status")
    }
    return ApiError(
        kind,
        message,
        status or KIND_STATUS[kind],
        status_name if isinstance(status_name, str) else None,
        param=_field(details),
        ext={PROTOCOL: other_members} if other_members else None,
    )


def _details(error: JsonObject) -> list[JsonObject]:
    details = error.get("details")
    if not isinstance(details, list):
        return []
    return [detail for item in cast(list[Any], details) if (detail := members(item)) is not None]


def _field(details: list[JsonObject]) -> str | None:
    """The path of the invalid field, if the error names one."""
    for detail in details:
        violations = detail.get("fieldViolations")
        for item in cast(list[Any], violations) if isinstance(violations, list) else ():
            field = (members(item) or {}).get("field")
            if isinstance(field, str) and field:
                return field
    return None


def encode_error(error: ApiError) -> tuple[int, JsonObject]:
    """The status and body that a Gemini client understands."""
    other_members = (error.ext or {}).get(PROTOCOL, {})
    status = error_status(error)
    message = error.message
    if error.kind == "context_length" and "token count" not in message:
        message = f"{TOO_LONG}: {message}"
    status_name = error.type if error.type in STATUSES else KIND_STATUS_NAME[error.kind]
    body: JsonObject = {"code": status, "message": message, "status": status_name, **other_members}
    if error.param is not None and "details" not in body:
        violation = {"field": error.param, "description": error.message}
        body["details"] = [{"@type": BAD_REQUEST, "fieldViolations": [violation]}]
    return status, {"error": body}
