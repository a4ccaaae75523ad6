"""Joins function calls whose arguments arrive in pieces:
https://cloud.google.com/vertex-ai/generative-ai/docs/reference/rest/v1/Content#FunctionCall

With `streamFunctionCallArguments`, a call is a series of parts:

    {"functionCall": {"name": "cook", "willContinue": true}, "thoughtSignature": "..."}
    {"functionCall": {"partialArgs": [{"jsonPath": "$.steps[0]", "stringValue": "Bo",
                                       "willContinue": true}], "willContinue": true}}
    {"functionCall": {"partialArgs": [{"jsonPath": "$.steps[0]", "stringValue": "il"}],
                      "willContinue": true}}
    {"functionCall": {}}

- A call continues in the next part if its `willContinue` is true. Parts without a name belong to
  the call that began last, or to the one with their `id`.
- Each of `partialArgs` has a value (`stringValue`, `numberValue`, `boolValue` or `nullValue`) and
  its place, a path of RFC 9535 with names and indexes only. Strings at the same place are joined.
  The `willContinue` of a value only says whether its string is complete.
- The last part may have values too, or no member at all. Some answers end without it: a call that
  is still open then is complete, unless the output limit cut the answer off.
"""

import re
from itertools import pairwise
from typing import Any, cast

from weft.codec.base import Losses, as_object
from weft.codec.read import json_text, objects, optional, path_prefix, wrong
from weft.codec.stream import Pieces, append_piece, join_pieces
from weft.errors import Refused
from weft.model import JsonObject

from .spelling import camel_members, read_spelling

MAX_DEPTH = 100
"""The deepest place of a value: deeper JSON cannot be written."""
MAX_GAP = 1000
"""How many items of a list may be left out before the next one: a short path must not make a long
list."""

STEP = re.compile(
    r"\.?(?P<name>[^.\[\]]+)"
    r"|\[\s*(?P<index>\d+)\s*\]"
    r"|\[\s*'(?P<single>(?:[^'\\]|\\.)*)'\s*\]"
    r'|\[\s*"(?P<double>(?:[^"\\]|\\.)*)"\s*\]'
)
ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}

VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")


def read_path(path: str) -> list[str | int]:
    """The names and indexes of a path, `$.steps[0]['a b']`; raises `Refused` for any other path."""
    steps: list[str | int] = []
    end = 1 if path.startswith("$") else 0
    while end < len(path):
        step = STEP.match(path, end)
        if step is None or len(steps) == MAX_DEPTH:
            break
        end = step.end()
        if step["index"] is not None:
            steps.append(int(step["index"][:10]))
        elif step["name"] is not None:
            steps.append(step["name"])
        else:
            quoted = step["single"] if step["single"] is not None else step["double"]
            steps.append(ESCAPE.sub(_unescape, quoted))
    if end < len(path) or not steps:
        raise Refused(f"{path[:100]!r} is not the path of an argument", param="jsonPath")
    return steps


def _unescape(match: re.Match[str]) -> str:
    if match[1] is not None:
        return chr(int(match[1], 16))
    return ESCAPES.get(match[2], match[2])


