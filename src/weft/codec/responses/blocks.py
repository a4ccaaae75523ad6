"""Decodes and writes the parts of a message's `content` and of a result's `output`.

Text is `input_text` in client messages and `output_text` in assistant messages. A text with the
other type keeps its type in `ext`, like every member without a field. An unknown part is kept as
`Opaque`.
"""

from collections.abc import Callable, Sequence, Set
from typing import Any

from weft.codec.base import Losses
from weft.codec.media import report_type
from weft.codec.read import objects, text_of, unknown_members, with_prefix, wrong
from weft.errors import Refused
from weft.model import (
    Block,
    Checkpoint,
    Ext,
    File,
    FileRef,
    Form,
    Image,
    Inline,
    JsonObject,
    Opaque,
    Position,
    Refusal,
    Reminder,
    Source,
    Text,
    Url,
    checkpoint_text,
    reminder_text,
)

from .wire import PROTOCOL

INPUT = "input_text"
"""The type of a text in messages of clients."""

OUTPUT = "output_text"
"""The type of a text in messages of the assistant."""

TEXT = frozenset({"type", "text"})
REFUSAL = frozenset({"type", "refusal"})

ITEM = "item"
"""The key in `ext` of a first part that has the members of its message item."""

ESCAPE = "@"
"""A vendor's member that is named like `ITEM` gets this prefix in `ext`, so that they differ."""


def own_members(raw: JsonObject, known: Set[str]) -> Ext | None:
    """The unknown members of a part or a message, with names that are not `ITEM`."""
    ext = unknown_members(raw, known, PROTOCOL)
    return ext if ext is None else {PROTOCOL: _with_escapes(ext[PROTOCOL])}


def _with_escapes(members: JsonObject) -> JsonObject:
    if ITEM not in members and not any(key.startswith(ESCAPE) for key in members):
        return members
    return {
        ESCAPE + key if key == ITEM or key.startswith(ESCAPE) else key: value
        for key, value in members.items()
    }


def without_escapes(members: JsonObject) -> JsonObject:
    """The vendor's members in `ext`, with the vendor's names."""
    return {key.removeprefix(ESCAPE): value for key, value in members.items() if key != ITEM}


def decode_part(raw: JsonObject, text_type: str) -> Block:
    """Decode a part; `text_type` is the usual type of a text in this message."""
    kind = raw.get("type")
    decode = PARTS.get(kind, decode_opaque) if type(kind) is str else decode_opaque
    return decode(raw, text_type)


def decode_text(raw: JsonObject, text_type: str) -> Text:
    text = text_of(raw, "text")
    if raw["type"] == text_type:
        return Text(text, own_members(raw, TEXT) if len(raw) > 2 else None)
    other_members = {key: value for key, value in raw.items() if key not in TEXT}
    return Text(text, {PROTOCOL: {"type": raw["type"], **_with_escapes(other_members)}})


def decode_refusal(raw: JsonObject, _text_type: str) -> Refusal:
    return Refusal(text_of(raw, "refusal"), own_members(raw, REFUSAL))


def decode_image(raw: JsonObject, _text_type: str) -> Block:
    known = {"type"}
    url, file_id, detail = raw.get("image_url"), raw.get("file_id"), raw.get("detail")
    if type(url) is str:
        known.add("image_url")
        source: Source = data_source(url) or Url(url)
    elif type(file_id) is str:
        known.add("file_id")
        source = FileRef(file_id)
    else:
        return decode_opaque(raw, "")
    if type(detail) is str:
        known.add("detail")
    return Image(source, detail if type(detail) is str else None, own_members(raw, known))


def decode_file(raw: JsonObject, _text_type: str) -> Block:
    known = {"type"}
    for member, make_source in FILE_SOURCES.items():
        value = raw.get(member)
        if type(value) is str:
            known.add(member)
            source = make_source(value)
            break
    else:
        return decode_opaque(raw, "")
    name = raw.get("filename")
    if type(name) is str:
        known.add("filename")
    return File(source, name if type(name) is str else None, own_members(raw, known))


def decode_opaque(raw: JsonObject, _text_type: str) -> Opaque:
    if type(raw.get("type")) is not str:
        raise wrong("type", raw.get("type"), "a string")
    return Opaque(PROTOCOL, raw)


PARTS: dict[str, Callable[[JsonObject, str], Block]] = {
    "input_text": decode_text,
    "output_text": decode_text,
    "refusal": decode_refusal,
    "input_image": decode_image,
    "input_file": decode_file,
}


