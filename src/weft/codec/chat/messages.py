"""Messages, both ways: https://platform.openai.com/docs/api-reference/chat/create#messages

An assistant's message spreads one turn over several members. They are read in the order in which a
model makes them: thinking, content, refusal, calls, audio. Where the form of a message does not
tell which member a block stood in, the block's `ext` does, under `item`.

The first API had one call a turn, without an id, in `function_call`, answered by the role
`function`. It is read as a call whose id is its place in the list.
"""

from collections.abc import Iterator
from typing import Any, cast

from weft.codec.base import members
from weft.codec.read import inside, objects, text_of, wrong
from weft.codec.tools import flat_name
from weft.errors import Refused
from weft.model import (
    Audio,
    Block,
    Ext,
    FileRef,
    JsonObject,
    Message,
    Refusal,
    Thinking,
    ToolCall,
    ToolResult,
)

from .blocks import decode_content, write_content
from .wire import PROTOCOL, REASONING, REASONING_DETAILS, REASONING_PROOF

PLAIN = frozenset({"role", "content"})
AUDIO_ANSWER = frozenset({"data", "expires_at", "transcript"})
"""Members of an answer's audio that a later request does not repeat: it names the id."""

Found = tuple[str, Block]
"""A block, and the path inside its message."""


def decode_message(raw: JsonObject, number: int = 0) -> Message:
    """One message; `number` names a call of the first API."""
    role = text_of(raw, "role")
    return READERS.get(role, _decode_any)(raw, role, number)


def _decode_any(raw: JsonObject, role: str, _number: int) -> Message:
    blocks, form = decode_content(raw)
    if raw.keys() <= PLAIN:
        return Message(role, blocks, form=form)
    name = raw.get("name")
    known = PLAIN | {"name"} if isinstance(name, str) else PLAIN
    return Message(
        role, blocks, name if isinstance(name, str) else None, form=form, ext=_rest(raw, known)
    )


def _decode_tool(raw: JsonObject, role: str, _number: int) -> Message:
    content, form = decode_content(raw)
    known = PLAIN | {"tool_call_id"}
    name = raw.get("name")
    if isinstance(name, str):
        known |= {"name"}
    result = ToolResult(
        text_of(raw, "tool_call_id"),
        content,
        name=name if isinstance(name, str) else None,
        form=form,
    )
    return Message(role, (result,), ext=_rest(raw, known))


def _decode_function(raw: JsonObject, role: str, number: int) -> Message:
    """The answer to a call of the first API; the request links it to its call."""
    content, form = decode_content(raw)
    result = ToolResult(legacy_id(number), content, name=text_of(raw, "name"), form=form)
    rest = (_rest(raw, PLAIN | {"name"}) or {}).get(PROTOCOL, {})
    return Message("tool", (result,), ext={PROTOCOL: {**rest, "role": role}})


def _decode_assistant(raw: JsonObject, role: str, number: int) -> Message:
    known = set(PLAIN)
    name = raw.get("name")
    if isinstance(name, str):
        known.add("name")
    blocks = tuple(block for _, block in find_blocks(raw, number, known))
    content = raw.get("content")
    form = "text" if isinstance(content, str) else "list"
    if content is None:
        form = "null" if "content" in raw else "absent"
    return Message(
        role, blocks, name if isinstance(name, str) else None, form=form, ext=_rest(raw, known)
    )


READERS = {
    "assistant": _decode_assistant,
    "tool": _decode_tool,
    "function": _decode_function,
}


def find_blocks(raw: JsonObject, number: int, known: set[str]) -> Iterator[Found]:
    """The blocks of an assistant's message with their paths; adds the members read to `known`."""
    thinking = _find_thinking(raw, known)
    if thinking is not None:
        yield thinking
    content, form = decode_content(raw)
    for at, block in enumerate(content):
        yield (f"content[{at}]" if form == "list" else "content"), block
    refusal = raw.get("refusal")
    if isinstance(refusal, str) and refusal:
        known.add("refusal")
        yield "refusal", Refusal(refusal, _item("refusal") if form == "list" else None)
    calls = raw.get("tool_calls")
    if calls:
        known.add("tool_calls")
        yield from _find_calls(calls)
    legacy = members(raw.get("function_call"))
    if legacy is not None and legacy.get("name"):
        known.add("function_call")
        call = ToolCall(legacy_id(number), *_named(legacy, "arguments"), ext=_item("function_call"))
        yield "function_call", call
    audio = members(raw.get("audio"))
    if audio is not None and audio.get("id"):
        known.add("audio")
        yield "audio", decode_audio_answer(audio)


def _find_calls(calls: Any) -> Iterator[Found]:
    for at, call in enumerate(objects(calls, "tool_calls")):
        try:
            yield f"tool_calls[{at}]", decode_call(call)
        except Refused as error:
            raise inside(f"tool_calls[{at}]", error) from None


