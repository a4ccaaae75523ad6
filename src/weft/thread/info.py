"""What the verbs give back: a commit as a person asks about it."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from weft.history import Append, Body, Priority, Rewrite, Setup, decode_body, decode_entries
from weft.model import JsonObject, Message, Text, Usage
from weft.store import Step

from .source_lines import spoken

PREVIEW = 72
BREAKS = dict.fromkeys(map(ord, "\t\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"), " ")
"""What a terminal or an editor may take for the end of a line, or for a column."""

Count = Callable[[Message], int]


class CommitInfo:
    """One commit. `message` is the note beside it, `messages` are the entries it brings.

    `metadata` is what the caller gave, `usage` what a model reported. `hook_errors` are the errors
    of `after` hooks that were told of it and failed, where a verb returned it. Two infos are
    equal when they name the same commit. What a commit says is read when it is asked for: most
    callers of a verb that writes look at the id, or at nothing.
    """

    __slots__ = ("_body", "_messages", "_step", "count", "hook_errors")

    def __init__(self, step: Step, count: Count) -> None:
        self._step = step
        self.count = count
        self.hook_errors: tuple[Exception, ...] = ()
        self._body: Body | None = None
        self._messages: tuple[Message, ...] | None = None

    @property
    def id(self) -> str:
        return self._step.commit.id.hex()

    @property
    def parents(self) -> tuple[str, ...]:
        return tuple(parent.hex() for parent in self._step.commit.parents)

    @property
    def kind(self) -> str:
        return self._step.commit.kind

    @property
    def message(self) -> str | None:
        """The note beside it, written out where it is the beginning of its own words."""
        said = self._said
        if not isinstance(said.note, bool):
            return said.note
        kind = said.op.kind if isinstance(said.op, Append) else self.kind
        return auto_note(kind, own_words(self.messages[0]) if self.messages else "")

    @property
    def created(self) -> datetime:
        return datetime.fromtimestamp(self._step.commit.created, UTC)

    @property
    def metadata(self) -> JsonObject:
        return self._said.metadata or {}

    @property
    def generation_config(self) -> JsonObject | None:
        return self._said.generation_config

    @property
    def messages(self) -> tuple[Message, ...]:
        if self._messages is None:
            self._messages = spoken(decode_entries(self._step))
        return self._messages

    @property
    def marked(self) -> dict[str, Priority]:
        """The lines that it gave another priority, by their ids."""
        op = self._said.op
        changes = op.change if isinstance(op, Rewrite) else ()
        return {c.slot.hex(): c.priority for c in changes if c.priority is not None}

    @property
    def setup(self) -> Setup | None:
        """The tools and parameters that it set, where it is such a commit."""
        op = self._said.op
        return op if isinstance(op, Setup) else None

    @property
    def usage(self) -> Usage | None:
        usage = self._step.commit.usage
        return None if usage is None else msgspec.json.decode(usage, type=Usage)

    @property
    def tokens(self) -> int:
        """The tokens of the entries it brings, counted when asked."""
        return sum(self.count(message) for message in self.messages)

    @property
    def text(self) -> str:
        """What a person would read of the entries it brings."""
        return "\n".join(message.text for message in self.messages)

    @property
    def _said(self) -> Body:
        if self._body is None:
            self._body = decode_body(self._step)
        return self._body

    def to_dict(self) -> dict[str, Any]:
        """The commit as JSON says it."""
        return {
            "id": self.id,
            "parents": list(self.parents),
            "kind": self.kind,
            "message": self.message,
            "tokens": self.tokens,
            "created": self.created.isoformat(),
            "metadata": self.metadata,
            "generation_config": self.generation_config,
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CommitInfo) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __str__(self) -> str:
        return self.id

    def __repr__(self) -> str:
        return f"CommitInfo(id={self.id!r}, kind={self.kind!r}, message={self.message!r})"


def read_info(step: Step, count: Count) -> CommitInfo:
    """The info of a stored commit."""
    return CommitInfo(step, count)


def own_words(message: Message) -> str:
    """The words that a message opens with."""
    first = message.blocks[0] if message.blocks else None
    return first.text if isinstance(first, Text) else ""


def auto_note(kind: str, text: str) -> str:
    """`"<type>: <preview>"` in one line of at most 72 characters; blank text is the bare type."""
    flat = text.replace("\r\n", " ").translate(BREAKS).strip()
    if not flat:
        return kind
    note = f"{kind}: {flat}"
    return note if len(note) <= PREVIEW else note[: PREVIEW - 3] + "..."
