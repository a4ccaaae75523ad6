"""When to retry a request: a pure decision.

Only one layer should retry, the one nearest to the user. Clients of the gateway retry by themselves
(their SDKs do), so the gateway retries only if no connection was made. The agent loop is the top
layer, so it retries every status that the vendors call retryable.
"""

from http import HTTPStatus

from msgspec import Struct

from weft.model import JsonObject

RETRYABLE = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
"""https://docs.anthropic.com/en/api/errors, https://platform.openai.com/docs/guides/error-codes"""

UNREACHED = 0
"""Used instead of a status if no connection was made: the upstream did not get the request."""


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How often and after which statuses to retry; delays double from `first` to `longest`."""

    attempts: int
    statuses: frozenset[int]
    first: float = 0.5
    longest: float = 8.0
    patience: float = 60.0


OVERLOADED = 529
"""Anthropic's own status, which `HTTPStatus` does not have."""


class Retry(Struct, frozen=True, kw_only=True):
    """A request that failed and is sent again after `delay` seconds.

    - `upstream`: the name of the upstream
    - `status`: the status of its answer; `UNREACHED` if no connection was made
    - `reason`: the status in words, or why there was no connection; nothing of the answer's body
    - `number`, `limit`: this is retry `number` of at most `limit`
    """

    upstream: str
    status: int
    reason: str
    number: int
    limit: int
    delay: float

    @property
    def delay_text(self) -> str:
        """The delay for people: `4 s`."""
        return f"{self.delay:.3g} s"

    def data(self) -> JsonObject:
        """The members of an `api_retry` system message, named as Claude Code names them."""
        status = {} if self.status == UNREACHED else {"error_status": self.status}
        return {
            "upstream": self.upstream,
            **status,
            "error": self.reason,
            "attempt": self.number,
            "max_retries": self.limit,
            "retry_delay_ms": round(self.delay * 1000),
            "delay": self.delay_text,
        }


def status_text(status: int) -> str:
    """A status in words: `too many requests`."""
    if status == OVERLOADED:
        return "overloaded"
    try:
        return HTTPStatus(status).phrase.lower()
    except ValueError:
        return "an error"


RELAY = RetryPolicy(attempts=2, statuses=frozenset({UNREACHED}), first=0.1)
LOOP = RetryPolicy(attempts=4, statuses=RETRYABLE | {UNREACHED})


def plan_retry(
    policy: RetryPolicy, attempt: int, status: int, retry_after: str | None = None
) -> float | None:
    """Seconds to wait before attempt `attempt + 1`; None to give up.

    The upstream's `Retry-After` is used, unless it is longer than `patience`.
    """
    if attempt >= policy.attempts or status not in policy.statuses:
        return None
    delay = read_retry_after(retry_after)
    if delay is not None:
        return delay if delay <= policy.patience else None
    return min(policy.first * 2 ** (attempt - 1), policy.longest)


def read_retry_after(value: str | None) -> float | None:
    """The seconds of a `Retry-After` header; None if it is a date."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None
