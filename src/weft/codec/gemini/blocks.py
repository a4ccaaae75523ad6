"""Parts, read: https://ai.google.dev/api/caching#Part

A part has one data member (`text`, `functionCall`, ...) and members about it. One with several, or
with none that is known here, is carried whole. A thought signature may stand on any part; on a
thought it is the thinking's own, anywhere else it stays in the block's `ext`.

Calls and results may come without ids. A call then gets one from its place, and a result that of
the oldest unanswered call of its name; `ext` notes that the wire had none (`"id": None`, or a list
of the empty one that it had).
"""

from collections.abc import Callable
from typing import Any

from weft.codec.base import members
from weft.codec.read import inside, json_text, objects, optional, rest_of, text_of, wrong
from weft.errors import Refused
from weft.model import (
    Audio,
    Block,
    Ext,
    File,
    FileRef,
    Image,
    Inline,
    JsonObject,
    Opaque,
    Source,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Url,
)

from .wire import PROTOCOL, STORED

OTHER_DATA = frozenset({"executableCode", "codeExecutionResult", "toolCall", "toolResponse"})
THOUGHT = frozenset({"text", "thought", "thoughtSignature"})
TEXT = frozenset({"text"})
CALL = frozenset({"functionCall"})
CALL_MEMBERS = frozenset({"id", "name", "args"})
RESULT = frozenset({"functionResponse"})
RESULT_MEMBERS = frozenset({"id", "name", "response", "parts"})
BLOB_MEMBERS = frozenset({"mimeType", "data", "displayName"})
FILE_MEMBERS = frozenset({"mimeType", "fileUri", "displayName"})
SILENT = frozenset({"name", "parts"})
"""Members of a result that say nothing where they are null or empty."""

NOTES = frozenset({"id", "item", "displayName", "functionCall", "functionResponse"})
"""Members of an `ext` that do not stand beside the data, but inside it or nowhere."""

BESIDE = NOTES - {"functionCall", "functionResponse"}
ASIDE = "part."
"""Stands before a member beside the data whose name is that of a note."""

PLAIN_ITEMS = ("output", "result")
"""Members of a `response` that hold nothing but text; `error` does so too."""


class PartReader:
    """Reads the parts of one body; knows which calls still wait for their results."""

    def __init__(self, scope: str = "") -> None:
        self._scope = scope
        self._waiting: dict[str, list[str]] = {}
        self._calls = 0

    def part(self, raw: JsonObject, content: int, number: int) -> Block:
        """One part in camel case; raises `Refused` with a path inside it."""
        data = [key for key in raw if key in DATA]
        if len(data) != 1 or data[0] in OTHER_DATA or raw[data[0]] is None:
            return Opaque(PROTOCOL, raw)
        plain = raw
        if not BESIDE.isdisjoint(raw):
            plain = {ASIDE + key if key in BESIDE else key: value for key, value in raw.items()}
        block = READERS[data[0]](self, plain, f"{content}_{number}")
        return Opaque(PROTOCOL, raw) if isinstance(block, Opaque) else block

    def text(self, raw: JsonObject, _place: str) -> Block:
        if len(raw) == 1:
            return Text(text_of(raw, "text"))
        if raw.get("thought") is True:
            signature = optional(raw, "thoughtSignature", str)
            return Thinking(text_of(raw, "text"), signature, rest_of(raw, THOUGHT, PROTOCOL))
        return Text(text_of(raw, "text"), rest_of(raw, TEXT, PROTOCOL))

    def call(self, raw: JsonObject, place: str) -> Block:
        call = _inner(raw, "functionCall")
        try:
            name = text_of(call, "name")
            arguments = call.get("args")
            if arguments is not None and type(arguments) is not dict:
                raise wrong("args", arguments, "an object")
            call_id = optional(call, "id", str)
        except Refused as error:
            raise inside("functionCall", error) from None
        ext = _ext(raw, CALL, call, CALL_MEMBERS, "functionCall")
        if not call_id:
            call_id = self._call_id(place)
            ext = noted(ext, "id", no_id(call))
        self._waiting.setdefault(name, []).append(call_id)
        written = "" if arguments is None else json_text(arguments, "args")
        return ToolCall(call_id, name, written, ext=ext)

    def _call_id(self, place: str) -> str:
        """The same for a call whenever it is read; in an answer, apart from those of others."""
        if not self._scope:
            return f"gemini_call_{place}"
        self._calls += 1
        return f"call_{self._scope}_{self._calls - 1}"

    def result(self, raw: JsonObject, place: str) -> Block:
        answer = _inner(raw, "functionResponse")
        try:
            name = optional(answer, "name", str)
            call_id = optional(answer, "id", str)
            content, is_error, item = _decode_response(answer)
            media = tuple(self._media(answer))
        except Refused as error:
            raise inside("functionResponse", error) from None
        ext = _ext(raw, RESULT, answer, RESULT_MEMBERS, "functionResponse")
        if item is not None:
            ext = noted(ext, "item", item)
        waiting = self._waiting.get(name or "")
        if call_id:
            if waiting and call_id in waiting:
                waiting.remove(call_id)
        else:
            call_id = waiting.pop(0) if waiting else f"gemini_call_{place}"
            ext = noted(ext, "id", no_id(answer))
        form = "list" if media else "text"
        if answer.get("response") is None:
            form = "null" if "response" in answer else "absent"
        return ToolResult(call_id, content + media, is_error, name, form=form, ext=ext)

    def _media(self, answer: JsonObject) -> list[Block]:
        raws = answer.get("parts")
        if raws is None:
            return []
        return [
            self.part(raw, 0, number)
            if "inlineData" in raw or "fileData" in raw
            else Opaque(PROTOCOL, raw)
            for number, raw in enumerate(objects(raws, "parts"))
        ]

    def blob(self, raw: JsonObject, _place: str) -> Block:
        blob = _inner(raw, "inlineData")
        kind, data = blob.get("mimeType"), blob.get("data")
        if not isinstance(kind, str) or not isinstance(data, str) or _is_odd(blob, BLOB_MEMBERS):
            return Opaque(PROTOCOL, raw)
        return _media_block(Inline(data, kind), blob, rest_of(raw, BLOB, PROTOCOL))

    def file(self, raw: JsonObject, _place: str) -> Block:
        file = _inner(raw, "fileData")
        kind, uri = file.get("mimeType", ""), file.get("fileUri")
        if not isinstance(kind, str) or not isinstance(uri, str) or _is_odd(file, FILE_MEMBERS):
            return Opaque(PROTOCOL, raw)
        source = FileRef(uri, kind) if uri.startswith(STORED) else Url(uri, kind)
        return _media_block(source, file, rest_of(raw, FILE, PROTOCOL))


