"""Compile: turns a commit into its list of rows.

A `View` is one such list. The views of one growing branch share a list: an append adds to its end,
and an older view ignores the rows after its own length. So the cost of a commit and the next
compile does not depend on the length of the thread. Any other change copies the list first. Token
counts are running sums beside the shared list, computed on first use.

`ops.run_steps` applies the operations. A compile from scratch extends the empty view, and an
incremental one extends the view before, so the two cannot differ.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from threading import Lock

from weft.ids import Id
from weft.model import Message, Redacted, Text, Thinking
from weft.store import Step, Store

from .objects import (
    PLAIN_BODIES,
    Insert,
    Rewrite,
    Row,
    Setup,
    State,
    decode_body,
    decode_entries,
    encode_entry,
)
from .ops import (
    ListRows,
    SlotIndex,
    apply_rewrite,
    change_in_place,
    count_untouched,
    run_steps,
    with_slots,
)
from .turns import running_turn

# Some rows of a long thread, compiled without the rest.
#
# A rewrite names the rows that it needs: those it changes, the first and last row of each run that
# it drops, and the row that each insert follows. So it can be applied to a list without the other
# rows, and the result is the full result without those rows. Two partial compiles use this:
#
# - `compile_tail` needs the last visible rows. The newest commits append the last rows, and all
#   older rows come before them.
# - `compile_slots` needs a few rows at any position. Nearly every commit only appends one row; of
#   these, it reads only the needed ones and those that a rewrite names.

EXTRA_COMMITS = 64
"""`compile_tail` reads this many commits more than rows: some append no row, or a hidden one."""

GROWTH = 4
"""If they were too few, it reads this many times as many."""


class PartialRows(ListRows):
    """Some rows of a list, in the same order. A row may be missing for one of two reasons:

    - it comes before all rows of this list (never with `from_start`), or
    - no later rewrite refers to it.
    """

    def __init__(self, *, from_start: bool) -> None:
        super().__init__()
        self._from_start = from_start
        self.moved_out: set[Id] = set()
        """Slots that a rewrite moved to a position before all rows of this list."""

    def rewrite(self, op: Rewrite, messages: Sequence[Message], step: Step) -> None:
        index = self.index
        op = with_slots(op, step.commit.id)
        inserts = [
            insert
            for insert in op.insert
            if (self._from_start if insert.after is None else insert.after in index)
        ]
        if len(inserts) < len(op.insert):
            self.moved_out |= _inserted_slots(op.insert) - _inserted_slots(inserts)
        partial = Rewrite(
            drop=tuple(
                (first if first in index else self._first_slot(), last)
                for first, last in op.drop
                if last in index
            ),
            change=tuple(change for change in op.change if change.slot in index),
            insert=tuple(inserts),
        )
        if partial.touches_rows:
            super().rewrite(partial, messages, step)

    def _first_slot(self) -> Id:
        slot = self.rows[0].id
        assert slot is not None
        return slot


def compile_last(store: Store, thread: str, head: Id, limit: int) -> tuple[list[Step], list[Row]]:
    """The last `limit` commits up to `head`, and the rows that they add, hidden ones included."""
    steps = store.walk(thread, head, limit=limit)
    rows = PartialRows(from_start=len(steps) < limit)
    run_steps(steps, rows)
    return steps, rows.rows


def compile_tail(
    store: Store, thread: str, head: Id, count: int, *, reasoning: bool = False
) -> list[Row]:
    """The last `count` visible rows at this commit, or all if there are fewer."""
    limit = count + EXTRA_COMMITS
    while True:
        steps, rows = compile_last(store, thread, head, limit)
        visible = visible_rows(rows, reasoning=reasoning)
        if len(visible) >= count or len(steps) < limit:
            return visible[max(0, len(visible) - count) :]
        limit *= GROWTH


def compile_slots(store: Store, thread: str, head: Id, slots: Collection[Id]) -> dict[Id, Row]:
    """The rows in these slots at this commit, by slot; rows that it does not have are left out."""
    depths = store.read_depths(thread, head, list(slots))
    oldest = min((depths.get(slot, 1) for slot in slots), default=1)
    # Commits before the oldest of these rows rarely matter. They do if a rewrite moved one of the
    # rows further up; then the thread is read from the beginning.
    rows = _run_relevant(store, thread, head, depths, oldest - 1)
    if not rows.moved_out.isdisjoint(slots):
        rows = _run_relevant(store, thread, head, depths, 0)
    return {row.id: row for row in rows.rows if row.id in slots and row.id is not None}


def _run_relevant(
    store: Store, thread: str, head: Id, depths: Mapping[Id, int], after: int
) -> PartialRows:
    """Apply the commits above depth `after` that affect the rows of these commits."""
    steps = store.walk(thread, head, after=after, excluding=tuple(PLAIN_BODIES))
    read_ids = {step.commit.id for step in steps}
    anchors = set(_anchors(steps)) - read_ids - depths.keys()
    if anchors:
        depths = {**depths, **store.read_depths(thread, head, list(anchors))}
    plain = [id for id, depth in depths.items() if depth > after and id not in read_ids]
    steps += store.read_commits(thread, plain)
    rows = PartialRows(from_start=after == 0)
    run_steps(sorted(steps, key=lambda step: step.depth), rows)
    return rows


def _anchors(steps: Iterable[Step]) -> Iterator[Id]:
    """The rows that rewrites refer to, to drop a run or to insert after."""
    for step in steps:
        op = decode_body(step).op
        if isinstance(op, Rewrite):
            for run in op.drop:
                yield from run
            for insert in op.insert:
                if insert.after is not None:
                    yield insert.after


def _inserted_slots(inserts: Iterable[Insert]) -> set[Id]:
    return {new.slot for insert in inserts for new in insert.rows if new.slot is not None}


# Signed thinking is only valid after the rows that it was signed after.
#
# A vendor signs thinking for the conversation that led to it. Once a row before it is edited,
# hidden, folded or moved, the signature belongs to a conversation that no longer exists, and must
# not be sent. The stored row stays as it is: if the old rows come back (a revert, an undo), the
# thinking may be sent again.
#
# So for each row with signed thinking one number is kept: the fingerprint of all rows that were
# visible before it when it was appended. Threads without thinking pay nothing for this.
#
# A compaction is the exception for the running turn (`turns`): the thinking of that turn is bound
# again to the rows that are before it after the compaction.

START = 0
"""The fingerprint of no rows."""


class SignatureIndex:
    """For each row with signed thinking, the fingerprint of the rows before it.

    Only rows that were appended along the chain itself count: a compile from scratch reads no
    other branch, and must give the same result.
    """

    __slots__ = ("_fingerprints", "_hashes")

    def __init__(self, base: "SignatureIndex | None" = None, depth: int = 0) -> None:
        """Empty, or the entries of `base` up to this depth of its chain."""
        entries = {} if base is None else base._fingerprints
        self._fingerprints: dict[Id, tuple[int, int]] = {
            slot: (bound_depth, fingerprint)
            for slot, (bound_depth, fingerprint) in entries.items()
            if bound_depth <= depth
        }
        self._hashes: dict[Id, tuple[Message, int]] = {} if base is None else base._hashes

    def bind(self, slot: Id, depth: int, fingerprint: int) -> None:
        """Remember the fingerprint of the rows that a row was appended after."""
        self._fingerprints[slot] = (depth, fingerprint)

    def bind_again(self, rows: Sequence[Row], slots: Set[Id], depth: int) -> None:
        """Bind the rows in these slots to what is before them now, after a compaction.

        The vendor demands the thinking of a turn that is still running, although the messages
        before that turn were compacted.
        """
        hashed_count, fingerprint = 0, START
        for position, row in enumerate(rows):
            if row.id in slots and row.id is not None:
                fingerprint = self.fingerprint(rows[hashed_count:position], fingerprint)
                hashed_count = position
                self.bind(row.id, depth, fingerprint)

    def fingerprint(self, rows: Iterable[Row], start: int = START) -> int:
        """The fingerprint after these rows; the caller leaves out hidden rows."""
        for row in rows:
            start = hash((start, self._hash(row)))
        return start

    def stale_signatures(self, rows: Sequence[Row]) -> frozenset[Id]:
        """The slots among these rows whose signed thinking follows other rows now."""
        stale: set[Id] = set()
        hashed_count, fingerprint = 0, START
        for position in [n for n, row in enumerate(rows) if is_signed(row.message)]:
            fingerprint = self.fingerprint(rows[hashed_count:position], fingerprint)
            hashed_count = position
            slot = rows[position].id
            if slot is None:
                continue
            bound = self._fingerprints.get(slot)
            if bound is None or bound[1] != fingerprint:
                stale.add(slot)
        return frozenset(stale)

    def _hash(self, row: Row) -> int:
        cached = None if row.id is None else self._hashes.get(row.id)
        if cached is not None and cached[0] is row.message:
            return cached[1]
        value = hash(encode_entry(row.message)[0])
        if row.id is not None:
            self._hashes[row.id] = (row.message, value)
        return value


def is_signed(message: Message) -> bool:
    """Whether a message has thinking with a vendor's signature."""
    for block in message.blocks:  # runs for every compiled row: a generator would be slower
        kind = type(block)
        if kind is Text:
            continue
        if kind is Redacted or (isinstance(block, Thinking) and block.signature is not None):
            return True
    return False


