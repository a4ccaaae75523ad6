"""The sidecar: what a translation lost, so that the reverse translation restores the original.

Protocol B cannot express everything that protocol A can. To make a sidecar, translate A to B,
decode B again, and compare with the original request: the difference is the sidecar. It is plain
JSON that the caller keeps beside the translated body. Given to the reverse translation, it
restores the original message by message.

Text is not stored twice: a message is rebuilt from references to the blocks that survived in B,
plus the members that did not. Each region has a digest of the messages it replaces. So a
conversation that continued keeps its new turns, and one that was edited is not overwritten.

`calls` has the tools that were changed for the target, to restore their names in answers and later
calls. An answer has a sidecar of its own. Its `answers` has the complete answer, under a key that
is computed from what every client sends back: the text and the calls.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from typing import Any, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType, field, structs

from weft import exact_json
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

from .base import RenamedTools
from .calls import restore_calls
from .echoes import AnswerIndex, digest, echo_key, is_plain, restore_echoes

Region = tuple[int, int, int, int]
"""Start and end (exclusive) in the first list, and start and end in the second."""


def differing_regions(ours: Sequence[str], theirs: Sequence[str]) -> Iterator[Region]:
    """The regions that differ, in order; everything between them is equal.

    The n-th occurrence of a key in one list is paired with its n-th occurrence in the other. The
    longest sequence of pairs that is in order in both lists is taken as equal. The regions between
    are trimmed at both ends, and are not always the smallest possible.

    Not `difflib`: it is slow for lists with many equal items, as conversations have. This takes
    n log n time.
    """
    i = j = 0
    for same_i, same_j in [*_longest_increasing(_pairs(ours, theirs)), (len(ours), len(theirs))]:
        region = _trimmed(ours, theirs, (i, same_i, j, same_j))
        if region[0] < region[1] or region[2] < region[3]:
            yield region
        i, j = same_i + 1, same_j + 1


def _pairs(ours: Sequence[str], theirs: Sequence[str]) -> list[tuple[int, int]]:
    """The positions of each occurrence of a key in both lists, in the order of the first."""
    positions = {key: position for position, key in enumerate(_counted(theirs))}
    return [
        (position, positions[key])
        for position, key in enumerate(_counted(ours))
        if key in positions
    ]


def _counted(keys: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Each key with the number of its occurrence, from 1."""
    counts: dict[str, int] = {}
    for key in keys:
        counts[key] = counts.get(key, 0) + 1
        yield key, counts[key]


