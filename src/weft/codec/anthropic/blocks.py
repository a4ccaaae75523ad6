"""Decodes and writes content blocks. A block with an unknown `type` is kept as `Opaque`.

Media is allowed in user messages only: "'image' blocks are not permitted within assistant turns"
(https://github.com/SEMOSS/Semoss/issues/2323).

Text documents are plain-text files in the model, as in every other protocol. A document with nested
content has its texts joined for other protocols, and keeps its original form in `ext`. One with
nested images is kept as `Opaque`:
https://platform.claude.com/docs/en/build-with-claude/citations#document-types

`decode_common` and `write_common` are shortcuts for messages whose blocks have exactly the usual
members, which nearly all have. They give the same result in a fraction of the time, and leave every
other message to the tables.
"""

from base64 import b64encode
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from weft import exact_json
from weft.codec.base import (
    FOREIGN_FILE_ID,
    FOREIGN_THINKING,
    Losses,
    RoundedNumber,
    Target,
    as_object,
    check_foreign_thinking,
    check_opaque,
    report_rounded,
)
from weft.codec.calls import has_digest, report_empty_arguments, report_new_id, with_digest
from weft.codec.media import (
    IMAGE_TYPES,
    bare_type,
    check_audio,
    plain_text,
    report_detail,
    report_type,
    with_bare_type,
    with_inferred_type,
    with_media_type,
)
from weft.codec.read import (
    json_text,
    optional,
    path_prefix,
    text_of,
    unknown_members,
    with_prefix,
    wrong,
)
from weft.codec.repair import decode_texts, plain_texts, supported_result_parts
from weft.errors import Refused
from weft.exact_json import dumps
from weft.model import (
    Audio,
    Block,
    Checkpoint,
    File,
    FileRef,
    Form,
    Image,
    Inline,
    JsonObject,
    Message,
    Opaque,
    Position,
    Redacted,
    Refusal,
    Reminder,
    Request,
    Source,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Url,
    checkpoint_text,
    reminder_text,
)

from .wire import INVALID_CALL_ID_CHARACTER, PROTOCOL, VALID_CALL_ID

DOCUMENT_TYPES = frozenset({"application/pdf"})
"""Types of inline documents: https://platform.claude.com/docs/en/build-with-claude/files"""


def check_thinking(block: Thinking, message: Message, request: Request) -> str | None:
    """The loss code of thinking without a signature, or of another vendor."""
    if block.signature is None:
        return FOREIGN_THINKING
    return check_foreign_thinking(PROTOCOL, message, request)


def check_redacted(_block: Redacted, message: Message, request: Request) -> str | None:
    return check_foreign_thinking(PROTOCOL, message, request)


def check_image(block: Image, message: Message, _request: Request) -> str | None:
    return _check_source(block.source, IMAGE_TYPES, message)


def check_document(block: File, message: Message, _request: Request) -> str | None:
    source = with_inferred_type(block).source
    supported_types = (
        DOCUMENT_TYPES if plain_text(source) is None else frozenset({source.media_type})
    )
    return _check_source(source, supported_types, message)


def _check_source(source: Source, supported_types: frozenset[str], message: Message) -> str | None:
    if message.role == "assistant":
        return "media_in_assistant"
    if isinstance(source, FileRef):
        return FOREIGN_FILE_ID
    if isinstance(source, Url) and source.url[:8].lower() != "https://":
        return "url_unsupported"
    kind = source.media_type
    if (
        kind in supported_types
        or bare_type(kind) in supported_types
        or (isinstance(source, Url) and not kind)
    ):
        return None
    return "media_type_unsupported"


RESULT_PART_CHECKS: dict[type, Callable[[Any, Message, Request], str | None]] = {
    Opaque: partial(check_opaque, PROTOCOL),
    Image: check_image,
    File: check_document,
    Audio: check_audio,
}
CHECKS = RESULT_PART_CHECKS | {Thinking: check_thinking, Redacted: check_redacted}


PLAIN_TEXT_TYPE = "text/plain"


