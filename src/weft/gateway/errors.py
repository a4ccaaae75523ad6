"""Whatever goes wrong here, as the one error value that every protocol's error is written from.

Clients are other people than the operator. So an error that is ours says what happened, and not
where: paths, addresses and the texts of databases go to the log.
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
    """The caller is to blame; `param` names the caller's own path."""
    kind = KINDS.get(error.status, "invalid_request")
    return ApiError(kind, str(error), error.status, param=error.param)


def upstream_failure(error: UpstreamError) -> ApiError:
    """The upstream is to blame."""
    return error_of(error)


def failure(error: Refused | UpstreamError | StoreError) -> ApiError:
    """Whoever is to blame."""
    if isinstance(error, Refused):
        return refusal(error)
    return store_failure(error) if isinstance(error, StoreError) else upstream_failure(error)


def store_failure(error: StoreError) -> ApiError:
    """We are to blame: what cannot be kept is not passed on."""
    return ApiError("server", public_message(error), 500)


def public_message(error: WeftError) -> str:
    """The text of an error for a client.

    A store's own text may hold its path or address, so it goes to the log instead.
    """
    if not isinstance(error, StoreError) or isinstance(error, RefMoved):
        return str(error)
    _log.error("the store failed: %s", error)
    return "the store failed; the gateway's log says why"


def internal_failure() -> ApiError:
    """A fault of ours that nobody foresaw; its details are in the log, not in the answer."""
    return ApiError("server", "the gateway failed; its log says why", 500)
