"""Plain functions as tools: schema from the signature, description from the docstring.

    def weather(city: str, days: int = 1) -> str:
        '''The weather of a city.

        Args:
            city: its name, in English
        '''

The first paragraph tells the model what the tool is for; lines under `Args:` describe its
parameters. `Agent(tools=[...])`, `Thread.setup(tools=[...])` and `to_*_params(tools=[...])` all
read functions here. Running them is the agent's part (`weft.agent.tools`).
"""

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, cast, get_type_hints

import msgspec
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
        default = parameter.default
        fields.append(
            (parameter.name, kind)
            if default is parameter.empty
            else (parameter.name, kind, msgspec.field(default=default))
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
