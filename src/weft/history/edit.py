"""New words for an old message: what an edit keeps."""

from msgspec import structs

from weft.model import (
    Audio,
    Block,
    File,
    Image,
    Message,
    Redacted,
    Refusal,
    Text,
    Thinking,
    ToolResult,
)


def edit_text(message: Message, text: str) -> Message:
    """The message saying `text` instead: calls, media and results stay, thinking does not.

    Where a message is nothing but one tool's answer, the answer's text is what changes. Thinking
    goes because its signature vouches for words that are no longer there.
    """
    answers = [place for place, b in enumerate(message.blocks) if isinstance(b, ToolResult)]
    spoken = [place for place, b in enumerate(message.blocks) if isinstance(b, Text | Refusal)]
    if answers and not spoken:
        return _edit_answer(message, answers[0], text)
    first = spoken[0] if spoken else _opening(message.blocks)
    ahead = [block for block in message.blocks[:first] if _stays(block)]
    behind = [block for block in message.blocks[first:] if _stays(block)]
    said: list[Block] = [Text(text)] if text or not (ahead or behind) else []
    return structs.replace(message, blocks=(*ahead, *said, *behind), form="")


def _stays(block: Block) -> bool:
    return not isinstance(block, Text | Refusal | Thinking | Redacted)


def _opening(blocks: tuple[Block, ...]) -> int:
    """Where words go that were not there: behind media, before calls and a closing checkpoint."""
    before = (Image, File, Audio, Thinking, Redacted)
    return next((n for n, b in enumerate(blocks) if not isinstance(b, before)), len(blocks))


def _edit_answer(message: Message, place: int, text: str) -> Message:
    answer = message.blocks[place]
    assert isinstance(answer, ToolResult)
    media = tuple(block for block in answer.content if not isinstance(block, Text | Refusal))
    new = structs.replace(answer, content=(Text(text), *media), form="")
    blocks = (*message.blocks[:place], new, *message.blocks[place + 1 :])
    return structs.replace(message, blocks=blocks)
