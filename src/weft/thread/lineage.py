"""`blame` and `edit_history`: which commit wrote a text, and all versions of a message.

Versions are searched in all ancestors of the branch, not only first parents, because a merged
message was written on the other branch. Only commits that may have written the message are read. So
for a full id, the cost hardly depends on the length of the thread. For a text, all live messages
are searched first, and then the index.
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
    inserted_slots,
    read_writers,
    search_commits,
    visible_rows,
)
from weft.ids import Id
from weft.model import Message
from weft.store import Step

from .handle import Handle
from .info import read_info
from .resolve import Name, find_row, read_row

LIMIT = 50
"""The most results of `blame` by default."""


class Version(Struct, frozen=True):
    """One version of a message, and the commit that wrote it."""

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
    """A message that contains the text, and the commit that wrote the text.

    `live` says whether a model still sees it.
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
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return {**fields, "created": self.created.isoformat()}


def written_messages(step: Step) -> list[tuple[Id, Message]]:
    """The messages that a commit wrote, each with its slot."""
    messages = decode_entries(step)
    op = decode_body(step).op
    commit = step.commit.id
    match op:
        case Append(slot=slot):
            return [(slot or commit, messages[0])]
        case Rewrite():
            edited = [
                (change.slot, messages[change.entry])
                for change in op.change
                if change.entry is not None
            ]
            inserted = [messages[row.entry] for insert in op.insert for row in insert.rows]
            return [*edited, *zip(inserted_slots(commit, op), inserted, strict=True)]
        case _:
            return []


def edit_history(handle: Handle, name: Name) -> list[Version]:
    """Every version of a message, the original first."""
    return read_versions(handle, read_row(handle, name).id)


def read_versions(handle: Handle, slot: Id | None) -> list[Version]:
    """The versions of the message in this slot; a version equal to the one before is left out."""
    head = handle.head()
    versions: list[Version] = []
    slots = [] if slot is None else [slot]
    for step in [] if head is None else read_writers(handle.store, handle.name, head, slots):
        for written_slot, message in written_messages(step):
            if written_slot == slot and not (versions and versions[-1].message == message):
                versions.append(_make_version(len(versions), step, message))
    return versions


def blame(handle: Handle, wanted: Name, limit: int = LIMIT) -> list[Blame]:
    """The commit that wrote each message that contains this text, or has this id.

    Live messages come first. Messages that the branch no longer shows are included.
    """
    row = find_row(handle, wanted)
    if row is None:
        rows = visible_rows(handle.view(handle.head()).rows)
        return _blame_text(handle, rows, str(wanted), limit)
    return list(_blame_live(handle, {row.id: row.message}, ""))


def _blame_text(handle: Handle, rows: list[Row], text: str, limit: int) -> list[Blame]:
    if not text.strip():
        return []
    live_messages = {row.id: row.message for row in rows if text in row.message.text}
    blames = list(_blame_live(handle, live_messages, text))
    listed_slots = set(live_messages)
    for step in search_commits(handle.store, handle.name, text, limit):
        for slot, message in written_messages(step):
            if slot not in listed_slots and text in message.text:
                listed_slots.add(slot)
                blames.append(_make_blame(slot, step, message, live=False))
    return blames[:limit]


def _blame_live(handle: Handle, messages: dict[Id | None, Message], text: str) -> Iterator[Blame]:
    """For each live message, the commit that wrote the text in it.

    Without a text, the commit that wrote its current content. A later commit counts only if the
    version before it did not have the text.
    """
    head = handle.head()
    writers: dict[Id, tuple[Step, Message]] = {}
    slots = [slot for slot in messages if slot is not None]
    for step in read_writers(handle.store, handle.name, head, slots) if head and slots else ():
        for slot, message in written_messages(step):
            is_unchanged = slot in writers and _is_text_unchanged(writers[slot][1], message, text)
            if slot in messages and not is_unchanged:
                writers[slot] = (step, message)
    for slot, message in messages.items():
        if slot is not None and slot in writers:
            yield _make_blame(slot, writers[slot][0], message, live=True)


def _is_text_unchanged(before: Message, after: Message, text: str) -> bool:
    """Whether both versions have the text; without a text, whether they are equal."""
    return text in before.text and text in after.text if text else before == after


def _no_count(_: Message) -> int:
    return 0


def _make_blame(slot: Id, step: Step, message: Message, *, live: bool) -> Blame:
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


def _make_version(number: int, step: Step, message: Message) -> Version:
    created = datetime.fromtimestamp(step.commit.created, UTC)
    return Version(number, step.commit.id.hex(), step.commit.kind, message, created)
