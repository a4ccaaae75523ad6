"""Decodes and writes parts: https://ai.google.dev/api/caching#Part

A part has one data member (`text`, `functionCall`, ...) and optional metadata. A part with several
data members, or with an unknown one, is kept as `Opaque`. Any part may have a thought signature: on
a thought it becomes `Thinking.signature`, elsewhere it stays in the block's `ext`.

Calls and results may have no id. A call then gets an id from its position, and a result gets the id
of the oldest unanswered call with its name. `ext` notes that the id was missing (`"id": None`) or
empty (`"id": [""]`). When written, a result names its function, and the results of parallel calls
have the order of the calls.

Gemini's requirements for a list of contents:

- A function call directly follows a user message, so consecutive model messages are merged.
- The results of one turn are one content, which contains nothing else.
- Some models require a signature on every call, or media outside of results.

https://ai.google.dev/gemini-api/docs/function-calling

`decode_common` and `write_common` are shortcuts for the shapes that nearly all parts have. They
return the same result in a fraction of the time, and leave every other part to the tables `READERS`
and `WRITERS`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from msgspec import structs

from weft import exact_json
from weft.codec.base import (
    FOREIGN_FILE_ID,
    Losses,
    RoundedNumber,
    Target,
    as_object,
    check_foreign_thinking,
    check_opaque,
    made_by,
    report_rounded,
)
from weft.codec.media import media_type_of, report_detail, with_inferred_type, with_media_type
from weft.codec.read import (
    json_text,
    objects,
    optional,
    text_of,
    unknown_members,
    with_prefix,
    wrong,
)
from weft.codec.repair import Turn, plain_texts, supported_result_parts
from weft.codec.tools import flat_name
from weft.errors import Refused
from weft.exact_json import dumps
from weft.model import (
    Audio,
    Block,
    Checkpoint,
    Ext,
    File,
    FileRef,
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

from .wire import GOOGLE_FILE_PREFIXES, PLACEHOLDER_SIGNATURE, PROTOCOL

OTHER_DATA = frozenset({"executableCode", "codeExecutionResult", "toolCall", "toolResponse"})
"""Data members without a block of their own: their parts are kept as `Opaque`."""

# The members that a decoder reads: of a part (TEXT, CALL, ...) and of its data (CALL_MEMBERS, ...).
THOUGHT = frozenset({"text", "thought", "thoughtSignature"})
TEXT = frozenset({"text"})
CALL = frozenset({"functionCall"})
CALL_MEMBERS = frozenset({"id", "name", "args"})
RESULT = frozenset({"functionResponse"})
RESULT_MEMBERS = frozenset({"id", "name", "response", "parts"})
BLOB = frozenset({"inlineData"})
BLOB_MEMBERS = frozenset({"mimeType", "data", "displayName"})
FILE = frozenset({"fileData"})
FILE_MEMBERS = frozenset({"mimeType", "fileUri", "displayName"})

KEPT_IF_EMPTY = frozenset({"name", "parts"})
"""Members that are also kept in `ext` if they are null or empty, because no block can hold that."""

NOTES = frozenset({"id", "item", "displayName", "functionCall", "functionResponse"})
"""Keys in `ext` that are not members of the part.