def read_text_source(source: Any) -> tuple[Inline, JsonObject] | None:
    """The text of a document's source, and the members to keep in `ext`; `None` if it is not
    text."""
    match source:
        case {"type": "text", "media_type": "text/plain", "data": str(text), **rest} if not rest:
            return _inline_text(text), {}
        case {"type": "content", "content": str(text), **rest} if not rest:
            return _inline_text(text), {"source": source}
        case {"type": "content", "content": list(), **rest} if not rest:
            texts = [_text(part) for part in cast(list[Any], source["content"])]
            if None in texts:
                return None
            return _inline_text("\n".join(cast(list[str], texts))), {"source": source}
        case _:
            return None


def write_text_source(text: str) -> JsonObject:
    return {"type": "text", "media_type": PLAIN_TEXT_TYPE, "data": text}


def _inline_text(text: str) -> Inline:
    return Inline(b64encode(text.encode("utf-8", "surrogatepass")).decode(), PLAIN_TEXT_TYPE)


def _text(raw: Any) -> str | None:
    """The text of a text block; `None` for any other value."""
    part = as_object(raw) or {}
    text = part.get("text")
    return text if part.get("type") == "text" and isinstance(text, str) else None


# The members of each block type that have a field in the model. All others go into `ext`.
TEXT = frozenset({"type", "text", "cache_control"})
THINKING = frozenset({"type", "thinking", "signature"})
REDACTED = frozenset({"type", "data"})
TOOL_USE = frozenset({"type", "id", "name", "input", "cache_control"})
TOOL_RESULT = frozenset({"type", "tool_use_id", "content", "is_error", "cache_control"})
IMAGE = frozenset({"type", "source", "cache_control"})
DOCUMENT = frozenset({"type", "source", "title", "cache_control"})


def decode_block(raw: JsonObject) -> Block:
    """Decode a block; raises `Refused` with a path inside it."""
    kind = raw.get("type")
    return (BLOCKS.get(kind, decode_opaque) if type(kind) is str else decode_opaque)(raw)


def decode_text(raw: JsonObject) -> Text:
    return Text(text_of(raw, "text"), unknown_members(raw, TEXT, PROTOCOL))


def decode_thinking(raw: JsonObject) -> Thinking:
    return Thinking(
        text_of(raw, "thinking"),
        optional(raw, "signature", str),
        unknown_members(raw, THINKING, PROTOCOL),
    )


def decode_redacted(raw: JsonObject) -> Redacted:
    return Redacted(text_of(raw, "data"), unknown_members(raw, REDACTED, PROTOCOL))


def decode_tool_use(raw: JsonObject) -> ToolCall:
    arguments = raw.get("input")
    if type(arguments) is not dict:
        raise wrong("input", cast(Any, arguments), "an object")
    call_id, name = text_of(raw, "id"), text_of(raw, "name")
    ext = unknown_members(raw, TOOL_USE, PROTOCOL)
    return ToolCall(call_id, name, json_text(arguments, "input"), ext=ext)


def decode_tool_result(raw: JsonObject) -> ToolResult:
    content, form = decode_content(raw, "content")
    failed = optional(raw, "is_error", bool)
    known_members = TOOL_RESULT if failed is not None else TOOL_RESULT - {"is_error"}
    ext = unknown_members(raw, known_members, PROTOCOL)
    return ToolResult(text_of(raw, "tool_use_id"), content, failed, form=form, ext=ext)


def decode_image(raw: JsonObject) -> Block:
    source = decode_source(raw)
    if source is None:
        return decode_opaque(raw)
    return Image(source, ext=unknown_members(raw, IMAGE, PROTOCOL))


def decode_document(raw: JsonObject) -> Block:
    source, ext = decode_source(raw), unknown_members(raw, DOCUMENT, PROTOCOL)
    if source is None:
        text_source = read_text_source(raw["source"])
        if text_source is None:
            return decode_opaque(raw)
        source, ext_members = text_source
        if ext_members:
            ext = {PROTOCOL: {**(ext or {}).get(PROTOCOL, {}), **ext_members}}
    elif (
        plain_text(source) is not None
    ):  # text in base64; `Writer.document` alone would write it as plain text
        ext = {PROTOCOL: {**(ext or {}).get(PROTOCOL, {}), "source": raw["source"]}}
    return File(source, optional(raw, "title", str), ext)


