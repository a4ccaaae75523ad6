"""When to ask again."""

import pytest

from weft.client import LOOP, RELAY, RetryPolicy, plan_retry


@pytest.mark.parametrize(
    ("policy", "attempt", "status", "retry_after", "delay"),
    [
        (LOOP, 1, 529, None, 0.5),  # overloaded: the first delay
        (LOOP, 2, 529, None, 1.0),  # doubled
        (LOOP, 4, 529, None, None),  # the last attempt was made
        (LOOP, 1, 400, None, None),  # asking again would not help
        (LOOP, 1, 429, "7", 7.0),  # the upstream names its time
        (LOOP, 1, 429, "3600", None),  # longer than anybody waits
        (LOOP, 1, 429, "soon", 0.5),  # no number: our own pace
        (LOOP, 1, 429, "-1", 0.5),
        (LOOP, 1, 429, "nan", 0.5),
        (LOOP, 1, 0, None, 0.5),  # never reached
        (RELAY, 1, 0, None, 0.1),  # the gateway repeats what never arrived
        (RELAY, 1, 529, None, None),  # and leaves the rest to the client's own retries
        (RELAY, 2, 0, None, None),
        (RetryPolicy(attempts=9, statuses=frozenset({500}), longest=2.0), 8, 500, None, 2.0),
    ],
)
def test_a_retry_is_planned_from_values_alone(policy, attempt, status, retry_after, delay):
    assert plan_retry(policy, attempt, status, retry_after) == delay
