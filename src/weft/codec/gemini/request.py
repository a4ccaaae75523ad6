"""Requests to and from generateContent: https://ai.google.dev/api/generate-content

The body names no model: it stands in the address. `systemInstruction` is the first message of the
model's list; towards Gemini the leading run of system and developer messages becomes it, part by
part, and a later one speaks as `user`, for inside the conversation there is no such role.

How a body was spelt (`functionCall` or `function_call`, a list or the one thing in it, an absent
role) says nothing to anybody: it is kept in `raw`, beside the parameters, under `@form`.
"""

from collections.abc import Mapping
from typing import Any, cast

from msgspec import structs

from weft.codec.base import Encoded, Losses, Target, members
from weft.codec.read import inside, objects, rest_of, wrong
from weft.codec.repair import Arranged, Rules, Turn, arrange
from weft.codec.system import merge_system_text
from weft.errors import Refused
from weft.model import (
    Block,
    Form,
    JsonObject,
    Message,
    Opaque,
    Place,
    Request,
    Text,
    ToolCall,
    ToolResult,
    Wire,
)

from .params import decode_params, encode_params, require_model
from .parts import PartReader, noted, part_name
from .spelling import read_spelling, write_spelling
from .tools import decode_tools, tool_path, write_tools
from .wire import FORM, PROTOCOL, REQUEST_SETUP, ROLE_WORDS, ROLES, UNSIGNED
from .write import CHECKS, Media, Writer, own_ext, sift_result

CONTENT = frozenset({"role", "parts"})
USER = {"role": "user"}
SYSTEM = ("systemInstruction", "system_instruction")

RULES = Rules(
    protocol=PROTOCOL,
    roles=frozenset({"user", "assistant"}),
    inline_system="never",
    checks=CHECKS,
    hoists=True,
    user_first=True,
    empty_text=False,
)


def decode_request(body: JsonObject, model: str | None = None) -> Request:
    """A request body; raises `Refused` with the path of whatever cannot be read."""
    form: JsonObject = {}
    reader = PartReader()
    messages: list[Message] = []
    params, rest = decode_params(body)
    system = next((key for key in SYSTEM if key in body), None)
    if system is not None:
        messages.append(_decode_system(body, system, reader, form))
        if form.get(f"{SYSTEM[0]}.rest") is not None:
            rest[f"{system}.role"] = None
    for number, raw in enumerate(_contents(body, form)):
        path = f"contents[{number}]"
        try:
            blocks, shape = _decode_parts(raw, number, path, reader, form)
            role = raw.get("role")
            if role is not None and not isinstance(role, str):
                raise wrong("role", role, "a string")
        except Refused as error:
            raise inside(path, error) from None
        if role not in ("user", "model"):
            form[f"{path}.role"] = [role] if "role" in raw else []
        word = "user" if role is None else ROLES.get(role, role)
        messages.append(Message(word, blocks, form=shape, ext=rest_of(raw, CONTENT, PROTOCOL)))
    tools = decode_tools(body, form, rest)
    own = {key: value for key, value in body.items() if key not in REQUEST_SETUP}
    if form:
        own[FORM] = form
    return Request(
        model=require_model(model),
        messages=tuple(messages),
        tools=tools,
        params=params,
        raw={PROTOCOL: own},
        rest=rest,
        wire=Wire(PROTOCOL, _locator(body, system, form), part_name),
    )


def _contents(body: JsonObject, form: JsonObject) -> list[JsonObject]:
    contents = body.get("contents")
    if isinstance(contents, dict):  # the wire takes one content for a list of it
        form["contents"] = "single"
        return [cast(JsonObject, contents)]
    return objects(contents, "contents")


def _decode_system(body: JsonObject, key: str, reader: PartReader, form: JsonObject) -> Message:
    raw = body[key]
    if key != SYSTEM[0]:
        form[SYSTEM[0]] = key
    if isinstance(raw, str):
        return Message("system", (Text(raw),) if raw else (), form="text")
    content = members(raw)
    if content is None:
        raise wrong(key, raw, "an object")
    try:
        blocks, shape = _decode_parts(content, 0, SYSTEM[0], reader, form)
    except Refused as error:
        raise inside(key, error) from None
    if {k: v for k, v in content.items() if k != "parts"} != USER:
        form[f"{SYSTEM[0]}.rest"] = {k: v for k, v in content.items() if k != "parts"}
    return Message("system", blocks, form=shape)


def _decode_parts(
    raw: JsonObject, number: int, path: str, reader: PartReader, form: JsonObject
) -> tuple[tuple[Block, ...], Form]:
    parts = raw.get("parts")
    if parts is None:
        return (), "null" if "parts" in raw else "absent"
    single = members(parts)
    if single is not None:
        form[f"{path}.parts"] = "single"
        parts = [single]
    blocks: list[Block] = []
    for at, part in enumerate(objects(parts, "parts")):
        plain, spelling = read_spelling(part)
        try:
            block = reader.part(plain, number, at)
        except Refused as error:
            raise inside(f"parts[{at}]", error) from None
        if spelling is not None:
            if isinstance(block, Opaque):
                block = Opaque(PROTOCOL, part)
            else:
                form[f"{path}.parts[{at}]"] = spelling
        blocks.append(block)
    return tuple(blocks), ""


