"""The difference between two compiled lists, row by row, matched by slot."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from msgspec import Struct, structs

from weft.ids import Id
from weft.model import display_text, speaker

from .compile import Count, is_visible
from .objects import Row


class DiffLine(Struct, frozen=True):
    """One row that was added, removed or changed.

    `unchanged` is the number of rows between the previous difference and this one.
    """

    kind: Literal["added", "removed", "changed"]
    slot: Id
    before: Row | None
    after: Row | None
    unchanged: int = 0

    @property
    def id(self) -> str:
        return self.slot.hex()


class Diff(Struct, frozen=True):
    """All differences, in reading order, and the tokens before and after.

    `unchanged` is the number of rows after the last difference.
    """

    changes: tuple[DiffLine, ...]
    tokens_before: int
    tokens_after: int
    unchanged: int = 0

    @property
    def tokens(self) -> int:
        return self.tokens_after - self.tokens_before

    @property
    def added(self) -> tuple[Row, ...]:
        return tuple(line.after for line in self.changes if line.kind == "added" and line.after)

    @property
    def removed(self) -> tuple[Row, ...]:
        return tuple(line.before for line in self.changes if line.kind == "removed" and line.before)

    @property
    def changed(self) -> tuple[tuple[Row, Row], ...]:
        pairs = ((line.before, line.after) for line in self.changes)
        return tuple((before, after) for before, after in pairs if before and after)

    def __bool__(self) -> bool:
        return bool(self.changes)

    def __str__(self) -> str:
        if not self.changes:
            return "no difference"
        total = f"tokens: {self.tokens_before:,} → {self.tokens_after:,} ({self.tokens:+,})"
        return "\n".join([*_lines(self.changes), total])


def diff_rows(before: Sequence[Row], after: Sequence[Row], count: Count) -> Diff:
    """The difference between two lists; hidden rows count as absent."""
    old_by_slot = {row.id: row for row in before if row.id is not None and is_visible(row)}
    new_by_slot = {row.id: row for row in after if row.id is not None and is_visible(row)}
    changes: list[DiffLine] = []
    added: list[DiffLine] = []
    old_rows = iter(list(old_by_slot.items()))
    unchanged = 0

    def add(lines: Iterable[DiffLine]) -> None:
        nonlocal unchanged
        for line in lines:
            changes.append(structs.replace(line, unchanged=unchanged) if unchanged else line)
            unchanged = 0

    for slot, row in new_by_slot.items():
        if slot not in old_by_slot:
            added.append(DiffLine("added", slot, None, row))
            continue
        add([*_removed_before(old_rows, slot, new_by_slot), *added])
        added.clear()
        if old_by_slot[slot] == row:
            unchanged += 1
        else:
            add([DiffLine("changed", slot, old_by_slot[slot], row)])
    add([*_removed_before(old_rows, None, new_by_slot), *added])
    return Diff(
        tuple(changes),
        sum(count(row.message) for row in old_by_slot.values()),
        sum(count(row.message) for row in new_by_slot.values()),
        unchanged,
    )


def _removed_before(
    old_rows: Iterator[tuple[Id, Row]], until: Id | None, new_by_slot: dict[Id, Row]
) -> Iterator[DiffLine]:
    """The removed rows from the iterator's position up to the row `until`."""
    for slot, row in old_rows:
        if slot == until:
            return
        if slot not in new_by_slot:
            yield DiffLine("removed", slot, row, None)


def _lines(changes: Sequence[DiffLine]) -> Iterator[str]:
    """The differences as in a unified diff, with `-` and `+`."""
    for change in changes:
        for row, sign in ((change.before, "-"), (change.after, "+")):
            if row is not None:
                priority = "" if row.priority == "normal" else f" [{row.priority}]"
                text = display_text(row.message).replace("\n", f"\n{sign} ")
                yield f"{sign} {change.id[:12]} {speaker(row.message)}{priority}: {text}"
