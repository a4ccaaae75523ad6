"""Values that `Thread` methods return: `CommitInfo`, `Stats`, and the result of an import."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from weft.errors import Damaged
from weft.history import (
    Append,
    Body,
    Priority,
    Rewrite,
    Setup,
    decode_appended,
    decode_body,
    decode_body_data,
    decode_entries,
    decode_entry,
    encode_body,
    read_times,
)
from weft.ids import Id
from weft.model import JsonObject, Message, Text, Usage
from weft.store import LogRow, Step, Store

from .source_lines import ATTACHMENT, without_attachments

MAX_NOTE = 72
"""The most characters of an automatic note."""

PLAIN_APPEND = encode_body(Body(Append()))
"""The stored body of a commit that appends one message of a conversation, with the automatic note
and nothing else."""

SPACES_FOR_BREAKS = dict.fromkeys(map(ord, "\t\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"), " ")
"""Maps characters that a terminal or an editor may treat as a line break or a column to spaces."""

Count = Callable[[Message], int]

Progress = Callable[[int, int], None]
"""Called during an import, with the number of items done and the total."""


class CommitInfo:
    """One commit. `message` is the note that describes it, `messages` are the entries it adds.

    `metadata` was passed by the caller, `usage` was reported by the vendor. `hook_errors` are the
    errors of `after` hooks, if the commit was just written. Two infos are equal if they have the
    same id.

    The content is decoded on first access, because most callers that write only use the id.
    """

    __slots__ = ("_body", "_messages", "_source", "count", "hook_errors")

    def __init__(self, step: Step, count: Count) -> None:
        self._source: Any = step  # `ListedCommit` has a `LogPart` here
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
        """The commit note; an automatic note is derived from the message."""
        body = self._decoded
        if not isinstance(body.note, bool):
            return body.note
        kind = body.op.kind if isinstance(body.op, Append) else self.kind
        return auto_note(kind, first_text(self.messages[0]) if self.messages else "")

    @property
    def automatic_type(self) -> str | None:
        """The content type that an automatic note begins with; `None` for any other note."""
        body = self._decoded
        if body.note is not True:
            return None
        return body.op.kind if isinstance(body.op, Append) else self.kind

    @property
    def created(self) -> datetime:
        return datetime.fromtimestamp(self._step.commit.created, UTC)

    @property
    def metadata(self) -> JsonObject:
        return self._decoded.metadata or {}

    @property
    def reverts(self) -> str | None:
        """The id of the commit that it reverts, if it is a revert."""
        return self.metadata.get("reverts") if self.kind == "revert" else None

    @property
    def generation_config(self) -> JsonObject | None:
        return self._decoded.generation_config

    @property
    def messages(self) -> tuple[Message, ...]:
        if self._messages is None:
            messages = self._read_messages()
            is_plain = len(messages) == 1 and messages[0].role != ATTACHMENT  # nearly all commits
            self._messages = messages if is_plain else without_attachments(messages)
        return self._messages

    @property
    def plain_message(self) -> Message | None:
        """The message, if the commit only appends one and has no note of its own; else `None`.

        Nearly all commits are like that, and a long list of commits needs only this message.
        """
        step = self._step
        if step.commit.data != PLAIN_APPEND or len(step.contents) != 1:
            return None
        message = decode_appended(step)
        return None if message.role == ATTACHMENT else message

    @property
    def marked(self) -> dict[str, Priority]:
        """The messages whose priority it changed, by id."""
        op = self._decoded.op
        changes = op.change if isinstance(op, Rewrite) else ()
        return {c.slot.hex(): c.priority for c in changes if c.priority is not None}

    @property
    def setup(self) -> Setup | None:
        """The tools and parameters that it set, if it is a setup commit."""
        op = self._decoded.op
        return op if isinstance(op, Setup) else None

    @property
    def usage(self) -> Usage | None:
        usage = self._step.commit.usage
        return None if usage is None else msgspec.json.decode(usage, type=Usage)

    @property
    def first_token(self) -> float | None:
        """The seconds until the first token of the answer arrived, if they were measured."""
        return read_times(self._step.commit.usage)[0]

    @property
    def seconds(self) -> float | None:
        """The seconds until the answer was complete, if they were measured."""
        return read_times(self._step.commit.usage)[1]

    @property
    def tokens(self) -> int:
        """The tokens of the entries it adds, counted on access."""
        return sum(self.count(message) for message in self.messages)

    @property
    def text(self) -> str:
        """The text of the entries it adds."""
        return "\n".join(message.text for message in self.messages)

    @property
    def _step(self) -> Step:
        return self._source

    @property
    def _decoded(self) -> Body:
        if self._body is None:
            self._body = self._read_body()
        return self._body

    def _read_body(self) -> Body:
        return decode_body(self._step)

    def _read_messages(self) -> tuple[Message, ...]:
        return tuple(decode_entries(self._step))

    def to_dict(self) -> dict[str, Any]:
        """The commit as JSON; `first_token` and `seconds` only if they are known."""
        times = {"first_token": self.first_token, "seconds": self.seconds}
        return {
            "id": self.id,
            "parents": list(self.parents),
            "kind": self.kind,
            "message": self.message,
            "tokens": self.tokens,
            "created": self.created.isoformat(),
            "metadata": self.metadata,
            "generation_config": self.generation_config,
            **{name: value for name, value in times.items() if value is not None},
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CommitInfo) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __str__(self) -> str:
        return self.id

    def __repr__(self) -> str:
        return f"CommitInfo(id={self.id!r}, kind={self.kind!r}, message={self.message!r})"


class LogPart:
    """Commits of a branch that are read together, as `LogRow`s, for a long list.

    A `LogRow` has what one line of the list shows. If more of any commit is needed, `read_step`
    reads all of them at once.
    """

    def __init__(self, store: Store, thread: str, rows: list[LogRow]) -> None:
        self.rows = rows
        self._store = store
        self._thread = thread
        self._steps: dict[Id, Step] = {}

    def read_step(self, id: Id) -> Step:
        if not self._steps:
            steps = self._store.read_commits(self._thread, [id for id, *_ in self.rows])
            self._steps = {step.commit.id: step for step in steps}
        step = self._steps.get(id)
        if step is None:
            raise Damaged(f"commit {id.hex()} was removed while it was read")
        return step


class ListedCommit(CommitInfo):
    """A commit of a long list. Most are shown in one line, which needs only the `LogRow`."""

    __slots__ = ("_row",)

    def __init__(self, row: LogRow, part: LogPart, count: Count) -> None:
        self._row = row
        self._source: Any = part
        self.count = count
        self.hook_errors = ()
        self._body = None
        self._messages = None

    @property
    def id(self) -> str:
        id, *_ = self._row
        return id.hex()

    @property
    def kind(self) -> str:
        _, _, kind, *_ = self._row
        return kind

    @property
    def created(self) -> datetime:
        _, _, _, created, *_ = self._row
        return datetime.fromtimestamp(created, UTC)

    @property
    def plain_message(self) -> Message | None:
        *_, data, content = self._row
        if content is None or data != PLAIN_APPEND:
            return None
        try:
            message = decode_entry(content)
        except Damaged:
            message = decode_appended(self._step)  # raises it again, with the entry's id
        return None if message.role == ATTACHMENT else message

    @property
    def _step(self) -> Step:
        id, *_ = self._row
        return self._source.read_step(id)

    def _read_body(self) -> Body:
        *_, data, _ = self._row
        try:
            return decode_body_data(data)
        except Damaged:
            return super()._read_body()  # raises it again, with the commit's id

    def _read_messages(self) -> tuple[Message, ...]:
        *_, content = self._row
        try:
            return super()._read_messages() if content is None else (decode_entry(content),)
        except Damaged:
            return super()._read_messages()  # raises it again, with the entry's id


class RevertedCommits:
    """Finds the reverted commits of a branch that is read from its newest commit on."""

    def __init__(self) -> None:
        self._reverted: set[str] = set()

    def check(self, id: str, reverts: str | None) -> bool:
        """Whether a later commit reverted this one; `reverts` is the commit that it reverts itself.

        A revert that was itself reverted does not count.
        """
        is_reverted = id in self._reverted
        if reverts is not None and not is_reverted:
            self._reverted.add(reverts)
        return is_reverted


class ChainLink(msgspec.Struct, frozen=True, gc=False):
    """The first parent of a commit, and the commit that it reverts."""

    parent: Id | None
    reverts: str | None = None


def find_reverted(heads: Iterable[Id], read: Callable[[Id], ChainLink | None]) -> set[Id]:
    """The commits that were reverted on every branch that has them.

    `read` returns `None` for commits that do not matter, such as those that are too old.
    """
    reverted, valid = set[Id](), set[Id]()
    for head in heads:
        branch, id = RevertedCommits(), head
        while id is not None and (link := read(id)) is not None:
            is_reverted = branch.check(id.hex(), link.reverts)
            (reverted if is_reverted else valid).add(id)
            id = link.parent
    return reverted - valid


def read_info(step: Step, count: Count) -> CommitInfo:
    """The info of a stored commit."""
    return CommitInfo(step, count)


def first_text(message: Message) -> str:
    """The text of a message's first block, if that is a text."""
    first = message.blocks[0] if message.blocks else None
    return first.text if isinstance(first, Text) else ""


