"""Turns become messages.

What this wire wrote itself goes back member by member. A turn of another wire may become several
messages: each tool result is a `tool` message of its own, and what such a message cannot hold (an
image, a document) follows the last of them in a `user` message that says whose it is.
"""

from functools import partial
from typing import Any

from msgspec import structs

from weft.codec.base import Losses
from weft.codec.callids import lose_emptiness, lose_id
from weft.codec.media import lose_type, named, plain_text
from weft.codec.origin import refuse_opaque
from weft.codec.repair import NO_RESULT, Rules, Turn, lose_message
from weft.codec.sift import sift
from weft.model import (
    Audio,
    Block,
    Checkpoint,
    File,
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
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    is_system,
)

from .blocks import (
    part_name,
    refuse_audio,
    refuse_file,
    refuse_image,
    refuse_redacted,
    refuse_thinking,
    write_content,
)
from .messages import AUDIO_ANSWER, own, write_assistant
from .plain import legal_id
from .wire import AUDIO_FORMATS, PROTOCOL

RULES = Rules(
    protocol=PROTOCOL,
    roles=frozenset({"user", "assistant"}),
    inline_system="native",
    checks={
        Thinking: refuse_thinking,
        Redacted: refuse_redacted,
        Opaque: partial(refuse_opaque, PROTOCOL),
        Image: refuse_image,
        File: refuse_file,
        Audio: refuse_audio,
    },
    named=True,
)

TEXTUAL = (Text, Refusal, Checkpoint, Reminder)
SPOKEN = frozenset({*TEXTUAL, Thinking, ToolCall, Audio, Opaque})
HEARD = frozenset({*TEXTUAL, Image, File, Audio, ToolResult, Opaque})


def write_message(message: Message, role: str | None = None) -> JsonObject:
    """One message as this wire itself wrote it, or as a compiled thread has it."""
    body: JsonObject = {"role": role or message.role}
    blocks, form = message.blocks, message.form
    if len(blocks) == 1 and isinstance(blocks[0], ToolResult):
        result = blocks[0]
        blocks, form = result.content, result.form
        if own(message.ext).get("role") != "function":
            body["tool_call_id"] = result.call_id
        if result.name is not None:
            body["name"] = result.name
    elif message.role == "assistant":
        body.update(write_assistant(blocks, parts=form == "list"))
        blocks = () if form in ("text", "list") or "content" in body else blocks
    if form == "null":
        body["content"] = None
    elif "content" not in body and form != "absent":
        body["content"] = write_content(blocks, form)
    if message.name is not None:
        body["name"] = message.name
    if message.ext is not None:
        body.update(message.ext.get(PROTOCOL, ()))
    return body


