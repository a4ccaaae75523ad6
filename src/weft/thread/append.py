"""Drafts of appended messages, and the one function that writes them.

`content_draft` and `results_draft` build a `Draft`, and `append` commits it. Building a draft needs
no store. `read_answer` and `result_blocks` read what callers pass as an answer or a tool result.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, cast

from msgspec import structs

from weft.codec import CODECS
from weft.compact import create_checkpoint_content, generate_checkpoint_id
from weft.errors import ThreadError, WrongValue
from weft.history import Append, Draft, Priority, decode_entry
from weft.ids import Id
from weft.model import (
    Block,
    JsonObject,
    Message,
    Reminder,
    Response,
    Text,
    ToolCall,
    ToolResult,
)

from .arguments import check_objects, check_priority, check_texts
from .content import (
    METADATA_KEY,
    Content,
    DialogueContent,
    content_type,
    extract_text_from_content,
    hidden_members,
    read_content,
    to_message,
)
from .handle import Handle, TakenCheckpoints
from .info import CommitInfo, auto_note, first_text

TURN_ROLES = ("user", "tool")
"""The roles whose messages end with a checkpoint."""

NEWEST_COMMITS = 32
"""How many commits are read first to find an open call; it is nearly always in the last one."""


def append(
    handle: Handle, draft: Draft, *, checkpoint: bool = True, answers: Sequence[str] = ()
) -> CommitInfo:
    """Commit a drafted message.

    With `checkpoint`, a message of a user or a tool gets a checkpoint if the thread uses them.
    `answers` are the ids of the calls that the message answers; they must wait for a result.
    """

    def make_draft(head: Id | None) -> tuple[Draft, tuple[Id, ...]]:
        message, no_merged_parents = draft.messages[0], ()
        if answers:
            _check_open_calls(handle, head, answers)
        if not (checkpoint and handle.checkpoints and message.role in TURN_ROLES):
            return draft, no_merged_parents
        with_checkpoint = _with_checkpoint(handle, message, head)
        messages = (with_checkpoint, *draft.messages[1:])
        return structs.replace(draft, messages=messages), no_merged_parents

    # A message can follow any head. If the head has moved, `make_draft` is called again, so the
    # checkpoint's id is always made from the head that the message follows.
    return handle.land("append", make_draft, any_head=True)


def _check_open_calls(handle: Handle, head: Id | None, answers: Sequence[str]) -> None:
    """Raise `ThreadError` for a result of an unknown call while other calls wait for theirs.

    Without waiting calls every result is accepted: a history may begin in the middle of a turn, and
    what a second result of one call means is the request writer's decision.
    """
    unknown = dict.fromkeys(answers)
    results: Counter[str] = Counter()
    waiting: list[str] = []
    for message in _newest_messages(handle, head):
        results.update(block.call_id for block in message.blocks if isinstance(block, ToolResult))
        for block in message.blocks:
            if not isinstance(block, ToolCall):
                continue
            unknown.pop(block.id, None)
            if results[block.id]:
                results[block.id] -= 1
            else:
                waiting.append(block.id)
        if not unknown:
            return
    if waiting:
        names = ", ".join(map(repr, waiting))
        raise ThreadError(f"no call {next(iter(unknown))!r} waits for a result; these do: {names}")


def _newest_messages(handle: Handle, head: Id | None) -> Iterator[Message]:
    """The messages of a branch as they were written, the newest first."""
    pending, page = head, NEWEST_COMMITS
    while pending is not None:
        steps = handle.store.walk(handle.name, pending, limit=page)
        for step in reversed(steps):
            for content in reversed(step.contents):
                yield decode_entry(content)
        parents = steps[0].commit.parents
        pending, page = (parents[0] if parents else None), page * 4


def content_draft(
    content: Content | JsonObject,
    *,
    note: str | None = None,
    metadata: JsonObject | None = None,
    generation_config: JsonObject | None = None,
    priority: Priority = "normal",
    reminder: str | None = None,
    media: tuple[Block, ...] = (),
    attachments: tuple[Message, ...] = (),
) -> Draft:
    """The draft of a message with this content; without a `note`, the note is made from its text.

    `media` are blocks that follow the text. `attachments` are entries that are stored beside the
    message and that no model sees.
    """
    # Most calls have none of these arguments, so the checks are skipped.
    if metadata is not None or generation_config is not None or reminder is not None:
        check_objects(metadata=metadata, generation_config=generation_config)
        check_texts(reminder=reminder)
    if priority != "normal":
        check_priority(priority)
    typed_content = read_content(content)
    kind = content_type(typed_content)
    message = to_message(typed_content)
    hidden = None if type(typed_content) is DialogueContent else hidden_members(typed_content)
    if hidden is not None:
        if metadata is not None and METADATA_KEY in metadata:
            raise WrongValue("metadata", f"must not have the key {METADATA_KEY!r}: Weft uses it")
        metadata = {**(metadata or {}), METADATA_KEY: hidden}
    # True: not stored, but derived from the message whenever it is read.
    stored_note: str | bool = _default_note(typed_content, message, kind) if note is None else note
    if media:
        message = _with_media(message, media)
    if reminder is not None:
        message = _with_blocks(message, Reminder(reminder))
    op = Append(kind, priority)
    entries = (message, *attachments)
    return Draft("append", op, entries, stored_note, metadata, generation_config)


def results_draft(
    results: Sequence[ToolResult],
    *,
    note: str | None = None,
    metadata: JsonObject | None = None,
    text: str | None = None,
    reminder: str | None = None,
) -> Draft:
    """The draft of one message with all results of a turn, then the text and the reminder.

    Without results the role is `user`. This happens if the model called `compact` in this turn, and
    all calls of the turn were removed.
    """
    check_texts(text=text, reminder=reminder)
    check_objects(metadata=metadata)
    blocks: list[Block] = list(results)
    if text is not None:
        blocks.append(Text(text))
    if reminder is not None:
        blocks.append(Reminder(reminder))
    kind = "tool_io" if results else "dialogue"
    message = Message("tool" if results else "user", tuple(blocks))
    if note is None:  # stored, because the text of results is not read for a derived note
        note = auto_note(kind, message.text)
    return Draft("append", Append(kind), (message,), note, metadata)


def result_blocks(content: Any) -> tuple[Block, ...]:
    """The blocks of a tool result, which is a text or a list of blocks; raises `WrongValue`."""
    if isinstance(content, str):
        return (Text(content),)
    if not isinstance(content, list | tuple):
        kind = type(content).__name__
        raise WrongValue("content", f"must be a string or a list of blocks, not {kind}")
    return tuple(cast(Sequence[Block], content))


def read_answer(answer: Any) -> Response:
    """Decode an answer: a `Response`, a `Message`, or a vendor's response (a dict or SDK object).

    Raises `ThreadError` for anything else.
    """
    if isinstance(answer, Response):
        return answer
    if isinstance(answer, Message):
        return Response(answer)
    body = _to_dict(answer)
    codec = next((codec for codec in CODECS.values() if codec.answer_member in body), None)
    if codec is None:
        members = ", ".join(sorted(body)[:6])
        raise ThreadError(f"an answer with the members {members} matches no supported vendor")
    return codec.decode_response(body)


def describe_generation(response: Response) -> JsonObject | None:
    """What is stored about how an answer was made: model, response id, stop reason."""
    config: JsonObject = {}
    if response.model:
        config["model"] = response.model
    if response.id:
        config["response_id"] = response.id
    if response.stop is not None:
        config["stop"] = response.stop.raw or response.stop.kind
    return config or None


def _to_dict(answer: Any) -> JsonObject:
    """The answer as a dict. Members that are not set in an SDK's object stay absent."""
    if isinstance(answer, dict):
        return cast(JsonObject, answer)
    dump = getattr(answer, "model_dump", None)
    if not callable(dump):
        kind = type(answer).__name__
        raise ThreadError(f"a {kind} is not an answer: pass a text, a dict or an SDK object")
    return cast(JsonObject, dump(mode="json", exclude_unset=True, by_alias=True))


