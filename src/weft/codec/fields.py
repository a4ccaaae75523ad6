"""One table per protocol lists its parameters.

A row has a parameter's name in the model, its member in the protocol's body, and the conversions.
The decoder, the encoder, the known members, the paths in loss reports and the list of supported
parameters all come from this table.

    Field("top_k", int)                             the same name in both
    Field("max_tokens", int, "max_output_tokens")   another name
    Field("user", str, "metadata.user_id")          a nested member
    Field("stop", list, "stop_sequences", read=read_strings, write=write_list)
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, cast

from msgspec import Struct

from weft.errors import Refused
from weft.model import JsonObject, Params, Reasoning, Request

from .base import Losses, Target
from .read import inside, optional, optional_object, wrong
from .reports import report_params

REASONING = "reasoning."
NO_TOOLS: list[JsonObject] = []

Tree = dict[str, "Tree"]
"""Known members by name; the members of a leaf belong to its field."""


class Reading:
    """A body while its parameters are read.

    `values` are the parameters so far, by their names in the model. `rest` has the values that no
    parameter takes, by path; `None` if only the form is lost. `path` is the member that is being
    read.
    """

    def __init__(self, body: JsonObject) -> None:
        self.body = body
        self.values: dict[str, Any] = {}
        self.rest: dict[str, Any] = {}
        self.unread: set[str] = set()
        self.path = ""

    def leave(self, member: str = "") -> None:
        """Leave this field, or this member of it, as a vendor's member."""
        self.unread.add(f"{self.path}.{member}" if member else self.path)

    def note_form(self, path: str = "") -> None:
        """Note that another protocol will spell this value differently."""
        self.rest[path or self.path] = None

    def keep_others(self, raw: JsonObject, known: Collection[str], step: str = "") -> None:
        """Keep the members of an object that the field does not take."""
        base = f"{self.path}.{step}" if step else self.path
        for key, value in raw.items():
            if key not in known:
                self.rest[f"{base}.{key}"] = value


class Writing(Struct):
    """A body while its parameters are written.

    `params` are the caller's, within the limits of the target. `tools` are the written tools.
    """

    request: Request
    params: Params
    target: Target
    losses: Losses
    tools: list[JsonObject] = NO_TOOLS
    body: JsonObject = {}


Read = Callable[[Any, Reading], Any]
"""Turns a member's value into the parameter's; `None` means that there is no value."""

Write = Callable[[Any, Writing], Any]
"""Turns a parameter into the value of its member; `None` writes nothing."""


def copy(value: Any, _writing: Writing) -> Any:
    return value


class Field(Struct, frozen=True):
    """One parameter of a protocol.

    - `name`: its name in the model, a field of `Params` or of `Reasoning` (`reasoning.effort`).
    - `kind`: the JSON type that is checked before `read`.
    - `path`: the member, dotted; empty for the same name, `None` if it is not in the body.
    - `read`, `write`: conversions. Without `write`, another field or the caller writes the member.
    - `inner`: members of the value that the field takes, each with the parameter that it holds.
    - `older`: an earlier name of the member, still read.
    """

    name: str
    kind: type[Any] | None = None
    path: str | None = ""
    read: Read | None = None
    write: Write | None = copy
    inner: Mapping[str, str | None] = {}
    older: str | None = None


class Row(Struct, frozen=True):
    """A field with its path taken apart."""

    field: Field
    path: str
    containers: tuple[str, ...]
    member: str
    first: str
    name: str
    inner_name: str


