"""The parameters of a request: one table per protocol, and the limits of vendors and models.

A row of a table has a parameter's name in the model, its member in the protocol's body, and the
conversions. The decoder, the encoder, the known members, the paths in loss reports and the list of
supported parameters all come from this table.

    Field("top_k", int)                             the same name in both
    Field("max_tokens", int, "max_output_tokens")   another name
    Field("user", str, "metadata.user_id")          a nested member
    Field("stop", list, "stop_sequences", read=read_strings, write=write_stop)

`Limits` states what a vendor accepts. A value outside of a limit is replaced by the nearest
accepted value, and reported. If there is none, the request is refused here, with the path in the
caller's body, instead of by the vendor. Parameters that a model refuses, according to the
catalogue, are dropped.

For models with `thinking = "effort"`, a thinking-token budget is converted to an effort level: up
to 2048 tokens are `low`, up to 8192 are `medium`, more are `high`. An effort that the caller sets
stays, or is replaced by the nearest one that the model supports.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import takewhile
from typing import Any, cast

from msgspec import Struct, structs

from weft.catalog import Model
from weft.errors import Refused
from weft.model import Format, JsonObject, Params, Reasoning, Request, texts

from .base import Losses, Target
from .calls import with_digest
from .read import optional, optional_object, with_prefix, wrong
from .reports import report_params

REASONING_PREFIX = "reasoning."
NO_TOOLS: list[JsonObject] = []

Tree = dict[str, "Tree"]
"""The known members of an object by name, each with its own known members. Empty for a member whose
whole value is read by one field."""


class DecodeContext:
    """The state of decoding one body's parameters.

    - `path`: the path of the current field.
    - `values`: the decoded parameters, by their names in the model.
    - `unmapped`: the values that no parameter holds, by path. `None` stands for a value that a
      parameter holds, but that other protocols write in another form.
    - `skipped`: the paths of known members whose values have no meaning for a parameter.
    """

    def __init__(self, body: JsonObject) -> None:
        self.body = body
        self.values: dict[str, Any] = {}
        self.unmapped: dict[str, Any] = {}
        self.skipped: set[str] = set()
        self.path = ""

    def skip(self, member: str = "") -> None:
        """Treat this field, or one member of it, as unknown to the model.

        Returns `None`, so that a `read` function can return the call.
        """
        self.skipped.add(f"{self.path}.{member}" if member else self.path)

    def note_form_change(self, path: str = "") -> None:
        """Note that another protocol writes this value in another form."""
        self.unmapped[path or self.path] = None

    def keep_unknown(self, raw: JsonObject, known: Collection[str], step: str = "") -> None:
        """Keep the members of an object that are not in `known`."""
        base = f"{self.path}.{step}" if step else self.path
        for key, value in raw.items():
            if key not in known:
                self.unmapped[f"{base}.{key}"] = value


class EncodeContext(Struct):
    """The state of encoding one body's parameters.

    `params` are the caller's parameters within the target's limits. `tools` are the encoded tools.
    """

    request: Request
    params: Params
    target: Target
    losses: Losses
    tools: list[JsonObject] = NO_TOOLS
    body: JsonObject = {}


Read = Callable[[Any, DecodeContext], Any]
"""Converts a member's value to a parameter; `None` means that there is no value. A function for a
member that holds several parameters puts them in `DecodeContext.values` and returns `None`."""

Write = Callable[[Any, EncodeContext], Any]
"""Converts a parameter to its member's value; `None` writes nothing."""


def copy(value: Any, _context: EncodeContext) -> Any:
    """Write a parameter unchanged."""
    return value


class Field(Struct, frozen=True):
    """One parameter of a protocol.

    - `name`: its name in the model, a field of `Params` or of `Reasoning` (`reasoning.effort`).
    - `kind`: the JSON type that is checked before `read`.
    - `path`: the member, dotted; empty for the same name, `None` if it is not in the body.
    - `read`, `write`: conversions. Without `write`, another field or the caller writes the member.
    - `inner`: members of the value that the field reads, each with its parameter, if it has one.
    - `deprecated_name`: an earlier name of the member, which is still read.
    """

    name: str
    kind: type[Any] | None = None
    path: str | None = ""
    read: Read | None = None
    write: Write | None = copy
    inner: Mapping[str, str | None] = {}
    deprecated_name: str | None = None


class Row(Struct, frozen=True):
    """A field with its path split into steps.

    `containers` are the objects around `member`, and `first` is the first step of the path. `name`
    and `inner_name` are the two parts of the field's name (`reasoning`, `effort`).
    """

    field: Field
    path: str
    containers: tuple[str, ...]
    member: str
    first: str
    name: str
    inner_name: str


