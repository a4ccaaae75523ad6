"""Every fault of an upstream, with every client, every upstream and both forms.

`make torture` runs all combinations, a few thousand requests. `tests/gateway/test_faults.py` has
the selection of a normal run. Run with `-s` to see the counts.
"""

import os
from pathlib import Path

import pytest

from fault_runs import (
    SHORT_DEADLINES,
    faults_of,
    look_inside,
    product,
    run,
    summarise,
    wait_for_rest,
    watched_gateway,
)
from fault_upstream import fault_upstream

DEADLINE = 30.0


@pytest.mark.skipif(not os.environ.get("WEFT_TORTURE"), reason="minutes: run `make torture`")
@pytest.mark.parametrize("hangs", [False, True])
def test_no_fault_looks_like_a_success_to_any_client(tmp_path: Path, hangs: bool) -> None:
    faults = [fault for fault in faults_of() if (fault.group == "hang") is hangs]
    config = SHORT_DEADLINES if hangs else ""
    with fault_upstream() as upstream, watched_gateway(tmp_path, upstream, config) as gateway:
        before = look_inside(gateway)
        outcomes = run(gateway, product(faults), DEADLINE)
        counts = summarise(outcomes, DEADLINE)
        for group, count in counts.items():
            print(group, dict(count))
        assert [f"{outcome.case}: {outcome.wrong}" for outcome in outcomes if outcome.wrong] == []
        assert sum(count["late"] for count in counts.values()) == 0
        wait_for_rest(gateway, upstream, before)
        assert "Traceback" not in gateway.log()