BLOB = frozenset({"inlineData"})
FILE = frozenset({"fileData"})

READERS: dict[str, Callable[[PartReader, JsonObject, str], Block]] = {
    "text": PartReader.text,
    "functionCall": PartReader.call,
    "functionResponse": PartReader.result,
    "inlineData": PartReader.blob,
    "fileData": PartReader.file,
}

DATA = READERS.keys() | OTHER_DATA
"""The data members, of which a part has one."""


def _is_odd(raw: JsonObject, known: frozenset[str]) -> bool:
    """Whether media has a member that no field takes up, or one that is null."""
    return bool(raw.keys() - known) or None in raw.values()


def _inner(raw: JsonObject, key: str) -> JsonObject:
    value = members(raw[key])
    if value is None:
        raise wrong(key, raw[key], "an object")
    return value


def _ext(
    raw: JsonObject, known: frozenset[str], inner: JsonObject, inside: frozenset[str], key: str
) -> Ext | None:
    """The members beside the data, and those of the data itself, that no field takes up."""
    ext = rest_of(raw, known, PROTOCOL)
    rest = {
        name: value
        for name, value in inner.items()
        if name not in inside or (name in SILENT and not value)
    }
    return noted(ext, key, rest) if rest else ext


def no_id(raw: JsonObject) -> list[Any] | None:
    """The note on a call, or a result, without an id: what stands there instead, if anything."""
    return [raw["id"]] if "id" in raw else None


def noted(ext: Ext | None, key: str, value: Any) -> Ext:
    """The `ext` with one more member of this wire's."""
    ext = ext or {}
    return {**ext, PROTOCOL: {**ext.get(PROTOCOL, {}), key: value}}


def _decode_response(answer: JsonObject) -> tuple[tuple[Block, ...], bool | None, str | None]:
    """What a tool said; whether it failed; and the member that said it, where that is not plain.

    https://ai.google.dev/api/caching#FunctionResponse: `output` is what the function gave, `error`
    why it failed; without either the whole object is the output, which is its JSON text here.
    """
    response = members(answer.get("response"))
    if response is None:
        if answer.get("response") is not None:
            raise wrong("response", answer["response"], "an object")
        return (), None, None
    failed = True if response.get("error") else None
    if len(response) == 1:
        item, value = next(iter(response.items()))
        if isinstance(value, str) and (item in PLAIN_ITEMS or (item == "error" and value)):
            said = (Text(value),) if value else ()
            return said, failed, item if item == "result" else None
    if not response:
        return (), None, ""
    return (Text(json_text(response, "response")),), failed, ""


def _media_block(source: Source, raw: JsonObject, ext: Ext | None) -> Block:
    """Media by its type; the name of a file is the file's, that of an image stays in `ext`."""
    name = raw.get("displayName")
    kind = source.media_type.partition("/")[0]
    if kind not in ("image", "audio"):
        return File(source, name if isinstance(name, str) else None, ext)
    if name is not None:
        ext = noted(ext, "displayName", name)
    return Image(source, ext=ext) if kind == "image" else Audio(source, ext=ext)


def part_name(block: Block) -> str:
    """Gemini's own word for a block: its data member."""
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