Count = Callable[[Message], int]

HIDDEN_KINDS = frozenset({"reasoning"})


class SharedRows:
    """The data that the views of one branch share: rows, their positions and running token sums.

    Each row from position `first_append` on was appended by a commit of its own, so each of those
    commits has a view of these rows. `append_points` has the depth and the setup of each commit. If
    a rebase or a cherry-pick appended a row again, `replayed_by` has its commit by the row's slot.

    `compile_whole` is set if commits whose rows were dropped have not been read (`present.py`). It
    compiles a commit from the first one.
    """

    __slots__ = (
        "_fingerprint",
        "append_points",
        "compile_whole",
        "first_append",
        "index",
        "lock",
        "replayed_by",
        "rows",
        "signatures",
        "sums",
    )

    def __init__(
        self, rows: list[Row], base: "SharedRows | None" = None, depth: int = 0, unchanged: int = 0
    ) -> None:
        """With `base`, the first `unchanged` rows are those of `base` at the commit at `depth`."""
        self.rows = rows
        self.signatures = SignatureIndex(None if base is None else base.signatures, depth)
        self.replayed_by: dict[Id, Id] = {} if base is None else base.replayed_by
        self._fingerprint = (0, START)  # a number of rows, and their fingerprint
        self.index = SlotIndex(rows, None if base is None else base.index, unchanged)
        self.sums: list[int] = []
        self.lock = Lock()
        self.first_append = len(rows)
        self.append_points: list[tuple[int, Setup | None]] = []
        self.compile_whole: Callable[[Id], View] | None = (
            None if base is None else base.compile_whole
        )

    def append(self, row: Row, depth: int, setup: Setup | None, commit: Id) -> None:
        """Add the row that `commit` appends."""
        assert row.id is not None
        is_new = row.id == commit
        if is_new and is_signed(row.message):
            self.signatures.bind(row.id, depth, self._fingerprint_rows())
        if not is_new:
            self.index = SlotIndex(self.rows)  # other indexes build on the old one: not changed
        self.index.own[row.id] = len(self.rows)
        self.rows.append(row)
        if is_new:
            self.append_points.append((depth, setup))
        else:
            self.replayed_by[row.id] = commit
            self.forget_earlier_commits()

    def forget_earlier_commits(self) -> None:
        """The views of earlier commits are no longer the first rows of this list."""
        self.first_append = len(self.rows)
        self.append_points.clear()
        self._fingerprint = (0, START)

    def _fingerprint_rows(self) -> int:
        """The fingerprint of all visible rows, continued from the last call."""
        position, fingerprint = self._fingerprint
        fingerprint = self.signatures.fingerprint(visible_rows(self.rows[position:]), fingerprint)
        self._fingerprint = (len(self.rows), fingerprint)
        return fingerprint


