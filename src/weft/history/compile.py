"""Compile: the list of lines that a commit means.

A `View` is one such list. Views of one growing branch share their list: an append adds to its end
and the older view simply does not look that far, so commit-then-compile costs the same however
long the thread is. Any other change copies the list first. Token counts are running sums beside
the shared list and are made on first need.

`extend` is the only place where operations are carried out: a compile from scratch is an
extension of the empty view, and an incremental one of the view before. They cannot differ.
"""

from collections.abc import Callable, Iterable, Sequence
from threading import Lock

from weft.errors import Damaged
from weft.ids import Id
from weft.model import Message
from weft.store import Step

from .objects import (
    Append,
    Rewrite,
    Row,
    Setup,
    State,
    decode_appended,
    decode_body,
    decode_entries,
)
from .rewrite import SlotIndex, apply_rewrite, changed, untouched
from .signatures import START, SignatureIndex, is_signed

Count = Callable[[Message], int]

HIDDEN_KINDS = frozenset({"reasoning"})


class SharedRows:
    """The shared part of views: lines, where each stands, and running token sums.

    Lines from place `born` on were appended one commit each, so that every one of those commits
    is a view of this weave; `marks` has the depth and the setup of each. `moved` has, for lines
    that were said again under their old slot, the commit that did so.
    """

    __slots__ = ("_traced", "born", "counting", "marks", "moved", "places", "rows", "seals", "sums")

    def __init__(
        self, rows: list[Row], of: "SharedRows | None" = None, depth: int = 0, same: int = 0
    ) -> None:
        """Lines of their own, or what `of` becomes behind the commit at this depth; `same` is how
        many lines both begin with."""
        self.rows = rows
        self.seals = SignatureIndex() if of is None else SignatureIndex(of.seals, depth)
        self.moved: dict[Id, Id] = {} if of is None else of.moved
        self._traced = (0, START)
        self.places = SlotIndex(rows, None if of is None else of.places, same)
        self.sums: list[int] = []
        self.counting = Lock()
        self.born = len(rows)
        self.marks: list[tuple[int, Setup | None]] = []

    def append(self, row: Row, depth: int, setup: Setup | None, commit: Id) -> None:
        """Add the line that `commit` appends."""
        assert row.id is not None
        if is_signed(row.message) and row.id == commit:
            self.seals.bind(row.id, depth, self._trace())
        if row.id != commit:
            self.places = SlotIndex(self.rows)  # lists that stand on the old one know where it was
        self.places.own[row.id] = len(self.rows)
        self.rows.append(row)
        if row.id == commit:
            self.marks.append((depth, setup))
        else:
            self.moved[row.id] = commit
            self.forget_past()

    def forget_past(self) -> None:
        """No commit before this one is a view of the weave any more."""
        self.born = len(self.rows)
        self.marks.clear()
        self._traced = (0, START)

    def _trace(self) -> int:
        """The fingerprint of all that shows, counted on from the last time it was asked for."""
        place, trace = self._traced
        trace = self.seals.trace(show_rows(self.rows[place:]), trace)
        self._traced = (len(self.rows), trace)
        return trace


