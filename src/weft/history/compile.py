"""Compile: from a commit to its list of rows.

A `View` is one such list. The views of one growing branch share a list: an append adds to its end,
and an older view ignores the rows after its own length. So a commit and the next compile cost the
same however long the thread is. Any other change copies the list first. Token counts are running
sums beside the shared list, computed on first use.

Operations are carried out by `ops.run_steps`. A compile from scratch extends the empty view, and an
incremental one extends the view before, so the two cannot differ.
"""

from collections.abc import Callable, Iterable, Sequence
from threading import Lock

from weft.ids import Id
from weft.model import Message
from weft.store import Step

from .objects import Rewrite, Row, Setup, State
from .ops import SlotIndex, apply_rewrite, change_in_place, count_untouched, run_steps
from .signatures import START, SignatureIndex, is_signed

Count = Callable[[Message], int]

HIDDEN_KINDS = frozenset({"reasoning"})


class SharedRows:
    """What the views of one branch share: the rows, their positions and running token sums.

    Each row from position `first_append` on was appended by a commit of its own, so each of those
    commits has a view of these rows; `marks` holds the depth and the setup of each. `replayed_by`
    maps the slot of a row that a rebase or cherry-pick appended again to the commit that did so.
    """

    __slots__ = (
        "_fingerprint",
        "first_append",
        "index",
        "lock",
        "marks",
        "replayed_by",
        "rows",
        "signatures",
        "sums",
    )

    def __init__(
        self, rows: list[Row], base: "SharedRows | None" = None, depth: int = 0, same: int = 0
    ) -> None:
        """With `base`, the first `same` rows are those of `base` at the commit of this depth."""
        self.rows = rows
        self.signatures = SignatureIndex(None if base is None else base.signatures, depth)
        self.replayed_by: dict[Id, Id] = {} if base is None else base.replayed_by
        self._fingerprint = (0, START)
        self.index = SlotIndex(rows, None if base is None else base.index, same)
        self.sums: list[int] = []
        self.lock = Lock()
        self.first_append = len(rows)
        self.marks: list[tuple[int, Setup | None]] = []

    def append(self, row: Row, depth: int, setup: Setup | None, commit: Id) -> None:
        """Add the row that `commit` appends."""
        assert row.id is not None
        is_new = row.id == commit
        if is_new and is_signed(row.message):
            self.signatures.bind(row.id, depth, self._fingerprint_here())
        if not is_new:
            self.index = SlotIndex(self.rows)  # indexes built on the old one still need it as it is
        self.index.own[row.id] = len(self.rows)
        self.rows.append(row)
        if is_new:
            self.marks.append((depth, setup))
        else:
            self.replayed_by[row.id] = commit
            self.forget_past()

    def forget_past(self) -> None:
        """Earlier commits no longer have a view of these rows."""
        self.first_append = len(self.rows)
        self.marks.clear()
        self._fingerprint = (0, START)

    def _fingerprint_here(self) -> int:
        """The fingerprint of all rows that show, continued from the last call."""
        position, fingerprint = self._fingerprint
        fingerprint = self.signatures.fingerprint(show_rows(self.rows[position:]), fingerprint)
        self._fingerprint = (len(self.rows), fingerprint)
        return fingerprint


class View:
    """What commit `head` compiles to: the first `length` shared rows, hidden ones included."""

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

        This includes rows that another branch or a compaction brought. With `rows`, the answer is
        for these rows instead of the view's own.
        """
        shown = show_rows(self.rows if rows is None else rows)
        return self._shared.signatures.stale_signatures(shown)

    def commit_of(self, slot: Id) -> Id:
        """The commit that appended the row in this slot, if an append did."""
        return self._shared.replayed_by.get(slot, slot)

    def find(self, slot: Id) -> Row | None:
        """The row in that slot."""
        position = self._shared.index.find(slot)
        return None if position is None or position >= self.length else self._shared.rows[position]

    def at(self, head: Id) -> "View | None":
        """The view of another commit, if the shared list went through it."""
        if head == self.head:
            return self
        shared = self._shared
        position = shared.index.own.get(head, -1)
        if not shared.first_append <= position < len(shared.rows):
            return None
        depth, setup = shared.marks[position - shared.first_append]
        return View(shared, position + 1, head, depth, setup)

    def tokens(self, count: Count) -> int:
        """The tokens of the rows that show; counts only rows that no view has counted yet."""
        sums = self._shared.sums
        with self._shared.lock:  # callers may share a view between threads
            total = sums[-1] if sums else 0
            for row in self._shared.rows[len(sums) : self.length]:
                if shows(row):
                    total += count(row.message)
                sums.append(total)
        return sums[self.length - 1] if self.length else 0

    @property
    def counted(self) -> int | None:
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
        rows = _ExtendedRows(self._shared, self.length, self.depth)
        setup = run_steps(steps, rows, self.setup)
        last = steps[-1]
        return View(rows.shared, rows.length, last.commit.id, last.depth, setup)


class _ExtendedRows:
    """The rows of a view that is being extended.

    Appends go to the end of the shared list. Any other change, and an append to a view that others
    have already outgrown, copies the list first, because older views still show it.
    """

    __slots__ = ("_depth", "_is_seen", "length", "shared")

    def __init__(self, shared: SharedRows, length: int, depth: int) -> None:
        self.shared = shared
        self.length: int = length
        self._depth = depth
        self._is_seen = True  # whether another view may show the shared list

    def append(self, row: Row, step: Step, setup: Setup | None) -> None:
        shared = self.shared
        if self.length != len(shared.rows):
            shared = SharedRows(shared.rows[: self.length], shared, self._depth, self.length)
            self.shared = shared
            self._is_seen = False
        self._depth = step.depth
        shared.append(row, self._depth, setup, step.commit.id)
        self.length += 1

    def rewrite(self, op: Rewrite, messages: Sequence[Message], step: Step) -> None:
        shared, length, commit = self.shared, self.length, step.commit.id
        if self._is_seen or op.drop or op.insert or length != len(shared.rows):
            before = shared.rows if length == len(shared.rows) else shared.rows[:length]
            rows = apply_rewrite(before, op, messages, commit, shared.index)
            same = count_untouched(op, shared.index, length)
            self.shared = SharedRows(rows, shared, self._depth, same)
            self._is_seen = False
        else:  # nobody has seen this list: a thousand pins cost a thousand steps
            change_in_place(shared.rows, op, messages, commit, shared.index)
            shared.forget_past()
        self.length = len(self.shared.rows)
        self._depth = step.depth


def shows(row: Row, *, reasoning: bool = False) -> bool:
    """Whether a model is shown this row."""
    return row.priority != "skip" and (reasoning or row.kind not in HIDDEN_KINDS)


def show_rows(rows: Iterable[Row], *, reasoning: bool = False) -> list[Row]:
    """The rows that a model is shown."""
    return [row for row in rows if shows(row, reasoning=reasoning)]