def _longest_increasing(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest subsequence of pairs whose second members increase; the first ones always do.

    https://en.wikipedia.org/wiki/Longest_increasing_subsequence
    """
    ends: list[int] = []  # for each length: the smallest second member that a subsequence ends in
    end_numbers: list[int] = []  # the number of the pair with that member
    predecessors: list[int] = []
    for number, (_, position) in enumerate(pairs):
        length = bisect_left(ends, position)
        predecessors.append(end_numbers[length - 1] if length else -1)
        ends[length : length + 1] = [position]
        end_numbers[length : length + 1] = [number]
    longest: list[tuple[int, int]] = []
    number = end_numbers[-1] if end_numbers else -1
    while number >= 0:
        longest.append(pairs[number])
        number = predecessors[number]
    return longest[::-1]


def _trimmed(ours: Sequence[str], theirs: Sequence[str], region: Region) -> Region:
    """The region without the equal items at its start and end."""
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
    write_back: Callable[[Request], JsonObject],
    body: JsonObject,
    renamed_tools: RenamedTools | None = None,
    *,
    names_model: bool = True,
) -> JsonObject:
    """The difference between a request and its translation; empty if there is none.

    - `original`, `body`: the request before the translation, decoded and as JSON.
    - `echoed`: the translated body, decoded again.
    - `write_back`: writes a request in the original's protocol.
    - `renamed_tools`: the tools that were changed for the target.
    - `names_model`: whether the translated body contains the model's name.
    """
    echoed = _restore_tool_names(echoed, renamed_tools or {})
    calls = exact_json.to_builtins(renamed_tools or {})
    try:
        written = write_back(echoed)
    except Refused:
        written = {}  # one vendor may accept what the other refuses
    if written == body:
        needed: JsonObject = {} if names_model else {"model": original.model}
        if calls:
            needed["calls"] = calls
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
            "are": None if tools == body.get("tools") else exact_json.to_builtins(original.tools),
        }
    if calls:
        sidecar["calls"] = calls
    if original.marks:
        sidecar["marks"] = [[list(position), value] for position, value in original.marks.items()]
    return _without_numbers(sidecar)


def _without_numbers(sidecar: JsonObject) -> JsonObject:
    """The sidecar as every program can write it: `numbers` has those whose spelling is needed."""
    plain, numbers = exact_json.split_numbers(sidecar)
    if numbers:
        plain["numbers"] = [[list(steps), text] for steps, text in numbers]
    return plain


def _with_numbers(sidecar: JsonObject) -> JsonObject:
    if "numbers" not in sidecar:
        return sidecar
    plain = {key: value for key, value in sidecar.items() if key != "numbers"}
    return exact_json.join_numbers(
        plain, [(tuple(steps), text) for steps, text in sidecar["numbers"]]
    )


def apply_sidecar(echoed: Request, sidecar: JsonObject) -> Request:
    """The original request, plus everything that was added since."""
    if not sidecar:
        return echoed
    check_sidecar(sidecar)
    try:
        sidecar = _with_numbers(sidecar)
        echoed = _restore_tool_names(echoed, renamed_tools_of(sidecar))
        if "answers" in sidecar:
            echoed = _restore_answers(echoed, sidecar["answers"])
        return _restore_request(echoed, sidecar) if "messages" in sidecar else echoed
    except (KeyError, IndexError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise Refused(f"is damaged: {error}", param="sidecar") from None


def check_sidecar(sidecar: Any) -> None:
    """Raise `Refused` if a value is not a sidecar of this version."""
    if not isinstance(sidecar, dict) or cast(JsonObject, sidecar).get("weft") != VERSION:
        raise Refused("is not a sidecar of this version of weft", param="sidecar")


def renamed_tools_of(sidecar: JsonObject | None) -> RenamedTools:
    """The tools that were changed for the target; raises `Refused` if the sidecar is damaged."""
    if not sidecar:
        return {}
    check_sidecar(sidecar)
    try:
        return msgspec.convert(sidecar.get("calls", {}), RenamedTools)
    except msgspec.ValidationError as error:
        raise Refused(f"is damaged: {error}", param="sidecar.calls") from None


def model_of(sidecar: JsonObject) -> str | None:
    """The model of the original request, for a body that does not name its model."""
    check_sidecar(sidecar)
    model = sidecar.get("model")
    return model if isinstance(model, str) else None


def _restore_tool_names(echoed: Request, renamed_tools: RenamedTools) -> Request:
    if not renamed_tools:
        return echoed
    messages = tuple(restore_calls(message, renamed_tools) for message in echoed.messages)
    return structs.replace(echoed, messages=messages)


def make_answer_sidecar(answer: Message, echoed: Message) -> JsonObject:
    """The parts of an answer that a client of another protocol cannot send back; empty if none.

    `echoed` is the answer as that client sees it. Some clients echo the whole answer, others only
    its text and calls. So the key is computed from text and calls only, and an answer with thinking
    or vendor members is always stored.
    """
    if is_plain(answer) and structs.replace(answer, origin=None) == structs.replace(
        echoed, origin=None
    ):
        return {}
    stored = {"key": echo_key(echoed.blocks), "is": exact_json.to_builtins(answer)}
    return {"weft": VERSION, "answers": [_without_numbers(stored)]}


def merge_answers(*sidecars: JsonObject) -> JsonObject:
    """One sidecar for the answers of a whole conversation, oldest first."""
    answers = [answer for sidecar in sidecars for answer in sidecar.get("answers", ())]
    return {"weft": VERSION, "answers": answers} if answers else {}


def _restore_answers(echoed: Request, answers: Any) -> Request:
    index = AnswerIndex()
    for answer in map(_with_numbers, answers):
        message = msgspec.convert(answer["is"], Message)
        index.add(str(answer["key"]), message)
    return restore_echoes(echoed, index)


def _restore_request(echoed: Request, sidecar: JsonObject) -> Request:
    """The request with messages, parameters, tools and marks of the original, where they are still
    the same."""
    protocol = str(sidecar["protocol"])
    messages, is_complete = _restore_messages(echoed.messages, sidecar)
    params = sidecar["params"]
    has_same_params = params["key"] == digest(echoed.params)
    raw = {protocol: params["raw"]} if has_same_params else {}
    tools, stored = echoed.tools, sidecar.get("tools")
    if stored is not None and stored["are"] is not None and stored["key"] == digest(echoed.tools):
        tools = msgspec.convert(stored["are"], tuple[Tool, ...])
    marks = {tuple(position): value for position, value in sidecar.get("marks", ())}
    wire = echoed.wire
    if is_complete and has_same_params:
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


def _key(message: Message) -> str:
    """A digest of a message, without its origin."""
    return digest(message if message.origin is None else structs.replace(message, origin=None))


def _anchor(keys: Sequence[str], start: int, end: int) -> str:
    """A digest of the messages that a region replaces, and of the one before it."""
    return sha256("".join(keys[max(0, start - 1) : end]).encode()).hexdigest()[:16]


def _regions(original: Sequence[Message], echoed: Sequence[Message]) -> list[Any]:
    """The regions to restore: start and length in `echoed`, anchor, and recipes."""
    ours, theirs = [_key(m) for m in original], [_key(m) for m in echoed]
    return [
        [
            start,
            end - start,
            _anchor(theirs, start, end),
            _recipes(original[i:j], echoed[start:end]),
        ]
        for i, j, start, end in differing_regions(ours, theirs)
    ]


def _recipes(original: Sequence[Message], region: Sequence[Message]) -> list[JsonObject]:
    """How to rebuild each original message from the blocks of a region."""
    available = _RegionBlocks(region)
    recipes: list[JsonObject] = []
    for message in original:
        head = exact_json.to_builtins(structs.replace(message, blocks=(), origin=None))
        recipes.append(
            {"head": head, "blocks": [available.refer(block) for block in message.blocks]}
        )
    return recipes


class _RegionBlocks:
    """The blocks of a region. Each can be used once: as it is, or with a patch if only its text is
    equal."""

    def __init__(self, region: Sequence[Message]) -> None:
        self._unused: dict[Address, Block] = {}
        self._by_content: dict[str, deque[Address]] = {}
        self._by_text: dict[str, deque[Address]] = {}
        for number, message in enumerate(region):
            for index, block in enumerate(message.blocks):
                self._unused[number, index] = block
                self._by_content.setdefault(digest(block), deque()).append((number, index))
                self._by_text.setdefault(_text_key(block), deque()).append((number, index))

    def refer(self, block: Block) -> Any:
        """A reference to an equal block, a reference with a patch, or the block itself."""
        address = self._take(self._by_content.get(digest(block)))
        if address is not None:
            del self._unused[address]
            return list(address)
        address = self._take(self._by_text.get(_text_key(block)))
        if address is None:
            return {"is": exact_json.to_builtins(block)}
        unused = self._unused.pop(address)
        patch = {
            name: exact_json.to_builtins(getattr(block, name))
            for name in block.__struct_fields__
            if getattr(block, name) != getattr(unused, name)
        }
        return {"of": list(address), "set": patch}

    def _take(self, addresses: deque[Address] | None) -> Address | None:
        """The first of these addresses that is unused; `None` if there is none."""
        while addresses:
            address = addresses.popleft()
            if address in self._unused:
                return address
        return None


def _text_key(block: Block) -> str:
    """A digest of the type and the long texts of a block. Blocks with the same key differ only in
    members that are short enough for a patch."""
    texts = [getattr(block, name, None) for name in ("text", "content", "arguments")]
    return digest([type(block).__name__, texts])


class _Reference(Struct):
    """A block of the original: either the address of a block that came back (`of`) with the members
    to restore (`set`), or the whole block (`is`)."""

    of: Address | None = None
    set: dict[str, Any] = {}
    block: Block | UnsetType = field(default=UNSET, name="is")


class _Recipe(Struct):
    """How to rebuild a message. An address alone means a block that came back unchanged."""

    head: Message
    blocks: list[Address | _Reference]


class _Region(Struct, array_like=True):
    start: int
    count: int
    anchor: str
    recipes: list[_Recipe]


class _Regions(Struct):
    """The regions of a sidecar, typed so that msgspec checks and converts them in one call."""

    messages: list[_Region]


def _restore_messages(
    echoed: Sequence[Message], sidecar: JsonObject
) -> tuple[tuple[Message, ...], bool]:
    """The messages with the regions restored that are still unchanged, and whether all regions
    were."""
    regions = msgspec.convert({"messages": sidecar["messages"]}, _Regions).messages
    keys = [_key(message) for message in echoed]
    origin = Origin(str(sidecar["protocol"]))
    messages: list[Message] = []
    restored_until, is_complete = 0, len(echoed) == sidecar["count"]
    for region in regions:
        start, end = region.start, region.start + region.count
        if end > len(echoed) or _anchor(keys, start, end) != region.anchor:
            is_complete = False
            continue
        messages += echoed[restored_until:start]
        messages += [_rebuild(recipe, echoed[start:end], origin) for recipe in region.recipes]
        restored_until = end
    messages += echoed[restored_until:]
    return tuple(messages), is_complete


def _rebuild(recipe: _Recipe, region: Sequence[Message], origin: Origin) -> Message:
    blocks: list[Block] = []
    for reference in recipe.blocks:
        if not isinstance(reference, _Reference):
            number, index = reference
            blocks.append(region[number].blocks[index])
        elif reference.of is not None:
            number, index = reference.of
            blocks.append(_patched(region[number].blocks[index], reference.set))
        elif reference.block is not UNSET:
            blocks.append(reference.block)
        else:
            raise ValueError("a block refers to a missing block")
    return structs.replace(recipe.head, blocks=tuple(blocks), origin=origin)


def _patched(block: Block, members: dict[str, Any]) -> Block:
    """The block with these members, which are plain JSON values."""
    patch = msgspec.convert(members, _patch_type(type(block)))
    return structs.replace(block, **{name: getattr(patch, name) for name in members})


@cache
def _patch_type(kind: type[Struct]) -> type[Struct]:
    """A type with the fields of a block, all optional."""
    fields = [(f.name, f.type | UnsetType, UNSET) for f in structs.fields(kind)]
    return msgspec.defstruct(f"{kind.__name__}Patch", fields, forbid_unknown_fields=True)
