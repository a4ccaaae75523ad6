"""Error bodies and token counts, which Chat Completions and Responses share.

https://platform.openai.com/docs/guides/error-codes
"""

from typing import Any

from weft.model import ApiError, ErrorKind, JsonObject, Usage

from .base import as_object
from .errors import (
    NO_REASON,
    STATUS_BY_KIND,
    STATUS_KINDS,
    error_status,
    error_text,
    kind_of,
)
from .lenient import count_of

EXT_KEY = "openai-chat"
"""The key of `ApiError.ext` that keeps the original error body, for both protocols."""

CODES: dict[str, ErrorKind] = {
    "previous_response_not_found": "invalid_request",
    "context_length_exceeded": "context_length",
    "insufficient_quota": "billing",
    "invalid_api_key": "authentication",
    "model_not_found": "not_found",
    "unknown_url": "not_found",
    "rate_limit_exceeded": "rate_limit",
    "server_is_overloaded": "overloaded",
    "vector_store_timeout": "timeout",
    **dict.fromkeys(
        (
            "bio_policy",
            "content_filter",
            "content_policy_violation",
            "cyber_policy",
            "data_residency_mismatch",
            "empty_image_file",
            "failed_to_download_image",
            "image_content_policy_violation",
            "image_file_not_found",
            "image_file_too_large",
            "image_parse_error",
            "image_too_large",
            "image_too_small",
            "invalid_base64_image",
            "invalid_image",
            "invalid_image_format",
            "invalid_image_mode",
            "invalid_image_url",
            "invalid_prompt",
            "misalignment_policy_violation",
            "unsupported_image_media_type",
        ),
        "invalid_request",
    ),
}
"""Codes of errors and of failed responses. The codes of the last group are not worth a retry:
https://platform.openai.com/docs/api-reference/responses/object#responses/object-error"""

TYPES: dict[str, ErrorKind] = {
    "authentication_error": "authentication",
    "insufficient_quota": "billing",
    "invalid_request_error": "invalid_request",
    "not_found_error": "not_found",
    "permission_error": "permission",
    "rate_limit_error": "rate_limit",
    "rate_limit_exceeded": "rate_limit",
    "requests": "rate_limit",
    "server_error": "server",
    "tokens": "rate_limit",
}

TYPE_AND_CODE: dict[ErrorKind, tuple[str, str | None]] = {
    "invalid_request": ("invalid_request_error", None),
    "authentication": ("invalid_request_error", "invalid_api_key"),
    "permission": ("permission_error", None),
    "not_found": ("invalid_request_error", "model_not_found"),
    "too_large": ("invalid_request_error", None),
    "context_length": ("invalid_request_error", "context_length_exceeded"),
    "rate_limit": ("rate_limit_error", "rate_limit_exceeded"),
    "billing": ("insufficient_quota", "insufficient_quota"),
    "overloaded": ("server_error", "server_is_overloaded"),
    "timeout": ("server_error", None),
    "server": ("server_error", None),
}
"""The `type` and `code` to send for each kind."""

GENERIC_KINDS: frozenset[ErrorKind] = frozenset({"invalid_request", "server"})
"""Kinds that say little. If the HTTP status is more specific, it decides."""


def decode_error(body: Any, status: int) -> ApiError:
    """Read an error body; any other body is accepted too, and its text becomes the message."""
    envelope = as_object(body)
    error = as_object((envelope or {}).get("error"))
    if error is None:  # vLLM and Mistral write the members of an error without an envelope
        error = envelope if envelope is not None and "message" in envelope else {}
    error_type, code = error.get("type"), error.get("code")
    message = error_text(body)
    status = status or _as_status(code)
    kind = CODES.get(str(code)) or TYPES.get(str(error_type))
    if kind is None or kind in GENERIC_KINDS:
        kind = STATUS_KINDS.get(status) or kind
    kind = kind_of(status, message, kind)
    return ApiError(
        kind,
        message or NO_REASON,
        status or STATUS_BY_KIND[kind],
        None if error_type is None else str(error_type),
        None if code is None else str(code),
        None if error.get("param") is None else str(error["param"]),
        ext=None if envelope is None else {EXT_KEY: envelope},
    )


def _as_status(code: Any) -> int:
    """The HTTP status that some servers put into `code`; 0 if `code` is not a status."""
    return code if isinstance(code, int) and 400 <= code <= 599 else 0


def encode_error(error: ApiError) -> tuple[int, JsonObject]:
    """The status and body for an OpenAI client.

    Clients compact when they read `context_length_exceeded`, so that code is always set for a full
    context window, even if the server sent another one.
    """
    status = error_status(error)
    error_type, code = TYPE_AND_CODE[error.kind]
    original: JsonObject = (error.ext or {}).get(EXT_KEY) or {}
    if original:
        inner = as_object(original.get("error"))
        if error.kind != "context_length" or (inner or {}).get("code") == code:
            return status, original
        if inner is not None:
            return status, {**original, "error": {**inner, "code": code}}
    if error.code is not None and CODES.get(error.code) == error.kind:
        code = error.code
    return status, {
        "error": {
            "message": error.message,
            "type": error_type,
            "param": error.param,
            "code": code,
        }
    }


def decode_counts(raw: Any, protocol: str, input: str, output: str) -> Usage | None:
    """Token counts; `input` and `output` are this protocol's names of the two totals."""
    usage = as_object(raw)
    if usage is None:
        return None
    input_details = as_object(usage.get(f"{input}_details")) or {}
    output_details = as_object(usage.get(f"{output}_details")) or {}
    return Usage(
        input=count_of(usage, input),
        output=count_of(usage, output),
        cached=count_of(input_details, "cached_tokens"),
        written=count_of(input_details, "cache_write_tokens"),
        reasoning=count_of(output_details, "reasoning_tokens"),
        raw={protocol: usage},
    )
