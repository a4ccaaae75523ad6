"""Whatever goes wrong here, as the one error value that every dialect can be written from."""

from typing import cast

from weft.errors import Refused, StoreError, UpstreamFailed, UpstreamProtocolError
from weft.model import ApiError, ErrorKind

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


def upstream_failure(error: UpstreamProtocolError) -> ApiError:
    """The upstream is to blame."""
    if not isinstance(error, UpstreamFailed):
        return ApiError("server", str(error), 502)
    said = cast("ErrorKind | None", error.kind)  # the tree of errors lies below the model's words
    return ApiError(said or KINDS.get(error.status, "server"), str(error), error.status)


def failure(error: Refused | UpstreamProtocolError | StoreError) -> ApiError:
    """Whoever is to blame."""
    if isinstance(error, Refused):
        return refusal(error)
    return store_failure(error) if isinstance(error, StoreError) else upstream_failure(error)


def store_failure(error: StoreError) -> ApiError:
    """We are to blame: what cannot be kept is not passed on."""
    return ApiError("server", f"the exchange could not be recorded: {error}", 500)


def internal_failure() -> ApiError:
    """A fault of ours that nobody foresaw; its details are in the log, not in the answer."""
    return ApiError("server", "the gateway failed; its log says why", 500)