class View:
    """The compiled rows of commit `head`: the first `length` shared rows, hidden ones included."""

    __slots__ = ("_shared", "depth", "head", "length", "setup")

    def __init__(
        self,
        shared: SharedRows | None = None,
        length: int = 0,
        head: Id | None = None,
        depth: int = 0,
        setup: Setup | None = None,
    ) -> None:
        self._shared = shared or SharedRows([])
        self.length: int = length
        self.head = head
        self.depth = depth
        self.setup = setup

    @classmethod
    def of_rows(cls, rows: Sequence[Row], head: Id, depth: int) -> "View":
        """A view of only these rows, which may be a part of those at commit `head`.

        `extend` raises `Damaged` if a commit changes one of the other rows.
        """
        return cls(SharedRows(list(rows)), len(rows), head, depth)

    @property
    def rows(self) -> list[Row]:
        """A copy of all rows, hidden ones included."""
        return self._shared.rows[: self.length]

    @property
    def state(self) -> State:
        """The rows and the setup."""
        return State(self.rows, self.setup)

    def stale_signatures(self, rows: Sequence[Row] | None = None) -> frozenset[Id]:
        """The slots whose signed thinking no longer follows the rows that it was signed after.

        This includes rows that a merge or a compaction added. With `rows`, these are checked
        instead of the view's own.
        """
        visible = visible_rows(self.rows if rows is None else rows)
        return self._shared.signatures.stale_signatures(visible)

    def commit_of(self, slot: Id) -> Id:
        """The commit that appended the row in this slot; the slot itself if no append did."""
        return self._shared.replayed_by.get(slot, slot)

    def find(self, slot: Id) -> Row | None:
        """The row in that slot."""
        position = self._shared.index.find(slot)
        return None if position is None or position >= self.length else self._shared.rows[position]

    def at(self, head: Id) -> "View | None":
        """The view of an earlier or later commit, if its rows are the first ones of this list."""
        if head == self.head:
            return self
        shared = self._shared
        position = shared.index.own.get(head, -1)
        if not shared.first_append <= position < len(shared.rows):
            return None
        depth, setup = shared.append_points[position - shared.first_append]
        return View(shared, position + 1, head, depth, setup)

    def tokens(self, count: Count) -> int:
        """The tokens of the visible rows; counts only rows that no view has counted yet."""
        sums = self._shared.sums
        with self._shared.lock:  # callers may share a view between threads
            total = sums[-1] if sums else 0
            for row in self._shared.rows[len(sums) : self.length]:
                if is_visible(row):
                    total += count(row.message)
                sums.append(total)
        return sums[self.length - 1] if self.length else 0

    @property
    def counted_tokens(self) -> int | None:
        """The result of `tokens`, or `None` if some rows have not been counted yet."""
        sums = self._shared.sums
        if self.length > len(sums):
            return None
        return sums[self.length - 1] if self.length else 0

    def extend(self, steps: Iterable[Step]) -> "View":
        """The view after these commits, which follow `head` one by one."""
        steps = list(steps)
        if not steps:
            return self
        compile_whole = self._shared.compile_whole
        if compile_whole is not None and self.head is not None and _needs_dropped(steps):
            return compile_whole(self.head).extend(steps)
        rows = _ExtendedRows(self._shared, self.length, self.depth)
        setup = run_steps(steps, rows, self.setup)
        last = steps[-1]
        return View(rows.shared, rows.length, last.commit.id, last.depth, setup)