class FieldTable:
    """The parameters of one protocol.

    - `known`: the members of a body that a decoder reads, with `members`, which hold no parameter.
    - `paths`: the member of each parameter.
    - `supported`: the parameters that the protocol can express.

    `spell` turns any spelling of a member's name into the usual one, `respell` a path into that of
    a body: for a protocol that takes two spellings.
    """

    def __init__(
        self,
        *fields: Field,
        members: Iterable[str] = (),
        spell: Callable[[str], str] | None = None,
        respell: Callable[[JsonObject, str], str] | None = None,
    ) -> None:
        self.tree: Tree = {name: {} for name in members}
        self.paths: dict[str, str] = {}
        self.supported = frozenset(field.name.partition(".")[0] for field in fields)
        self._older = {field.name: field.older for field in fields if field.older is not None}
        self._spell = spell
        self._respell = respell
        self._rows = tuple(map(self._add, fields))
        self.known = frozenset(self.tree)
        self._leaves = frozenset(name for name, inner in self.tree.items() if not inner)

    def _add(self, field: Field) -> Row:
        name, _, inner_name = field.name.partition(".")
        if field.path is None:
            return Row(field, "", (), "", "", name, inner_name)
        path = field.path or field.name
        _grow(self.tree, path)
        self.paths[field.name] = path
        for inner, parameter in field.inner.items():
            _grow(self.tree, f"{path}.{inner}")
            if parameter is not None:
                self.paths[parameter] = f"{path}.{inner}"
        if field.older is not None:
            self.tree.setdefault(field.older, {})
        *containers, member = path.split(".")
        first = path.partition(".")[0]
        return Row(field, path, tuple(containers), member, first, name, inner_name)

    def path(self, name: str, body: JsonObject | None = None) -> str:
        """The path of a parameter in this body."""
        head = name.partition(".")[0]
        older = self._older.get(name)
        if older is not None and body and older in body and self.paths[name] not in body:
            return older
        path = self.paths.get(name) or self.paths.get(head, name)
        return path if self._respell is None or body is None else self._respell(body, path)

    def decode(self, body: JsonObject) -> tuple[Params, dict[str, Any]]:
        """The parameters of a body, and the remaining values by path."""
        usual_body = body if self._spell is None else self._usual(body, self.tree, self._spell)
        reading = Reading(usual_body)
        try:
            for row in self._rows:
                # Most parameters are absent from most bodies: do not look further for those.
                if row.member and (row.first in usual_body or row.field.older in usual_body):
                    _read(row, reading)
        except Refused as error:
            if self._respell is None or error.param is None:
                raise
            path = self._respell(body, error.param)
            raise Refused(error.message, param=path, status=error.status, type=error.type) from None
        rest: dict[str, Any] = {}
        if reading.unread or self._spell is not None or not body.keys() <= self._leaves:
            self._collect(body, self.tree, "", "", rest, reading.unread)
        for path, value in reading.rest.items():
            rest[path if self._respell is None else self._respell(body, path)] = value
        return _params(reading.values), rest

    def _usual(self, body: JsonObject, tree: Tree, spell: Callable[[str], str]) -> JsonObject:
        usual: JsonObject = {}
        for key, value in body.items():
            name = spell(key)
            inner = tree.get(name)
            if inner and isinstance(value, dict):
                value = self._usual(cast(JsonObject, value), inner, spell)
            usual[name] = value
        return usual

    def _collect(
        self,
        raw: JsonObject,
        tree: Tree,
        path: str,
        shown: str,
        rest: dict[str, Any],
        unread: set[str],
    ) -> None:
        """Keep the members that no field takes; `shown` is the path as the body spells it."""
        for key, value in raw.items():
            name = key if self._spell is None else self._spell(key)
            inner = tree.get(name)
            if inner is None or path + name in unread:
                rest[shown + key] = value
            elif inner and isinstance(value, dict):
                fields = cast(JsonObject, value)
                self._collect(fields, inner, f"{path}{name}.", f"{shown}{key}.", rest, unread)

    def encode(self, writing: Writing) -> JsonObject:
        """The members for these parameters; what they cannot express is reported."""
        writing.body = {}
        params = writing.params
        for row in self._rows:
            value: Any = getattr(params, row.name)
            if value is not None and row.inner_name:
                value = getattr(value, row.inner_name)
            write = row.field.write
            if value is None or write is None:
                continue
            written = value if write is copy else write(value, writing)
            if written is None:
                continue
            holder = writing.body
            for step in row.containers:
                holder = holder.setdefault(step, {})
            if isinstance(written, dict) and isinstance(holder.get(row.member), dict):
                holder[row.member] |= written
            else:
                holder[row.member] = written
        report_params(writing.request, self.supported, writing.losses)
        return writing.body


def _grow(tree: Tree, path: str) -> None:
    for step in path.split("."):
        tree = tree.setdefault(step, {})


def _read(row: Row, reading: Reading) -> None:
    field, raw = row.field, reading.body
    for number, step in enumerate(row.containers):
        try:
            raw = optional_object(raw, step)
        except Refused as error:
            raise _under(row.containers[:number], error) from None
    try:
        value = raw.get(row.member) if field.kind is None else optional(raw, row.member, field.kind)
        reading.path = row.path
        if field.older is not None:
            value = _older_value(field, field.older, value, reading)
    except Refused as error:
        raise _under(row.containers, error) from None
    if field.read is not None and value is not None:
        if value == {}:
            return
        try:
            value = field.read(value, reading)
        except Refused as error:
            raise inside(reading.path, error) from None
    if value is not None:
        reading.values[field.name] = value


def _older_value(field: Field, older: str, value: Any, reading: Reading) -> Any:
    """The value, or that of the member's older name; with both, the older one is left over."""
    raw = reading.body
    before = raw.get(older) if field.kind is None else optional(raw, older, field.kind)
    if before is None:
        return value
    if value is not None:
        reading.rest[older] = before
        return value
    reading.rest[older] = None
    reading.path = older
    return before


def _under(steps: tuple[str, ...], error: Refused) -> Refused:
    return inside(".".join(steps), error) if steps else error


def _params(values: dict[str, Any]) -> Params:
    parts = {
        name.removeprefix(REASONING): value
        for name, value in values.items()
        if name.startswith(REASONING)
    }
    plain = {name: value for name, value in values.items() if not name.startswith(REASONING)}
    return Params(reasoning=Reasoning(**parts) if parts else None, **plain)


def read_strings(value: list[Any], _reading: Reading) -> tuple[str, ...]:
    """A list of strings."""
    for number, item in enumerate(value):
        if not isinstance(item, str):
            raise wrong(f"[{number}]", item, "a string")
    return tuple(value)


def write_list(value: Iterable[Any], _writing: Writing) -> list[Any]:
    return list(value)
