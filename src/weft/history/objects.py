"""The objects of a conversation: entries, commits, and the operations of commits.

An *entry* is one message. A *commit* has parents, an operation, and a note and metadata.
There are three operations:

- `Append` adds one entry at the end.
- `Rewrite` is every other change to rows: edit, priority, compaction, merge, revert. It is a
  difference to the list that the first parent compiles to, so its size is that of the change.
- `Setup` sets the tools and parameters from here on and adds no row.

A row of the compiled list is addressed by its *slot*: the id of the commit that appended it, or,
for rows that a rewrite adds, a hash of that commit and a number. Edits keep the slot, and so
does a row that is rebased, cherry-picked or merged: it stays the same row.

Ids cover the canonical JSON of these values: members are sorted by name, except inside the
definitions of tools and the schema of an answer's format, which are stored as they were written. A
model fills in the properties of a schema in their order, so that order is content. Time, usage and
tokens are not in the ids.

An encoder accepts more than a decoder: it writes bytes as text, and NaN as null. So every value is
read back after it was written. If the result differs, `check_json` walks the value and names the
first wrong part.

An *attempt* is an answer that was stopped, cut off or failed, stored beside the commit of its
request. Each request may be attempted several times. An attempt that is answered becomes an
ordinary commit of the branch. Every other one is stored here, with its reason and the part that
arrived, so that nothing is lost and no branch forks. Attempts have no id, move no ref and are in no
log: compile, merge and undo do not see them.
"""

import math
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct, structs

from weft import exact_json
from weft.errors import Damaged, WrongValue
from weft.ids import Id, object_id
from weft.model import (
    Block,
    JsonObject,
    Message,
    Params,
    Refusal,
    Reminder,
    Stop,
    Text,
    Thinking,
    Tool,
    ToolResult,
    Usage,
)
from weft.store import AttemptRecord, CommitRecord, Step

Priority = Literal["skip", "normal", "important", "pinned"]
PRIORITIES: tuple[Priority, ...] = ("skip", "normal", "important", "pinned")

CommitKind = Literal[
    "append", "edit", "annotate", "compact", "merge", "revert", "setup", "splice", "note"
]


class Row(Struct, frozen=True, gc=False):
    """One compiled row; `id` is its slot, `None` for a row that is yet to be committed."""

    id: Id | None
    message: Message
    priority: Priority = "normal"
    kind: str = "dialogue"


class Append(Struct, frozen=True, gc=False, omit_defaults=True, tag="append", tag_field="op"):
    """One entry at the end; `kind` is its content type.

    `slot` is set if the row was appended before, on another branch.
    """

    kind: str = "dialogue"
    priority: Priority = "normal"
    slot: Id | None = None


class InsertedRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """A row that a rewrite adds. `entry` is an index into the commit's entries.

    `slot` is set if the row already had one, because it was moved or restored.
    """

    entry: int
    slot: Id | None = None
    priority: Priority = "normal"
    kind: str = "dialogue"


class Insert(Struct, frozen=True, gc=False, omit_defaults=True):
    """Rows to add after slot `after`, or at the start if it is `None`."""

    rows: tuple[InsertedRow, ...]
    after: Id | None = None


class Change(Struct, frozen=True, gc=False, omit_defaults=True):
    """A change to a row that keeps its slot and position; absent fields stay as they are."""

    slot: Id
    entry: int | None = None
    priority: Priority | None = None
    kind: str | None = None


class Setup(Struct, frozen=True, omit_defaults=True, tag="setup", tag_field="op"):
    """The tools and parameters of requests from this commit on."""

    tools: tuple[Tool, ...] = ()
    params: Params = Params()


