"""Plain functions as tools: the schema from the signature, the words from the docstring.

    def weather(city: str, days: int = 1) -> str:
        '''The weather of a city.

        Args:
            city: its name, in English
        '''

The first paragraph tells the model what the tool is for; lines under `Args:` describe its
parameters. What the model writes is checked against the types before the function sees it, and
whatever goes wrong, in the arguments or in the function, goes back to the model as an error it
can read. A tool never ends a run.
"""

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, cast, get_type_hints

import msgspec
import orjson
from msgspec import Struct

from weft.errors import ConfigError
from weft.model import JsonObject, Tool

_PARAMETER = re.compile(r"^\s+(\w+)(?:\s*\([^)]*\))?:\s*(.+)$")
_SECTION = re.compile(r"^(Args|Arguments|Parameters):\s*$")


class FunctionTool(Struct, frozen=True):
    """A function that a model may call. `shape` is its parameters as a type."""

    definition: Tool
    function: Callable[..., Any]
    shape: type[Struct]

    @property
    def name(self) -> str:
        return self.definition.name


class Outcome(Struct, frozen=True, gc=False):
    """What a call came to, in the words that the model gets."""

    text: str
    is_error: bool = False


def read_tools(functions: Sequence[Callable[..., Any]]) -> dict[str, FunctionTool]:
    """The tools by name; raises `ConfigError` where two share one."""
    tools: dict[str, FunctionTool] = {}
    for function in functions:
        tool = read_tool(function)
        if tool.name in tools:
            raise ConfigError(f"two tools are named {tool.name!r}")
        tools[tool.name] = tool
    return tools


def read_tool(function: Callable[..., Any]) -> FunctionTool:
    """The tool that a function is; raises `ConfigError` where its signature says too little."""
    name = getattr(function, "__name__", "")
    if not name.isidentifier():
        raise ConfigError(f"a tool needs a function with a name, not {function!r}")
    about, words = read_docstring(inspect.getdoc(function) or "")
    hints = get_type_hints(function, include_extras=True)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConfigError(f"tool {name!r}: the parameter {parameter} cannot be named")
        kind: Any = hints.get(parameter.name, Any)
        if parameter.name in words:
            kind = Annotated[kind, msgspec.Meta(description=words[parameter.name])]
        given = parameter.default
        fields.append(
            (parameter.name, kind)
            if given is parameter.empty
            else (parameter.name, kind, msgspec.field(default=given))
        )
    shape = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
    return FunctionTool(Tool(name, about or None, _schema(name, shape)), function, shape)


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The first paragraph, and what `Args:` says of each parameter."""
    about = " ".join(text.partition("\n\n")[0].split())
    words: dict[str, str] = {}
    inside = False
    for line in text.splitlines():
        if _SECTION.match(line):
            inside = True
        elif inside and line and not line[0].isspace():
            inside = False
        elif inside and (found := _PARAMETER.match(line)):
            words[found[1]] = found[2].strip()
    return about, words


def _schema(name: str, shape: type[Struct]) -> JsonObject:
    """The JSON schema of an object with these parameters; types of their own stand in `$defs`."""
    try:
        _, definitions = msgspec.json.schema_components(
            [shape], schema_hook=_foreign_schema, ref_template="#/$defs/{name}"
        )
    except _NoSchema as error:
        raise ConfigError(
            f"tool {name!r}: a parameter of type {error} cannot be described to a model; use plain"
            " types, dataclasses, TypedDicts, msgspec Structs or pydantic models"
        ) from None
    except TypeError as error:
        raise ConfigError(f"tool {name!r}: {error}") from None
    root = cast(JsonObject, definitions.pop(name))
    root.pop("title", None)
    return {**root, "$defs": definitions} if definitions else root


class _NoSchema(Exception):
    """The name of a class that nobody can describe."""


def _foreign_schema(kind: type) -> JsonObject:
    """The schema of a class that brings its own, as pydantic's models do."""
    own = getattr(kind, "model_json_schema", None)
    if not callable(own) or not callable(getattr(kind, "model_validate", None)):
        raise _NoSchema(getattr(kind, "__name__", str(kind)))
    schema = dict(cast(JsonObject, own()))
    definitions = cast(JsonObject, schema.pop("$defs", {}))
    return cast(JsonObject, _inline(schema, definitions, ()))


def _inline(value: Any, definitions: JsonObject, within: tuple[str, ...]) -> Any:
    """A schema with its `$defs` put where they are referred to: those of two classes may share a
    name. What refers to itself stays open at that place."""
    if isinstance(value, list):
        return [_inline(item, definitions, within) for item in cast(list[Any], value)]
    if not isinstance(value, dict):
        return value
    found = cast(JsonObject, value)
    name = str(found.get("$ref", "")).removeprefix("#/$defs/")
    if name in definitions:
        rest = {key: item for key, item in found.items() if key != "$ref"}
        if name in within:
            return rest
        inner = _inline(definitions[name], definitions, (*within, name))
        return {**cast(JsonObject, inner), **rest}
    return {key: _inline(item, definitions, within) for key, item in found.items()}


def _read_foreign(kind: type, value: Any) -> Any:
    """A value of a class that reads its own."""
    read = getattr(kind, "model_validate", None)
    if not callable(read):
        # msgspec asks its hooks for this error where they do not know a type.
        raise NotImplementedError(f"a {kind.__name__} cannot be read")
    return read(value)


async def call_tool(tools: dict[str, FunctionTool], name: str, arguments: str) -> Outcome:
    """Run a tool on the arguments that a model wrote; never raises."""
    tool = tools.get(name)
    if tool is None:
        known = ", ".join(sorted(tools)) or "none"
        return Outcome(f"there is no tool {name!r}; the tools are: {known}", is_error=True)
    try:
        given = msgspec.convert(orjson.loads(arguments or "{}"), tool.shape, dec_hook=_read_foreign)
    except orjson.JSONDecodeError as error:
        return Outcome(f"the arguments are not JSON: {error}", is_error=True)
    except ValueError as error:  # msgspec's own, and what a class raises that reads itself
        return Outcome(f"the arguments do not fit: {error}", is_error=True)
    try:
        return Outcome(write_result(await _run(tool.function, msgspec.structs.asdict(given))))
    except Exception as error:  # foreign code: its failure is the model's to read, not ours
        return Outcome(f"{type(error).__name__}: {error}", is_error=True)


async def _run(function: Callable[..., Any], given: dict[str, Any]) -> Any:
    if inspect.iscoroutinefunction(function):
        return await cast(Awaitable[Any], function(**given))
    return await asyncio.to_thread(function, **given)


def write_result(value: Any) -> str:
    """A tool's value as text: a string as it is, anything else as JSON, else as it prints."""
    if isinstance(value, str):
        return value
    dump = getattr(cast(object, value), "model_dump_json", None)
    if callable(dump):
        return str(dump())
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, msgspec.MsgspecError):
        return str(value)