class FieldTable:
    """The parameters of one protocol.

    - `known`: the members of a body that a decoder reads, including `members`, which have no field.
    - `paths`: the member of each parameter.
    - `supported`: the parameters that the protocol can express.

    A protocol may accept two spellings of a name. `spell` converts a name to the standard spelling,
    and `respell` converts a path to the spelling that a body uses.
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
        self._deprecated_names = {
            field.name: field.deprecated_name
            for field in fields
            if field.deprecated_name is not None
        }
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
        _add_path(self.tree, path)
        self.paths[field.name] = path
        for inner, parameter in field.inner.items():
            _add_path(self.tree, f"{path}.{inner}")
            if parameter is not None:
                self.paths[parameter] = f"{path}.{inner}"
        if field.deprecated_name is not None:
            self.tree.setdefault(field.deprecated_name, {})
        *containers, member = path.split(".")
        first = path.partition(".")[0]
        return Row(field, path, tuple(containers), member, first, name, inner_name)

    def path(self, name: str, body: JsonObject | None = None) -> str:
        """The path of a parameter in this body."""
        head = name.partition(".")[0]
        deprecated = self._deprecated_names.get(name)
        if deprecated and body and deprecated in body and self.paths[name] not in body:
            return deprecated
        path = self.paths.get(name) or self.paths.get(head, name)
        return path if self._respell is None or body is None else self._respell(body, path)

    def decode(self, body: JsonObject) -> tuple[Params, dict[str, Any]]:
        """The parameters of a body, and the values that no parameter holds, by path."""
        spell = self._spell
        standard_body = body if spell is None else self._standardise(body, self.tree, spell)
        context = DecodeContext(standard_body)
        try:
            for row in self._rows:
                # Most parameters are absent from most bodies, so the first step decides quickly.
                if row.member and (
                    row.first in standard_body or row.field.deprecated_name in standard_body
                ):
                    _read(row, context)
        except Refused as error:
            if self._respell is None or error.param is None:
                raise
            path = self._respell(body, error.param)
            raise Refused(error.message, param=path, status=error.status, type=error.type) from None
        unmapped: dict[str, Any] = {}
        if context.skipped or spell is not None or not body.keys() <= self._leaves:
            self._collect_unmapped(body, self.tree, "", "", unmapped, context.skipped)
        for path, value in context.unmapped.items():
            unmapped[path if self._respell is None else self._respell(body, path)] = value
        return _build_params(context.values), unmapped

    def _standardise(self, body: JsonObject, tree: Tree, spell: Callable[[str], str]) -> JsonObject:
        """The body with the standard spelling of every known name."""
        standard: JsonObject = {}
        for key, value in body.items():
            name = spell(key)
            inner = tree.get(name)
            if inner and isinstance(value, dict):
                value = self._standardise(cast(JsonObject, value), inner, spell)
            standard[name] = value
        return standard

    def _collect_unmapped(
        self,
        raw: JsonObject,
        tree: Tree,
        path: str,
        body_path: str,
        unmapped: dict[str, Any],
        skipped: set[str],
    ) -> None:
        """Add the members of `raw` that no field reads to `unmapped`.

        `path` is the path of `raw` in the standard spelling, `body_path` in the body's own.
        """
        for key, value in raw.items():
            name = key if self._spell is None else self._spell(key)
            inner = tree.get(name)
            if inner is None or path + name in skipped:
                unmapped[body_path + key] = value
            elif inner and isinstance(value, dict):
                fields = cast(JsonObject, value)
                steps = f"{path}{name}.", f"{body_path}{key}."
                self._collect_unmapped(fields, inner, *steps, unmapped, skipped)

    def encode(self, context: EncodeContext) -> JsonObject:
        """The members for the parameters of a request; reports parameters without a member."""
        context.body = {}
        params = context.params
        for row in self._rows:
            value: Any = getattr(params, row.name)
            if value is not None and row.inner_name:
                value = getattr(value, row.inner_name)
            write = row.field.write
            if value is None or write is None:
                continue
            written = value if write is copy else write(value, context)
            if written is None:
                continue
            holder = context.body
            for step in row.containers:
                holder = holder.setdefault(step, {})
            if isinstance(written, dict) and isinstance(holder.get(row.member), dict):
                holder[row.member] |= written
            else:
                holder[row.member] = written
        report_params(context.request, self.supported, context.losses)
        return context.body


def _add_path(tree: Tree, path: str) -> None:
    for step in path.split("."):
        tree = tree.setdefault(step, {})


def _read(row: Row, context: DecodeContext) -> None:
    field, raw = row.field, context.body
    for number, step in enumerate(row.containers):
        try:
            raw = optional_object(raw, step)
        except Refused as error:
            raise _with_steps(row.containers[:number], error) from None
    try:
        value = raw.get(row.member) if field.kind is None else optional(raw, row.member, field.kind)
        context.path = row.path
        if field.deprecated_name is not None:
            value = _value_or_deprecated(field, field.deprecated_name, value, context)
    except Refused as error:
        raise _with_steps(row.containers, error) from None
    if field.read is not None and value is not None:
        if value == {}:
            return
        try:
            value = field.read(value, context)
        except Refused as error:
            raise with_prefix(context.path, error) from None
    if value is not None:
        context.values[field.name] = value


def _value_or_deprecated(field: Field, name: str, value: Any, context: DecodeContext) -> Any:
    """The member's value, else the value under its deprecated name."""
    raw = context.body
    deprecated = raw.get(name) if field.kind is None else optional(raw, name, field.kind)
    if deprecated is None:
        return value
    if value is not None:
        context.unmapped[name] = deprecated
        return value
    context.unmapped[name] = None
    context.path = name
    return deprecated