class Rewrite(Struct, frozen=True, gc=False, omit_defaults=True, tag="rewrite", tag_field="op"):
    """The difference between two lists: runs to drop (first and last slot), changes, inserts.

    Inserts are anchored in the old list, so their order of application does not matter. `setup` is
    set if a merge or a revert also changes the setup.
    """

    drop: tuple[tuple[Id, Id], ...] = ()
    change: tuple[Change, ...] = ()
    insert: tuple[Insert, ...] = ()
    setup: Setup | None = None

    @property
    def touches_rows(self) -> bool:
        """Whether it changes any row; a commit that only has a note changes none."""
        return bool(self.drop or self.change or self.insert)


Op = Append | Rewrite | Setup


class State(Struct, frozen=True):
    """The compiled state of a commit: its rows and its setup."""

    rows: Sequence[Row] = ()
    setup: Setup | None = None


class Body(Struct, frozen=True, gc=False, omit_defaults=True):
    """The part of a commit besides its parents and entries.

    `note` is `True` if the note is simply the beginning of the commit's own message: nearly every
    commit has such a note, and it need not be stored twice.
    """

    op: Op
    note: str | bool | None = True
    metadata: JsonObject | None = None
    generation_config: JsonObject | None = None


class HashedCommit(Struct, frozen=True, gc=False):
    """Everything that the id of a commit covers."""

    body: msgspec.Raw
    entries: tuple[Id, ...]
    kind: str
    parents: tuple[Id, ...]


class Draft(Struct, frozen=True, gc=False):
    """A commit that has no parents yet.

    `kind` says what it does: `append` messages, `edit` one, `annotate` (set priorities), `compact`,
    `merge`, `revert`, `setup` (set tools and parameters), `splice` (any other change of
    several messages, such as a rebase or an import) or `note` (change no message).
    """

    kind: CommitKind
    op: Op
    messages: tuple[Message, ...] = ()
    note: str | bool | None = None
    metadata: JsonObject | None = None
    generation_config: JsonObject | None = None
    usage: Any = None


class TimedUsage(Usage, frozen=True, gc=False, omit_defaults=True):
    """The stored usage of an answer, with the time that the answer took, in seconds.

    `first_token` is the time until the answer began, `seconds` until it was complete.
    """

    first_token: float | None = None
    seconds: float | None = None


STOP_REASON = "stop"
"""The metadata key for why an answer ended, unless it ended normally (`Stop.abnormal_reason`)."""

_SECONDS_MEMBER = b'"seconds"'
_decode_usage = exact_json.decoder(TimedUsage)
_STOP_MEMBER = f'"{STOP_REASON}"'.encode()
_decode_body: Callable[[bytes], Body] = exact_json.decoder(Body)
_decode_message: Callable[[bytes], Message] = exact_json.decoder(Message)
LARGE_TEXT = 1 << 16
"""Longer texts of a message are not read back after they were encoded."""

PLAIN_BODIES = {
    exact_json.encode_sorted(body): body
    for note in (None, True)
    for body in (Body(Append(), note), Body(Append("instruction"), note))
}
"""Bodies of commits that only append a message, by their bytes. Nearly all commits have one of
these, so they are looked up instead of decoded."""


def encode_entry(message: Message) -> tuple[Id, bytes]:
    """An entry's id and bytes."""
    data = exact_json.encode_sorted(message)
    return object_id("entry", data), data


def encode_body(body: Body) -> bytes:
    """A body as it is stored and hashed."""
    return exact_json.encode_sorted(_in_written_order(body))


def same_setup(one: Setup | None, other: Setup | None) -> bool:
    """Whether two setups are equal, the order of the properties of their schemas included."""
    if one != other or one is None or other is None:
        return one == other
    return encode_body(Body(one)) == encode_body(Body(other))


def _in_written_order(body: Body) -> Body:
    """The body with tool definitions and schemas as JSON text, which the encoder does not sort."""
    op = body.op
    if isinstance(op, Setup):
        ordered: Op = _ordered_setup(op)
    elif isinstance(op, Rewrite) and op.setup is not None:
        ordered = structs.replace(op, setup=_ordered_setup(op.setup))
    else:
        return body
    return body if ordered is op else structs.replace(body, op=ordered)