def decode_source(raw: JsonObject) -> Source | None:
    """Decode a media source; `None` for plain text and nested content, which documents have."""
    source = as_object(raw.get("source"))
    if source is None:
        raise wrong("source", raw.get("source"), "an object")
    with path_prefix("source"):
        match source:
            case {"type": "base64", "media_type": str(), "data": str(), **rest} if not rest:
                return Inline(source["data"], source["media_type"])
            case {"type": "url", "url": str(), **rest} if not rest:
                return Url(source["url"])
            case {"type": "file", "file_id": str(), **rest} if not rest:
                return FileRef(source["file_id"])
            case {"type": str()}:
                return None
            case _:
                raise wrong("type", source.get("type"), "a string")


def decode_opaque(raw: JsonObject) -> Opaque:
    if type(raw.get("type")) is not str:
        raise wrong("type", raw.get("type"), "a string")
    return Opaque(PROTOCOL, {key: value for key, value in raw.items() if key != "cache_control"})


BLOCKS: dict[str, Callable[[JsonObject], Block]] = {
    "text": decode_text,
    "thinking": decode_thinking,
    "redacted_thinking": decode_redacted,
    "tool_use": decode_tool_use,
    "tool_result": decode_tool_result,
    "image": decode_image,
    "document": decode_document,
}


def decode_content(
    raw: JsonObject, key: str, marks: dict[Position, Any] | None = None, number: int = 0
) -> tuple[tuple[Block, ...], Form]:
    """Decode content that is a string, a list of blocks, null, or absent.

    `marks` collects the `cache_control` of the blocks; `number` is the number of the message.
    """
    content = raw.get(key)
    if type(content) is str:
        return ((Text(content),) if content else ()), "text"
    if content is None:
        return (), "null" if key in raw else "absent"
    if type(content) is not list:
        raise wrong(key, content, "a list")
    items = cast("list[JsonObject]", content)
    common = decode_common(items)
    if common is not None:
        return common, "list"
    blocks: list[Block] = []
    for index, item in enumerate(items):
        if type(item) is not dict:
            raise wrong(f"{key}[{index}]", item, "an object")
        try:
            blocks.append(decode_block(item))
        except Refused as error:
            raise with_prefix(f"{key}[{index}]", error) from None
        if marks is not None:
            _collect_marks(item, (number, index), marks)
    return tuple(blocks), "list"


def _collect_marks(raw: JsonObject, position: Position, marks: dict[Position, Any]) -> None:
    """Collect the `cache_control` of a block, and of the parts of a result."""
    if "cache_control" in raw:
        marks[position] = raw["cache_control"]
    content = raw.get("content")
    if type(content) is list:
        for index, part in enumerate(cast(list[Any], content)):
            if isinstance(part, dict) and "cache_control" in part:
                marks[*position, index] = cast(JsonObject, part)["cache_control"]


def part_name(block: Block) -> str:
    """Anthropic's name for a block."""
    if type(block) is Opaque:
        return str(block.raw.get("type"))
    return BLOCK_NAMES.get(type(block), "text")


BLOCK_NAMES: dict[type, str] = {
    Thinking: "thinking",
    Redacted: "redacted_thinking",
    ToolCall: "tool_use",
    ToolResult: "tool_result",
    Image: "image",
    File: "document",
}


