"""Parts, written: https://ai.google.dev/api/caching#Part

Whatever other wires say by an id, this one says by a name and a place: a result names its function,
and the results of parallel calls stand in the order of the calls.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import orjson

from weft.codec.base import Losses, Target
from weft.codec.media import lose_detail, type_of, typed, with_type
from weft.codec.origin import STORED_ONLY, made_by, refuse_foreign, refuse_opaque
from weft.codec.sift import sift
from weft.codec.tools import flat_name
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
    Place,
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

from .blocks import ASIDE, NOTES
from .wire import PROTOCOL

Media = Image | File | Audio
AN = {Image: "an image", File: "a document", Audio: "audio"}


class Writer:
    """Writes parts for one body: knows how calls are embedded and named, and what was lost."""

    def __init__(
        self,
        target: Target | None,
        losses: Losses,
        calls: Mapping[str, ToolCall] | None = None,
        *,
        native: bool = True,
    ) -> None:
        self.native = native
        self.embed = target.embed if target is not None else orjson.loads
        self.losses = losses
        self.calls = calls or {}

    def part(self, block: Block, place: Place) -> JsonObject:
        """One block on the wire."""
        return WRITERS[type(block)](self, block, place)

    def text(self, block: Text, _place: Place) -> JsonObject:
        return _with_ext({"text": block.text}, block.ext)

    def refusal(self, block: Refusal, place: Place) -> JsonObject:
        self.losses.add(place, "that it is a refusal", "it is plain text here", "form")
        return {"text": block.text}

    def thinking(self, block: Thinking, _place: Place) -> JsonObject:
        body: JsonObject = {"text": block.text, "thought": True}
        if block.signature is not None:
            body["thoughtSignature"] = block.signature
        return _with_ext(body, block.ext)

    def call(self, block: ToolCall, place: Place) -> JsonObject:
        own = own_ext(block.ext)
        call: JsonObject = {"name": call_name(block)}
        if block.arguments.strip() or block.custom:
            call["args"] = self._arguments(block, place)
        call.update(_id(own, block.id))
        call.update(own.get("functionCall", ()))
        return _with_ext({"functionCall": call}, block.ext)

    def _arguments(self, block: ToolCall, place: Place) -> Any:
        if block.custom:
            return {"input": block.arguments}
        if block.arguments.lstrip().startswith("{"):
            try:
                return self.embed(block.arguments)
            except ValueError:
                pass
        where = (*place, "arguments")
        self.losses.add(where, "the arguments as written", "they are not a JSON object")
        return {"_raw": block.arguments}

    def result(self, block: ToolResult, place: Place) -> JsonObject:
        own = own_ext(block.ext)
        answer: JsonObject = {}
        name = self.name_of(block.call_id) if block.name is None else block.name
        if name is not None:
            answer["name"] = name
        answer.update(_id(own, block.call_id))
        silent = self.native and not any(isinstance(part, WORDS) for part in block.content)
        if block.form == "null" and silent:
            answer["response"] = None
        elif block.form != "absent" or (block.content and not silent):
            answer["response"] = self._response(block, own.get("item"))
        media = [part for part in block.content if isinstance(part, Media | Opaque)]
        if media:
            answer["parts"] = [self.part(part, place) for part in media]
        answer.update(own.get("functionResponse", ()))
        return _with_ext({"functionResponse": answer}, block.ext)

    def name_of(self, call_id: str) -> str | None:
        """The name of the call that a result answers."""
        call = self.calls.get(call_id)
        return None if call is None else call_name(call)

    def _response(self, block: ToolResult, item: str | None) -> Any:
        """The object that a tool's words become; an object that was one stays one."""
        words = [words_of(part) for part in block.content if isinstance(part, WORDS)]
        text = "\n".join(words)
        if item == "":
            if not words:
                return {}
            if text.startswith("{"):
                try:
                    return self.embed(text)
                except ValueError:
                    pass
        if block.is_error:
            return {"error": text}
        return {item or "output": text}

    def media(self, block: Media, place: Place) -> JsonObject:
        name = own_ext(block.ext).get("displayName")
        if isinstance(block, File):
            name = block.name
        source = block.source
        if isinstance(block, Image) and block.detail is not None:
            lose_detail(block.detail, place, self.losses)
        if isinstance(block, File) and not self.native:
            source = with_type(block, place, self.losses)
        if isinstance(source, Url) and not source.media_type and not self.native:
            source = self._typed(block, source, place)
        return _with_ext(write_source(source, name), block.ext)

    def _typed(self, block: Media, source: Url, place: Place) -> Url:
        """An address with the type of what is there, which this wire wants to be told."""
        kind = type_of(source.url)
        if not kind:
            what = f"that it is {AN[type(block)]}"
            self.losses.add(place, what, "its address does not tell the type that is needed here")
        return Url(source.url, kind)

    def checkpoint(self, block: Checkpoint, _place: Place) -> JsonObject:
        return {"text": checkpoint_text(block)}

    def reminder(self, block: Reminder, _place: Place) -> JsonObject:
        return {"text": reminder_text(block)}

    def opaque(self, block: Opaque, _place: Place) -> JsonObject:
        return dict(block.raw)


