"""An upstream that fails in every way, judged by what the official SDKs tell their callers.

A selection in which every fault meets every client, every upstream and both forms; all of them
together are in `tests/torture/test_upstream_faults.py`.
"""

import time

import pytest

from fault_runs import faults_of, look_inside, pairwise, product, run, watched_gateway
from fault_upstream import ANSWER, FAULTS, PROTOCOLS, fault_upstream
from sdk_judges import Clients
from servers import UPSTREAM_NAMES

DEADLINE = 20.0
GROUPS = [group for group in dict.fromkeys(fault.group for fault in FAULTS.values())]
HANGS = {"hang"}
"""Groups of faults that only a deadline ends."""


@pytest.fixture(scope="module")
def upstream():
    with fault_upstream() as running:
        yield running


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, upstream):
    with watched_gateway(tmp_path_factory.mktemp("faults"), upstream) as running:
        yield running


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("client", PROTOCOLS)
def test_every_client_gets_the_whole_answer_of_an_upstream_without_faults(gateway, client, streams):
    clients = Clients(gateway.url)
    for name in UPSTREAM_NAMES.values():
        judged = clients.ask(client, f"{name}/sound", streams)
        assert judged.text == ANSWER, judged
    clients.close()


@pytest.mark.parametrize("group", [group for group in GROUPS if group not in HANGS])
def test_a_failed_answer_never_looks_like_a_success(gateway, group):
    outcomes = run(gateway, pairwise(product(faults_of(group))), DEADLINE)
    assert [f"{outcome.case}: {outcome.wrong}" for outcome in outcomes if outcome.wrong] == []
    assert [str(outcome.case) for outcome in outcomes if outcome.seconds >= DEADLINE] == []


def test_nothing_is_left_behind(gateway, upstream):
    """After the faults above: no task, no socket and no question to the upstream."""
    deadline = time.monotonic() + 20
    while True:
        inside = look_inside(gateway)
        exchanges = [task for task in inside["tasks"] if "application" in task or "pump" in task]
        if not exchanges and not upstream.busy:
            break
        assert time.monotonic() < deadline, (exchanges, upstream.busy)
        time.sleep(0.1)
    assert inside["sockets"] < 40, inside["sockets"]
    assert "Traceback" not in gateway.log()