def _locator(body: JsonObject, system: str | None, form: JsonObject) -> Any:
    """Paths of the caller's body; built only when something has to be said about it."""
    offset = 0 if system is None else 1

    def locate(place: Place) -> str:
        match place:
            case ("tools", int(number)):
                return tool_path(form.get("tools", []), number)
            case (int(number), *steps):
                holder = f"contents[{number - offset}]"
                if system is not None and number < offset:
                    holder = system
                    steps = [] if isinstance(body.get(system), str) else steps
                return holder + (f".parts[{steps[0]}]" if steps else "")
            case _:
                return ""

    return locate


def encode_request(request: Request, target: Target) -> Encoded:
    """The body for Gemini, and what it could not say."""
    losses = Losses(request)
    native = PROTOCOL in request.raw
    form: Mapping[str, Any] = request.raw.get(PROTOCOL, {}).get(FORM, {})
    body = encode_params(request, target, losses)
    arranged = arrange(request, RULES, target.model, target.system, losses)
    writer = Writer(target, losses, {} if native else _calls(request))
    _write_system(arranged, writer, target, native, form, body)
    tools = write_tools(request, losses)
    if tools is not None:
        body["tools"] = tools
    contents: list[JsonObject]
    if native:
        contents = [_write_own(turn, at, writer, form) for at, turn in enumerate(arranged.turns)]
    else:
        contents = _Foreign(request, target, writer, losses).contents(arranged.turns)
        for place in request.marks:
            losses.add(place, "a cache breakpoint", "the target caches by itself", "form")
    single = form.get("contents") == "single" and len(contents) == 1
    body["contents"] = contents[0] if single else contents
    return Encoded(body, losses.items)


def _calls(request: Request) -> dict[str, ToolCall]:
    """Every call by its id: a result must repeat its name."""
    return {
        block.id: block
        for message in request.messages
        for block in message.blocks
        if isinstance(block, ToolCall)
    }


def _write_system(
    arranged: Arranged,
    writer: Writer,
    target: Target,
    native: bool,
    form: Mapping[str, Any],
    body: JsonObject,
) -> None:
    turns = arranged.system
    if not turns:
        return
    key = form.get(SYSTEM[0], SYSTEM[0])
    if target.system == "merge":
        text = merge_system_text(turn.message for turn in turns)
        if text is not None:
            body[key] = {"parts": [{"text": text}], **USER}
        return
    message = turns[0].message
    if native and message.form == "text":
        body[key] = message.text
        return
    parts = [
        _spelt(writer.part(block, place), f"{SYSTEM[0]}.parts[{at}]", form)
        for turn in turns
        for at, (block, place) in enumerate(zip(turn.blocks, turn.places, strict=True))
        if native or not (isinstance(block, Text) and not block.text)
    ]
    if not native:
        _report_system(turns, writer.losses)
        if not parts:
            return
    content: JsonObject = dict(form.get(f"{SYSTEM[0]}.rest", USER))
    _put_parts(content, parts, message.form, form.get(f"{SYSTEM[0]}.parts"))
    body[key] = content


def _report_system(turns: list[Turn], losses: Losses) -> None:
    """Several messages are one instruction; what they were is a matter of form."""
    for turn in turns:
        role = turn.message.role
        if not turn.blocks:
            losses.add(turn.at, f"an empty {role} message", "it says nothing", "form")
        elif role != "system":
            losses.add(turn.at, f"the role {role!r}", "it is the system's here", "form")
        elif turn is not turns[0]:
            losses.add(turn.at, "the border to the message before", "they are one here", "form")


def _write_own(turn: Turn, at: int, writer: Writer, form: Mapping[str, Any]) -> JsonObject:
    """A content as this wire itself wrote it."""
    message, path = turn.message, f"contents[{at}]"
    body: JsonObject = {"role": ROLE_WORDS.get(turn.role, turn.role)}
    if form:
        own_role = form.get(f"{path}.role")
        if own_role is not None:
            body = {"role": own_role[0]} if own_role else {}
    parts = [
        writer.part(block, place) for block, place in zip(turn.blocks, turn.places, strict=True)
    ]
    if form:
        parts = [_spelt(part, f"{path}.parts[{at}]", form) for at, part in enumerate(parts)]
    _put_parts(body, parts, message.form, form.get(f"{path}.parts"))
    if message.ext is not None:
        body.update(message.ext.get(PROTOCOL, ()))
    return body