`id`, `item` and `displayName` are notes of the decoder. `functionCall` and `functionResponse` have
the unknown members of the part's data.
"""

AMBIGUOUS = NOTES - {"functionCall", "functionResponse"}
"""Notes that a part might have a member of the same name for."""

PART_PREFIX = "part."
"""The prefix in `ext` for a member of the part that has the name of a note."""

TEXT_OUTPUTS = ("output", "result")
"""Members of a `response` whose string is the text of a result; `error` is another one."""


class PartReader:
    """Decodes the parts of one body.

    `answer_id` is the id of the answer that the parts belong to, if they are not a request's.
    `_unanswered` has the ids of the calls without a result so far, by the name of the function.
    """

    def __init__(self, answer_id: str = "") -> None:
        self._answer_id = answer_id
        self._unanswered: dict[str, list[str]] = {}
        self._generated_ids = 0

    def part(self, raw: JsonObject, content: int, number: int) -> Block:
        """Decode a part in camel case; raises `Refused` with a path inside it."""
        block = self.common_part(raw)
        return self.any_part(raw, content, number) if block is None else block

    def common_part(self, raw: JsonObject) -> Block | None:
        """Decode a part of a common shape; `None` for any other shape or spelling."""
        block = decode_common(raw)
        if type(block) is ToolCall:
            self._unanswered.setdefault(block.name, []).append(block.id)
        elif type(block) is ToolResult:
            unanswered = self._unanswered.get(block.name or "")
            if unanswered and block.call_id in unanswered:
                unanswered.remove(block.call_id)
        return block

    def any_part(self, raw: JsonObject, content: int, number: int) -> Block:
        """Like `part`, for a part of any shape."""
        data = [key for key in raw if key in DATA]
        if len(data) != 1 or data[0] in OTHER_DATA or raw[data[0]] is None:
            return Opaque(PROTOCOL, raw)
        plain = raw
        if not AMBIGUOUS.isdisjoint(raw):
            plain = {
                PART_PREFIX + key if key in AMBIGUOUS else key: value for key, value in raw.items()
            }
        block = READERS[data[0]](self, plain, f"{content}_{number}")
        return Opaque(PROTOCOL, raw) if isinstance(block, Opaque) else block

    def text(self, raw: JsonObject, _position: str) -> Block:
        if len(raw) == 1:
            return Text(text_of(raw, "text"))
        if raw.get("thought") is True:
            signature = optional(raw, "thoughtSignature", str)
            return Thinking(
                text_of(raw, "text"), signature, unknown_members(raw, THOUGHT, PROTOCOL)
            )
        return Text(text_of(raw, "text"), unknown_members(raw, TEXT, PROTOCOL))

    def call(self, raw: JsonObject, position: str) -> Block:
        call = _data(raw, "functionCall")
        try:
            name = text_of(call, "name")
            arguments = call.get("args")
            if arguments is not None and type(arguments) is not dict:
                raise wrong("args", arguments, "an object")
            call_id = optional(call, "id", str)
        except Refused as error:
            raise with_prefix("functionCall", error) from None
        ext = _unknown_members(raw, CALL, call, CALL_MEMBERS, "functionCall")
        if not call_id:
            call_id = self._call_id(position)
            ext = with_note(ext, "id", missing_id_note(call))
        self._unanswered.setdefault(name, []).append(call_id)
        text = "" if arguments is None else json_text(arguments, "args")
        return ToolCall(call_id, name, text, ext=ext)

    def _call_id(self, position: str) -> str:
        """An id for a call without one: by its position in a request, else by the answer's id.

        Both are stable. The second is unique in a conversation, whose later requests contain the
        answer at another position.
        """
        if not self._answer_id:
            return f"gemini_call_{position}"
        number = self._generated_ids
        self._generated_ids += 1
        return f"call_{self._answer_id}_{number}"

    def result(self, raw: JsonObject, position: str) -> Block:
        result = _data(raw, "functionResponse")
        try:
            name = optional(result, "name", str)
            call_id = optional(result, "id", str)
            content, is_error, member = _decode_response(result)
            media = tuple(self._media(result))
        except Refused as error:
            raise with_prefix("functionResponse", error) from None
        ext = _unknown_members(raw, RESULT, result, RESULT_MEMBERS, "functionResponse")
        if member is not None:
            ext = with_note(ext, "item", member)
        unanswered = self._unanswered.get(name or "")
        if call_id:
            if unanswered and call_id in unanswered:
                unanswered.remove(call_id)
        else:
            call_id = unanswered.pop(0) if unanswered else f"gemini_call_{position}"
            ext = with_note(ext, "id", missing_id_note(result))
        form = "list" if media else "text"
        if result.get("response") is None:
            form = "null" if "response" in result else "absent"
        return ToolResult(call_id, content + media, is_error, name, form=form, ext=ext)

    def _media(self, result: JsonObject) -> list[Block]:
        raws = result.get("parts")
        if raws is None:
            return []
        return [
            self.part(raw, 0, number)
            if "inlineData" in raw or "fileData" in raw
            else Opaque(PROTOCOL, raw)
            for number, raw in enumerate(objects(raws, "parts"))
        ]

    def blob(self, raw: JsonObject, _position: str) -> Block:
        blob = _data(raw, "inlineData")
        media_type, data = blob.get("mimeType"), blob.get("data")
        if (
            not isinstance(media_type, str)
            or not isinstance(data, str)
            or _has_unknown_members(blob, BLOB_MEMBERS)
        ):
            return Opaque(PROTOCOL, raw)
        return _media_block(Inline(data, media_type), blob, unknown_members(raw, BLOB, PROTOCOL))

    def file(self, raw: JsonObject, _position: str) -> Block:
        file = _data(raw, "fileData")
        media_type, uri = file.get("mimeType", ""), file.get("fileUri")
        if (
            not isinstance(media_type, str)
            or not isinstance(uri, str)
            or _has_unknown_members(file, FILE_MEMBERS)
        ):
            return Opaque(PROTOCOL, raw)
        source_type = FileRef if uri.startswith(GOOGLE_FILE_PREFIXES) else Url
        source = source_type(uri, media_type)
        return _media_block(source, file, unknown_members(raw, FILE, PROTOCOL))


READERS: dict[str, Callable[[PartReader, JsonObject, str], Block]] = {
    "text": PartReader.text,
    "functionCall": PartReader.call,
    "functionResponse": PartReader.result,
    "inlineData": PartReader.blob,
    "fileData": PartReader.file,
}

DATA = READERS.keys() | OTHER_DATA
"""The data members; a part has exactly one."""


def _has_unknown_members(raw: JsonObject, known: frozenset[str]) -> bool:
    """Whether media has an unknown member, or one that is null."""
    return bool(raw.keys() - known) or None in raw.values()


def _data(raw: JsonObject, key: str) -> JsonObject:
    """The value of a part's data member, which must be an object."""
    value = as_object(raw[key])
    if value is None:
        raise wrong(key, raw[key], "an object")
    return value


