"""The verbs that append: whatever is said becomes one message, and one commit at the end."""

from collections.abc import Sequence
from typing import Any, cast

from msgspec import structs

from weft.codec import CODECS
from weft.compact import create_checkpoint_content, generate_checkpoint_id
from weft.errors import ThreadError
from weft.history import Append, Draft, Priority
from weft.ids import Id
from weft.model import Block, JsonObject, Message, Reminder, Response, Text, ToolResult

from .arguments import check_beside, check_priority
from .content import (
    Content,
    DialogueContent,
    content_type,
    extract_text_from_content,
    read_content,
    to_message,
)
from .handle import Handle, TakenCheckpoints
from .info import CommitInfo, auto_note, own_words

# """Whole answers of any vendor, as they come from a wire or an SDK, and which wire they are of."""


def read_answer(answer: Any) -> Response:
    """The response that a vendor's whole answer means; raises `ThreadError` where it is none."""
    if isinstance(answer, Response):
        return answer
    if isinstance(answer, Message):
        return Response(answer)
    raw = _plain(answer)
    codec = next((codec for codec in CODECS.values() if codec.answer in raw), None)
    if codec is None:
        raise ThreadError(f"an answer with {', '.join(sorted(raw)[:6])} is of no known vendor")
    return codec.decode_response(raw)


def describe_generation(response: Response) -> JsonObject | None:
    """What is worth keeping of how an answer was made: the model, the answer's id, why it ended."""
    found: JsonObject = {}
    if response.model:
        found["model"] = response.model
    if response.id:
        found["response_id"] = response.id
    if response.stop is not None:
        found["stop"] = response.stop.raw or response.stop.kind
    return found or None


def _plain(answer: Any) -> JsonObject:
    """The dict behind an SDK's object; what was not set stays unset."""
    if isinstance(answer, dict):
        return cast(JsonObject, answer)
    dump = getattr(answer, "model_dump", None)
    if not callable(dump):
        raise ThreadError(f"a {type(answer).__name__} is no answer: give text, a dict or an object")
    return cast(JsonObject, dump(mode="json", exclude_unset=True, by_alias=True))


def append_content(
    handle: Handle,
    content: Content | JsonObject,
    *,
    note: str | None = None,
    metadata: JsonObject | None = None,
    generation_config: JsonObject | None = None,
    priority: Priority = "normal",
    reminder: str | None = None,
    attached: tuple[Block, ...] = (),
    riders: tuple[Message, ...] = (),
) -> CommitInfo:
    """Commit one of the eight types; where no note is given, its own text is one.

    `attached` are blocks that stand behind the text, or alone where there is none.

    Such a note is written out only where the message has not the same words.
    """
    if not (note is metadata is generation_config is reminder is None):
        check_beside(
            message=note, metadata=metadata, generation_config=generation_config, reminder=reminder
        )
    if priority != "normal":
        check_priority(priority)
    typed = read_content(content)
    kind = content_type(typed)
    message = to_message(typed)
    said: str | bool | None = note
    if note is None:
        said = own_note(typed, message, kind)
    if attached:
        message = with_attached(message, attached)
    if reminder is not None:
        message = with_blocks(message, Reminder(reminder))
    return append_message(
        handle,
        message,
        kind=kind,
        note=said,
        metadata=metadata,
        generation_config=generation_config,
        priority=priority,
        turn=message.role in ("user", "tool"),
        riders=riders,
    )


def own_note(content: Content, message: Message, kind: str) -> str | bool:
    """A note of what was said; true where the message opens with the same words."""
    if type(content) is DialogueContent:  # nearly everything that is said
        return True
    text = extract_text_from_content(content)
    return True if text == own_words(message) else auto_note(kind, text)


def append_results(
    handle: Handle,
    results: Sequence[ToolResult],
    *,
    note: str | None = None,
    metadata: JsonObject | None = None,
    text: str | None = None,
    reminder: str | None = None,
) -> CommitInfo:
    """Commit all results of one turn as one message, in the order of a user turn.

    Without any result it is the user's turn alone, as after the agent's own compaction.
    """
    check_beside(message=note, metadata=metadata, text=text, reminder=reminder)
    blocks: list[Block] = list(results)
    if text is not None:
        blocks.append(Text(text))
    if reminder is not None:
        blocks.append(Reminder(reminder))
    kind = "tool_io" if results else "dialogue"
    message = Message("tool" if results else "user", tuple(blocks))
    if note is None:
        note = auto_note(kind, message.text)
    return append_message(handle, message, kind=kind, note=note, metadata=metadata, turn=True)


def append_message(
    handle: Handle,
    message: Message,
    *,
    kind: str = "dialogue",
    note: str | bool | None = None,
    metadata: JsonObject | None = None,
    generation_config: JsonObject | None = None,
    usage: Any = None,
    priority: Priority = "normal",
    turn: bool = False,
    riders: tuple[Message, ...] = (),
) -> CommitInfo:
    """Commit one message as it is; a `turn` on a thread with checkpoints ends with one.

    `riders` are attachments that are kept beside it.
    """

    def plan(head: Id | None) -> tuple[Draft, tuple[Id, ...]]:
        said = checkpointed(handle, message, head) if turn and handle.checkpoints else message
        op = Append(kind, priority)
        draft = Draft("append", op, (said, *riders), note, metadata, generation_config, usage)
        return draft, ()

    return handle.land("append", plan, anywhere=True)


def checkpointed(handle: Handle, message: Message, head: Id | None) -> Message:
    """The message with a checkpoint behind everything else in it."""
    taken = TakenCheckpoints(handle.store, handle.name)
    parent = "" if head is None else head.hex()
    id = generate_checkpoint_id(parent, message.text, taken)
    return with_blocks(message, create_checkpoint_content(id))


def with_attached(message: Message, attached: tuple[Block, ...]) -> Message:
    """The message with files behind its text; an empty text is left out, as vendors demand."""
    said = tuple(b for b in message.blocks if not isinstance(b, Text) or b.text.strip())
    return with_blocks(structs.replace(message, blocks=said), *attached)


def with_blocks(message: Message, *blocks: Block) -> Message:
    """The message with more behind it."""
    return Message(
        message.role,
        (*message.blocks, *blocks),
        name=message.name,
        origin=message.origin,
        form="list",
        ext=message.ext,
    )