def auto_note(kind: str, text: str) -> str:
    """`"<type>: <preview>"` in one line of at most 72 characters; just the type for blank text."""
    flat = text.replace("\r\n", " ").translate(SPACES_FOR_BREAKS).strip()
    if not flat:
        return kind
    note = f"{kind}: {flat}"
    return note if len(note) <= MAX_NOTE else note[: MAX_NOTE - 3] + "..."


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of a thread and one branch.

    `commits` counts the commits of all branches, including undone ones.
    """

    thread: str
    branch: str
    branches: int
    commits: int
    messages: int
    hidden: int
    tokens: int
    priorities: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


class Remark(msgspec.Struct, frozen=True):
    """A problem in an imported file.

    `what` is the kind of problem, and `why` the reason. `line` is the number of the line; the first
    is 0. `Imported.to_dict` counts lines from 1.
    """

    what: str
    line: int
    why: str


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an import into one thread.

    - `new`: the number of commits that the thread did not have.
    - `kept`: the number of lines that are not messages, by kind; they are stored too.
    - `renamed`: branches of the file that got another name, because the user has committed to a
      branch of that name.
    - `behind`: branches on which the thread already has more commits than the file. The import
      does not change them.
    """

    thread: str
    format: str
    messages: int
    new: int
    lines: int = 0
    branches: dict[str, str]
    renamed: dict[str, str]
    kept: dict[str, int]
    remarks: tuple[Remark, ...] = ()
    behind: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        members = {name: getattr(self, name) for name in self.__struct_fields__}
        members["behind"] = list(self.behind)
        members["remarks"] = [
            {"what": remark.what, "line": remark.line + 1, "why": remark.why}
            for remark in self.remarks
        ]
        return members
