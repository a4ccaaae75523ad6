"""Laws 6, 8 and 11 for compaction, on random threads, ranges, pins and budgets.

- 6: messages outside a range are unchanged, except for what C4 strips; `strip="after"` limits that.
- 8: no call or result is left without its partner.
- 11: a plan splits no pair, drops no pin, stays within its budget and terminates. A budget that is
  too small is refused with the smallest possible one.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given, settings, strategies as st
from msgspec import structs

import weft
from compact_rows import broken_pairs, checkpoints, rows
from weft.codec import CODECS
from weft.compact import Plan, Replacement, plan_budget, plan_replacements
from weft.errors import BudgetExceeded, CompactRefused
from weft.history import Row
from weft.model import Checkpoint, Message, Redacted, Reminder, Request, Thinking
from weft.tokens import counter_for

count = counter_for("estimate").message
NAMES = [letter * 6 for letter in "abcdefghijklmnopqrstuvwxyz"]


@st.composite
def threads(draw: st.DrawFn) -> list[Row]:
    """A valid thread: setup, then turns with reminders, thinking, parallel calls whose results
    come in one message or several, system messages between, and any row pinned."""
    lines = ["s:rules"] * draw(st.integers(0, 2))
    marks = iter(NAMES)
    for turn in range(draw(st.integers(1, 5))):
        lines.append(f"u:ask{turn}{draw(REMINDER)} @{next(marks)}")
        calls = [f"c{turn}{n}" for n in range(draw(st.integers(0, 3)))]
        thought = draw(THOUGHT)
        lines.append(f"a:{thought} say{turn} {' '.join('!' + id for id in calls)}".strip())
        if calls:
            lines.extend(draw(answers(calls, marks)))
            lines.append(f"a:{draw(THOUGHT)} done{turn}")
        if draw(st.integers(0, 5)) == 0:
            lines.append(f"s:between{turn}")
    pins = draw(st.lists(st.integers(0, len(lines) - 1), max_size=3))
    return rows(*(f"*{line}" if n in pins else line for n, line in enumerate(lines)))


REMINDER = st.sampled_from(["", " ~note"])
THOUGHT = st.sampled_from(["", "?why", "#sealed", "?why #sealed"])


@st.composite
def answers(draw: st.DrawFn, calls: list[str], marks) -> list[str]:
    if draw(st.booleans()):
        results = " ".join("=" + id for id in draw(st.permutations(calls)))
        return [f"u:{results}{draw(REMINDER)}{mark(draw, marks)}"]
    return [f"t:={id}{mark(draw, marks)}" for id in calls]


def mark(draw: st.DrawFn, marks) -> str:
    name = next(marks, None) if draw(st.booleans()) else None
    return f" @{name}" if name else ""


@st.composite
def compactions(draw: st.DrawFn) -> tuple[list[Row], list[Replacement]]:
    """A thread, and ranges of it that do not overlap."""
    thread = draw(threads())
    names = [
        block.id for row in thread for block in row.message.blocks if isinstance(block, Checkpoint)
    ]
    edges: list[str | None] = [None, *names, None]
    cuts = sorted(
        draw(st.lists(st.integers(0, len(edges) - 1), min_size=2, max_size=6, unique=True))
    )
    ranges = [
        Replacement(from_=edges[low], to=edges[high], summary=draw(st.sampled_from(["S", "", "T"])))
        for low, high in zip(cuts[::2], cuts[1::2], strict=False)
    ]
    return thread, ranges


def planned(thread: list[Row], ranges: list[Replacement], **options) -> Plan:
    try:
        return plan_replacements(thread, ranges, known=checkpoints(thread), **options)
    except CompactRefused as refused:
        assume("there is nothing after" not in str(refused))
        raise


def pinned(made) -> list[Row]:
    return [row for row in made if row.priority == "pinned"]


def bare(message: Message) -> Message:
    """A message without what C4 strips."""
    gone = (Reminder,) if message.role in {"user", "tool"} else (Thinking, Redacted)
    left = tuple(block for block in message.blocks if not isinstance(block, gone))
    return structs.replace(message, blocks=left)


@given(compactions())
@settings(max_examples=300, deadline=None)
def test_law_8_every_replacement_keeps_pairs_complete_and_no_empty_message(case) -> None:
    thread, ranges = case
    assert broken_pairs(thread) == []
    assert broken_pairs(planned(thread, ranges).rows) == []


@given(compactions())
@settings(max_examples=100, deadline=None)
def test_law_8_every_replacement_encodes_with_results_after_their_calls(case) -> None:
    thread, ranges = case
    left = planned(thread, ranges).rows
    assume(any(row.message.role != "system" for row in left))
    messages = tuple(row.message for row in left)
    for protocol in CODECS:
        body = weft.encode(Request("some-model", messages), protocol).body
        if protocol == "anthropic":
            assert body["messages"][0]["role"] == "user"
            for before, after in pairwise([*body["messages"], {"content": ""}]):
                assert _wire_ids(before, "tool_use", "id") == _wire_ids(
                    after, "tool_result", "tool_use_id"
                )


def _wire_ids(message: dict[str, Any], kind: str, key: str) -> list[str]:
    parts = message["content"] if isinstance(message["content"], list) else []
    return sorted(part[key] for part in parts if part["type"] == kind)


@given(compactions())
@settings(max_examples=300, deadline=None)
def test_law_6_messages_outside_every_range_are_unchanged_except_for_stripping(case) -> None:
    thread, ranges = case
    plan = planned(thread, ranges)
    new = {row.id: row for row in plan.rows}
    touched = {row.id for row in thread if row.id not in new or new[row.id] != row}
    inside = _rows_of(thread, ranges)
    for row in thread:
        if row.id in inside or row.priority == "pinned" or _shares_pair(row, thread, inside):
            continue
        if row.id in touched:
            left = bare(row.message)
            assert (new[row.id].message if row.id in new else None) == (
                left if left.blocks else None
            )
    assert [row.id for row in plan.rows if row.id in new and row.id] == [
        row.id for row in thread if row.id in new
    ]


@given(compactions())
@settings(max_examples=200, deadline=None)
def test_law_6_strip_after_changes_nothing_before_the_first_range(case) -> None:
    thread, ranges = case
    plan = planned(thread, ranges, strip="after")
    inside = _rows_of(thread, ranges)
    for old, new in zip(thread, plan.rows, strict=False):
        if old.id in inside:
            break
        if _shares_pair(old, thread, inside):
            break
        assert new == old


@given(compactions(), st.randoms())
@settings(max_examples=200, deadline=None)
def test_law_6_the_order_of_the_replacements_does_not_matter(case, random) -> None:
    thread, ranges = case
    shuffled = list(ranges)
    random.shuffle(shuffled)
    assert planned(thread, shuffled) == planned(thread, ranges)


@given(compactions())
@settings(max_examples=200, deadline=None)
def test_law_6_pins_and_setup_survive_every_replacement(case) -> None:
    thread, ranges = case
    plan = planned(thread, ranges)
    assert pinned(plan.rows) == pinned(thread)
    lead = next(n for n, row in enumerate(thread) if row.message.role != "system")
    assert list(plan.rows[:lead]) == thread[:lead]


def test_law_6_a_refused_plan_is_an_exception_and_changes_nothing() -> None:
    thread = rows("u:a @aaaaaa", "a:b")
    before = list(thread)
    with pytest.raises(CompactRefused):
        plan_replacements(thread, [Replacement(summary="", to="zzzzzz")], known={"aaaaaa"})
    assert thread == before


@given(threads(), st.integers(0, 400), st.none() | st.integers(0, 4))
@settings(max_examples=300, deadline=None)
def test_law_11_a_budget_plan_keeps_pairs_pins_and_its_budget(
    thread: list[Row], budget: int, keep: int | None
) -> None:
    assume(any(row.message.role != "system" for row in thread))
    try:
        plan = plan_budget(thread, budget, keep=keep, count=count)
    except BudgetExceeded as refused:
        budget = max(budget + 1, refused.needed)  # what it names is more, and is enough
        plan = plan_budget(thread, refused.needed, keep=keep, count=count)
    assert sum(count(row.message) for row in plan.rows) <= budget
    assert broken_pairs(plan.rows) == []
    assert pinned(plan.rows) == pinned(thread)
    asked = [row for row in thread if row.message.role == "user" and "ask" in row.message.text]
    assert asked[-1] in plan.rows
    assert sum(row.kind == "summary" for row in plan.rows) == len(plan.ranges)
    summaries = [row.message.text for row in plan.rows if row.kind == "summary"]
    for folded, text in zip(plan.ranges, summaries, strict=True):
        assert folded.summary.strip()  # more than its marks
        assert folded.summary in text


@given(threads(), st.integers(20, 400), st.none() | st.integers(0, 4))
@settings(max_examples=200, deadline=None)
def test_law_11_a_budget_plan_splits_at_most_one_exchange_and_keeps_its_request(
    thread: list[Row], budget: int, keep: int | None
) -> None:
    assume(any(row.message.role != "system" for row in thread))
    try:
        plan = plan_budget(thread, budget, keep=keep, count=count)
    except BudgetExceeded:
        return
    left = {row.id for row in plan.rows}
    ids = _pinned_calls(thread)
    exchanges: list[list[Row]] = []
    for row in thread:
        if "ask" in row.message.text and row.message.role == "user":
            exchanges.append([])
        # Rules of the system stay by themselves.
        if row.priority == "pinned" or row.message.role == "system" or _call_ids(row) & ids:
            continue
        if exchanges and bare(row.message).blocks:
            exchanges[-1].append(row)
    cut = [e for e in exchanges[:-1] if len({row.id in left for row in e}) > 1]
    assert len(cut) <= (1 if keep is None else 0)
    for exchange in cut:
        stays = [row.id in left for row in exchange]
        assert stays == [True, *sorted(stays[1:])]  # its request and its latest rounds
    last = [row for row in exchanges[-1] if bare(row.message).blocks]
    if last and last[-1].message.role == "assistant":
        assert last[-1].id in left  # the last request never stands without its answer


def _pinned_calls(thread: list[Row]) -> set[str]:
    return {id for row in pinned(thread) for id in _call_ids(row)}


@given(threads(), st.integers(60, 200))
@settings(max_examples=100, deadline=None)
def test_law_11_repeated_compaction_terminates(thread: list[Row], budget: int) -> None:
    for round in range(3):
        try:
            plan = plan_budget(thread, budget, count=count)
        except BudgetExceeded:
            return
        assert plan_budget(plan.rows, budget, count=count).rows == plan.rows
        slots = [row.id or b"%20d" % n for n, row in enumerate(plan.rows)]
        thread = [structs.replace(row, id=id) for row, id in zip(plan.rows, slots, strict=True)]
        thread += [structs.replace(row, id=b"%19dx" % round) for row in rows("a:more", "u:ask")]


def test_law_11_a_plan_stays_within_its_budget_with_any_token_counter() -> None:
    counts: list[Callable[[Message], int]] = [
        lambda message: len(message.text),
        lambda _: 1,
        lambda message: 3 * len(message.blocks),
        lambda _: 0,
    ]
    thread = rows("s:r", *(line for n in range(20) for line in (f"u:ask{n}", f"a:say{n}")))
    for by in counts:
        for budget in range(60):
            try:
                plan = plan_budget(thread, budget, count=by)
            except BudgetExceeded:
                continue
            assert sum(by(row.message) for row in plan.rows) <= budget


def _rows_of(thread: list[Row], ranges: list[Replacement]) -> set[bytes | None]:
    """The rows with a block in some range, or in which a range begins."""
    place = {
        block.id: n
        for n, row in enumerate(thread)
        for block in row.message.blocks
        if isinstance(block, Checkpoint)
    }
    lead = next((n for n, row in enumerate(thread) if row.message.role != "system"), len(thread))
    inside: set[bytes | None] = set()
    for range_ in ranges:
        first = lead if range_.from_ is None else place[range_.from_] + 1
        last = len(thread) - 1 if range_.to is None else place[range_.to]
        inside.update(row.id for row in thread[first : last + 1])
    return inside


def _shares_pair(row: Row, thread: list[Row], inside: set[bytes | None]) -> bool:
    """Whether a call or result of this row has its other part in a range."""
    here = _call_ids(row)
    return any(other.id in inside and here & _call_ids(other) for other in thread)


def _call_ids(row: Row) -> set[str]:
    return {
        getattr(block, "call_id", None) or getattr(block, "id", "")
        for block in row.message.blocks
        if not isinstance(block, Checkpoint)
    } - {""}