def _put_parts(body: JsonObject, parts: list[JsonObject], form: Form, single: Any) -> None:
    if form == "null" and not parts:
        body["parts"] = None
    elif form != "absent" or parts:
        body["parts"] = parts[0] if single == "single" and len(parts) == 1 else parts


def _spelt(part: JsonObject, path: str, form: Mapping[str, Any]) -> JsonObject:
    spelling = form.get(path)
    return part if spelling is None else write_spelling(part, spelling)


class _Foreign:
    """Writes the turns of another wire's request.

    A function call must directly follow the user's turn, so neighbours of the model's side are
    one content; results stand alone in theirs, in the order of the calls.
    """

    def __init__(self, request: Request, target: Target, writer: Writer, losses: Losses) -> None:
        self.request = request
        self.model = target.model
        self.writer = writer
        self.losses = losses
        self._order: dict[str, int] = {}

    def contents(self, turns: list[Turn]) -> list[JsonObject]:
        contents: list[JsonObject] = []
        for turn in turns:
            if turn.role == "assistant":
                parts = self._model(turn)
                if contents and contents[-1]["role"] == "model":
                    contents[-1]["parts"] += parts
                    self.losses.add(turn.at, "the border to the message before", JOINED, "form")
                else:
                    contents.append({"parts": parts, "role": "model"})
            else:
                contents += self._user(turn)
            self._report_form(turn)
        return contents

    def _report_form(self, turn: Turn) -> None:
        """A string and a list of one text are written alike; so are null and nothing."""
        form, blocks = turn.message.form, turn.blocks
        if form == "absent" or (
            form == "list" and len(blocks) == 1 and isinstance(blocks[0], Text)
        ):
            self.losses.add(
                turn.at, f"that its content was {FORMS[form]}", "it is parts here", "form"
            )

    def _model(self, turn: Turn) -> list[JsonObject]:
        self._order = {}
        parts: list[JsonObject] = []
        for block, place in zip(turn.blocks, turn.places, strict=True):
            part = self.writer.part(block, place)
            if isinstance(block, ToolCall):
                self._report_call(block, place)
                if not self._order and self.model.signed_calls:
                    part.setdefault("thoughtSignature", UNSIGNED)
                self._order[block.id] = len(self._order)
            parts.append(part)
        return parts

    def _report_call(self, block: ToolCall, place: Place) -> None:
        if block.namespace is not None:
            self.losses.add(
                place, "a namespace, now part of the name", "names are flat here", "form"
            )
        if block.custom:
            self.losses.add(place, "a custom call, now a function's", "it has one input", "form")

    def _user(self, turn: Turn) -> list[JsonObject]:
        pairs = list(zip(turn.blocks, turn.places, strict=True))
        answers = [(block, place) for block, place in pairs if isinstance(block, ToolResult)]
        others = [
            self.writer.part(block, place)
            for block, place in pairs
            if not isinstance(block, ToolResult)
        ]
        contents: list[JsonObject] = []
        if answers:
            ordered = sorted(answers, key=lambda pair: self._order.get(pair[0].call_id, 0))
            if ordered != answers:
                self.losses.add(turn.at, "the order of results", "it is that of the calls", "form")
            lifted: list[JsonObject] = []
            results = [self._result(block, place, turn, lifted) for block, place in ordered]
            contents.append({"parts": results, "role": "user"})
            others = lifted + others
        if others or not answers:
            contents.append({"parts": others, "role": "user"})
        return contents

    def _result(
        self, block: ToolResult, place: Place, turn: Turn, lifted: list[JsonObject]
    ) -> JsonObject:
        """One result; media that the model does not take inside of it is put into `lifted`."""
        content = sift_result(block, place, turn.message, self.request, self.losses)
        media = (
            () if self.model.media_results else tuple(b for b in content if isinstance(b, Media))
        )
        if media:
            content = tuple(part for part in content if not isinstance(part, Media))
            name = self.writer.name_of(block.call_id)
            lifted.append({"text": f"[from the result of {name}]"})
            lifted += [self.writer.part(part, place) for part in media]
            self.losses.add(
                place, "the place of its media: they follow the results", "they stand apart", "form"
            )
        answer = structs.replace(
            block,
            content=content,
            name=self.writer.name_of(block.call_id) or block.name,
            form="text" if block.form == "absent" else block.form,
        )
        call = self.writer.calls.get(block.call_id)
        if call is not None and own_ext(call.ext).get("id", "") is None:
            answer = structs.replace(answer, ext=noted(block.ext, "id", None))
        return self.writer.part(answer, place)


FORMS = {"list": "a list", "absent": "not there"}
JOINED = "a turn of the model is one content here"


def write_message(message: Message) -> JsonObject:
    """One message by itself, as a compiled thread writes it."""
    blocks = list(message.blocks)
    turn = Turn(message.role, message, blocks, [(0, at) for at in range(len(blocks))], (0,))
    return _write_own(turn, 0, Writer(None, Losses()), {})
