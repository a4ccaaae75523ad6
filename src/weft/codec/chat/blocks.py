"""Decodes and writes content parts. A part with an unknown `type` is kept as `Opaque`.

Cache marks are hints for one request, so they are in `Request.marks`, not in the parts. There are
two: `cache_control`, which several vendors accept, and OpenAI's own `prompt_cache_breakpoint`.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

from weft.codec.base import (
    FOREIGN_FILE_ID,
    FOREIGN_THINKING,
    as_object,
    check_foreign_thinking,
    made_by,
)
from weft.codec.media import bare_type, check_image_type, plain_text
from weft.codec.read import objects, optional, text_of, unknown_members, with_prefix, wrong
from weft.errors import Refused
from weft.model import (
    Audio,
    Block,
    Checkpoint,
    Ext,
    File,
    FileRef,
    Form,
    Image,
    Inline,
    JsonObject,
    Message,
    Opaque,
    Redacted,
    Refusal,
    Reminder,
    Request,
    Source,
    Text,
    Thinking,
    Url,
    checkpoint_text,
    reminder_text,
)

from .wire import AUDIO_FORMATS, PROTOCOL, SOURCE_MEMBER

CACHE_CONTROL = "cache_control"
CACHE_BREAKPOINT = "prompt_cache_breakpoint"
MARKS = (CACHE_CONTROL, CACHE_BREAKPOINT)

# The members of each part that have a field in the model. All others go into `ext`.
TEXT = frozenset({"type", "text", *MARKS})
REFUSAL = frozenset({"type", "refusal", *MARKS})
IMAGE = frozenset({"type", "image_url", *MARKS})
AUDIO = frozenset({"type", "input_audio", *MARKS})
FILE = frozenset({"type", "file", *MARKS})

FILE_TYPES = frozenset({"application/pdf", ""})
"""Types of inline files; some data has no type:
https://platform.openai.com/docs/guides/pdf-files?api-mode=chat"""


def decode_content(raw: JsonObject) -> tuple[tuple[Block, ...], Form]:
    """Decode content that is a string, a list of parts, null, or absent."""
    content = raw.get("content")
    if type(content) is str:
        return ((Text(content),) if content else ()), "text"
    if content is None:
        return (), "null" if "content" in raw else "absent"
    blocks: list[Block] = []
    for number, item in enumerate(objects(content, "content")):
        try:
            kind = item.get("type")
            decode = PARTS.get(kind, decode_opaque) if type(kind) is str else decode_opaque
            blocks.append(decode(item))
        except Refused as error:
            raise with_prefix(f"content[{number}]", error) from None
    return tuple(blocks), "list"


def decode_text(raw: JsonObject) -> Text:
    text = raw.get("text")
    if type(text) is str and len(raw) == 2:  # nearly all: a type and a text
        return Text(text)
    return Text(text_of(raw, "text"), unknown_members(raw, TEXT, PROTOCOL))


def decode_refusal(raw: JsonObject) -> Refusal:
    return Refusal(text_of(raw, "refusal"), unknown_members(raw, REFUSAL, PROTOCOL))


def decode_image(raw: JsonObject) -> Block:
    """Decode an image. A form that differs from OpenAI's is kept in `ext`."""
    image = raw.get("image_url")
    if isinstance(image, str):
        return Image(read_source(image), ext={PROTOCOL: {"image_url": image}})
    fields = as_object(image)
    if fields is None:
        raise wrong("image_url", image, "an object")
    try:
        source, detail = read_source(text_of(fields, "url")), optional(fields, "detail", str)
    except Refused as error:
        raise with_prefix("image_url", error) from None
    ext = unknown_members(raw, IMAGE, PROTOCOL)
    if fields.keys() - {"url", "detail"} or (detail is None and "detail" in fields):
        ext = {PROTOCOL: {**(ext or {}).get(PROTOCOL, {}), "image_url": fields}}
    return Image(source, detail, ext)


def decode_audio(raw: JsonObject) -> Block:
    match raw.get("input_audio"):
        case {"data": str(data), "format": str(audio_format), **rest} if not rest:
            return Audio(
                Inline(data, f"audio/{audio_format}"), unknown_members(raw, AUDIO, PROTOCOL)
            )
        case _:
            return decode_opaque(raw)


def decode_file(raw: JsonObject) -> Block:
    ext = unknown_members(raw, FILE, PROTOCOL)
    match raw.get("file"):
        case {"file_data": str(data), "filename": str(name), **rest} if not rest:
            return File(read_inline(data), name, ext)
        case {"file_data": str(data), **rest} if not rest:
            return File(read_inline(data), None, ext)
        case {"file_id": str(file_id), **rest} if not rest:
            return File(FileRef(file_id), None, ext)
        case _:
            return decode_opaque(raw)


def decode_opaque(raw: JsonObject) -> Opaque:
    if type(raw.get("type")) is not str:
        raise wrong("type", raw.get("type"), "a string")
    return Opaque(PROTOCOL, {key: value for key, value in raw.items() if key not in MARKS})


PARTS: dict[str, Callable[[JsonObject], Block]] = {
    "text": decode_text,
    "refusal": decode_refusal,
    "image_url": decode_image,
    "input_audio": decode_audio,
    "file": decode_file,
}