def _default_note(content: Content, message: Message, kind: str) -> str | bool:
    """The note `"<type>: <preview>"`; `True` if it can be derived from the message itself.

    A derived note is not stored, which saves a copy of the message's first words.
    """
    if type(content) is DialogueContent:  # the common case, and always derivable
        return True
    text = extract_text_from_content(content)
    return True if text == first_text(message) else auto_note(kind, text)


def _with_checkpoint(handle: Handle, message: Message, head: Id | None) -> Message:
    taken = TakenCheckpoints(handle.store, handle.name)
    parent = "" if head is None else head.hex()
    id = generate_checkpoint_id(parent, message.text, taken)
    return _with_blocks(message, create_checkpoint_content(id))


def _with_media(message: Message, media: tuple[Block, ...]) -> Message:
    """The message with media after its text. Blank text is left out: vendors refuse it."""
    blocks = tuple(b for b in message.blocks if not isinstance(b, Text) or b.text.strip())
    return _with_blocks(structs.replace(message, blocks=blocks), *media)


def _with_blocks(message: Message, *blocks: Block) -> Message:
    """The message with more blocks; its content is a list now, even if it was a string."""
    return Message(
        message.role,
        (*message.blocks, *blocks),
        name=message.name,
        origin=message.origin,
        form="list",
        ext=message.ext,
    )
