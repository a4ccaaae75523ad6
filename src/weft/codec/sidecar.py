"""The sidecar: what a translation lost, so that the reverse translation restores the original.

Protocol B cannot express everything that protocol A can. To make a sidecar, translate A to B,
decode B again, and compare with the original request: the difference is the sidecar. It is plain
JSON that the caller keeps beside the translated body. Given to the reverse translation, it
restores the original message by message.

Text is not stored twice: a message is rebuilt from references to the blocks that survived in B,
plus the members that did not. Each region has a digest of the messages it replaces. So a
conversation that continued keeps its new turns, and one that was edited is not overwritten.

`calls` are the tools with other names at the target; the answer and every later call need them. An
answer has a sidecar of its own: `answers` is what its model needs back, found by what every client
echoes.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from typing import Any, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType, field, structs

from weft.errors import Refused
from weft.model import (
    Block,
    JsonObject,
    Message,
    Origin,
    Request,
    Tool,
    Wire,
)

from .base import Calls
from .calls import restore_calls
from .echoes import AnswerIndex, digest, echo_key, is_plain, restore_echoes

Region = tuple[int, int, int, int]
"""Start and end (exclusive) in the first list, and start and end in the second."""


def differing(ours: Sequence[str], theirs: Sequence[str]) -> Iterator[Region]:
    """The regions that differ, in order; everything between them is equal.

    Takes n log n time even if items repeat, which `difflib` does not promise: conversations contain
    many equal messages. The n-th occurrence of a key in one list is paired with its n-th occurrence
    in the other; the longest run of pairs that is in order in both lists is taken as equal. The
    regions between are trimmed at both ends, and are not always the smallest possible.
    """
    i = j = 0
    for same_i, same_j in [*_in_order(_pairs(ours, theirs)), (len(ours), len(theirs))]:
        region = _trimmed(ours, theirs, (i, same_i, j, same_j))
        if region[0] < region[1] or region[2] < region[3]:
            yield region
        i, j = same_i + 1, same_j + 1


def _pairs(ours: Sequence[str], theirs: Sequence[str]) -> list[tuple[int, int]]:
    """The positions of each occurrence of a key in both lists, in the order of the first."""
    positions = {key: at for at, key in enumerate(_counted(theirs))}
    return [(at, positions[key]) for at, key in enumerate(_counted(ours)) if key in positions]


def _counted(keys: Sequence[str]) -> Iterator[tuple[str, int]]:
    counts: dict[str, int] = {}
    for key in keys:
        counts[key] = counts.get(key, 0) + 1
        yield key, counts[key]


def _in_order(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest run of pairs that increases in both members."""
    ends: list[int] = []  # the least second member that a run of this length ends in
    numbers: list[int] = []  # the pair that it is of
    before: list[int] = []
    for number, (_, at) in enumerate(pairs):
        length = bisect_left(ends, at)
        before.append(numbers[length - 1] if length else -1)
        ends[length : length + 1] = [at]
        numbers[length : length + 1] = [number]
    run: list[tuple[int, int]] = []
    number = numbers[-1] if numbers else -1
    while number >= 0:
        run.append(pairs[number])
        number = before[number]
    return run[::-1]


def _trimmed(ours: Sequence[str], theirs: Sequence[str], region: Region) -> Region:
    i, end_i, j, end_j = region
    while i < end_i and j < end_j and ours[i] == theirs[j]:
        i, j = i + 1, j + 1
    while i < end_i and j < end_j and ours[end_i - 1] == theirs[end_j - 1]:
        end_i, end_j = end_i - 1, end_j - 1
    return i, end_i, j, end_j


VERSION = 1

Address = tuple[int, int]
"""The number of a message in its region, and of a block in the message."""


def make_sidecar(
    original: Request,
    echoed: Request,
    back: Callable[[Request], JsonObject],
    body: JsonObject,
    calls: Calls | None = None,
    *,
    named: bool = True,
) -> JsonObject:
    """The difference between a request and its translation; empty if there is none.

    `echoed` is the translated body, decoded again. `back` writes a request in the original's
    protocol. `calls` are the tools with another name at the target. `named` is whether the
    translated body contains the model's name.
    """
    echoed = _with_calls(echoed, calls or {})
    try:
        written = back(echoed)
    except Refused:
        written = {}  # one vendor may accept what the other refuses
    if written == body:
        needed = ({} if named else {"model": original.model}) | ({"calls": calls} if calls else {})
        return {"weft": VERSION, **needed} if needed else {}
    protocol = original.wire.protocol if original.wire is not None else ""
    sidecar: JsonObject = {
        "weft": VERSION,
        "protocol": protocol,
        "messages": _regions(original.messages, echoed.messages),
        "count": len(echoed.messages),
        "params": {"key": digest(echoed.params), "raw": original.raw.get(protocol, {})},
        "model": original.model,
    }
    if original.tools or echoed.tools:
        tools = written.get("tools")
        sidecar["tools"] = {
            "key": digest(echoed.tools),
            "are": None if tools == body.get("tools") else msgspec.to_builtins(original.tools),
        }
    if calls:
        sidecar["calls"] = calls
    if original.marks:
        sidecar["marks"] = [[list(position), value] for position, value in original.marks.items()]
    return sidecar


