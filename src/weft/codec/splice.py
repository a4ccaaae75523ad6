"""Change some values of a JSON text and keep every other byte.

The gateway changes single values of a client's body. White space, the order of members, escapes and
the digits of numbers stay as the client wrote them. If items of a list are added, removed or moved,
or members of an object are removed, that list or object is written again, and only its unchanged
values keep their bytes.
"""

import re
from array import array
from collections.abc import Sequence
from typing import Any, cast

import msgspec
import orjson
from msgspec import Raw, Struct

from weft.ids import canonical
from weft.lazy import lazy_pattern
from weft.model import JsonObject

_BLANKS = lazy_pattern(rb"[ \t\n\r]*")
_STRING = lazy_pattern(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)

BLANK_BYTES = b" \t\n\r"
COMMA = ord(",")

Span = tuple[int, int]
Positions = Sequence[int]

_read_members = msgspec.json.Decoder(dict[str, Raw]).decode
_read_items = msgspec.json.Decoder(list[Raw]).decode


class Irregular(Exception):
    """A text whose values cannot be found by position, for example because a member repeats."""


class Layout(Struct, frozen=True):
    """Where the values of a JSON object's members are in its text, and the items of its list
    `list_name`."""

    members: dict[str, Span]
    list_name: str
    starts: "array[int]"
    ends: "array[int]"

    def with_first_items(self, earlier: "Layout", count: int) -> "Layout":
        """The layout of this text after the first `count` items of `earlier` are inserted at the
        start of its list.

        Before the list, both texts are equal.
        """
        shift = earlier.starts[count] - earlier.starts[0]
        list_start = self.starts[0]
        members = {
            name: (
                start if start < list_start else start + shift,
                end if end < list_start else end + shift,
            )
            for name, (start, end) in self.members.items()
        }
        return Layout(
            members,
            self.list_name,
            earlier.starts[:count] + _shifted(self.starts, shift),
            earlier.ends[:count] + _shifted(self.ends, shift),
        )


def find_layout(text: bytes, list_name: str) -> Layout | None:
    """The layout of a JSON object; `None` if it has no list `list_name`, or a member repeats."""
    try:
        members = _member_spans(text)
        start, end = members[list_name]
        starts, ends = _item_spans(text[start:end])
    except (Irregular, msgspec.DecodeError, KeyError):
        return None
    return Layout(members, list_name, _shifted(starts, start), _shifted(ends, start))


def _shifted(positions: Positions, shift: int) -> "array[int]":
    return array("q", [position + shift for position in positions])


def splice(text: bytes, old: Any, new: Any, layout: Layout | None = None) -> bytes:
    """The JSON text of `old`, changed to mean `new`; values equal in both keep their bytes.

    `layout` is the layout of the text, if it is known.
    """
    if _same(old, new):
        return text
    try:
        if isinstance(old, dict) and isinstance(new, dict):
            return _splice_object(text, cast(JsonObject, old), cast(JsonObject, new), layout)
        if isinstance(old, list) and isinstance(new, list):
            old_items, new_items = cast("list[Any]", old), cast("list[Any]", new)
            return _splice_array(text, old_items, new_items, *_item_spans(text), (0, len(text)))
    except (Irregular, msgspec.DecodeError):
        pass
    return orjson.dumps(new)


def _splice_object(text: bytes, old: JsonObject, new: JsonObject, layout: Layout | None) -> bytes:
    spans = _member_spans(text) if layout is None else layout.members
    if spans.keys() != old.keys():
        raise Irregular
    if not new:
        return b"{}"
    if any(key not in new for key in old):
        return _rewrite_object(text, spans, old, new)
    view = memoryview(text)  # slicing it does not copy; the text may be long
    pieces: list[bytes | memoryview] = []
    copied = 0
    for key, (start, end) in spans.items():
        if not _same(old[key], new[key]):
            member = _splice_member(text, key, (start, end), old, new, layout)
            pieces += [view[copied:start], member]
            copied = end
    added = b",".join(_member(key, orjson.dumps(new[key])) for key in new if key not in old)
    members_end = max((end for _, end in spans.values()), default=text.index(b"{") + 1)
    comma = b"," if added and spans else b""
    return b"".join([*pieces, view[copied:members_end], comma, added, view[members_end:]])


def _splice_member(
    text: bytes, key: str, span: Span, old: JsonObject, new: JsonObject, layout: Layout | None
) -> bytes:
    """The new text of one member's value; the positions of list items come from the layout."""
    if layout is None or layout.list_name != key or type(new[key]) is not list:
        return splice(text[slice(*span)], old[key], new[key])
    return _splice_array(text, old[key], new[key], layout.starts, layout.ends, span)