def _unknown_members(
    raw: JsonObject,
    known: frozenset[str],
    data: JsonObject,
    known_data: frozenset[str],
    data_member: str,
) -> Ext | None:
    """The members of a part, and of its data, that have no field."""
    ext = unknown_members(raw, known, PROTOCOL)
    unknown = {
        name: value
        for name, value in data.items()
        if name not in known_data or (name in KEPT_IF_EMPTY and not value)
    }
    return with_note(ext, data_member, unknown) if unknown else ext


def missing_id_note(raw: JsonObject) -> list[Any] | None:
    """The note for a call or result without an id: a list with the empty value, or `None`."""
    return [raw["id"]] if "id" in raw else None


def with_note(ext: Ext | None, key: str, value: Any) -> Ext:
    """The `ext` with one more member of this protocol."""
    ext = ext or {}
    return {**ext, PROTOCOL: {**ext.get(PROTOCOL, {}), key: value}}


def _decode_response(result: JsonObject) -> tuple[tuple[Block, ...], bool | None, str | None]:
    """The content of a result, its error flag, and the member that the content was in.

    `output` is the function's output, `error` its error. Without either, the whole object is the
    output. It becomes JSON text, and the member is `""`. The member is `None` if it is `output` or
    `error`, because the error flag tells which.
    https://ai.google.dev/api/caching#FunctionResponse
    """
    response = as_object(result.get("response"))
    if response is None:
        if result.get("response") is not None:
            raise wrong("response", result["response"], "an object")
        return (), None, None
    is_error = True if response.get("error") else None
    if len(response) == 1:
        member, value = next(iter(response.items()))
        if isinstance(value, str) and (member in TEXT_OUTPUTS or (member == "error" and value)):
            content = (Text(value),) if value else ()
            return content, is_error, member if member == "result" else None
    if not response:
        return (), None, ""
    return (Text(json_text(response, "response")),), is_error, ""


def _media_block(source: Source, raw: JsonObject, ext: Ext | None) -> Block:
    """A block for this media type; only `File` has a name, other blocks keep it in `ext`."""
    name = raw.get("displayName")
    kind = source.media_type.partition("/")[0]
    if kind not in ("image", "audio"):
        return File(source, name if isinstance(name, str) else None, ext)
    if name is not None:
        ext = with_note(ext, "displayName", name)
    return Image(source, ext=ext) if kind == "image" else Audio(source, ext=ext)


def part_name(block: Block) -> str:
    """Gemini's name for a block: its data member."""
    if isinstance(block, Opaque):
        return next((key for key in block.raw if key in OTHER_DATA), "part")
    if isinstance(block, Image | File | Audio):
        return "inlineData" if isinstance(block.source, Inline) else "fileData"
    return NAMES.get(type(block), "text")