class View:
    """What commit `head` compiles to: the first `length` lines of a weave, hidden ones included."""

    __slots__ = ("_weave", "depth", "head", "length", "setup")

    def __init__(
        self,
        weave: SharedRows | None = None,
        length: int = 0,
        head: Id | None = None,
        depth: int = 0,
        setup: Setup | None = None,
    ) -> None:
        self._weave = weave or SharedRows([])
        self.length = length
        self.head = head
        self.depth = depth
        self.setup = setup

    @property
    def rows(self) -> list[Row]:
        """Every line, hidden ones too; a list of the caller's own."""
        return self._weave.rows[: self.length]

    @property
    def state(self) -> State:
        """The lines and the setup, for those who work out another."""
        return State(self.rows, self.setup)

    def stale_signatures(self, rows: Sequence[Row] | None = None) -> frozenset[Id]:
        """The lines whose signed thinking stands behind another beginning than it was signed for.

        Lines that another branch or a compaction brought are among them. With `rows`, as it would
        be if these were the lines.
        """
        return self._weave.seals.stale_signatures(show_rows(self.rows if rows is None else rows))

    def commit_of(self, slot: Id) -> Id:
        """The commit that appended the line in this slot, if an append did."""
        return self._weave.moved.get(slot, slot)

    def find(self, slot: Id) -> Row | None:
        """The line in that slot."""
        place = self._weave.places.find(slot)
        return None if place is None or place >= self.length else self._weave.rows[place]

    def at(self, head: Id) -> "View | None":
        """The view of another commit, if it is one that this weave went through."""
        weave = self._weave
        place = weave.places.own.get(head, -1)
        if head == self.head or not weave.born <= place < len(weave.rows):
            return self if head == self.head else None
        depth, setup = weave.marks[place - weave.born]
        return View(weave, place + 1, head, depth, setup)

    def tokens(self, count: Count) -> int:
        """The sum over the lines that show; counts only what no view of the weave has counted."""
        sums = self._weave.sums
        with self._weave.counting:  # views are handed out, and may be asked from any thread
            total = sums[-1] if sums else 0
            for row in self._weave.rows[len(sums) : self.length]:
                total += count(row.message) if shows(row) else 0
                sums.append(total)
        return sums[self.length - 1] if self.length else 0

    @property
    def counted(self) -> int | None:
        """What `tokens` says, where nothing would have to be counted for it."""
        sums = self._weave.sums
        if self.length > len(sums):
            return None
        return sums[self.length - 1] if self.length else 0

    def extend(self, steps: Iterable[Step]) -> "View":
        """The view after these commits, which follow `head` one by one."""
        weave, length, setup = self._weave, self.length, self.setup
        shared = True
        head, depth = self.head, self.depth
        for step in steps:
            before, head, depth = depth, step.commit.id, step.depth
            op = decode_body(step).op
            match op:
                case Append(kind=kind, priority=priority):
                    if length != len(weave.rows):
                        weave = SharedRows(weave.rows[:length], weave, before, length)
                        shared = False
                    row = Row(op.slot or head, decode_appended(step), priority, kind)
                    weave.append(row, depth, setup, head)
                    length += 1
                case Rewrite():
                    setup = setup if op.setup is None else op.setup
                    if not op.touches_lines:
                        continue
                    messages = decode_entries(step)
                    if shared or op.drop or op.insert or length != len(weave.rows):
                        lines = weave.rows
                        if length != len(lines):
                            lines = lines[:length]
                        rows = apply_rewrite(lines, op, messages, head, weave.places)
                        same = untouched(op, weave.places, length)
                        weave = SharedRows(rows, weave, before, same)
                        shared = False
                    else:
                        _change_in_place(weave, op, messages)
                    length = len(weave.rows)
                case Setup():
                    setup = op
        return View(weave, length, head, depth, setup)


def _change_in_place(weave: SharedRows, op: Rewrite, messages: Sequence[Message]) -> None:
    """Changes alone, on a weave that no view has seen: a thousand pins cost a thousand steps."""
    for change in op.change:
        try:
            place = weave.places[change.slot]
        except KeyError:
            raise Damaged(
                f"a commit changes line {change.slot.hex()}, which is not there"
            ) from None
        weave.rows[place] = changed(weave.rows[place], change, messages)
    weave.forget_past()


def shows(row: Row, *, reasoning: bool = False) -> bool:
    """Whether a model is shown this line."""
    return row.priority != "skip" and (reasoning or row.kind not in HIDDEN_KINDS)


def show_rows(rows: Iterable[Row], *, reasoning: bool = False) -> list[Row]:
    """The lines that a model is shown."""
    return [row for row in rows if shows(row, reasoning=reasoning)]
