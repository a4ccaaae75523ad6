"""Compile a commit without reading the messages that were dropped before it.

After many compactions, nearly all messages of a long thread are dropped. Only a few commits are no
appends, and a rewrite names the rows that it needs. So the operations are applied to a list in
which one placeholder represents all unread rows between two named ones: a rewrite drops or keeps
them together. Then only the commits whose rows are left are read.

Nothing is stored for this, so nothing can be out of date or damaged. The result is that of a
compile from the first commit; where it could differ, or if anything is wrong, there is no result:

- Signed thinking is compared with the rows that were before it when it was appended. So the commit
  before the first signed row that is left is compiled this way, and extended by all later ones.
- A row that was appended again (by a rebase) or restored may have been appended by any commit. A
  later rewrite may restore one too. `View.extend` compiles from the first commit then.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import cast

from msgspec import Struct

from weft.errors import Damaged
from weft.ids import Id
from weft.model import Message
from weft.store import Step, Store

from .compile import SharedRows, View, is_signed
from .objects import Append, Priority, Rewrite, Row, Setup, decode_appended, decode_body
from .ops import ListRows, run_steps

MIN_DEPTH = 1_000
"""A thread with fewer commits is compiled from the first one: that takes a few milliseconds."""

MAX_GAP = 64
"""Commits that are read although their rows were dropped: reading them takes about as long as one
more query."""

UNREAD = Message("user", ())
UNREAD_PRIORITY = cast(Priority, "")
UNREAD_KIND = ""
"""What a row has in place of what its commit says. A rewrite may replace each of them."""


class _Span(Struct, frozen=True):
    """Commits with a depth above `after` and of at most `until`."""

    after: int
    until: int


def compile_present(store: Store, thread: str, head: Id, min_depth: int = MIN_DEPTH) -> View | None:
    """The view of `head`, or `None` if it must be compiled from the first commit."""
    depth = store.read_depths(thread, head, [head]).get(head, 0)
    if depth < max(1, min_depth):
        return None
    try:
        steps = store.walk(thread, head, appends=False)
        rewrites = [(step.depth, op) for step in steps if (op := _read_rewrite(step)) is not None]
        if not any(op.drop for _, op in rewrites):
            return None
        anchors = store.read_depths(thread, head, list(set(_named_slots(rewrites))))
        history = _History(store, thread, steps, rewrites, anchors)
        view = _compile(history, head, depth)
        signed = [] if view is None else [row for row in view.rows if is_signed(row.message)]
        if not signed:
            return view
        nodes = store.read_nodes(thread, [row.id for row in signed if row.id is not None])
        if not nodes:  # rewrites added these rows: no signature counts
            return view
        first = min(nodes, key=attrgetter("depth"))
        if not first.parents or depth - first.depth > depth // 2:
            return None
        view = _compile(history, first.parents[0], first.depth - 1)
        return None if view is None else view.extend(store.walk(thread, head, after=view.depth))
    except Damaged:
        return None  # the compile from the first commit tells what is wrong


class _History(Struct, frozen=True):
    """What is read of all commits: those that are no appends, and where the rows are that they
    name."""

    store: Store
    thread: str
    steps: Sequence[Step]
    rewrites: Sequence[tuple[int, Rewrite]]
    anchors: Mapping[Id, int]


def _compile(history: _History, head: Id, depth: int) -> View | None:
    """The view of a commit, without the signatures."""
    store, thread = history.store, history.thread
    steps = [step for step in history.steps if step.depth <= depth]
    anchors = {slot: place for slot, place in history.anchors.items() if place <= depth}
    rows, spans, setup = _replay(steps, anchors, depth)
    shared = _read_present(store, thread, head, rows, spans)
    rewrites = [rewrite for rewrite in history.rewrites if rewrite[0] <= depth]
    if shared is None or any(slot in shared.index for slot in _restored_slots(rewrites)):
        return None
    shared.compile_whole = lambda commit: View().extend(store.walk(thread, commit))
    return View(shared, len(shared.rows), head, depth, setup)


def _read_rewrite(step: Step) -> Rewrite | None:
    op = decode_body(step).op
    return op if isinstance(op, Rewrite) else None


def _named_slots(rewrites: Iterable[tuple[int, Rewrite]]) -> Iterator[Id]:
    """The rows that rewrites name."""
    for _, op in rewrites:
        for run in op.drop:
            yield from run
        for change in op.change:
            yield change.slot
        for insert in op.insert:
            if insert.after is not None:
                yield insert.after


def _restored_slots(rewrites: Iterable[tuple[int, Rewrite]]) -> Iterator[Id]:
    """The rows that were restored or moved: unread commits may have appended them."""
    for _, op in rewrites:
        for insert in op.insert:
            for new in insert.rows:
                if new.slot is not None:
                    yield new.slot


def _replay(
    steps: Sequence[Step], anchors: Mapping[Id, int], depth: int
) -> tuple[list[Row], dict[Id | None, _Span], Setup | None]:
    """The rows after these rewrites; the spans are those of the unread rows, by their slots."""
    rows, spans, setup = ListRows(), dict[Id | None, _Span](), None
    read_until = 0

    def add_unread(until: int, slot: Id) -> None:
        nonlocal read_until
        if until > read_until:
            spans[slot] = _Span(read_until, until)
            rows.add(Row(slot, UNREAD, UNREAD_PRIORITY, UNREAD_KIND))
            read_until = until

    def between(until: int) -> Id:
        return b"%d-%d" % (read_until, until)  # shorter than any id

    named = iter(sorted((depth, slot) for slot, depth in anchors.items()))
    next_named = next(named, None)
    for step in steps:
        while next_named is not None and next_named[0] < step.depth:
            add_unread(next_named[0] - 1, between(next_named[0] - 1))
            add_unread(*next_named)
            next_named = next(named, None)
        add_unread(step.depth - 1, between(step.depth - 1))
        setup = run_steps([step], rows, setup)
        read_until = step.depth
    add_unread(depth, between(depth))
    return rows.rows, spans, setup


def _read_present(
    store: Store, thread: str, head: Id, rows: Sequence[Row], spans: dict[Id | None, _Span]
) -> SharedRows | None:
    """The list with the unread rows; `None` if a row needs commits that are not read."""
    needed = [spans[row.id] for row in rows if row.id in spans]
    read: list[Step] = []
    for span in _joined(needed):
        read += store.walk(thread, head, after=span.after, until=span.until)
    depths = [step.depth for step in read]
    present: list[Row] = []
    for row in rows:
        span = spans.get(row.id)
        if span is None:
            present.append(row)
            continue
        is_named = span.until == span.after + 1
        for step in read[bisect_right(depths, span.after) : bisect_right(depths, span.until)]:
            if step.commit.kind != "append":
                continue
            op = decode_body(step).op
            if not isinstance(op, Append) or op.slot is not None:
                return None
            present.append(_read_row(row if is_named else None, op, step))
    return SharedRows(present)


def _read_row(changed: Row | None, op: Append, step: Step) -> Row:
    """The row that a commit appended, with the changes to it since."""
    if changed is None:
        return Row(step.commit.id, decode_appended(step), op.priority, op.kind)
    return Row(
        step.commit.id,
        decode_appended(step) if changed.message is UNREAD else changed.message,
        op.priority if changed.priority == UNREAD_PRIORITY else changed.priority,
        op.kind if changed.kind == UNREAD_KIND else changed.kind,
    )


def _joined(spans: Iterable[_Span]) -> Iterator[_Span]:
    """The spans in order of depth; those with a small gap between them are one."""
    joined: _Span | None = None
    for span in sorted(spans, key=attrgetter("after")):
        if joined is None:
            joined = span
        elif span.after - joined.until <= MAX_GAP:
            joined = _Span(joined.after, max(joined.until, span.until))
        else:
            yield joined
            joined = span
    if joined is not None:
        yield joined
