"""Functions as tools: schema from the signature, description from the docstring.

    def weather(city: str, days: int = 1) -> str:
        '''The weather of a city.

        Args:
            city: its name, in English
        '''

The first paragraph tells the model what the tool is for; lines under `Args:` describe its
parameters. `tool` makes one with another name or description, or whose input is described by a
JSON schema or a class. `Agent(tools=[...])`, `Thread.setup(tools=[...])` and
`to_*_params(tools=[...])` all read functions here. Running them is the agent's part
(`weft.agent.tools`).
"""

import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any, cast, get_type_hints

import msgspec
from msgspec import Struct

from weft.errors import ConfigError
from weft.lazy import lazy_pattern
from weft.model import JsonObject, Tool

_PARAMETER = lazy_pattern(r"^\s+(\w+)(?:\s*\([^)]*\))?:\s*(.+)$")
NAME_LENGTH = 64
_NAME = lazy_pattern(rf"[a-zA-Z0-9_-]{{1,{NAME_LENGTH}}}")
_SECTION = lazy_pattern(r"^(Args|Arguments|Parameters):\s*$")


class FunctionTool(Struct, frozen=True):
    """A function that a model may call.

    `shape` is the type of its input: a struct of its parameters, or, with `whole_input`, the class
    of its only argument. Without a `shape` the input is passed on as keyword arguments.

    - `timeout`: seconds after which a call fails; None for the agent's own limit.
    - `ask`: whether a person must allow each call (`Agent(permission=...)`).
    - `server`: the name of the MCP server that has the tool.
    """

    definition: Tool
    function: Callable[..., Any]
    shape: Any = None
    whole_input: bool = False
    timeout: float | None = None
    ask: bool = False
    server: str | None = None

    @property
    def name(self) -> str:
        return self.definition.name


class ToolFailed(Exception):
    """A tool raises this to fail with content instead of a message."""

    def __init__(self, content: Any) -> None:
        super().__init__(content)
        self.content = content


def tool(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    schema: JsonObject | type | None = None,
    timeout: float | None = None,
    ask: bool = False,
) -> FunctionTool:
    """A function as a tool, with more control than passing the function itself.

    `schema` describes the input instead of the signature. With a JSON schema the function gets the
    members as keyword arguments, as the model wrote them. With a class (pydantic model, dataclass,
    `TypedDict`, `msgspec.Struct`) it gets one validated object. With `ask` a person must allow each
    call. Raises `ConfigError` if an argument is wrong.
    """
    if not callable(function):
        raise ConfigError(f"tool: must be a function, not {function!r}")
    if timeout is not None and not timeout > 0:
        raise ConfigError(f"tool: timeout must be more than 0 seconds, not {timeout!r}")
    own_name = name if name is not None else getattr(function, "__name__", "")
    if not is_tool_name(own_name):
        raise ConfigError(
            f"tool: a name has letters, digits, '_' and '-', at most {NAME_LENGTH}; not"
            f" {own_name!r}"
        )
    about = read_docstring(inspect.getdoc(function) or "")[0] or None
    if schema is None:
        signature = read_tool(function, own_name)
        parameters, shape, is_whole_input = signature.definition.parameters, signature.shape, False
    elif isinstance(schema, type):
        parameters, shape, is_whole_input = _class_schema(own_name, schema), schema, True
        about = about or read_docstring(inspect.getdoc(schema) or "")[0] or None
    elif isinstance(cast(object, schema), dict) and schema.get("type", "object") == "object":
        parameters, shape, is_whole_input = {"type": "object", **schema}, None, False
    else:
        raise ConfigError("tool: schema must be a class, or a JSON schema of type 'object'")
    definition = Tool(own_name, description or about, parameters)
    return FunctionTool(definition, function, shape, is_whole_input, timeout, ask)


