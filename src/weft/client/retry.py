"""When to ask again, decided from values alone.

Retries live at one layer: whoever is nearest to the person. Behind the gateway that is the
client, whose SDK retries by itself, so the gateway repeats only what never reached the upstream.
The agent loop has nobody above it, so it repeats what the vendors call retryable.
"""

from msgspec import Struct

RETRYABLE = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
"""https://docs.anthropic.com/en/api/errors, https://platform.openai.com/docs/guides/error-codes"""

UNREACHED = 0
"""Stands for a status where no connection was made: the upstream has seen nothing."""


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How often, and after which answers, to ask again; delays double from `first` to `longest`."""

    attempts: int
    statuses: frozenset[int]
    first: float = 0.5
    longest: float = 8.0
    patience: float = 60.0


RELAY = RetryPolicy(attempts=2, statuses=frozenset({UNREACHED}), first=0.1)
LOOP = RetryPolicy(attempts=4, statuses=RETRYABLE | {UNREACHED})


def plan_retry(
    policy: RetryPolicy, attempt: int, status: int, retry_after: str | None = None
) -> float | None:
    """Seconds to wait before attempt `attempt + 1`; None to give up.

    An upstream that names a time is believed, unless the time is longer than our patience.
    """
    if attempt >= policy.attempts or status not in policy.statuses:
        return None
    named = read_retry_after(retry_after)
    if named is not None:
        return named if named <= policy.patience else None
    return min(policy.first * 2 ** (attempt - 1), policy.longest)


def read_retry_after(value: str | None) -> float | None:
    """Seconds of a `Retry-After` header; a date is left to the caller's own pace."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None