WRITERS: dict[type, Callable[[Writer, Any, Place], JsonObject]] = {
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

WORDS = Text | Refusal | Checkpoint | Reminder


def words_of(block: Text | Refusal | Checkpoint | Reminder) -> str:
    if isinstance(block, Checkpoint):
        return checkpoint_text(block)
    return reminder_text(block) if isinstance(block, Reminder) else block.text


def own_ext(ext: Ext | None) -> JsonObject:
    """What this wire itself said beside the fields."""
    return ext.get(PROTOCOL, {}) if ext is not None else {}


def _with_ext(body: JsonObject, ext: Ext | None) -> JsonObject:
    for key, value in own_ext(ext).items():
        if key not in NOTES:
            body[key.removeprefix(ASIDE)] = value
    return body


def _id(own: JsonObject, call_id: str) -> JsonObject:
    """The member `id`, where this wire wrote one, or another wire's call has one."""
    if "id" not in own:
        return {"id": call_id}
    return {"id": own["id"][0]} if own["id"] else {}


def call_name(block: ToolCall) -> str:
    """A call's name; names are flat here, so a namespace becomes part of it."""
    return block.name if block.namespace is None else flat_name(block.name, block.namespace)


def write_source(source: Source, name: Any = None) -> JsonObject:
    match source:
        case Inline(data=data, media_type=kind):
            key, body = "inlineData", {"mimeType": kind, "data": data}
        case FileRef(id=uri, media_type=kind):
            key, body = "fileData", {"fileUri": uri}
        case _:
            key, body = "fileData", {"fileUri": source.url}
    if source.media_type:
        body["mimeType"] = source.media_type
    if name is not None:
        body["displayName"] = name
    return {key: body}


def refuse_thinking(_block: Any, message: Message, request: Request) -> str | None:
    return refuse_foreign(PROTOCOL, message, request)


def refuse_redacted(_block: Any, _message: Message, _request: Request) -> str | None:
    return "sealed thinking goes back to its own maker only"


def refuse_media(block: Media, message: Message, request: Request) -> str | None:
    if isinstance(block.source, FileRef) and not made_by(PROTOCOL, message, request):
        return STORED_ONLY
    source = typed(block).source if isinstance(block, File) else block.source
    if isinstance(source, Inline) and not source.media_type:
        return "media without a type cannot be said here"
    return None


CHECKS: dict[type, Callable[[Any, Message, Request], str | None]] = {
    Thinking: refuse_thinking,
    Redacted: refuse_redacted,
    Opaque: partial(refuse_opaque, PROTOCOL),
    Image: refuse_media,
    File: refuse_media,
    Audio: refuse_media,
}


def sift_result(
    block: ToolResult, place: Place, request: Request, losses: Losses
) -> tuple[Block, ...]:
    """What a foreign result can say here: words and media; whatever else is reported."""
    kept = [part for part, _ in sift(block, place, request, CHECKS, PROTOCOL, losses)]
    words = sum(isinstance(part, WORDS) for part in kept)
    if words == len(block.content) == 1 and block.form == "list":
        losses.add(place, "the list around its text", "a result has one text here", "form")
    if words > 1:
        losses.add(place, "the borders between its texts", "a result has one text here", "form")
    if block.is_error is False:
        losses.add(place, "that the tool did not fail", "only failing is said here", "form")
    return tuple(kept)