NAMES: dict[type, str] = {
    Thinking: "thought",
    ToolCall: "functionCall",
    ToolResult: "functionResponse",
}


Media = Image | File | Audio

MEDIA_NAMES = {Image: "an image", File: "a document", Audio: "audio"}


class Writer:
    """Writes the parts of one body and collects the losses.

    `calls` are the calls of the conversation by id, whose names the results repeat. `native` is
    whether the body was a Gemini body before.
    """

    def __init__(
        self,
        target: Target | None,
        losses: Losses,
        calls: Mapping[str, ToolCall] | None = None,
        *,
        native: bool = True,
    ) -> None:
        self.native = native
        self.embed = target.embed if target is not None else exact_json.loads
        self.losses = losses
        self.calls = calls or {}

    def part(self, block: Block, position: Position) -> JsonObject:
        """The part for a block."""
        part = write_common(block, self.embed)
        return WRITERS[type(block)](self, block, position) if part is None else part

    def text(self, block: Text, _position: Position) -> JsonObject:
        return _with_ext({"text": block.text}, block.ext)

    def refusal(self, block: Refusal, position: Position) -> JsonObject:
        self.losses.add(position, "refusal_as_text")
        return {"text": block.text}

    def thinking(self, block: Thinking, _position: Position) -> JsonObject:
        body: JsonObject = {"text": block.text, "thought": True}
        if block.signature is not None:
            body["thoughtSignature"] = block.signature
        return _with_ext(body, block.ext)

    def call(self, block: ToolCall, position: Position) -> JsonObject:
        notes = own_ext(block.ext)
        call: JsonObject = {"name": call_name(block)}
        if block.arguments.strip() or block.custom:
            call["args"] = self._arguments(block, position)
        call.update(_id_member(notes, block.id))
        call.update(notes.get("functionCall", ()))
        return _with_ext({"functionCall": call}, block.ext)

    def _arguments(self, block: ToolCall, position: Position) -> Any:
        if block.custom:
            return {"input": block.arguments}
        if block.arguments.lstrip().startswith("{"):
            try:
                return self.embed(block.arguments)
            except RoundedNumber as rounded:
                return report_rounded(rounded, (*position, "arguments"), self.losses)
            except ValueError:
                pass
        self.losses.add((*position, "arguments"), "arguments_wrapped")
        return {"_raw": block.arguments}

    def result(self, block: ToolResult, position: Position) -> JsonObject:
        notes = own_ext(block.ext)
        result: JsonObject = {}
        name = self.name_of(block.call_id) if block.name is None else block.name
        if name is not None:
            result["name"] = name
        result.update(_id_member(notes, block.call_id))
        has_no_text = self.native and not any(
            isinstance(part, TEXT_BLOCKS) for part in block.content
        )
        if block.form == "null" and has_no_text:
            result["response"] = None
        elif block.form != "absent" or (block.content and not has_no_text):
            result["response"] = self._response(block, notes.get("item"), position)
        media = [part for part in block.content if isinstance(part, Media | Opaque)]
        if media:
            result["parts"] = [self.part(part, position) for part in media]
        result.update(notes.get("functionResponse", ()))
        return _with_ext({"functionResponse": result}, block.ext)

    def name_of(self, call_id: str) -> str | None:
        """The name of the call that a result answers."""
        call = self.calls.get(call_id)
        return None if call is None else call_name(call)

    def _response(self, block: ToolResult, member: str | None, position: Position) -> Any:
        """The `response` for a result's text.

        `member` is the member that the text was in. If it is `""`, the text was the whole object,
        and becomes one again.
        """
        texts = [text_of_block(part) for part in block.content if isinstance(part, TEXT_BLOCKS)]
        text = "\n".join(texts)
        if member == "":
            if not texts:
                return {}
            if text.startswith("{"):
                try:
                    return self.embed(text)
                except RoundedNumber as rounded:
                    return report_rounded(rounded, position, self.losses)
                except ValueError:
                    pass
        if block.is_error:
            return {"error": text}
        return {member or "output": text}

    def media(self, block: Media, position: Position) -> JsonObject:
        name = own_ext(block.ext).get("displayName")
        if isinstance(block, File):
            name = block.name
        source = block.source
        if isinstance(block, Image) and block.detail is not None:
            report_detail(block.detail, position, self.losses)
        if isinstance(block, File) and not self.native:
            source = with_media_type(block, position, self.losses)
        if isinstance(source, Url) and not source.media_type and not self.native:
            source = self._with_media_type(block, source, position)
        return _with_ext(write_source(source, name), block.ext)

    def _with_media_type(self, block: Media, source: Url, position: Position) -> Url:
        """The URL with a media type guessed from its extension, because Gemini requires one."""
        media_type = media_type_of(source.url)
        if not media_type:
            self.losses.add(position, "media_type_missing", MEDIA_NAMES[type(block)])
        return Url(source.url, media_type)

    def checkpoint(self, block: Checkpoint, _position: Position) -> JsonObject:
        return {"text": checkpoint_text(block)}

    def reminder(self, block: Reminder, _position: Position) -> JsonObject:
        return {"text": reminder_text(block)}

    def opaque(self, block: Opaque, _position: Position) -> JsonObject:
        return dict(block.raw)