class Writer:
    """Writes blocks and collects the losses.

    `native` is whether the blocks come from this protocol, so that they need no checks. With
    `request`, the parts of results that this protocol does not support are dropped.
    """

    def __init__(
        self, target: Target | None, losses: Losses, native: bool, request: Request | None = None
    ) -> None:
        self.request = request
        self.embed = target.embed if target is not None else exact_json.loads
        self.losses = losses
        self.native = native

    def block(self, block: Block, position: Any) -> JsonObject:
        """The body of a block."""
        return WRITERS[type(block)](self, block, position)

    def text(self, block: Text, _position: Any) -> JsonObject:
        body: JsonObject = {"type": "text", "text": block.text}
        return body if block.ext is None else self._with_ext(body, block.ext)

    def refusal(self, block: Refusal, position: Any) -> JsonObject:
        self.losses.add(position, "refusal_as_text")
        return {"type": "text", "text": block.text}

    def thinking(self, block: Thinking, _position: Any) -> JsonObject:
        body: JsonObject = {"type": "thinking", "thinking": block.text}
        if block.signature is not None:
            body["signature"] = block.signature
        return self._with_ext(body, block.ext)

    def redacted(self, block: Redacted, _position: Any) -> JsonObject:
        return self._with_ext({"type": "redacted_thinking", "data": block.data}, block.ext)

    def call(self, block: ToolCall, position: Any) -> JsonObject:
        call_id = block.id
        if not self.native:
            call_id = valid_id(call_id)
            if call_id is not block.id:
                report_new_id(block.id, call_id, position, self.losses)
        body: JsonObject = {
            "type": "tool_use",
            "id": call_id,
            "name": block.name,
            "input": self._input(block, position),
        }
        return body if block.ext is None else self._with_ext(body, block.ext)

    def _input(self, block: ToolCall, position: Any) -> Any:
        """The arguments as an object; a text that is no object is wrapped into one."""
        text = block.arguments
        if block.custom:
            return {"input": text}
        start = text[:1]
        if start != "{":
            start = text.lstrip()[:1]
            if not start:
                report_empty_arguments((*position, "arguments"), self.losses)
                return {}
        if start == "{":
            try:
                return self.embed(text)
            except RoundedNumber as rounded:
                return report_rounded(rounded, (*position, "arguments"), self.losses)
            except ValueError:
                pass
        self.losses.add((*position, "arguments"), "arguments_wrapped")
        return {"_raw": text}

    def result(self, block: ToolResult, position: Any) -> JsonObject:
        call_id = block.call_id
        if not self.native:
            call_id = valid_id(call_id)
            if call_id is not block.call_id:
                report_new_id(block.call_id, call_id, position, self.losses)
        content = block.content
        if self.request is not None and not self.native:
            parts = supported_result_parts(
                block, position, self.request, RESULT_PART_CHECKS, PROTOCOL, self.losses
            )
            content = tuple(part for part, _ in parts)
        body: JsonObject = {"type": "tool_result", "tool_use_id": call_id}
        if block.form == "null" and not content:
            body["content"] = None
        elif block.form != "absent" or content:
            body["content"] = self.content(content, block.form, position)
        if block.is_error is not None:
            body["is_error"] = block.is_error
        return body if block.ext is None else self._with_ext(body, block.ext)

    def content(self, blocks: tuple[Block, ...] | list[Block], form: Form, position: Any) -> Any:
        """A string if the content was one and has at most one plain text, else a list of blocks."""
        if form != "list" and len(blocks) <= 1:
            if not blocks:
                return ""
            block = blocks[0]
            if type(block) is Text and block.ext is None:
                return block.text
        return [self.block(block, (*position, index)) for index, block in enumerate(blocks)]

    def image(self, block: Image, position: Any) -> JsonObject:
        if block.detail is not None:
            report_detail(block.detail, position, self.losses)
        source = block.source
        if not self.native:
            report_type(source, position, self.losses)
            source = with_bare_type(source, position, self.losses)
        return self._with_ext({"type": "image", "source": write_source(source)}, block.ext)

    def document(self, block: File, position: Any) -> JsonObject:
        source = block.source
        if not self.native:
            report_type(source, position, self.losses)
            source = with_media_type(block, position, self.losses)
        text = plain_text(source)
        if text is None:
            body: JsonObject = {"type": "document", "source": write_source(source)}
        else:
            body = {"type": "document", "source": write_text_source(text)}
        if block.name is not None:
            body["title"] = block.name
        return self._with_ext(body, block.ext)

    def checkpoint(self, block: Checkpoint, _position: Any) -> JsonObject:
        return {"type": "text", "text": checkpoint_text(block)}

    def reminder(self, block: Reminder, _position: Any) -> JsonObject:
        return {"type": "text", "text": reminder_text(block)}

    def opaque(self, block: Opaque, _position: Any) -> JsonObject:
        return dict(block.raw)

    def _with_ext(self, body: JsonObject, ext: Any) -> JsonObject:
        if ext is not None:
            body.update(ext.get(PROTOCOL, ()))
        return body


WRITERS: dict[type, Callable[[Writer, Any, Any], JsonObject]] = {
    Text: Writer.text,
    Refusal: Writer.refusal,
    Thinking: Writer.thinking,
    Redacted: Writer.redacted,
    ToolCall: Writer.call,
    ToolResult: Writer.result,
    Image: Writer.image,
    File: Writer.document,
    Checkpoint: Writer.checkpoint,
    Reminder: Writer.reminder,
    Opaque: Writer.opaque,
}