class Writer:
    """Writes the turns of another wire's request."""

    def __init__(self, request: Request, losses: Losses) -> None:
        self.request = request
        self.losses = losses

    def turn(self, turn: Turn) -> list[JsonObject]:
        """The messages that one turn becomes."""
        self._leave_out(turn)
        spoken = turn.role == "assistant"
        turn.keep(
            [
                (self._fit(b, place) if spoken else self._heard(b, place), place)
                for b, place in zip(turn.blocks, turn.places, strict=True)
            ]
        )
        if not turn.blocks and turn.message.blocks:
            lose_message(turn, self.losses)
            return []
        if turn.role == "assistant":
            return [self._assistant(turn)]
        results = [
            (block, place)
            for block, place in zip(turn.blocks, turn.places, strict=True)
            if isinstance(block, ToolResult)
        ]
        rest: list[Block] = [block for block in turn.blocks if not isinstance(block, ToolResult)]
        if not results:
            return self._said(turn, rest)
        messages: list[JsonObject] = []
        lifted: list[Block] = []
        for block, place in results:
            messages.append(self._result(block, place, lifted))
        if lifted:
            messages.append({"role": "user", "content": write_content(lifted, "list")})
        for block, place in zip(turn.blocks, turn.places, strict=True) if rest else ():
            if not isinstance(block, ToolResult):
                self.losses.add(place, "its place beside results", "results stand alone", "form")
        return messages + (self._said(turn, rest) if rest else [])

    def _leave_out(self, turn: Turn) -> None:
        """Drop what this side of a conversation cannot say here: a call by the user, say."""
        sayable = SPOKEN if turn.role == "assistant" else HEARD
        if all(type(block) in sayable for block in turn.blocks):
            return
        kept: list[tuple[Block, Place]] = []
        for block, place in zip(turn.blocks, turn.places, strict=True):
            if type(block) in sayable:
                kept.append((block, place))
            else:
                self.losses.add(
                    place, f"a {self._name(block)} block", f"not for {turn.role!r} here"
                )
        turn.blocks = [block for block, _ in kept]
        turn.places = [place for _, place in kept]

    def _fit(self, block: Block, place: Place) -> Block:
        """Media as this wire takes it: its files are PDF, so a document of words is text. What it
        is not told is reported: an address's type, another name of one."""
        words = plain_text(block.source) if isinstance(block, File) else None
        if isinstance(block, File) and words is not None:
            self.losses.add(place, "a document, now its words", "only a PDF is a file here", "form")
            return Text(words if block.name is None else f"{block.name}\n\n{words}")
        if isinstance(block, File):
            return named(block, place, self.losses)
        if isinstance(block, Image):
            lose_type(block.source, place, self.losses)
        elif isinstance(block, Audio) and isinstance(block.source, Inline):
            kind = block.source.media_type
            if f"audio/{AUDIO_FORMATS[kind]}" != kind:
                self.losses.add(place, f"the type {kind!r}", "it has another name here", "form")
        return block

    def _heard(self, block: Block, place: Place) -> Block:
        """What another than the assistant says: a refusal is a part of nobody else's message."""
        if not isinstance(block, Refusal):
            return self._fit(block, place)
        self.losses.add(place, "that it is a refusal", "only an assistant refuses here", "form")
        return Text(block.text)

    def _said(self, turn: Turn, blocks: list[Block]) -> list[JsonObject]:
        role = "user" if turn.role == "tool" else turn.role
        message = turn.message
        if is_system(message) and not blocks:
            self.losses.add(turn.at, f"an empty {message.role} message", "it says nothing", "form")
            return []
        form = message.form
        if form == "list" and not blocks:
            form = ""
            self.losses.add(turn.at, "an empty list of parts, now a text", "it is refused", "form")
        body: JsonObject = {"role": role, "content": write_content(blocks, form)}
        return [_with_members(body, message)]

    def _assistant(self, turn: Turn) -> JsonObject:
        called = False
        blocks: list[Block] = []
        for block, place in zip(turn.blocks, turn.places, strict=True):
            said = block
            if isinstance(block, ToolCall):
                called = True
                said = self._call(block, place)
            elif called and isinstance(block, TEXTUAL):
                what = "the place of a text behind a call"
                self.losses.add(place, what, "calls come last here")
            elif isinstance(block, Audio) and block.ext is not None:
                said = Audio(block.source, _spoken_ext(block))
            blocks.append(said)
        body: JsonObject = {"role": "assistant"}
        texts = sum(isinstance(block, TEXTUAL) for block in blocks)
        listed = turn.message.form == "list" and (texts > 1 or not called)
        body.update(write_assistant(blocks, parts=listed))
        if "content" not in body:
            body["content"] = None if body.keys() - {"role"} else ""
        return _with_members(body, turn.message)

    def _call(self, block: ToolCall, place: Place) -> ToolCall:
        if block.namespace is not None:
            self.losses.add(
                place, "a namespace, now part of the name", "names are flat here", "form"
            )
        ext = (
            None if own(block.ext).get("item") else block.ext
        )  # the first API's call has an id now
        arguments = block.arguments
        if not arguments and not block.custom:
            arguments = "{}"
            lose_emptiness((*place, "arguments"), self.losses)
        call_id = self._legal(block.id, place)
        return structs.replace(block, id=call_id, arguments=arguments, ext=ext)

    def _legal(self, call_id: str, place: Place) -> str:
        legal = legal_id(call_id)
        if legal != call_id:
            lose_id(call_id, place, self.losses)
        return legal

    def _result(self, block: ToolResult, place: Place, lifted: list[Block]) -> JsonObject:
        """One `tool` message; what it cannot hold is put into `lifted`."""
        if block.is_error is not None:
            said_so = block.content == (Text(NO_RESULT),)
            lose_outcome(place, block.is_error, said_so, self.losses)
        said: list[Block] = []
        media: list[Block] = []
        for part, at in sift(block, place, self.request, RULES.checks, PROTOCOL, self.losses):
            self._sort(self._heard(part, at), at, said, media)
        if media:
            lifted.append(Text(f"[from the result of {legal_id(block.call_id)}]"))
            lifted += media
        form = block.form if len(said) == len(block.content) else ""
        if form == "list" and not said:
            form = ""
            self.losses.add(place, "an empty list of parts, now a text", "it is refused", "form")
        return {
            "role": "tool",
            "tool_call_id": self._legal(block.call_id, place),
            "content": write_content(said, form),
        }

    def _sort(self, part: Block, place: Place, said: list[Block], media: list[Block]) -> None:
        """Text stays in the result; media moves behind it."""
        if isinstance(part, TEXTUAL):
            said.append(part)
            return
        media.append(part)
        self.losses.add(
            place,
            f"the place of a {self._name(part)} block: it follows the results",
            "a tool message holds text only",
            "form",
        )

    def _name(self, block: Block) -> str:
        wire = self.request.wire
        return wire.part_name(block) if wire is not None else part_name(block)


def lose_outcome(at: Place | str, failed: bool, said_so: bool, losses: Losses) -> None:
    """Report that a tool failed, or did not; `said_so` is in the words that we add ourselves."""
    what = "that the tool failed" if failed else "that the tool did not fail"
    level = "meaning" if failed and not said_so else "form"
    losses.add(at, what, "a tool message has no such member", level)


def _with_members(body: JsonObject, message: Message) -> JsonObject:
    """The message with its name and what this wire itself once said beside it."""
    if message.name is not None:
        body["name"] = message.name
    if message.ext is not None:
        for key, value in own(message.ext).items():
            body.setdefault(key, value)
    return body


def _spoken_ext(block: Audio) -> Any:
    rest = {key: value for key, value in own(block.ext).items() if key not in AUDIO_ANSWER}
    return {PROTOCOL: rest} if rest else None