WRITERS: dict[type, Callable[[Writer, Any, Position], JsonObject]] = {
    Text: Writer.text,
    Refusal: Writer.refusal,
    Thinking: Writer.thinking,
    ToolCall: Writer.call,
    ToolResult: Writer.result,
    Image: Writer.media,
    File: Writer.media,
    Audio: Writer.media,
    Checkpoint: Writer.checkpoint,
    Reminder: Writer.reminder,
    Opaque: Writer.opaque,
}

TEXT_BLOCKS = Text | Refusal | Checkpoint | Reminder


def text_of_block(block: Text | Refusal | Checkpoint | Reminder) -> str:
    if isinstance(block, Checkpoint):
        return checkpoint_text(block)
    return reminder_text(block) if isinstance(block, Reminder) else block.text


def own_ext(ext: Ext | None) -> JsonObject:
    """The members in `ext` that belong to this protocol."""
    return ext.get(PROTOCOL, {}) if ext is not None else {}


def _with_ext(body: JsonObject, ext: Ext | None) -> JsonObject:
    """The part with the members that `ext` kept; notes are left out."""
    for key, value in own_ext(ext).items():
        if key not in NOTES:
            body[key.removeprefix(PART_PREFIX)] = value
    return body


def _id_member(notes: JsonObject, call_id: str) -> JsonObject:
    """The member `id`, unless the original had none (`missing_id_note`)."""
    if "id" not in notes:
        return {"id": call_id}
    return {"id": notes["id"][0]} if notes["id"] else {}


def call_name(block: ToolCall) -> str:
    """The name of a call; a namespace becomes part of it, because Gemini has none."""
    return block.name if block.namespace is None else flat_name(block.name, block.namespace)


def write_source(source: Source, name: Any = None) -> JsonObject:
    """The part for media; `name` is its `displayName`."""
    match source:
        case Inline(data=data, media_type=media_type):
            key, body = "inlineData", {"mimeType": media_type, "data": data}
        case FileRef(id=uri):
            key, body = "fileData", {"fileUri": uri}
        case Url(url=url):
            key, body = "fileData", {"fileUri": url}
    if source.media_type:
        body["mimeType"] = source.media_type
    if name is not None:
        body["displayName"] = name
    return {key: body}


def check_thinking(_block: Any, message: Message, request: Request) -> str | None:
    return check_foreign_thinking(PROTOCOL, message, request)


def check_redacted(_block: Any, _message: Message, _request: Request) -> str | None:
    return "thinking_of_another_model"


def check_media(block: Media, message: Message, request: Request) -> str | None:
    if isinstance(block.source, FileRef) and not made_by(PROTOCOL, message, request):
        return FOREIGN_FILE_ID
    source = with_inferred_type(block).source if isinstance(block, File) else block.source
    if isinstance(source, Inline) and not source.media_type:
        return "media_type_unsupported"
    return None


CHECKS: dict[type, Callable[[Any, Message, Request], str | None]] = {
    Thinking: check_thinking,
    Redacted: check_redacted,
    Opaque: partial(check_opaque, PROTOCOL),
    Image: check_media,
    File: check_media,
    Audio: check_media,
}


