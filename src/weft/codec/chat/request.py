"""Requests to and from Chat Completions: https://platform.openai.com/docs/api-reference/chat/create

Every message keeps its place, system and developer ones too. Towards this wire a turn of another
may become several messages: each tool result is a `tool` message of its own, and what such a
message cannot hold (an image, a document) follows the last of them in a `user` message that says
whose it is.
"""

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, cast

from msgspec import structs

from weft.codec.base import Encoded, Losses, Target
from weft.codec.read import inside, objects, text_of
from weft.codec.repair import NO_RESULT, Rules, Turn, arrange, lose_ext
from weft.codec.system import merge_system_text
from weft.errors import Refused
from weft.model import (
    Audio,
    Block,
    Checkpoint,
    File,
    Image,
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
    Wire,
    is_system,
)

from .messages import AUDIO_ANSWER, decode_message, find_blocks, own, write_assistant
from .params import decode_params, encode_params
from .parts import (
    MARKS,
    part_name,
    refuse_audio,
    refuse_file,
    refuse_image,
    refuse_opaque,
    refuse_redacted,
    refuse_thinking,
    write_content,
)
from .tools import decode_tools, write_tools
from .wire import CALL_ID_LENGTH, PROTOCOL, REQUEST_SETUP

RULES = Rules(
    protocol=PROTOCOL,
    roles=frozenset({"user", "assistant"}),
    inline_system="native",
    checks={
        Thinking: refuse_thinking,
        Redacted: refuse_redacted,
        Opaque: refuse_opaque,
        Image: refuse_image,
        File: refuse_file,
        Audio: refuse_audio,
    },
    named=True,
)

TEXTUAL = (Text, Refusal, Checkpoint, Reminder)
SPOKEN = frozenset({*TEXTUAL, Thinking, ToolCall, Audio, Opaque})
HEARD = frozenset({*TEXTUAL, Image, File, Audio, ToolResult, Opaque})


def decode_request(body: JsonObject, model: str | None = None) -> Request:
    """A request body; raises `Refused` with the path of whatever cannot be read."""
    marks: dict[Place, Any] = {}
    params, rest = decode_params(body)
    raws = objects(body.get("messages"), "messages")
    messages = _decode_messages(raws, marks, rest)
    tools = decode_tools(body, marks)
    kept = {key: value for key, value in body.items() if key not in REQUEST_SETUP}
    if body.get("tools"):
        del kept["tools"]
    return Request(
        model=text_of(body, "model") if model is None else model,
        messages=messages,
        tools=tools,
        params=params,
        marks=marks,
        raw={PROTOCOL: kept},
        rest=rest,
        wire=Wire(PROTOCOL, _locator(raws), part_name),
    )


def _decode_messages(
    raws: list[JsonObject], marks: dict[Place, Any], rest: dict[str, Any]
) -> tuple[Message, ...]:
    messages: list[Message] = []
    legacy = 0
    for number, raw in enumerate(raws):
        if raw.get("function_call"):
            legacy = number
        try:
            at = legacy if raw.get("role") == "function" else number
            message = decode_message(raw, at)
        except Refused as error:
            raise inside(f"messages[{number}]", error) from None
        messages.append(message)
        content = raw.get("content")
        if type(content) is list:
            _take_marks(cast(list[JsonObject], content), message, number, marks, rest)
    return tuple(messages)


def _take_marks(
    content: list[JsonObject],
    message: Message,
    number: int,
    marks: dict[Place, Any],
    rest: dict[str, Any],
) -> None:
    """Cache marks leave the parts. OpenAI's own kind has a place that no other wire looks at."""
    for at, part in enumerate(content):
        if MARKS[0] not in part and MARKS[1] not in part:
            continue
        place = _part_place(message, number, at)
        if MARKS[0] in part:
            marks[place] = part[MARKS[0]]
        if MARKS[1] in part:
            marks[*place, MARKS[1]] = part[MARKS[1]]
            rest[f"messages[{number}].content[{at}].{MARKS[1]}"] = part[MARKS[1]]


def _part_place(message: Message, number: int, at: int) -> Place:
    first = message.blocks[0]
    if isinstance(first, ToolResult):
        return number, 0, at
    return number, at + isinstance(first, Thinking)


def _locator(raws: list[JsonObject]) -> Callable[[Place], str]:
    """Paths of the caller's body; found only when something has to be said about it."""

    def locate(place: Place) -> str:
        match place:
            case ("tools", int(number)):
                return f"tools[{number}]"
            case (int(number),):
                return f"messages[{number}]"
            case (int(number), int(block), *deeper):
                raw, path = raws[number], f"messages[{number}]"
                content = raw.get("content")
                if raw.get("role") == "assistant":
                    found = list(find_blocks(raw, number, set()))
                    return f"{path}.{found[block][0]}" if block < len(found) else path
                if raw.get("role") in ("tool", "function"):
                    if not deeper:
                        return path
                    block = cast(int, deeper[0])
                return (
                    f"{path}.content[{block}]" if isinstance(content, list) else f"{path}.content"
                )
            case _:
                return ""

    return locate