def write_source(source: Source) -> JsonObject:
    match source:
        case Inline(data=data, media_type=media_type):
            return {"type": "base64", "media_type": media_type, "data": data}
        case Url(url=url):
            return {"type": "url", "url": url}
        case FileRef(id=file_id):
            return {"type": "file", "file_id": file_id}


def valid_id(call_id: str) -> str:
    """The id if Anthropic accepts it, else an id made from it. Different ids stay different."""
    if is_plain_id(call_id):
        return call_id
    if VALID_CALL_ID.match(call_id) and not has_digest(call_id):
        return call_id
    return INVALID_CALL_ID_CHARACTER.sub("_", with_digest(call_id))


def decode_common(content: list[JsonObject]) -> tuple[Block, ...] | None:
    """The blocks of a message, or `None` if one of them is not of a frequent kind."""
    blocks: list[Block] = []
    # One loop with subscripts inside one `try`: calls and `get` would double the time.
    try:
        for raw in content:
            kind, size = raw["type"], len(raw)
            if kind == "text":
                text = raw["text"]
                if size != 2 or type(text) is not str:
                    return None
                blocks.append(Text(text))
            elif kind == "tool_use":
                call_id, name, arguments = raw["id"], raw["name"], raw["input"]
                if size != 4 or type(call_id) is not str or type(name) is not str:
                    return None
                if type(arguments) is not dict:
                    return None
                blocks.append(ToolCall(call_id, name, dumps(arguments).decode()))
            elif kind == "tool_result":
                result = _decode_common_result(raw, size)
                if result is None:
                    return None
                blocks.append(result)
            elif kind == "thinking":
                text, signature = raw["thinking"], raw["signature"]
                if size != 3 or type(text) is not str or type(signature) is not str:
                    return None
                blocks.append(Thinking(text, signature))
            else:
                return None
    except (
        KeyError,
        TypeError,
    ):  # a missing member, or a value that is not JSON: `decode_block` reports it
        return None
    return tuple(blocks)


def _decode_common_result(raw: JsonObject, size: int) -> ToolResult | None:
    call_id, content, is_error = raw["tool_use_id"], raw["content"], raw.get("is_error")
    if type(call_id) is not str or size != (3 if is_error is None else 4):
        return None
    if is_error is not None and type(is_error) is not bool:
        return None
    if type(content) is str:
        if not content:
            return None
        return ToolResult(call_id, (Text(content),), is_error, None, False, "text")
    texts = decode_texts(content, "text")
    if texts is None:
        return None
    return ToolResult(call_id, texts, is_error, None, False, "list")


def write_common(
    blocks: Sequence[Block], embed: Callable[[str], Any], native: bool
) -> list[JsonObject] | None:
    """The bodies of the blocks, or `None` if one of them is not of a frequent kind."""
    content: list[JsonObject] = []
    for block in blocks:
        if type(block) is Text:
            if block.ext is not None:
                return None
            content.append({"type": "text", "text": block.text})
        elif type(block) is ToolCall:
            call_id, text = block.id, block.arguments
            if block.ext is not None or block.custom or text[:1] != "{":
                return None
            if not (native or is_plain_id(call_id)):
                return None
            try:
                arguments = embed(text)
            except ValueError:
                return None
            content.append(
                {"type": "tool_use", "id": call_id, "name": block.name, "input": arguments}
            )
        elif type(block) is ToolResult:
            call_id, texts = block.call_id, plain_texts(block.content)
            if not texts or block.ext is not None or not (native or is_plain_id(call_id)):
                return None
            inner: Any = texts[0]
            if block.form == "list" or len(texts) > 1:
                inner = [{"type": "text", "text": text} for text in texts]
            body: JsonObject = {"type": "tool_result", "tool_use_id": call_id, "content": inner}
            if block.is_error is not None:
                body["is_error"] = block.is_error
            content.append(body)
        elif type(block) is Thinking:
            text, signature = block.text, block.signature
            if block.ext is not None or signature is None:
                return None
            content.append({"type": "thinking", "thinking": text, "signature": signature})
        else:
            return None
    return content


def is_plain_id(call_id: str) -> bool:
    """Whether an id has only letters, digits and underscores; faster than `VALID_CALL_ID`."""
    return call_id.isidentifier() and call_id.isascii()