class Arguments:
    """The arguments of one call, as they grow. A string is `Pieces` until the end."""

    def __init__(self) -> None:
        self._root: JsonObject = {}
        self._has_open_string = False

    def replace(self, members: JsonObject) -> None:
        """Take whole members, which `args` has."""
        self._root.update(members)

    def add(self, raw: JsonObject, losses: Losses) -> None:
        """Take one of `partialArgs`; raises `Refused` if it has no place in the arguments."""
        raw = camel_members(raw)
        path = raw.get("jsonPath")
        if not isinstance(path, str):
            raise wrong("jsonPath", path, "a string")
        steps = read_path(path)
        member = next((name for name in VALUES if raw.get(name) is not None), None)
        if member is None and "nullValue" in raw:
            member = "nullValue"
        if member is None:  # for example an empty object or list; nobody can tell which
            losses.add(f"args.{path.removeprefix('$').lstrip('.')}", "null_value_dropped", path)
            return
        value = None if member == "nullValue" else raw[member]
        if member == "stringValue" and not isinstance(value, str):
            raise wrong("stringValue", value, "a string")
        self._set(steps, value, path)
        self._has_open_string = member == "stringValue" and raw.get("willContinue") is True

    def _set(self, steps: list[str | int], value: Any, path: str) -> None:
        container: Any = self._root
        for step, following in pairwise(steps):
            container = self._member(
                container, step, path, [] if isinstance(following, int) else {}
            )
        last = steps[-1]
        if isinstance(value, str):
            old = self._member(container, last, path, "")
            if not isinstance(old, str | Pieces):
                raise Refused(f"{path[:100]!r} has a string after another value", param="jsonPath")
            value = append_piece(old, value)
        else:
            self._member(container, last, path, value)
        container[last] = value

    def _member(self, container: Any, step: str | int, path: str, default: Any) -> Any:
        """The value of one step; it is added, with this default, if there is none."""
        if isinstance(step, int) and isinstance(container, list):
            items = cast("list[Any]", container)
            if step > len(items) + MAX_GAP:
                raise Refused(f"the index in {path[:100]!r} is too large", param="jsonPath")
            items += [None] * (step + 1 - len(items))
            if items[step] is None:
                items[step] = default
            return items[step]
        if isinstance(step, str) and isinstance(container, dict):
            return cast(JsonObject, container).setdefault(step, default)
        raise Refused(f"{path[:100]!r} goes through a value of another type", param="jsonPath")

    def value(self) -> JsonObject:
        return join_pieces(self._root)

    def cut_text(self) -> str:
        """The JSON text so far, without the end of what is still open."""
        text = json_text(self.value(), "args").rstrip("}]")
        return text.removesuffix('"') if self._has_open_string else text


class StreamedCall:
    """A call that is arriving: the members of its parts, its name and id, and its arguments."""

    def __init__(self) -> None:
        self.members: JsonObject = {}
        self.call: JsonObject = {}
        self.arguments = Arguments()

    def add(self, part: JsonObject, call: JsonObject, losses: Losses) -> None:
        for key, value in part.items():
            if key != "functionCall":
                self.members.setdefault(key, value)
        for key, value in call.items():
            if key not in ("args", "partialArgs", "willContinue"):
                self.call.setdefault(key, value)
        args = as_object(call.get("args"))
        if args is not None:
            self.arguments.replace(args)
        with path_prefix("functionCall"):
            for raw in objects(call.get("partialArgs") or [], "partialArgs"):
                self.arguments.add(raw, losses)

    def part(self) -> JsonObject:
        """The part of the whole call."""
        call = {**self.call, "args": self.arguments.value()}
        return {"functionCall": call, **self.members}


class CallJoiner:
    """Turns the parts of an answer into whole parts. `_open` are the calls that continue."""

    def __init__(self, losses: Losses) -> None:
        self._open: list[StreamedCall] = []
        self._losses = losses

    def feed(self, raw: JsonObject) -> list[JsonObject]:
        """The whole parts that this part completes; any other part is whole by itself."""
        if "functionCall" not in raw and "function_call" not in raw:
            return [raw]
        part, _ = read_spelling(raw)
        call = as_object(part.get("functionCall"))
        if call is None:
            return [raw]
        streamed = self._find(call)
        if streamed is None:
            continues = call.get("willContinue") is True
            if not continues and not call.get("partialArgs"):
                is_end = not call.keys() - {"willContinue"}
                return [] if is_end else [raw]
            optional(call, "name", str)
            if not call.get("name"):
                raise wrong("functionCall.name", call.get("name"), "a string")
            streamed = StreamedCall()
            self._open.append(streamed)
        streamed.add(part, call, self._losses)
        if call.get("willContinue") is True:
            return []
        self._open.remove(streamed)
        return [streamed.part()]

    def close(self) -> list[StreamedCall]:
        """The calls that are still open at the end of the answer."""
        calls, self._open = self._open, []
        return calls

    def _find(self, call: JsonObject) -> StreamedCall | None:
        """The open call that this one continues."""
        name, call_id = call.get("name"), call.get("id")
        for streamed in reversed(self._open):
            same_id = call_id and call_id == streamed.call.get("id")
            other_id = call_id and streamed.call.get("id") and not same_id
            if same_id or (not name and not other_id):
                return streamed
            if name == streamed.call.get("name") and not other_id and "args" not in call:
                return streamed
        return None