def _find_thinking(raw: JsonObject, known: set[str]) -> Found | None:
    item = next((name for name in REASONING if isinstance(raw.get(name), str)), None)
    proof, details = raw.get(REASONING_PROOF), raw.get(REASONING_DETAILS)
    own: JsonObject = {}
    if item is not None:
        own["item"] = item
        known.add(item)
    if isinstance(proof, str):
        known.add(REASONING_PROOF)
    if details:
        own[REASONING_DETAILS] = details
        known.add(REASONING_DETAILS)
    if item is None and not isinstance(proof, str) and not details:
        return None
    text = cast(str, raw[item]) if item is not None else ""
    signature = proof if isinstance(proof, str) else None
    path = item or (REASONING_PROOF if signature is not None else REASONING_DETAILS)
    return path, Thinking(text, signature, {PROTOCOL: own} if own else None)


def decode_call(raw: JsonObject) -> ToolCall:
    """One tool call, of a function or of a custom tool."""
    word = text_of(raw, "type") if "type" in raw else "function"
    kind, key = ("custom", "input") if word == "custom" else ("function", "arguments")
    inner = members(raw.get(kind))
    if inner is None:
        raise wrong(kind, raw.get(kind), "an object")
    name, arguments = _named(inner, key)
    if len(raw) == 3 and len(inner) == 2 and "type" in raw and word == kind:
        return ToolCall(text_of(raw, "id"), name, arguments, custom=kind == "custom")
    rest = {member: value for member, value in raw.items() if member not in ("id", "type", kind)}
    if "type" not in raw:
        rest["type"] = None
    elif word != kind:
        rest["type"] = word
    if inner.keys() - {"name", key}:
        rest[kind] = inner
    return ToolCall(
        text_of(raw, "id"),
        name,
        arguments,
        custom=kind == "custom",
        ext={PROTOCOL: rest} if rest else None,
    )


def _named(raw: JsonObject, key: str) -> tuple[str, str]:
    return text_of(raw, "name"), text_of(raw, key)


def decode_audio_answer(raw: JsonObject) -> Audio:
    """What the assistant said aloud; later turns name it by its id."""
    rest = {key: value for key, value in raw.items() if key != "id"}
    return Audio(FileRef(str(raw["id"])), {PROTOCOL: rest} if rest else None)


def legacy_id(number: int) -> str:
    """The id that a call of the first API goes by: there was one a turn, and it had none."""
    return f"function_call_{number}"


def _item(name: str) -> Ext:
    return {PROTOCOL: {"item": name}}


def _rest(raw: JsonObject, known: Any) -> Ext | None:
    rest = {key: value for key, value in raw.items() if key not in known}
    return {PROTOCOL: rest} if rest else None


def own(ext: Ext | None) -> JsonObject:
    """What this wire itself said beside the fields."""
    return ext.get(PROTOCOL, {}) if ext is not None else {}


def write_assistant(blocks: tuple[Block, ...] | list[Block], *, parts: bool) -> JsonObject:
    """The members of an assistant's message that its blocks make; no `content` where none is.

    `parts` is whether the content is a list, which may hold refusals too.
    """
    body: JsonObject = {}
    content: list[Block] = []
    calls: list[JsonObject] = []
    for block in blocks:
        match block:
            case Thinking():
                write_thinking(block, body)
            case ToolCall() if own(block.ext).get("item") == "function_call":
                body["function_call"] = {"name": block.name, "arguments": block.arguments}
            case ToolCall():
                calls.append(write_call(block))
            case Refusal() if not parts or own(block.ext).get("item") == "refusal":
                body["refusal"] = body.get("refusal", "") + block.text
            case Audio(source=FileRef(id=audio_id)):
                body["audio"] = {"id": audio_id, **own(block.ext)}
            case _:
                content.append(block)
    if content:
        body["content"] = write_content(content, "list" if parts else "text")
    if calls:
        body["tool_calls"] = calls
    return body


def write_thinking(block: Thinking, body: JsonObject) -> None:
    """Thinking in the member it came in; several blocks of it are one text here."""
    fields = own(block.ext)
    item = fields.get("item", "" if fields or block.signature else REASONING[0])
    if item or block.text:
        item = item or REASONING[0]
        body[item] = body.get(item, "") + block.text
    if block.signature is not None:
        body[REASONING_PROOF] = block.signature
    if REASONING_DETAILS in fields:
        body[REASONING_DETAILS] = [*body.get(REASONING_DETAILS, ()), *fields[REASONING_DETAILS]]


def write_call(block: ToolCall) -> JsonObject:
    name = block.name if block.namespace is None else flat_name(block.name, block.namespace)
    kind, key = ("custom", "input") if block.custom else ("function", "arguments")
    body: JsonObject = {"id": block.id, "type": kind, kind: {"name": name, key: block.arguments}}
    if block.ext is not None and PROTOCOL in block.ext:
        body.update(block.ext[PROTOCOL])
        if body["type"] is None:
            del body["type"]
    return body