def encode_request(request: Request, target: Target) -> Encoded:
    """The body for this wire, and what it could not say."""
    losses = Losses(request)
    arranged = arrange(request, RULES, target.model, target.system, losses)
    turns = arranged.turns
    tools = write_tools(request, losses)
    body: JsonObject = {"model": request.model}
    body.update(encode_params(request, target, tools or [], losses))
    if tools is not None or "tools" in request.raw.get(PROTOCOL, ()):
        body["tools"] = tools
    messages: list[JsonObject] = []
    if target.system == "merge":
        turns = _merge_system(turns, messages)
    if request.wire is not None and request.wire.protocol == PROTOCOL:
        for turn in turns:
            messages.append(write_message(turn.message, turn.role))
        _put_marks(request, messages)
    else:
        writer = Writer(request, losses)
        for turn in turns:
            messages += writer.turn(turn)
        _lose_marks(request.marks, losses)
    body["messages"] = messages
    return Encoded(body, losses.items)


def _merge_system(turns: list[Turn], messages: list[JsonObject]) -> list[Turn]:
    """All system text as one leading message; gives the turns that are left."""
    system = [turn.message for turn in turns if is_system(turn.message)]
    text = merge_system_text(system)
    if text is not None:
        messages.append({"role": "system", "content": text})
    return [turn for turn in turns if not is_system(turn.message)]


def _put_marks(request: Request, messages: list[JsonObject]) -> None:
    for place, mark in request.marks.items():
        if not isinstance(place[0], int) or len(request.messages) != len(messages):
            continue
        key = MARKS[1] if place[-1] == MARKS[1] else MARKS[0]
        steps = [step for step in place[1:] if isinstance(step, int)]
        message = request.messages[place[0]]
        at = steps[-1]
        if len(steps) == 1 and isinstance(message.blocks[0], Thinking):
            at -= 1
        messages[place[0]]["content"][at][key] = mark


def _lose_marks(marks: Mapping[Place, Any], losses: Losses) -> None:
    for place in marks:
        losses.add(place, "a cache breakpoint", "the target caches by itself", "form")


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
            messages.append(self._result(block, place, turn.message, lifted))
        if lifted:
            messages.append({"role": "user", "content": write_content(lifted, "list")})
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

    def _said(self, turn: Turn, blocks: list[Block]) -> list[JsonObject]:
        role = "user" if turn.role == "tool" else turn.role
        message = turn.message
        if is_system(message) and not blocks:
            self.losses.add(turn.at, f"an empty {message.role} message", "it says nothing", "form")
            return []
        body: JsonObject = {"role": role, "content": write_content(blocks, message.form)}
        return [_with_members(body, message)]

    def _assistant(self, turn: Turn) -> JsonObject:
        called = False
        for number, block in enumerate(turn.blocks):
            if isinstance(block, ToolCall):
                called = True
                turn.blocks[number] = self._call(block, turn.places[number])
            elif called and isinstance(block, TEXTUAL):
                self.losses.add(
                    turn.places[number], "the place of a text behind a call", "calls come last here"
                )
        for number, block in enumerate(turn.blocks):
            if isinstance(block, Audio) and block.ext is not None:
                turn.blocks[number] = Audio(block.source, _spoken_ext(block))
        form = turn.message.form
        body: JsonObject = {"role": "assistant"}
        body.update(write_assistant(turn.blocks, parts=form == "list"))
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
        arguments = block.arguments or ("" if block.custom else "{}")
        return structs.replace(block, id=legal_id(block.id), arguments=arguments, ext=ext)

    def _result(
        self, block: ToolResult, place: Place, message: Message, lifted: list[Block]
    ) -> JsonObject:
        """One `tool` message; what it cannot hold is put into `lifted`."""
        if block.is_error is not None and block.content != (Text(NO_RESULT),):
            self.losses.add(
                place,
                "that the tool failed" if block.is_error else "that the tool did not fail",
                "a tool message has no such member",
                "meaning" if block.is_error else "form",
            )
        said: list[Block] = []
        media: list[Block] = []
        for number, part in enumerate(block.content):
            self._sort(part, (*place, number), message, said, media)
        if media:
            lifted.append(Text(f"[from the result of {legal_id(block.call_id)}]"))
            lifted += media
        form = block.form if len(said) == len(block.content) else ""
        return {
            "role": "tool",
            "tool_call_id": legal_id(block.call_id),
            "content": write_content(said, form),
        }

    def _sort(
        self, part: Block, place: Place, message: Message, said: list[Block], media: list[Block]
    ) -> None:
        """Text stays in the result; media moves behind it; the rest is lost."""
        check = RULES.checks.get(type(part))
        why = check(part, message, self.request) if check is not None else None
        if why is not None:
            self.losses.add(place, f"a {self._name(part)} block", why)
            return
        ext = getattr(part, "ext", None)
        if ext is not None:
            lose_ext(ext, PROTOCOL, place, self.losses)
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


def legal_id(call_id: str) -> str:
    """The id in the length this wire takes: the same every turn, and two never become one."""
    if len(call_id) <= CALL_ID_LENGTH:
        return call_id
    return f"{call_id[: CALL_ID_LENGTH - 9]}_{sha256(call_id.encode()).hexdigest()[:8]}"