def _needs_dropped(steps: Iterable[Step]) -> bool:
    """Whether one of these commits restores a row, or thinking that was signed before.

    Such a row may have been appended by a commit that was not read.
    """
    for step in steps:
        op = decode_body(step).op
        if isinstance(op, Rewrite) and (
            any(new.slot is not None for insert in op.insert for new in insert.rows)
            or any(map(is_signed, decode_entries(step)))
        ):
            return True
    return False


class _ExtendedRows:
    """The rows of a view that is being extended.

    Appends go to the end of the shared list. Any other change copies the list first, because older
    views still use it. So does an append, if another view has already appended to the list.
    """

    __slots__ = ("_depth", "_is_shared", "length", "shared")

    def __init__(self, shared: SharedRows, length: int, depth: int) -> None:
        self.shared = shared
        self.length: int = length
        self._depth = depth
        self._is_shared = True  # whether another view may use the list

    def append(self, row: Row, step: Step, setup: Setup | None) -> None:
        shared = self.shared
        if self.length != len(shared.rows):
            shared = SharedRows(shared.rows[: self.length], shared, self._depth, self.length)
            self.shared = shared
            self._is_shared = False
        self._depth = step.depth
        shared.append(row, self._depth, setup, step.commit.id)
        self.length += 1

    def rewrite(self, op: Rewrite, messages: Sequence[Message], step: Step) -> None:
        shared, length, commit = self.shared, self.length, step.commit.id
        running = (
            self._valid_in_running_turn() if step.commit.kind == "compact" else frozenset[Id]()
        )
        if self._is_shared or op.drop or op.insert or length != len(shared.rows):
            before = shared.rows if length == len(shared.rows) else shared.rows[:length]
            rows = apply_rewrite(before, op, messages, commit, shared.index)
            unchanged = count_untouched(op, shared.index, length)
            self.shared = SharedRows(rows, shared, self._depth, unchanged)
            self._is_shared = False
        else:  # no view uses this list yet: it can be changed in place
            change_in_place(shared.rows, op, messages, commit, shared.index)
            shared.forget_earlier_commits()
        self.length = len(self.shared.rows)
        self._depth = step.depth
        if running:
            self.shared.signatures.bind_again(visible_rows(self.shared.rows), running, step.depth)

    def _valid_in_running_turn(self) -> frozenset[Id]:
        """The slots of the running turn whose signed thinking may be sent."""
        rows = visible_rows(self.shared.rows[: self.length])
        start = running_turn(rows)
        if start is None:
            return frozenset[Id]()
        signed = {row.id for row in rows[start:] if row.id is not None and is_signed(row.message)}
        return (
            frozenset(signed - self.shared.signatures.stale_signatures(rows))
            if signed
            else frozenset()
        )


def is_visible(row: Row, *, reasoning: bool = False) -> bool:
    """Whether this row is sent to a model; `reasoning` includes rows of that kind."""
    return row.priority != "skip" and (reasoning or row.kind not in HIDDEN_KINDS)


def visible_rows(rows: Iterable[Row], *, reasoning: bool = False) -> list[Row]:
    """The rows that are sent to a model."""
    return [row for row in rows if is_visible(row, reasoning=reasoning)]