def supported_content(
    block: ToolResult, position: Position, request: Request, losses: Losses
) -> tuple[Block, ...]:
    """The text and media of another protocol's result; everything else is reported as a loss."""
    parts = [
        part
        for part, _ in supported_result_parts(block, position, request, CHECKS, PROTOCOL, losses)
    ]
    text_count = sum(isinstance(part, TEXT_BLOCKS) for part in parts)
    if text_count == len(block.content) == 1 and block.form == "list":
        losses.add(position, "list_as_string")
    if text_count > 1:
        losses.add(position, "text_boundary_dropped", "texts")
    if block.is_error is False:
        losses.add(position, "error_flag_dropped", "false")
    return tuple(parts)


class ContentWriter:
    """Writes the turns of a request of another protocol.

    `_call_order` has the number of each call in the last model turn, by id.
    """

    def __init__(self, request: Request, target: Target, writer: Writer, losses: Losses) -> None:
        self.request = request
        self.model = target.model
        self.writer = writer
        self.losses = losses
        self._call_order: dict[str, int] = {}

    def contents(self, turns: list[Turn]) -> list[JsonObject]:
        """The contents for these turns."""
        contents: list[JsonObject] = []
        for turn in turns:
            if turn.role == "assistant":
                parts = self._model_parts(turn)
                if contents and contents[-1]["role"] == "model":
                    contents[-1]["parts"] += parts
                    self.losses.add(turn.position, "message_boundary_dropped")
                else:
                    contents.append({"parts": parts, "role": "model"})
            else:
                contents += self._user_contents(turn)
            if turn.message.form in ("list", "absent"):
                self._report_form(turn)
        return contents

    def _report_form(self, turn: Turn) -> None:
        """Report forms that Gemini cannot express: a list of one text, and missing content."""
        if turn.message.form == "absent":
            self.losses.add(turn.position, "missing_content_added")
        elif turn.role == "assistant" or len(turn.blocks) == 1:
            for at, block in enumerate(turn.blocks):
                if type(block) is Text:
                    self.losses.add(turn.position_of(at), "form_changed", "list of one text")

    def _model_parts(self, turn: Turn) -> list[JsonObject]:
        self._call_order = {}
        parts: list[JsonObject] = []
        embed = self.writer.embed
        for at, block in enumerate(turn.blocks):
            part = write_common(block, embed)
            if part is None:
                part = self.writer.part(block, turn.position_of(at))
                if type(block) is ToolCall:
                    self._report_call(block, turn.position_of(at))
            if type(block) is ToolCall:
                is_unsigned = "thoughtSignature" not in part
                if not self._call_order and self.model.signed_calls and is_unsigned:
                    part["thoughtSignature"] = PLACEHOLDER_SIGNATURE
                    position = turn.position_of(at)
                    self.losses.add(position, "default_added", PLACEHOLDER_SIGNATURE)
                self._call_order[block.id] = len(self._call_order)
            parts.append(part)
        return parts

    def _report_call(self, block: ToolCall, position: Position) -> None:
        if block.namespace is not None:
            self.losses.add(position, "namespace_flattened", block.namespace)
        if block.custom:
            self.losses.add(position, "custom_call_as_function")

    def _user_contents(self, turn: Turn) -> list[JsonObject]:
        """The contents for a user turn: its results in one, everything else in a second."""
        if len(turn.blocks) == 1 and type(turn.blocks[0]) is ToolResult:  # the common case
            block, position = turn.blocks[0], turn.position_of(0)
            call = self.writer.calls.get(block.call_id)
            common = write_common_result(block, call, position, self.losses)
            if common is not None:
                return [{"parts": [common], "role": "user"}]
        results: list[tuple[ToolResult, Position]] = []
        others: list[JsonObject] = []
        for at, block in enumerate(turn.blocks):
            position = turn.position_of(at)
            if isinstance(block, ToolResult):
                results.append((block, position))
            else:
                others.append(self.writer.part(block, position))
        if not results:
            return [{"parts": others, "role": "user"}]
        moved_media: list[JsonObject] = []
        result_parts = [
            self._result(block, position, moved_media)
            for block, position in self._in_call_order(results)
        ]
        contents: list[JsonObject] = [{"parts": result_parts, "role": "user"}]
        if moved_media or others:
            contents.append({"parts": moved_media + others, "role": "user"})
        for block, position in zip(turn.blocks, turn.positions, strict=True) if others else ():
            if not isinstance(block, ToolResult):
                self.losses.add(position, "beside_results_moved")
        return contents

    def _in_call_order(
        self, results: list[tuple[ToolResult, Position]]
    ) -> list[tuple[ToolResult, Position]]:
        if len(results) == 1:
            return results
        ordered = sorted(results, key=lambda pair: self._call_order.get(pair[0].call_id, 0))
        if ordered != results:
            _, first_position = results[0]
            self.losses.add(first_position[:1], "results_reordered")
        return ordered

    def _result(
        self, block: ToolResult, position: Position, moved_media: list[JsonObject]
    ) -> JsonObject:
        """A result; adds media to `moved_media` if results for this model cannot contain media."""
        common = write_common_result(
            block, self.writer.calls.get(block.call_id), position, self.losses
        )
        return self.any_result(block, position, moved_media) if common is None else common

    def any_result(
        self, block: ToolResult, position: Position, moved_media: list[JsonObject]
    ) -> JsonObject:
        """Like `_result`, for a result of any shape."""
        content = supported_content(block, position, self.request, self.losses)
        name = self.writer.name_of(block.call_id)
        media = [part for part in content if isinstance(part, Media)]
        if media and not self.model.media_results:
            content = tuple(part for part in content if not isinstance(part, Media))
            moved_media.append({"text": f"[from the result of {name}]"})
            moved_media += [self.writer.part(part, position) for part in media]
            self.losses.add(position, "result_media_moved", "media")
        result = structs.replace(
            block,
            content=content,
            name=name or block.name,
            form="text" if block.form == "absent" else block.form,
        )
        call = self.writer.calls.get(block.call_id)
        if call is not None and "id" in own_ext(call.ext):  # the call is written without an id
            result = structs.replace(result, ext=with_note(block.ext, "id", None))
        return self.writer.part(result, position)


