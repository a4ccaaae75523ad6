"""Laws 5 to 10 of history, on random sequences of all operations on every store.

`make torture` runs many more and longer sequences (the hypothesis profile `torture`).
"""

from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

import weft
from laws.history_machine import History
from postgres import fresh_address
from weft.errors import MergeConflict

QUICK = settings(
    max_examples=12,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def steps() -> settings:
    """The number of steps of the hypothesis profile, or a small default."""
    return (
        QUICK
        if settings().max_examples == settings.get_profile("default").max_examples
        else settings()
    )


def test_laws_5_to_10_hold_over_any_sequence() -> None:
    run_state_machine_as_test(History, settings=steps())


def test_laws_5_to_10_hold_on_postgres_too(postgres_url: str) -> None:
    class Everywhere(History):
        address = staticmethod(lambda: fresh_address(postgres_url))

    quick = settings(steps(), max_examples=max(3, steps().max_examples // 6))
    run_state_machine_as_test(Everywhere, settings=quick)


def test_law_9_no_update_is_lost_between_handles(tmp_path: Path) -> None:
    """Several handles on one branch, each in its own thread: every turn is there once."""
    from threading import Thread as Worker

    threads = [weft.open(tmp_path / "a.db") for _ in range(4)]

    def write(number: int) -> None:
        for turn in range(25):
            threads[number].user(f"{number}:{turn}")

    workers = [Worker(target=write, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    texts = [row["content"] for row in threads[0].compile().to_dicts()]
    assert sorted(texts) == sorted(f"{n}:{turn}" for n in range(4) for turn in range(25))
    for number in range(4):
        own = [text for text in texts if text.startswith(f"{number}:")]
        assert own == [f"{number}:{turn}" for turn in range(25)]
    for thread in threads:
        thread.close()


def test_law_9_a_conflict_changes_nothing() -> None:
    t = weft.open()
    id = t.user("a").id
    t.branch("x")
    t.edit(id, "b")
    t.switch("x")
    t.edit(id, "c")
    before = t.log()
    try:
        t.merge("main")
    except MergeConflict:
        assert t.log() == before
