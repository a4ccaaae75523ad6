"""The text of a model's summary, and what a compaction reports: order, names, numbers, growth."""

from collections.abc import Iterator
from typing import Any

import pytest

import weft
from summarisers import catalogue, says, state_of, talk, writer
from weft.compact import Batch, Clip, SummaryBatch, check_summary, read_ground_truth, write_batches
from weft.errors import CompactRefused
from weft.history import Row
from weft.model import Message, Response, Text
from weft.thread import CompactOptions

Thread = Any


@pytest.fixture
def t() -> Iterator[Thread]:
    with weft.open() as thread:
        yield thread


@pytest.mark.parametrize("options", [{}, {"model": "weft-offline"}, {"summary": "They talked."}])
def test_a_pinned_opening_request_stays_before_the_summary_of_later_turns(
    t: Thread, options: dict[str, Any]
) -> None:
    t.pin(t.user("Port the parser to Rust."))
    talk(t, 8)
    t.compact(keep=1, **options)
    compiled = t.compile()
    assert compiled.messages[0].text == "Port the parser to Rust."
    assert compiled.kinds[:3] == ("dialogue", "summary", "dialogue")


def summary_of(t: Thread) -> str:
    compiled = t.compile()
    return compiled.messages[compiled.kinds.index("summary")].text


def modules(t: Thread, many: int) -> None:
    for n in range(many):
        t.user(f"Step {n}: what does src/module_{n}.py do?")
        t.assistant(f"src/module_{n}.py reads the settings and fails if there are none at all.")


@pytest.mark.parametrize("options", [{"keep": 3}, {"budget": 1100}])
def test_every_name_is_added_if_there_is_room(t: Thread, options: dict[str, Any]) -> None:
    modules(t, 40)
    with writer(says("They read modules.")) as (_, model):
        preview = t.compact(model=model, preview=True, **options)
        done = t.compact(model=model, **options)
    text = summary_of(t)
    folded = done.messages // 2
    assert [n for n in range(folded) if f"src/module_{n}.py" not in text] == []
    assert " more" not in text
    assert (done.names_added, done.names_left) == (folded, 0)
    assert done.tokens_after <= preview.tokens_after


def test_names_without_room_are_counted_and_the_summary_says_how_to_find_them(t: Thread) -> None:
    modules(t, 60)
    with writer(says("They read modules.")) as (_, model):
        done = t.compact(model=model, budget=260)
    text = summary_of(t)
    assert done.names_left > 0
    assert f"... and {done.names_left} more" in text
    assert "recall" in text
    assert f"{done.names_left} names left to recall" in str(done)
    assert done.names_added + done.names_left == done.messages // 2


@pytest.mark.parametrize(
    ("source", "written", "sound"),
    [
        ("We have 48 211 users.", "There are 48 211 users.", True),
        ("We have 48 211 users.", "There are 48,211 users.", True),
        ("We have 48\u2009211 users.", "There are 48 211 users.", True),
        ("We have 48,211 users.", "There are 48\u202f211 users.", True),
        ("We have 48\u2009211 users.", "There are 211 users.", False),  # a part of a figure
        ("The codes 12 301 302 were seen.", "They saw 301 and 302.", True),  # may be a list
        ("We have 48 211 users.", "There are 48 212 users.", False),
    ],
)
def test_a_number_is_the_same_with_any_thousands_separator(
    source: str, written: str, sound: bool
) -> None:
    ground = read_ground_truth([Row(None, Message("user", (Text(source),)))])
    assert (check_summary(written, ground).dropped == ()) is sound


def test_a_retained_list_item_has_one_bullet(t: Thread) -> None:
    t.user("- first line\nsecond line")
    talk(t, 4)
    with writer(says("They talked.")) as (_, model):
        t.compact(model=model, keep=1, retain=["- first line", "second line"])
    assert ":\n- first line\n- second line\n" in summary_of(t)


def compact_with(t: Thread, text: str, clip: Clip) -> int:
    """Compact with a model that always answers with this text; returns the number of requests."""
    options = CompactOptions(keep=1, clip=clip)
    flow = t.compacting(catalogue(window=60_000).find("m"), options)
    answer: Response | None = None
    for requests in range(10):
        try:
            flow.send(answer)
        except StopIteration:
            return requests
        answer = Response(Message("assistant", (Text(text),)))
    pytest.fail("the model is asked again and again")


@pytest.mark.parametrize(
    ("clip", "requests", "batches"),
    [
        (Clip(first=1, last=1, spare=0), [1, 1, 1, 2, 2], 3),  # a single batch is not merged
        (Clip(first=1, last=1, spare=2), [1, 1, 1, 1, 2], 3),
    ],
)
def test_the_batches_in_the_middle_are_merged(
    t: Thread, clip: Clip, requests: list[int], batches: int
) -> None:
    made: list[int] = []
    for _ in requests:
        modules(t, 8)
        made.append(compact_with(t, "They read modules.", clip))
    assert made == requests
    assert len(t.batches()) == batches


def test_a_preview_that_may_save_nothing_says_so(t: Thread) -> None:
    talk(t, 2)
    preview = t.compact(model="weft-offline", preview=True)
    assert preview.tokens_after >= preview.tokens_before
    assert "may save nothing" in str(preview)


def test_a_compaction_that_saves_nothing_needs_force(t: Thread) -> None:
    talk(t, 2)
    before = state_of(t)
    with (
        writer(says("They read modules. " * 30)) as (_, model),
        pytest.raises(CompactRefused, match=r"would save nothing \(\d+ tokens, then"),
    ):
        t.compact(model=model, keep=1, force=False)
    assert state_of(t) == before


def test_a_compaction_that_grows_the_thread_needs_force_and_says_so(
    t: Thread,
) -> None:
    talk(t, 2)
    with writer(says("They read modules. " * 30)) as (_, model):
        done = t.compact(model=model)
    assert done.commit == t.head.id
    assert "longer than before" in str(done)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[Summary of earlier messages by the engine]\n\nuser:\n- Fix it.\n- Now.", "Fix it. Now."),
        ("[Summary of earlier messages by the engine]\n\nPaths: a/b.py", "Paths: a/b.py"),
        ("assistant:\n- It is done.\n\nuser:\n- Good.", "It is done. Good."),  # the offline model
        ("They met.\nThey parted.", "They met. They parted."),
        ("He said:\nno.", "He said: no."),
    ],
)
def test_a_listed_summary_begins_with_its_first_text(text: str, words: str) -> None:
    assert SummaryBatch(Batch(text), None).words == words


def test_a_summary_without_its_messages_is_called_an_earlier_summary() -> None:
    batches = [Batch("They began.", 0), Batch("They went on.", 3)]
    text = write_batches(batches, Clip()).text
    assert "[Part 1 of 2: an earlier summary]" in text
    assert "[Part 2 of 2: 3 messages]" in text