def decode_common(raw: JsonObject) -> Block | None:
    """The block of a text, a call or a result with text; `None` if the part has another shape."""
    if len(raw) != 1:
        return None
    ((data_member, value),) = raw.items()
    if data_member == "text":
        return Text(value) if type(value) is str else None
    if type(value) is not dict or len(cast(JsonObject, value)) != 3:
        return None
    data = cast(JsonObject, value)
    name, call_id = data.get("name"), data.get("id")
    if type(name) is not str or not name or type(call_id) is not str or not call_id:
        return None
    if data_member == "functionCall":
        arguments = data.get("args")
        if type(arguments) is not dict:
            return None
        try:
            return ToolCall(call_id, name, dumps(arguments).decode())
        except TypeError:  # not JSON; `PartReader` says where
            return None
    if data_member != "functionResponse":
        return None
    response = data.get("response")
    if type(response) is not dict or len(cast(JsonObject, response)) != 1:
        return None
    ((member, text),) = cast(JsonObject, response).items()
    if type(text) is not str or not text or member not in ("output", "error"):
        return None
    is_error = True if member == "error" else None
    return ToolResult(call_id, (Text(text),), is_error, name, False, "text")


def write_common(block: Block, embed: Callable[[str], Any]) -> JsonObject | None:
    """The part of a text or a call; `None` for other blocks, and if the block has another shape."""
    if type(block) is Text:
        return {"text": block.text} if block.ext is None else None
    if type(block) is not ToolCall or block.ext is not None or block.custom:
        return None
    if block.namespace is not None or block.arguments[:1] != "{":
        return None
    try:
        arguments = embed(block.arguments)
    except ValueError:
        return None
    return {"functionCall": {"name": block.name, "args": arguments, "id": block.id}}


def write_common_result(
    block: ToolResult, call: ToolCall | None, position: Position, losses: Losses
) -> JsonObject | None:
    """The part of another protocol's result with text; `call` is the call that it answers.

    `None`, without a report, if the result or the call has another shape.
    """
    if block.ext is not None or call is None or call.ext is not None:
        return None
    texts = plain_texts(block.content)
    if not texts or call.namespace is not None or not call.name:
        return None
    text = texts[0]
    if len(texts) > 1:
        text = "\n".join(texts)
        losses.add(position, "text_boundary_dropped", "texts")
    elif block.form == "list":
        losses.add(position, "list_as_string")
    if block.is_error is False:
        losses.add(position, "error_flag_dropped", "false")
    response = {"error" if block.is_error else "output": text}
    return {"functionResponse": {"name": call.name, "id": block.call_id, "response": response}}
