"""Errors in one vocabulary, and what every vendor's envelope is made from.

Context overflow is one kind, whatever words the vendor found for it: agents compact when they
recognise it, so it must survive translation.
"""

import re

from weft.model import ErrorKind

CONTEXT_LENGTH = re.compile(
    r"prompt is too long|input is too long|context[ _]length|maximum context|context window|"
    r"context size|input tokens exceed|exceeds? (?:the )?context|model's context|"
    r"maximum number of (?:input )?tokens|maximum prompt length|maximum input length|"
    r"input length and `max_tokens` exceed|input token count .{0,80}exceeds|"
    r"tokens? limit exceeded|too large for model|too many input tokens|"
    r"prompt contains \d+ tokens|model_max_prompt_tokens_exceeded|"
    r"reduce the length of (?:the|your) (?:messages|prompt|input)",
    re.IGNORECASE,
)

STATUS_KINDS: dict[int, ErrorKind] = {
    400: "invalid_request",
    401: "authentication",
    402: "billing",
    403: "permission",
    404: "not_found",
    408: "timeout",
    413: "too_large",
    422: "invalid_request",
    429: "rate_limit",
    500: "server",
    502: "server",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}

KIND_STATUS: dict[ErrorKind, int] = {
    "invalid_request": 400,
    "authentication": 401,
    "billing": 402,
    "permission": 403,
    "not_found": 404,
    "too_large": 413,
    "context_length": 400,
    "rate_limit": 429,
    "server": 500,
    "overloaded": 503,
    "timeout": 504,
}


def kind_of(status: int, message: str, named: ErrorKind | None) -> ErrorKind:
    """The kind of an error, from its words first, its own type next, its status last."""
    if named in (None, "invalid_request", "too_large", "server") and CONTEXT_LENGTH.search(message):
        return "context_length"
    if named is not None:
        return named
    return STATUS_KINDS.get(status, "server" if status >= 500 or status == 0 else "invalid_request")
