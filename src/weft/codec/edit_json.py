"""Change some values of a JSON text and keep every other byte.

The gateway changes single values of a client's body. Whitespace, the order of members, escapes and
the digits of numbers stay as the client wrote them. If items of a list are added, removed or moved,
or members of an object are removed, that list or object is written again, and only its unchanged
values keep their bytes. If the positions of the values in an object or list cannot be found, for
example because a member repeats, all of it is written again.
"""

import re
from array import array
from collections.abc import Sequence
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

from weft import exact_json
from weft.ids import canonical
from weft.lazy import lazy_pattern
from weft.model import JsonObject

_WHITESPACE = lazy_pattern(rb"[ \t\n\r]*")
_STRING = lazy_pattern(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)

WHITESPACE_BYTES = b" \t\n\r"
COMMA = ord(",")

Span = tuple[int, int]
Positions = Sequence[int]

_read_members = msgspec.json.Decoder(dict[str, Raw]).decode
_read_items = msgspec.json.Decoder(list[Raw]).decode


class PositionsNotFound(Exception):
    """The positions of the values in a text cannot be found, for example because a member repeats.

    The text itself may be valid JSON.
    """


class JsonLayout(Struct, frozen=True):
    """Positions in the text of a JSON object.

    `members` has the start and the end of each member's value. `starts` and `ends` have the
    positions of the items of the list `list_name`, a member of the object.
    """

    members: dict[str, Span]
    list_name: str
    starts: "array[int]"
    ends: "array[int]"

    def with_first_items(self, earlier: "JsonLayout", count: int) -> "JsonLayout":
        """The layout of a complete text.

        `self` is the layout of the same text without the first `count` items of its list. `earlier`
        is the layout of another text, which has the same bytes as the complete text up to its item
        with the index `count`.
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
        return JsonLayout(
            members,
            self.list_name,
            earlier.starts[:count] + _shifted(self.starts, shift),
            earlier.ends[:count] + _shifted(self.ends, shift),
        )


def find_layout(text: bytes, list_name: str) -> JsonLayout | None:
    """The layout of a JSON object's text; `None` if it has no list `list_name`, or a member
    repeats."""
    try:
        members = _member_spans(text)
        start, end = members[list_name]
        starts, ends = _item_spans(text[start:end])
    except (PositionsNotFound, msgspec.DecodeError, KeyError):
        return None
    return JsonLayout(members, list_name, _shifted(starts, start), _shifted(ends, start))


def _shifted(positions: Positions, shift: int) -> "array[int]":
    return array("q", [position + shift for position in positions])


def edit_json(text: bytes, old: Any, new: Any, layout: JsonLayout | None = None) -> bytes:
    """The JSON text of `new`, made from `text`, which is the JSON text of `old`.

    Values that are equal in `old` and `new` keep their bytes. `layout` is the layout of `text`, if
    it is known.
    """
    if _same(old, new):
        return text
    try:
        if isinstance(old, dict) and isinstance(new, dict):
            return _edit_object(text, cast(JsonObject, old), cast(JsonObject, new), layout)
        if isinstance(old, list) and isinstance(new, list):
            old_items, new_items = cast("list[Any]", old), cast("list[Any]", new)
            return _edit_array(text, old_items, new_items, *_item_spans(text), (0, len(text)))
    except (PositionsNotFound, msgspec.DecodeError):
        pass  # all of it is written again
    return exact_json.dumps(new)


def _edit_object(text: bytes, old: JsonObject, new: JsonObject, layout: JsonLayout | None) -> bytes:
    spans = _member_spans(text) if layout is None else layout.members
    if spans.keys() != old.keys():
        raise PositionsNotFound
    if not new:
        return b"{}"
    if any(key not in new for key in old):
        return _rewrite_object(text, spans, old, new)
    view = memoryview(text)  # slicing it does not copy; the text may be long
    pieces: list[bytes | memoryview] = []
    copied_until = 0
    for key, (start, end) in spans.items():
        if not _same(old[key], new[key]):
            member = _edit_member(text, key, (start, end), old, new, layout)
            pieces += [view[copied_until:start], member]
            copied_until = end
    added = b",".join(
        _write_member(key, exact_json.dumps(new[key])) for key in new if key not in old
    )
    members_end = max((end for _, end in spans.values()), default=text.index(b"{") + 1)
    comma = b"," if added and spans else b""
    return b"".join([*pieces, view[copied_until:members_end], comma, added, view[members_end:]])


def _edit_member(
    text: bytes, key: str, span: Span, old: JsonObject, new: JsonObject, layout: JsonLayout | None
) -> bytes:
    """The new text of one member's value. The layout has the positions of the items if this is the
    list `layout.list_name`."""
    if layout is None or layout.list_name != key or type(new[key]) is not list:
        return edit_json(text[slice(*span)], old[key], new[key])
    return _edit_array(text, old[key], new[key], layout.starts, layout.ends, span)


def _rewrite_object(text: bytes, spans: dict[str, Span], old: JsonObject, new: JsonObject) -> bytes:
    """The text of `new` with all its members; values that are equal in `old` keep their bytes."""
    members: list[bytes] = []
    for key, value in new.items():
        if key in old:
            start, end = spans[key]
            members.append(_write_member(key, edit_json(text[start:end], old[key], value)))
        else:
            members.append(_write_member(key, exact_json.dumps(value)))
    return b"{" + b",".join(members) + b"}"


def _edit_array(
    text: bytes, old: list[Any], new: list[Any], starts: Positions, ends: Positions, span: Span
) -> bytes:
    """The text of the array at `span`; `starts` and `ends` are the positions of its items."""
    if len(starts) != len(old):
        raise PositionsNotFound
    changed = _changed_in_place(old, new)
    if changed is not None:
        view = memoryview(text)
        pieces: list[bytes | memoryview] = []
        copied_until = span[0]
        for index in changed:
            start, end = starts[index], ends[index]
            pieces += [view[copied_until:start], edit_json(text[start:end], old[index], new[index])]
            copied_until = end
        return b"".join([*pieces, view[copied_until : span[1]]])
    unused = list(range(len(old)))
    items: list[bytes] = []
    for value in new:
        index = next((index for index in unused if _same(old[index], value)), None)
        if index is None:
            items.append(exact_json.dumps(value))
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
        if before is not after and not _same(before, after)  # `is` alone decides most items
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


def _write_member(key: str, value: bytes) -> bytes:
    return exact_json.dumps(key) + b":" + value


def _member_spans(text: bytes) -> dict[str, Span]:
    """The span of each member's value in the text of an object."""
    spans: dict[str, Span] = {}
    offset = _skip_whitespace(text, 0) + 1
    for key, value in _read_members(text).items():
        offset = _skip_whitespace(text, offset)
        if spans:
            offset = _skip_whitespace(text, _expect(text, offset, b","))
        match = _STRING.match(text, offset)
        # They differ after a repeated member, which `_read_members` returns only once.
        if match is None or exact_json.loads(match[0]) != key:
            raise PositionsNotFound
        offset = _skip_whitespace(text, _expect(text, _skip_whitespace(text, match.end()), b":"))
        spans[key] = (offset, offset + len(memoryview(value)))
        offset = spans[key][1]
    _expect(text, _skip_whitespace(text, offset), b"}")
    return spans


def _item_spans(text: bytes) -> tuple[list[int], list[int]]:
    """Where each item starts and ends in the text of an array."""
    starts: list[int] = []
    ends: list[int] = []
    offset = _skip_whitespace(text, 0) + 1
    for value in _read_items(text):
        # The conditions are a fast path. Most clients write no whitespace, and a list may have
        # thousands of items.
        if starts:
            offset = (
                offset + 1
                if text[offset] == COMMA
                else _expect(text, _skip_whitespace(text, offset), b",")
            )
        if text[offset] in WHITESPACE_BYTES:
            offset = _skip_whitespace(text, offset)
        starts.append(offset)
        offset += len(memoryview(value))
        ends.append(offset)
    _expect(text, _skip_whitespace(text, offset), b"]")
    return starts, ends


def _skip_whitespace(text: bytes, offset: int) -> int:
    match = _WHITESPACE.match(text, offset)
    return offset if match is None else match.end()


def _expect(text: bytes, offset: int, character: bytes) -> int:
    """The position after this character; raises `PositionsNotFound` if it is not there."""
    if text[offset : offset + 1] != character:
        raise PositionsNotFound
    return offset + 1