def apply_sidecar(echoed: Request, sidecar: JsonObject) -> Request:
    """The original request, plus everything that was added since."""
    if not sidecar:
        return echoed
    check_sidecar(sidecar)
    try:
        echoed = _with_calls(echoed, calls_of(sidecar))
        if "answers" in sidecar:
            echoed = _restore_answers(echoed, sidecar["answers"])
        return _apply(echoed, sidecar) if "messages" in sidecar else echoed
    except (KeyError, IndexError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise Refused(f"is damaged: {error}", param="sidecar") from None


def check_sidecar(sidecar: Any) -> None:
    """Raise `Refused` if a value is not a sidecar of this version."""
    if not isinstance(sidecar, dict) or cast(JsonObject, sidecar).get("weft") != VERSION:
        raise Refused("is not a sidecar of this version of weft", param="sidecar")


def calls_of(sidecar: JsonObject | None) -> Calls:
    """The tools with another name at the target; raises `Refused` if they are damaged."""
    if not sidecar:
        return {}
    check_sidecar(sidecar)
    try:
        return msgspec.convert(sidecar.get("calls", {}), Calls)
    except msgspec.ValidationError as error:
        raise Refused(f"is damaged: {error}", param="sidecar.calls") from None


def model_of(sidecar: JsonObject) -> str | None:
    """The original's model, for a body without one."""
    check_sidecar(sidecar)
    model = sidecar.get("model")
    return model if isinstance(model, str) else None


def _with_calls(echoed: Request, calls: Calls) -> Request:
    if not calls:
        return echoed
    messages = tuple(restore_calls(message, calls) for message in echoed.messages)
    return structs.replace(echoed, messages=messages)


def make_answer_sidecar(answer: Message, echoed: Message) -> JsonObject:
    """The parts of an answer that a client of another protocol cannot send back; empty if none.

    `echoed` is the answer as that client sees it. Some clients echo an answer whole, others only
    its text and calls. So the key covers only these, and thinking and vendor members are always
    stored.
    """
    if is_plain(answer) and structs.replace(answer, origin=None) == structs.replace(
        echoed, origin=None
    ):
        return {}
    stored = {"key": echo_key(echoed.blocks), "is": msgspec.to_builtins(answer)}
    return {"weft": VERSION, "answers": [stored]}


def merge_answers(*sidecars: JsonObject) -> JsonObject:
    """One sidecar for the answers of a whole conversation, oldest first."""
    answers = [answer for sidecar in sidecars for answer in sidecar.get("answers", ())]
    return {"weft": VERSION, "answers": answers} if answers else {}


def _restore_answers(echoed: Request, answers: Any) -> Request:
    index = AnswerIndex(again=True)
    for answer in answers:
        message = msgspec.convert(answer["is"], Message)
        index.add(str(answer["key"]), message, len(message.blocks))
    return restore_echoes(echoed, index)


def _apply(echoed: Request, sidecar: JsonObject) -> Request:
    protocol = str(sidecar["protocol"])
    messages, is_complete = _restore(echoed.messages, sidecar)
    params = sidecar["params"]
    same = params["key"] == digest(echoed.params)
    raw = {protocol: params["raw"]} if same else {}
    tools, stored = echoed.tools, sidecar.get("tools")
    if stored is not None and stored["are"] is not None and stored["key"] == digest(echoed.tools):
        tools = msgspec.convert(stored["are"], tuple[Tool, ...])
    marks = {_position(position): value for position, value in sidecar.get("marks", ())}
    wire = echoed.wire
    if is_complete and same:
        wire = Wire(protocol, _no_path, _no_name)
    return structs.replace(
        echoed,
        messages=messages,
        tools=tools,
        raw=raw,
        marks=marks if is_complete else {},
        wire=wire,
        model=sidecar["model"] if is_complete else echoed.model,
    )


def _no_path(_position: Any) -> str:
    return ""


def _no_name(block: Block) -> str:
    return type(block).__name__.lower()


def _position(position: Sequence[int | str]) -> tuple[int | str, ...]:
    return tuple(position)


def _key(message: Message) -> str:
    return digest(message if message.origin is None else structs.replace(message, origin=None))


def _anchor(keys: Sequence[str], start: int, end: int) -> str:
    """A digest of the messages that a region replaces, and of the one before it."""
    return sha256("".join(keys[max(0, start - 1) : end]).encode()).hexdigest()[:16]


def _regions(original: Sequence[Message], echoed: Sequence[Message]) -> list[Any]:
    ours, theirs = [_key(m) for m in original], [_key(m) for m in echoed]
    return [
        [
            start,
            end - start,
            _anchor(theirs, start, end),
            _recipes(original[i:j], echoed[start:end]),
        ]
        for i, j, start, end in differing(ours, theirs)
    ]


def _recipes(original: Sequence[Message], region: Sequence[Message]) -> list[JsonObject]:
    parts = _Parts(region)
    recipes: list[JsonObject] = []
    for message in original:
        head = msgspec.to_builtins(structs.replace(message, blocks=(), origin=None))
        recipes.append({"head": head, "blocks": [parts.refer(block) for block in message.blocks]})
    return recipes


class _Parts:
    """The blocks of a region; each can be referred to once. `same` finds equal blocks,
    `alike` blocks with equal text."""

    def __init__(self, region: Sequence[Message]) -> None:
        self._free: dict[Address, Block] = {}
        self._same: dict[str, deque[Address]] = {}
        self._alike: dict[str, deque[Address]] = {}
        for at, message in enumerate(region):
            for number, block in enumerate(message.blocks):
                self._free[at, number] = block
                self._same.setdefault(digest(block), deque()).append((at, number))
                self._alike.setdefault(_words(block), deque()).append((at, number))

    def refer(self, block: Block) -> Any:
        """A reference to an equal block, a reference with a patch, or the block itself."""
        address = self._take(self._same.get(digest(block)))
        if address is not None:
            del self._free[address]
            return list(address)
        address = self._take(self._alike.get(_words(block)))
        if address is None:
            return {"is": msgspec.to_builtins(block)}
        part = self._free.pop(address)
        patch = {
            name: msgspec.to_builtins(getattr(block, name))
            for name in block.__struct_fields__
            if getattr(block, name) != getattr(part, name)
        }
        return {"of": list(address), "set": patch}

    def _take(self, addresses: deque[Address] | None) -> Address | None:
        """The first of these that is unused."""
        while addresses:
            address = addresses.popleft()
            if address in self._free:
                return address
        return None


def _words(block: Block) -> str:
    """A digest of the type and the long texts of a block, which a patch must not repeat."""
    texts = [getattr(block, name, None) for name in ("text", "content", "arguments")]
    return digest([type(block).__name__, texts])


class _Reference(Struct):
    """A block of the original: one that came back with other members (`of`, `set`), or one that did
    not come back (`is`)."""

    of: Address | None = None
    set: dict[str, Any] = {}
    block: Block | UnsetType = field(default=UNSET, name="is")


class _Recipe(Struct):
    """How a message is rebuilt; a bare address is a block that came back unchanged."""

    head: Message
    blocks: list[Address | _Reference]


class _Region(Struct, array_like=True):
    start: int
    count: int
    anchor: str
    recipes: list[_Recipe]


class _Regions(Struct):
    """Typed, so that msgspec checks and converts all regions in one call."""

    messages: list[_Region]


def _restore(echoed: Sequence[Message], sidecar: JsonObject) -> tuple[tuple[Message, ...], bool]:
    """The messages with every region restored that is still there, and whether all are."""
    regions = msgspec.convert({"messages": sidecar["messages"]}, _Regions).messages
    keys = [_key(message) for message in echoed]
    origin = Origin(str(sidecar["protocol"]))
    messages: list[Message] = []
    done, is_complete = 0, len(echoed) == sidecar["count"]
    for region in regions:
        start, end = region.start, region.start + region.count
        if end > len(echoed) or _anchor(keys, start, end) != region.anchor:
            is_complete = False
            continue
        messages += echoed[done:start]
        part = echoed[start:end]
        messages += [_rebuild(recipe, part, origin) for recipe in region.recipes]
        done = end
    messages += echoed[done:]
    return tuple(messages), is_complete


def _rebuild(recipe: _Recipe, region: Sequence[Message], origin: Origin) -> Message:
    blocks: list[Block] = []
    for reference in recipe.blocks:
        if not isinstance(reference, _Reference):
            at, number = reference
            blocks.append(region[at].blocks[number])
        elif reference.of is not None:
            at, number = reference.of
            blocks.append(_patched(region[at].blocks[number], reference.set))
        elif reference.block is not UNSET:
            blocks.append(reference.block)
        else:
            raise ValueError("a block refers to a missing block")
    return structs.replace(recipe.head, blocks=tuple(blocks), origin=origin)


def _patched(block: Block, members: dict[str, Any]) -> Block:
    """The block with these members as the sidecar has them."""
    patch = msgspec.convert(members, _patch_type(type(block)))
    return structs.replace(block, **{name: getattr(patch, name) for name in members})


@cache
def _patch_type(kind: type[Struct]) -> type[Struct]:
    """A type with the fields of a block, all optional."""
    fields = [(f.name, f.type | UnsetType, UNSET) for f in structs.fields(kind)]
    return msgspec.defstruct(f"{kind.__name__}Patch", fields, forbid_unknown_fields=True)
