"""Every fault of an upstream, with every client, every upstream and both forms.

A few thousand questions; `make torture` asks them all. The selection that every run asks is in
`tests/gateway/test_faults.py`. Run with `-s` to see the counts.
"""

import os
from pathlib import Path

import pytest

from fault_runs import faults_of, look_inside, product, run, summarise, watched_gateway
from fault_upstream import fault_upstream

DEADLINE = 20.0
HANGS = ("hang",)


@pytest.mark.skipif(not os.environ.get("WEFT_TORTURE"), reason="a minute: run `make torture`")
def test_no_fault_looks_like_a_success_to_any_client(tmp_path: Path) -> None:
    faults = [fault for fault in faults_of() if fault.group not in HANGS]
    with fault_upstream() as upstream, watched_gateway(tmp_path, upstream) as gateway:
        outcomes = run(gateway, product(faults), DEADLINE)
        counts = summarise(outcomes, DEADLINE)
        for group, count in counts.items():
            print(group, dict(count))
        assert [f"{outcome.case}: {outcome.wrong}" for outcome in outcomes if outcome.wrong] == []
        assert sum(count["late"] for count in counts.values()) == 0
        assert upstream.busy == 0
        tasks = [task for task in look_inside(gateway)["tasks"] if "application" in task]
        assert tasks == []
        assert "Traceback" not in gateway.log()
