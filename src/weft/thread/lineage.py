"""Where words come from: every version of a line, and the commit that brought a text.

A line's versions are found among the commits that the branch comes from, through every parent: a
line that a merge brought home was written on the branch it came from, not by the merge. Only what
may have written it is read, so the length of a thread hardly matters to a line that is named by
its full id; a text is looked for in all that is live.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from weft.history import (
    Append,
    Rewrite,
    Row,
    decode_body,
    decode_entries,
    new_slot,
    read_writers,
    search_commits,
    show_rows,
)
from weft.ids import Id
from weft.model import Message
from weft.store import Step

from .handle import Handle
from .info import read_info
from .resolve import Name, find_row, read_row

LIMIT = 50


class Version(Struct, frozen=True):
    """What a line once said, and the commit that made it say so."""

    number: int
    commit: str
    kind: str
    message: Message
    created: datetime

    @property
    def text(self) -> str:
        return self.message.text

    def to_dict(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "commit": self.commit,
            "kind": self.kind,
            "created": self.created.isoformat(),
            "text": self.text,
        }


class Blame(Struct, frozen=True):
    """One line that has the text, and the commit that first gave it that text.

    `live` is whether a model still sees it there.
    """

    id: str
    commit: str
    kind: str
    note: str | None
    created: datetime
    role: str
    text: str
    live: bool

    def to_dict(self) -> dict[str, Any]:
        found = {name: getattr(self, name) for name in self.__struct_fields__}
        return {**found, "created": self.created.isoformat()}


def written_lines(step: Step) -> list[tuple[Id, Message]]:
    """The lines that a commit wrote, and what it wrote there."""
    messages = decode_entries(step)
    op = decode_body(step).op
    commit = step.commit.id
    match op:
        case Append(slot=slot):
            return [(slot or commit, messages[0])]
        case Rewrite():
            found = [(c.slot, messages[c.entry]) for c in op.change if c.entry is not None]
            placed = [placed for insert in op.insert for placed in insert.rows]
            found += [
                (p.slot or new_slot(commit, number), messages[p.entry])
                for number, p in enumerate(placed)
            ]
            return found
        case _:
            return []


def edit_history(handle: Handle, name: Name) -> list[Version]:
    """Every version of a line, the original first."""
    return read_versions(handle, read_row(handle, name).id)


def read_versions(handle: Handle, slot: Id | None) -> list[Version]:
    """The versions of the line in this slot; one that says what the last said is none."""
    head = handle.head()
    found: list[Version] = []
    slots = [] if slot is None else [slot]
    for step in [] if head is None else read_writers(handle.store, handle.name, head, slots):
        for written, message in written_lines(step):
            if written == slot and not (found and found[-1].message == message):
                found.append(_version(len(found), step, message))
    return found


def blame(handle: Handle, wanted: Name, limit: int = LIMIT) -> list[Blame]:
    """Which commit brought the line of this id, or each line with this text; live ones first.

    What is gone from the branch is found too, where it was once in context.
    """
    row = find_row(handle, wanted)
    if row is None:
        rows = show_rows(handle.view(handle.head()).rows)
        return _blame_text(handle, rows, str(wanted), limit)
    return list(_brought(handle, {row.id: row.message}, ""))


def _blame_text(handle: Handle, rows: list[Row], text: str, limit: int) -> list[Blame]:
    if not text.strip():
        return []
    live = {row.id: row.message for row in rows if text in row.message.text}
    found = list(_brought(handle, live, text))
    known = set(live)
    for step in search_commits(handle.store, handle.name, text, limit):
        for slot, message in written_lines(step):
            if slot not in known and text in message.text:
                known.add(slot)
                found.append(_blame(slot, step, message, False))
    return found[:limit]


def _brought(handle: Handle, lines: dict[Id | None, Message], text: str) -> Iterator[Blame]:
    """For each line the commit by which it came to have the text, or to say what it says."""
    head = handle.head()
    came: dict[Id, tuple[Step, Message]] = {}
    slots = [slot for slot in lines if slot is not None]
    for step in read_writers(handle.store, handle.name, head, slots) if head and slots else ():
        for slot, message in written_lines(step):
            if slot not in lines or (slot in came and _keeps(came[slot][1], message, text)):
                continue
            came[slot] = (step, message)
    for slot, message in lines.items():
        if slot is not None and slot in came:
            yield _blame(slot, came[slot][0], message, True)


def _keeps(before: Message, after: Message, text: str) -> bool:
    """Whether a version of a line adds nothing: it had the text already, or says the same."""
    return text in before.text and text in after.text if text else before == after


def _no_count(_: Message) -> int:
    return 0


def _blame(slot: Id, step: Step, message: Message, live: bool) -> Blame:
    return Blame(
        slot.hex(),
        step.commit.id.hex(),
        step.commit.kind,
        read_info(step, _no_count).message,
        datetime.fromtimestamp(step.commit.created, UTC),
        message.role,
        message.text,
        live,
    )


def _version(number: int, step: Step, message: Message) -> Version:
    created = datetime.fromtimestamp(step.commit.created, UTC)
    return Version(number, step.commit.id.hex(), step.commit.kind, message, created)