def is_tool_name(name: object) -> bool:
    """Whether every vendor accepts this name."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def read_tools(tools: Iterable[Any]) -> dict[str, FunctionTool]:
    """The tools by name; raises `ConfigError` if two have the same name.

    Each is a function, a `FunctionTool`, or an object with `tools` of its own (an MCP server).
    """
    by_name: dict[str, FunctionTool] = {}
    for item in tools:
        for tool in _read_each(item):
            if tool.name in by_name:
                raise ConfigError(f"two tools are named {tool.name!r}")
            by_name[tool.name] = tool
    return by_name


def _read_each(item: Any) -> Iterable[FunctionTool]:
    if isinstance(item, FunctionTool):
        return (item,)
    several = getattr(item, "tools", None)
    if isinstance(several, tuple):
        return cast(tuple[FunctionTool, ...], several)
    return (read_tool(item),)


def read_tool(function: Callable[..., Any], name: str | None = None) -> FunctionTool:
    """The tool for a function; raises `ConfigError` if its signature is not sufficient."""
    name = name or str(getattr(function, "__name__", ""))
    if not (name.isidentifier() or is_tool_name(name)):
        raise ConfigError(f"a tool needs a function with a name, not {function!r}")
    summary, descriptions = read_docstring(inspect.getdoc(function) or "")
    hints = get_type_hints(function, include_extras=True)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConfigError(
                f"tool {name!r}: parameter {parameter} must be one that can be passed by name"
            )
        kind: Any = hints.get(parameter.name, Any)
        if parameter.name in descriptions:
            kind = Annotated[kind, msgspec.Meta(description=descriptions[parameter.name])]
        default = parameter.default
        fields.append(
            (parameter.name, kind)
            if default is parameter.empty
            else (parameter.name, kind, msgspec.field(default=default))
        )
    shape = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
    return FunctionTool(Tool(name, summary or None, _schema(name, shape)), function, shape)


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The first paragraph, and the description of each parameter under `Args:`."""
    about = " ".join(text.partition("\n\n")[0].split())
    descriptions: dict[str, str] = {}
    inside = False
    for line in text.splitlines():
        if _SECTION.match(line):
            inside = True
        elif inside and line and not line[0].isspace():
            inside = False
        elif inside and (parameter := _PARAMETER.match(line)):
            descriptions[parameter[1]] = parameter[2].strip()
    return about, descriptions


def _class_schema(name: str, kind: type) -> JsonObject:
    """The JSON schema of a class with fields."""
    if callable(getattr(kind, "model_json_schema", None)):
        return _foreign_schema(kind)
    schema = _schema(name, kind)
    if schema.get("type") != "object":
        raise ConfigError(f"tool {name!r}: {kind.__name__} is not a class with fields")
    return schema


def _schema(name: str, shape: type) -> JsonObject:
    """The JSON schema of an object with these parameters; types of their own are in `$defs`."""
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
    root = cast(JsonObject, definitions.pop(shape.__name__, {}))
    root.pop("title", None)
    return {**root, "$defs": definitions} if definitions else root


class _NoSchema(Exception):
    """Raised with the name of a class that has no schema."""


def _foreign_schema(kind: type) -> JsonObject:
    """The schema of a class that brings its own, as pydantic's models do."""
    make_schema = getattr(kind, "model_json_schema", None)
    if not callable(make_schema) or not callable(getattr(kind, "model_validate", None)):
        raise _NoSchema(getattr(kind, "__name__", str(kind)))
    schema = dict(cast(JsonObject, make_schema()))
    definitions = cast(JsonObject, schema.pop("$defs", {}))
    return cast(JsonObject, _inline(schema, definitions, ()))


def _inline(value: Any, definitions: JsonObject, within: tuple[str, ...]) -> Any:
    """A schema with its `$defs` put where they are referred to: those of two classes may share a
    name. A schema that refers to itself accepts anything at that point."""
    if isinstance(value, list):
        return [_inline(item, definitions, within) for item in cast(list[Any], value)]
    if not isinstance(value, dict):
        return value
    schema = cast(JsonObject, value)
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if name in definitions:
        rest = {key: item for key, item in schema.items() if key != "$ref"}
        if name in within:
            return rest
        inner = _inline(definitions[name], definitions, (*within, name))
        return {**cast(JsonObject, inner), **rest}
    return {key: _inline(item, definitions, within) for key, item in schema.items()}