def read_source(url: str) -> Source:
    """The source of a URL: the data of a `data:` URL, else the address."""
    return read_inline(url) if url.startswith("data:") and ";base64," in url else Url(url)


def read_inline(text: str) -> Inline:
    """The data and type of a `data:` URL, or of base64 text, which has no type."""
    if not text.startswith("data:"):
        return Inline(text)
    media_type, _, data = text[5:].partition(";base64,")
    return Inline(data, media_type)


def write_inline(source: Inline) -> str:
    if not source.media_type:
        return source.data
    return f"data:{source.media_type};base64,{source.data}"


def part_name(block: Block) -> str:
    """This protocol's name for a block."""
    if isinstance(block, Opaque):
        return str(block.raw.get("type"))
    return PART_NAMES.get(type(block).__name__, "text")


PART_NAMES = {
    "Refusal": "refusal",
    "Thinking": "reasoning_content",
    "Redacted": "reasoning_content",
    "Image": "image_url",
    "Audio": "input_audio",
    "File": "file",
    "ToolCall": "tool_calls",
    "ToolResult": "tool",
}


def write_part(block: Block) -> JsonObject:
    """The part for a block. `arrange` has dropped unsupported blocks."""
    return WRITERS[type(block)](block)


def write_text(block: Text) -> JsonObject:
    return _with_ext({"type": "text", "text": block.text}, block.ext)


def write_refusal(block: Refusal) -> JsonObject:
    return _with_ext({"type": "refusal", "refusal": block.text}, block.ext)


def write_image(block: Image) -> JsonObject:
    source = block.source
    url = write_inline(source) if isinstance(source, Inline) else cast(Url, source).url
    image = {"url": url} if block.detail is None else {"url": url, "detail": block.detail}
    return _with_ext({"type": "image_url", "image_url": image}, block.ext)


def write_audio(block: Audio) -> JsonObject:
    source = cast(Inline, block.source)
    subtype = source.media_type.removeprefix("audio/")
    audio_format = AUDIO_FORMATS.get(source.media_type, subtype)
    part = {"type": "input_audio", "input_audio": {"data": source.data, "format": audio_format}}
    return _with_ext(part, block.ext)


def write_file(block: File) -> JsonObject:
    match block.source:
        case FileRef(id=file_id):
            file = {"file_id": file_id}
        case Inline() as source:
            file = {"file_data": write_inline(source)}
        case Url(url=url):
            file = {"file_data": url}
    if block.name is not None:
        file["filename"] = block.name
    return _with_ext({"type": "file", "file": file}, block.ext)


def write_checkpoint(block: Checkpoint) -> JsonObject:
    return {"type": "text", "text": checkpoint_text(block)}


def write_reminder(block: Reminder) -> JsonObject:
    return {"type": "text", "text": reminder_text(block)}


def write_opaque(block: Opaque) -> JsonObject:
    return dict(block.raw)


WRITERS: dict[type, Callable[[Any], JsonObject]] = {
    Text: write_text,
    Refusal: write_refusal,
    Image: write_image,
    Audio: write_audio,
    File: write_file,
    Checkpoint: write_checkpoint,
    Reminder: write_reminder,
    Opaque: write_opaque,
}


def _with_ext(body: JsonObject, ext: Ext | None) -> JsonObject:
    if ext is not None:
        own_members = ext.get(PROTOCOL)
        if own_members:
            body.update(own_members)
            body.pop(SOURCE_MEMBER, None)  # a note of the decoder, not a member
    return body


def write_content(blocks: Sequence[Block], form: Form) -> Any:
    """A string if the content was one and has at most one plain text, else a list of parts."""
    if form != "list" and len(blocks) <= 1:
        if not blocks:
            return ""
        block = blocks[0]
        if type(block) is Text and (block.ext is None or PROTOCOL not in block.ext):
            return block.text
    return [WRITERS[type(block)](block) for block in blocks]


def check_thinking(_block: Thinking, message: Message, request: Request) -> str | None:
    """The loss code of thinking from another protocol, else `None`."""
    return check_foreign_thinking(PROTOCOL, message, request)


def check_redacted(_block: Redacted, _message: Message, _request: Request) -> str | None:
    return FOREIGN_THINKING


def check_image(block: Image, message: Message, _request: Request) -> str | None:
    if message.role == "assistant":
        return "media_in_assistant"
    if isinstance(block.source, FileRef):
        return "file_id_unsupported"
    return check_image_type(block.source)


def check_file(block: File, message: Message, request: Request) -> str | None:
    if message.role == "assistant":
        return "media_in_assistant"
    if isinstance(block.source, Url):
        return "url_unsupported"
    if isinstance(block.source, FileRef) and not made_by(PROTOCOL, message, request):
        return FOREIGN_FILE_ID
    if isinstance(block.source, Inline) and plain_text(block.source) is None:
        kind = bare_type(block.source.media_type)
        return None if kind in FILE_TYPES else "media_type_unsupported"
    return None


def check_audio(block: Audio, message: Message, request: Request) -> str | None:
    if isinstance(block.source, FileRef):
        return None if made_by(PROTOCOL, message, request) else FOREIGN_FILE_ID
    if isinstance(block.source, Url) or block.source.media_type not in AUDIO_FORMATS:
        return "media_type_unsupported"
    return None