def _with_steps(steps: tuple[str, ...], error: Refused) -> Refused:
    return with_prefix(".".join(steps), error) if steps else error


def _build_params(values: dict[str, Any]) -> Params:
    reasoning = {
        name.removeprefix(REASONING_PREFIX): value
        for name, value in values.items()
        if name.startswith(REASONING_PREFIX)
    }
    plain = {name: value for name, value in values.items() if not name.startswith(REASONING_PREFIX)}
    return Params(reasoning=Reasoning(**reasoning) if reasoning else None, **plain)


def read_strings(value: list[Any], _context: DecodeContext) -> tuple[str, ...]:
    """The value as a tuple; raises `Refused` if an item is not a string."""
    for number, item in enumerate(value):
        if not isinstance(item, str):
            raise wrong(f"[{number}]", item, "a string")
    return tuple(value)


def write_stop(stop: Iterable[str], context: EncodeContext) -> list[str] | None:
    """The stop sequences. An empty list is left out: OpenAI refuses it for some models."""
    sequences = list(stop)
    if not sequences:
        return context.losses.param("stop", "null_member_dropped", "stop")
    return sequences


EFFORT_ORDER = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
BUDGET_EFFORTS = ((2048, "low"), (8192, "medium"))
"""Up to this budget: this effort. A larger budget is `LARGEST_EFFORT`."""

LARGEST_EFFORT = "high"


def with_effort(reasoning: Reasoning, model: Model, losses: Losses) -> Reasoning:
    """The reasoning settings, with a token budget converted for models that take an effort."""
    budget = reasoning.budget
    if budget is None or reasoning.effort is not None or model.thinking != "effort":
        return reasoning
    effort = next((level for limit, level in BUDGET_EFFORTS if budget <= limit), LARGEST_EFFORT)
    losses.param("reasoning.budget", "thinking_budget_as_effort", f"{budget} -> {effort}")
    losses.param("reasoning.effort", "effort_added", effort)
    return structs.replace(reasoning, effort=effort, budget=None)


def nearest_effort(
    effort: str | None, model: Model, losses: Losses, name: str = "reasoning.effort"
) -> str | None:
    """The nearest effort that the model supports; `None` if it supports none.

    `name` is the parameter that a loss is reported for.
    """
    supported = model.efforts
    if effort not in EFFORT_ORDER or supported is None or effort in supported:
        return effort
    if not supported:
        level = "form" if effort == "none" else "meaning"
        losses.param(name, "effort_unsupported", effort, level)
        return None
    rank = EFFORT_ORDER.index(effort)

    def distance(other: str) -> tuple[int, int]:
        other_rank = EFFORT_ORDER.index(other)
        return abs(other_rank - rank), -other_rank  # of two at the same distance, the higher one

    nearest = min(supported, key=distance)
    losses.param(name, "effort_changed", f"{effort} -> {nearest}")
    return nearest


OPENAI_EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"})
"""https://platform.openai.com/docs/api-reference/chat/create#chat-create-reasoning_effort"""


class Limits(Struct, frozen=True):
    """The limits of a vendor.

    - `temperature`: the range of temperatures.
    - `max_stops`: the largest number of stop sequences.
    - `allows_blank_stops`: whether a stop sequence may be blank.
    - `min_tokens`: the smallest `max_tokens`.
    - `allows_zero_tokens`: whether `max_tokens` may also be 0.
    - `max_seed`: the largest seed.
    - `max_user_length`: the longest user id, in characters.
    - `sampling_if_reasoning_off`: whether a model that refuses sampling parameters accepts them
      while its reasoning is off.
    """

    temperature: tuple[float, float] = (0, 2)
    max_stops: int | None = None
    allows_blank_stops: bool = True
    min_tokens: int = 1
    allows_zero_tokens: bool = False
    max_seed: int | None = None
    max_user_length: int | None = None
    sampling_if_reasoning_off: bool = False