def _rewrite_object(text: bytes, spans: dict[str, Span], old: JsonObject, new: JsonObject) -> bytes:
    """The object with members removed; values that are equal in both keep their bytes."""
    members: list[bytes] = []
    for key, value in new.items():
        if key in old:
            start, end = spans[key]
            members.append(_member(key, splice(text[start:end], old[key], value)))
        else:
            members.append(_member(key, orjson.dumps(value)))
    return b"{" + b",".join(members) + b"}"


def _splice_array(
    text: bytes, old: list[Any], new: list[Any], starts: Positions, ends: Positions, span: Span
) -> bytes:
    """The text of the array at `span`; `starts` and `ends` are the positions of its items."""
    if len(starts) != len(old):
        raise Irregular
    changed = _changed_in_place(old, new)
    if changed is not None:
        view = memoryview(text)
        pieces: list[bytes | memoryview] = []
        copied = span[0]
        for index in changed:
            start, end = starts[index], ends[index]
            pieces += [view[copied:start], splice(text[start:end], old[index], new[index])]
            copied = end
        return b"".join([*pieces, view[copied : span[1]]])
    unused = list(range(len(old)))
    items: list[bytes] = []
    for value in new:
        index = next((index for index in unused if _same(old[index], value)), None)
        if index is None:
            items.append(orjson.dumps(value))
        else:
            unused.remove(index)
            items.append(text[starts[index] : ends[index]])
    return b"[" + b",".join(items) + b"]"


def _changed_in_place(old: list[Any], new: list[Any]) -> list[int] | None:
    """The indices of the items that differ; `None` if items were added, removed or moved."""
    if len(old) != len(new):
        return None
    pairs = enumerate(zip(old, new, strict=True))
    changed = [
        index
        for index, (before, after) in pairs
        if before is not after and not _same(before, after)
    ]
    if len(changed) < 2:
        return changed
    # A set of texts, because comparing every pair takes too long if many differ.
    old_texts = {canonical(old[index]) for index in changed}
    is_moved = any(canonical(new[index]) in old_texts for index in changed)
    return None if is_moved else changed


def _same(old: Any, new: Any) -> bool:
    """Whether two values are the same JSON; `==` alone is not enough, because `[1] == [True]`."""
    return old is new or (old == new and _has_same_types(old, new))


def _has_same_types(old: Any, new: Any) -> bool:
    """Whether two equal values have the same types, with everything inside them."""
    if type(old) is not type(new):
        return False
    # A string equals only strings, so the loops skip strings: that halves their time.
    if type(new) is dict:
        for key, value in old.items():
            if type(value) is not str and not _has_same_types(value, new[key]):
                return False
    elif type(new) is list:
        for index, value in enumerate(old):
            if type(value) is not str and not _has_same_types(value, new[index]):
                return False
    return True


def _member(key: str, value: bytes) -> bytes:
    return orjson.dumps(key) + b":" + value


def _member_spans(text: bytes) -> dict[str, Span]:
    """The span of each member's value in the text of an object."""
    spans: dict[str, Span] = {}
    offset = _skip_blanks(text, 0) + 1
    for key, value in _read_members(text).items():
        offset = _skip_blanks(text, offset)
        if spans:
            offset = _skip_blanks(text, _expect(text, offset, b","))
        name = _STRING.match(text, offset)
        if name is None or orjson.loads(name[0]) != key:
            raise Irregular
        offset = _skip_blanks(text, _expect(text, _skip_blanks(text, name.end()), b":"))
        spans[key] = (offset, offset + len(memoryview(value)))
        offset = spans[key][1]
    _expect(text, _skip_blanks(text, offset), b"}")
    return spans


def _item_spans(text: bytes) -> tuple[list[int], list[int]]:
    """Where each item starts and ends in the text of an array."""
    starts: list[int] = []
    ends: list[int] = []
    offset = _skip_blanks(text, 0) + 1
    for value in _read_items(text):
        if starts:
            offset = (
                offset + 1
                if text[offset] == COMMA
                else _expect(text, _skip_blanks(text, offset), b",")
            )
        if text[offset] in BLANK_BYTES:
            offset = _skip_blanks(text, offset)
        starts.append(offset)
        offset += len(memoryview(value))
        ends.append(offset)
    _expect(text, _skip_blanks(text, offset), b"]")
    return starts, ends


def _skip_blanks(text: bytes, offset: int) -> int:
    match = _BLANKS.match(text, offset)
    return offset if match is None else match.end()


def _expect(text: bytes, offset: int, character: bytes) -> int:
    """The position after this character; raises `Irregular` if it is not there."""
    if text[offset : offset + 1] != character:
        raise Irregular
    return offset + 1