def data_source(url: str) -> Inline | None:
    """The media of a base64 data URL; `None` for any other URL."""
    if not url.startswith("data:"):
        return None
    head, comma, data = url.partition(",")
    media_type = head[5:].removesuffix(";base64")
    if not comma or not media_type or not head.endswith(";base64"):
        return None
    return Inline(data, media_type)


FILE_SOURCES: dict[str, Callable[[str], Source]] = {
    "file_data": lambda data: data_source(data) or Inline(data),
    "file_url": Url,
    "file_id": FileRef,
}


def decode_content(raw: JsonObject, key: str, text_type: str) -> tuple[tuple[Block, ...], Form]:
    """Decode content that is a string, a list of parts, null, or absent."""
    content = raw.get(key)
    if type(content) is str:
        return ((Text(content),) if content else ()), "text"
    if content is None:
        return (), "null" if key in raw else "absent"
    blocks: list[Block] = []
    for number, part in enumerate(objects(content, key)):
        try:
            blocks.append(decode_part(part, text_type))
        except Refused as error:
            raise with_prefix(f"{key}[{number}]", error) from None
    return tuple(blocks), "list"


def write_part(
    block: Block, text_type: str, position: Position, losses: Losses
) -> JsonObject | None:
    """The part for a block; `None`, with a loss, if the protocol does not support the block."""
    match block:
        case Text(text=text, ext=ext):
            body: JsonObject = {"type": text_type, "text": text}
        case Refusal(text=text, ext=ext):
            body = {"type": "refusal", "refusal": text}
        case Image(source=source, detail=detail, ext=ext):
            report_type(source, position, losses)
            body = {"type": "input_image", **_write_image(source)}
            if detail is not None:
                body["detail"] = detail
        case File(source=source, name=name, ext=ext):
            report_type(source, position, losses)
            body = {"type": "input_file", **_write_file(source)}
            if name is not None:
                body["filename"] = name
        case Checkpoint():
            return {"type": text_type, "text": checkpoint_text(block)}
        case Reminder():
            return {"type": text_type, "text": reminder_text(block)}
        case Opaque(protocol=protocol, raw=raw) if protocol == PROTOCOL:
            return raw
        case _:
            losses.add(position, "block_unsupported", part_name(block))
            return None
    members = ext.get(PROTOCOL) if ext is not None else None
    if members:
        body.update(without_escapes(members))
    return body


def _write_image(source: Source) -> JsonObject:
    match source:
        case Inline(data=data, media_type=media_type):
            return {"image_url": f"data:{media_type};base64,{data}"}
        case Url(url=url):
            return {"image_url": url}
        case FileRef(id=file_id):
            return {"file_id": file_id}


def _write_file(source: Source) -> JsonObject:
    match source:
        case Inline(data=data, media_type=""):
            return {"file_data": data}
        case Inline(data=data, media_type=media_type):
            return {"file_data": f"data:{media_type};base64,{data}"}
        case Url(url=url):
            return {"file_url": url}
        case FileRef(id=file_id):
            return {"file_id": file_id}


def write_content(
    blocks: Sequence[Block], form: Form, text_type: str, position: Position, losses: Losses
) -> Any:
    """Content as a string if it was one and still can be, else as a list."""
    if form in ("text", "") and len(blocks) <= 1:
        if not blocks:
            return ""
        first = blocks[0]
        if type(first) is Text and not _has_members(first.ext):
            return first.text
    parts = [
        write_part(block, text_type, (*position, number), losses)
        for number, block in enumerate(blocks)
    ]
    return [part for part in parts if part is not None]


def _has_members(ext: Ext | None) -> bool:
    """Whether a text has other members of this protocol; the members of its item do not count."""
    return ext is not None and bool(ext.get(PROTOCOL, {}).keys() - {ITEM})


def part_name(block: Block) -> str:
    """The vendor's name for a block."""
    if isinstance(block, Opaque):
        return str(block.raw.get("type"))
    return NAMES.get(type(block).__name__, "input_text")


NAMES = {
    "Image": "input_image",
    "File": "input_file",
    "Audio": "input_audio",
    "Refusal": "refusal",
    "Thinking": "reasoning",
    "Redacted": "reasoning",
    "ToolCall": "function_call",
    "ToolResult": "function_call_output",
}
