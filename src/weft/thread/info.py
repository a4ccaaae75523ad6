"""What the verbs give back: a commit as a person asks about it."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from weft.history import decode_body, decode_entry
from weft.model import JsonObject, Message, Usage
from weft.store import Step

from .attachments import spoken

PREVIEW = 72

Count = Callable[[Message], int]


class CommitInfo(Struct, frozen=True, kw_only=True, eq=False):
    """One commit. `message` is the note beside it, `messages` are the entries it brings.

    `metadata` is what the caller gave, `usage` what a model reported. Two infos are equal when
    they name the same commit.
    """

    id: str
    parents: tuple[str, ...]
    kind: str
    message: str | None
    created: datetime
    metadata: JsonObject
    generation_config: JsonObject | None
    messages: tuple[Message, ...]
    usage: Usage | None
    count: Count

    @property
    def tokens(self) -> int:
        """The tokens of the entries it brings, counted when asked."""
        return sum(self.count(message) for message in self.messages)

    @property
    def text(self) -> str:
        """What a person would read of the entries it brings."""
        return "\n".join(message.text for message in self.messages)

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


def read_info(step: Step, count: Count) -> CommitInfo:
    """The info of a stored commit."""
    body = decode_body(step)
    commit = step.commit
    return CommitInfo(
        id=commit.id.hex(),
        parents=tuple(parent.hex() for parent in commit.parents),
        kind=commit.kind,
        message=body.note,
        created=datetime.fromtimestamp(commit.created, UTC),
        metadata=body.metadata or {},
        generation_config=body.generation_config,
        messages=spoken(decode_entry(content) for content in step.contents),
        usage=None if commit.usage is None else msgspec.json.decode(commit.usage, type=Usage),
        count=count,
    )


def auto_note(kind: str, text: str) -> str:
    """`"<type>: <preview>"` in one line of at most 72 characters; blank text is the bare type."""
    flat = text.replace("\r\n", " ").replace("\n", " ").replace("\r", " ").strip()
    if not flat:
        return kind
    note = f"{kind}: {flat}"
    return note if len(note) <= PREVIEW else note[: PREVIEW - 3] + "..."
