"""Measures whether the cost of a function is linear in the length of its input.

The cost is CPU time of this thread. Only ratios are compared, so a slow or busy machine does not
change the result. `count_calls` is exact, but counts a call of a C function as one call, whatever
its cost.
"""

import sys
from collections.abc import Callable
from time import thread_time
from typing import TypeVar

Input = TypeVar("Input")

SLACK = 3.0
"""How much more than its length a longer input may cost: caches, allocation, garbage collection."""
FLOOR = 0.001
"""Seconds below which a cost is mostly noise."""
ATTEMPTS = 5


def grows_linearly(
    run: Callable[[Input], object], short: Input, long: Input, *, times: float
) -> bool:
    """Whether `long`, which is `times` as long as `short`, costs no more than that and some slack.

    A quadratic function costs `times` squared. One attempt in time is enough: noise only adds.
    """
    limit = times * SLACK
    return any(cost(run, long) <= limit * max(FLOOR, cost(run, short)) for _ in range(ATTEMPTS))


def cost(run: Callable[[Input], object], value: Input) -> float:
    """The CPU seconds of one call."""
    begin = thread_time()
    run(value)
    return thread_time() - begin


def count_calls(work: Callable[[], object]) -> int:
    """How many Python and C functions are called."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls
