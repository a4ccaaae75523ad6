"""Faulty upstreams: what the official SDKs report to their callers.

This is a selection in which every fault occurs with every client, every upstream and both forms.
`tests/torture/test_upstream_faults.py` has all combinations.
"""

import pytest

from fault_runs import (
    SHORT_DEADLINES,
    faults_of,
    look_inside,
    pairwise,
    product,
    run,
    wait_for_rest,
    watched_gateway,
)
from fault_upstream import ANSWER, FAULTS, PROTOCOLS, fault_upstream
from sdk_judges import Clients
from servers import UPSTREAM_NAMES

pytestmark = pytest.mark.xdist_group("faults")  # one gateway for all of them

DEADLINE = 60.0
GROUPS = list(dict.fromkeys(fault.group for fault in FAULTS.values()))
HANG = "hang"
"""The group of faults that only a deadline ends."""


@pytest.fixture(scope="module")
def upstream():
    with fault_upstream() as running:
        yield running


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, upstream):
    """A gateway that has nothing left behind when all of these tests are done."""
    with watched_gateway(tmp_path_factory.mktemp("faults"), upstream) as running:
        before = look_inside(running)
        yield running
        wait_for_rest(running, upstream, before)
        assert "Traceback" not in running.log()


def test_an_answer_without_faults_reaches_every_client_and_is_recorded(gateway):
    """The line in the log follows the end of the answer, and has its usage once it was read."""
    clients = Clients(gateway.url)
    pairs = [(client, name) for client in PROTOCOLS for name in UPSTREAM_NAMES.values()]
    for client, name in pairs:
        for streams in (False, True):
            judged = clients.ask(client, f"{name}/sound", streams)
            assert judged.text == ANSWER, (client, name, streams, judged)
    clients.close()
    lines = gateway.await_lines(32, lambda line: line["model"].endswith("/sound"))
    assert {(line["outcome"], line["output"]) for line in lines} == {("ok", 9)}


@pytest.mark.parametrize("group", [group for group in GROUPS if group != HANG])
def test_a_failed_answer_never_looks_like_a_success(gateway, group):
    outcomes = run(gateway, pairwise(product(faults_of(group))), DEADLINE)
    assert [f"{outcome.case}: {outcome.wrong}" for outcome in outcomes if outcome.wrong] == []
    assert [str(outcome.case) for outcome in outcomes if outcome.seconds >= DEADLINE] == []


def test_an_upstream_that_hangs_fails_by_the_gateways_deadline(tmp_path, upstream):
    """Keep-alives come meanwhile, so no SDK would ever give up by itself."""
    with watched_gateway(tmp_path, upstream, SHORT_DEADLINES) as gateway:
        before = look_inside(gateway)
        outcomes = run(gateway, pairwise(product(faults_of(HANG))), DEADLINE)
        assert [f"{outcome.case}: {outcome.wrong}" for outcome in outcomes if outcome.wrong] == []
        assert [str(outcome.case) for outcome in outcomes if outcome.seconds >= DEADLINE] == []
        wait_for_rest(gateway, upstream, before)