def _ordered_setup(setup: Setup) -> Setup:
    params, answer_format = setup.params, setup.params.format
    has_schema = answer_format is not None and answer_format.schema is not None
    if not setup.tools and not has_schema:
        return setup
    if answer_format is not None and has_schema:
        ordered = structs.replace(answer_format, schema=_as_written(answer_format.schema))
        params = structs.replace(params, format=ordered)
    tools = tuple(
        structs.replace(tool, parameters=_as_written(tool.parameters), raw=_as_written(tool.raw))
        for tool in setup.tools
    )
    return structs.replace(setup, tools=tools, params=params)


def _as_written(value: Any) -> Any:
    """A JSON value as its own text; msgspec puts `Raw` into the output byte by byte."""
    return None if value is None else msgspec.Raw(exact_json.encode(value))


def decode_entry(data: bytes, id: Id | None = None) -> Message:
    """Decode a message; raises `Damaged` with the entry's id if the bytes are not a message."""
    try:
        return _decode_message(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
        name = "an entry" if id is None else f"entry {id.hex()}"
        raise Damaged(f"{name} cannot be decoded as a message: {error}") from None


def decode_entries(step: Step) -> list[Message]:
    """The messages of a stored commit."""
    if len(step.contents) == len(step.commit.entries) == 1:  # nearly all commits
        return [decode_entry(step.contents[0], step.commit.entries[0])]
    return [
        decode_entry(data, id) for id, data in zip(step.commit.entries, step.contents, strict=True)
    ]


def decode_appended(step: Step) -> Message:
    """The message that an append adds; raises `Damaged` if it is missing."""
    if not step.contents:
        raise Damaged(f"commit {step.commit.id.hex()} refers to a missing entry")
    return decode_entry(step.contents[0], step.commit.entries[0])


def decode_body(step: Step) -> Body:
    """The body of a stored commit; raises `Damaged` if its bytes are not a body."""
    try:
        return decode_body_data(step.commit.data)
    except Damaged as error:
        raise Damaged(f"commit {step.commit.id.hex()} {error}") from None


def decode_body_data(data: bytes) -> Body:
    """The body in the data of a commit; raises `Damaged`."""
    plain = PLAIN_BODIES.get(data)
    if plain is not None:
        return plain
    try:
        return _decode_body(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
        raise Damaged(f"cannot be decoded: {error}") from None


def read_stop_reason(commit: CommitRecord) -> str | None:
    """Why an answer ended, if its metadata says so (`STOP_REASON`)."""
    if commit.kind != "append" or _STOP_MEMBER not in commit.data:  # decoded for few commits only
        return None
    reason = (decode_body_data(commit.data).metadata or {}).get(STOP_REASON)
    return reason if isinstance(reason, str) else None


def add_times(
    usage: Usage | None, first_token: float | None, seconds: float | None
) -> Usage | None:
    """The usage of an answer with its times in seconds; `None` if there is no usage."""
    if usage is None or seconds is None:
        return usage
    first_token = None if first_token is None else round(first_token, 3)
    return TimedUsage(**structs.asdict(usage), first_token=first_token, seconds=round(seconds, 3))


def read_times(usage: bytes | None) -> tuple[float | None, float | None]:
    """The seconds until an answer began and until it was complete, from its stored usage."""
    if usage is None or _SECONDS_MEMBER not in usage:
        return None, None
    timed = _decode_usage(usage)
    return timed.first_token, timed.seconds


def encode_commit(
    draft: Draft, parents: tuple[Id, ...], *, created: float
) -> tuple[CommitRecord, tuple[tuple[Id, bytes], ...]]:
    """The commit, without its match key (`chain`), and its entries."""
    body = Body(draft.op, draft.note, draft.metadata, draft.generation_config)
    data = _encode_checked(body, "commit", _decode_body)
    usage = None if draft.usage is None else _encode_checked(draft.usage, "usage", exact_json.loads)
    entries = tuple([_encode_entry_checked(message) for message in draft.messages])
    ids = tuple([id for id, _ in entries])
    record = CommitRecord(
        commit_id(draft.kind, parents, ids, data),
        parents,
        draft.kind,
        ids,
        data,
        created,
        usage,
    )
    return record, entries


def _encode_entry_checked(message: Message) -> tuple[Id, bytes]:
    rest = _without_large_texts(message)
    data = _encode_checked(rest, "message", _decode_message)
    if rest is not message:
        try:
            data = exact_json.encode_sorted(message)
        except UnicodeError:
            check_json("message", message)
            raise
    return object_id("entry", data), data


def _without_large_texts(message: Message) -> Message:
    """The message without the large texts of its blocks.

    A text that can be encoded is read back as it was. Only the rest need be compared, so that a
    large answer is not in memory a second time.
    """
    blocks = [_without_large_members(block) for block in message.blocks]
    if all(map(is_, blocks, message.blocks)):
        return message
    return structs.replace(message, blocks=tuple(blocks))


def _without_large_members(block: Block) -> Block:
    large: dict[str, Any] = {
        name: ""
        for name in ("text", "arguments", "signature")
        if type(text := getattr(block, name, None)) is str and len(text) > LARGE_TEXT
    }
    return structs.replace(block, **large) if large else block


def _encode_checked(value: Any, field: str, decode: Callable[[bytes], Any]) -> bytes:
    """A value as JSON; raises `WrongValue` with the path of a part that JSON cannot represent."""
    try:
        data = encode_body(value) if isinstance(value, Body) else exact_json.encode_sorted(value)
        if data in PLAIN_BODIES or decode(data) == value:
            return data
    except msgspec.ValidationError as error:
        raise WrongValue(field, f"is not valid: {error}") from None
    except (TypeError, UnicodeError, RecursionError) as error:
        check_json(field, value)
        raise WrongValue(field, f"cannot be written as JSON: {error}") from None
    check_json(field, value)
    return data


def commit_id(kind: str, parents: tuple[Id, ...], entries: tuple[Id, ...], data: bytes) -> Id:
    """The id of a commit whose body has these bytes."""
    hashed = HashedCommit(msgspec.Raw(data), entries, kind, parents)
    return object_id("commit", exact_json.encode_sorted(hashed))


def count_entries(op: Op) -> int:
    """How many messages an operation refers to."""
    match op:
        case Append():
            return 1
        case Setup():
            return 0
        case Rewrite():
            inserted = [row.entry for insert in op.insert for row in insert.rows]
            changed = [change.entry for change in op.change if change.entry is not None]
            return 1 + max([-1, *inserted, *changed])


def new_slot(commit: Id, index: int) -> Id:
    """The slot of the `index`-th row that a rewrite adds."""
    return object_id("slot", commit + index.to_bytes(4, "big"))


def inserted_slots(commit: Id, op: Rewrite) -> list[Id]:
    """The slots of the rows that a rewrite inserts, in order."""
    inserted = [row for insert in op.insert for row in insert.rows]
    return [row.slot or new_slot(commit, index) for index, row in enumerate(inserted)]


BYTES_TYPES = (bytes, bytearray, memoryview)
"""msgspec would write these as base64; `check_json` refuses them instead."""


def check_json(field: str, value: Any) -> None:
    """Raise `WrongValue` with the path of the first value that JSON cannot represent."""
    try:
        plain = msgspec.to_builtins(value, builtin_types=BYTES_TYPES, enc_hook=_float_of)
    except (TypeError, UnicodeError, RecursionError) as error:
        raise WrongValue(field, f"cannot be written as JSON: {error}") from None
    _check_value(field, plain)


def _float_of(value: Any) -> float:
    if isinstance(value, exact_json.Number):
        return float(value)
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


def _check_value(field: str, value: Any) -> None:
    match value:
        case dict():
            for key, item in cast(dict[Any, Any], value).items():
                _check_value(f"{field}.{key}", item)
        case list() | tuple():
            for position, item in enumerate(cast(list[Any], value)):
                _check_value(f"{field}[{position}]", item)
        case float() if not math.isfinite(value):
            raise WrongValue(field, f"cannot be written as JSON: {value} is not a JSON number")
        case bytes() | bytearray() | memoryview():
            raise WrongValue(field, "must be text: JSON cannot represent bytes")
        case str() if not value.isascii():
            _check_text(field, value)
        case _:
            pass


def _check_text(field: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise WrongValue(field, f"is not text: {error.reason} at {error.start}") from None


AttemptState = Literal["partial", "failed"]


class AttemptReason(Struct, frozen=True, omit_defaults=True):
    """Why there is no complete answer. `type` is the vendor's term, `kind` is Weft's."""

    message: str
    type: str | None = None
    status: int | None = None
    param: str | None = None
    kind: str | None = None

    def __str__(self) -> str:
        return self.message if self.status is None else f"{self.message} ({self.status})"


class AttemptBody(Struct, frozen=True, omit_defaults=True):
    """The stored body of an attempt; commit, state and time have columns of their own."""

    reason: AttemptReason | None = None
    message: Message | None = None
    model: str | None = None
    response_id: str | None = None
    stop: Stop | None = None
    usage: Usage | None = None


_decode_attempt: Callable[[bytes], AttemptBody] = exact_json.decoder(AttemptBody)


def has_content(message: Message) -> bool:
    """Whether anything of an answer arrived: text, thinking, a call, media."""
    for block in message.blocks:
        match block:
            case Thinking(text="", signature=str()):
                return True
            case Text(text=text) | Refusal(text=text) | Thinking(text=text) | Reminder(text=text):
                if text:
                    return True
            case _:
                return True
    return False


def encode_attempt(commit: Id, body: AttemptBody, created: float) -> AttemptRecord:
    """The attempt ready to be stored; raises `WrongValue` if JSON cannot represent it."""
    try:
        data = exact_json.encode_sorted(body)
        _decode_attempt(data)
    except (msgspec.MsgspecError, TypeError, UnicodeError, RecursionError) as error:
        check_json("attempt", body)
        raise WrongValue("attempt", f"cannot be written as JSON: {error}") from None
    partial = body.message is not None and has_content(body.message)
    return AttemptRecord(commit, "partial" if partial else "failed", data, created)


def decode_attempt(record: AttemptRecord) -> AttemptBody:
    """Decode an attempt; raises `Damaged` if its bytes are not one."""
    try:
        return _decode_attempt(record.data)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
        name = f"an attempt at commit {record.commit.hex()}"
        raise Damaged(f"{name} cannot be decoded: {error}") from None


class CallBody(Struct, frozen=True, omit_defaults=True):
    """The stored body of a call's record: the position of the call in its answer, and its result.

    The position identifies the call, because two calls of an answer may have the same id.
    """

    number: int
    result: ToolResult | None = None


_decode_call: Callable[[bytes], CallBody] = exact_json.decoder(CallBody)


def encode_call(
    answer: Id, number: int, created: float, result: ToolResult | None = None
) -> AttemptRecord:
    """The record that a call of an answer has started, or has ended with a result."""
    state = "call_started" if result is None else "call_ended"
    data = exact_json.encode_sorted(CallBody(number, result))
    return AttemptRecord(answer, state, data, created)


def decode_call(record: AttemptRecord) -> CallBody:
    """Decode the record of a call; raises `Damaged` if its bytes are not one."""
    try:
        return _decode_call(record.data)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
        name = f"a call in commit {record.commit.hex()}"
        raise Damaged(f"{name} cannot be decoded: {error}") from None


def damaged_attempt(mark: str) -> bytes:
    """The body that `fsck --repair` writes over a damaged attempt."""
    return exact_json.encode_sorted(AttemptBody(AttemptReason(mark, type="damaged")))