def apply_limits(params: Params, limits: Limits, model: Model, losses: Losses) -> Params:
    """The parameters within the vendor's limits; raises `Refused` if there is no near valid
    value."""
    params = _allowed_sampling(params, limits, model, losses)
    changed = {
        "max_tokens": _allowed_max_tokens(params.max_tokens, limits, losses),
        "stop": _allowed_stops(params.stop, limits, model, losses),
        "temperature": _allowed_temperature(params.temperature, limits, losses),
        "seed": _allowed_seed(params.seed, limits, losses),
        "user": _allowed_user(params.user, limits, losses),
    }
    if all(getattr(params, name) == value for name, value in changed.items()):
        return params
    return structs.replace(params, **changed)


def _allowed_sampling(params: Params, limits: Limits, model: Model, losses: Losses) -> Params:
    """The parameters without the sampling parameters that the model refuses."""
    reasoning = params.reasoning
    is_off = reasoning is not None and reasoning.effort == "none"
    is_allowed = model.temperature or (limits.sampling_if_reasoning_off and is_off)
    if not is_allowed:
        for name in ("temperature", "top_p", "top_k"):
            params = _drop_sampling(params, name, losses)
    elif model.one_sampler and params.temperature is not None and params.top_p is not None:
        name = "temperature" if params.temperature == 1 else "top_p"
        params = _drop_sampling(params, name, losses)
    return params


def _drop_sampling(params: Params, name: str, losses: Losses) -> Params:
    value = getattr(params, name)
    if value is None:
        return params
    level = "form" if value == 1 and name != "top_k" else "meaning"
    losses.param(name, "sampling_unsupported", f"{name} {value}", level)
    return structs.replace(params, **{name: None})


def _allowed_seed(value: int | None, limits: Limits, losses: Losses) -> int | None:
    if value is None or limits.max_seed is None or abs(value) <= limits.max_seed:
        return value
    losses.param("seed", "seed_dropped", value)
    return None


def _allowed_user(value: str | None, limits: Limits, losses: Losses) -> str | None:
    if value is None or limits.max_user_length is None or len(value) <= limits.max_user_length:
        return value
    short = with_digest(value, limits.max_user_length)
    losses.param("user", "user_shortened", f"{value} -> {short}")
    return short


def _allowed_temperature(value: float | None, limits: Limits, losses: Losses) -> float | None:
    if value is None:
        return None
    low, high = limits.temperature
    accepted = min(max(value, low), high)
    if accepted != value:
        losses.param("temperature", "temperature_clamped", f"{value} -> {accepted}")
    return accepted


def _allowed_stops(
    value: tuple[str, ...] | None, limits: Limits, model: Model, losses: Losses
) -> tuple[str, ...] | None:
    if not value:
        return value
    if not model.stop:
        losses.param("stop", "stop_sequences_dropped", len(value))
        return None
    accepted = value
    if not limits.allows_blank_stops:
        accepted = tuple(stop for stop in value if stop and not stop.isspace())
        if accepted != value:
            losses.param("stop", "stop_sequences_dropped", len(value) - len(accepted))
    if limits.max_stops is not None and len(accepted) > limits.max_stops:
        losses.param("stop", "stop_sequences_dropped", len(accepted) - limits.max_stops)
        accepted = accepted[: limits.max_stops]
    return accepted or None


def _allowed_max_tokens(value: int | None, limits: Limits, losses: Losses) -> int | None:
    if value is None or value >= limits.min_tokens or (value == 0 and limits.allows_zero_tokens):
        return value
    if value < 1:
        path = losses.path(("params", "max_tokens"))
        raise Refused(f"must be at least 1 for this target, not {value}", param=path)
    losses.param("max_tokens", "max_tokens_raised", f"{value} -> {limits.min_tokens}")
    return limits.min_tokens


def with_allowed_json_mode(
    request: Request, params: Params, model: Model, losses: Losses
) -> Params:
    """The parameters. If the vendor would refuse JSON mode, it is replaced with a schema.

    OpenAI's JSON mode needs the word "JSON" in the conversation. If it is missing, a schema for any
    object has the same effect: https://platform.openai.com/docs/guides/structured-outputs#json-mode
    Only the messages before the first answer are searched. The schema is part of the prefix that
    the vendor caches, so a later message must not change it.
    """
    answer_format = params.format
    if answer_format is None or answer_format.kind != "json" or not model.json_named:
        return params
    before = takewhile(lambda message: message.role != "assistant", request.messages)
    if any("json" in text.lower() for message in before for text in texts(message.blocks)):
        return params
    losses.param("format", "format_as_schema")
    return structs.replace(params, format=Format("schema", {"type": "object"}))
