"""Exceptions as `ApiError`, the value from which every protocol's error is written.

A client need not be the operator. So an error of the gateway tells the client what happened, but
no paths, addresses or database messages: these go to the log.
"""

import logging

from weft.codec import error_of
from weft.errors import RefMoved, Refused, StoreError, UpstreamError, WeftError
from weft.model import ApiError, ErrorKind

_log = logging.getLogger(__name__)

KINDS: dict[int, ErrorKind] = {
    400: "invalid_request",
    401: "authentication",
    403: "permission",
    404: "not_found",
    408: "timeout",
    413: "too_large",
    415: "invalid_request",
    429: "rate_limit",
    502: "server",
    503: "overloaded",
    504: "timeout",
}


def refusal(error: Refused) -> ApiError:
    """An error that the caller caused; `param` is the path in its body."""
    kind = KINDS.get(error.status, "invalid_request")
    message = str(error) if error.code is None else error.message
    return ApiError(kind, message, error.status, param=error.param, code=error.code)


def failure(error: Refused | UpstreamError | StoreError) -> ApiError:
    """An error that the caller, the upstream or the store caused."""
    if isinstance(error, Refused):
        return refusal(error)
    if isinstance(error, StoreError):
        return ApiError("server", public_message(error), 500)
    return error_of(error)


def public_message(error: WeftError) -> str:
    """The text of an error for a client.

    The text of a store's error may contain its path or address, so it goes to the log instead.
    """
    if not isinstance(error, StoreError) or isinstance(error, RefMoved):
        return str(error)
    _log.error("the store failed: %s", error)
    return "the store failed; the gateway's log says why"


def internal_failure() -> ApiError:
    """An unexpected error of the gateway; the details are only in the log."""
    return ApiError("server", "the gateway failed; its log says why", 500)
