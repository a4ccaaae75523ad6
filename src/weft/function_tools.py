"""Functions as tools: schema from the signature, description from the docstring.

    def weather(city: str, days: int = 1) -> str:
        '''The weather of a city.

        Args:
            city: its name, in English
        '''

The first paragraph tells the model what the tool is for; lines under `Args:` describe its
parameters. `tool` makes one with another name or description, or whose input is described by a
JSON schema or a class. `Agent(tools=[...])`, `Thread.setup(tools=[...])` and
`to_*_params(tools=[...])` all read functions here. `weft.agent.tools` runs them.
"""

import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any, cast, get_type_hints

import msgspec
from msgspec import Struct

from weft.errors import ConfigError
from weft.lazy import lazy_pattern
from weft.model import JsonObject, Tool

_PARAMETER_LINE = lazy_pattern(r"^\s+(\w+)(?:\s*\([^)]*\))?:\s*(.+)$")
NAME_LENGTH = 64
_TOOL_NAME = lazy_pattern(rf"[a-zA-Z0-9_-]{{1,{NAME_LENGTH}}}")
_PARAMETERS_HEADING = lazy_pattern(r"^(Args|Arguments|Parameters):\s*$")


class FunctionTool(Struct, frozen=True):
    """A function that a model may call.

    `shape` is the type of its input: a struct of its parameters, or, with `whole_input`, the class
    of its only argument. Without a `shape` the input is passed on as keyword arguments.

    - `timeout`: seconds after which a call fails; None for the agent's own limit.
    - `ask`: whether a call needs the permission of a person (`Agent(permission=...)`).
    - `server`: the name of the MCP server that has the tool.
    - `repeatable`: whether a call that was interrupted may run again (`Agent.resume`), because
      running it twice has the same effect as once.
    """

    definition: Tool
    function: Callable[..., Any]
    shape: Any = None
    whole_input: bool = False
    timeout: float | None = None
    ask: bool = False
    server: str | None = None
    repeatable: bool = False

    @property
    def name(self) -> str:
        return self.definition.name


class ToolFailed(Exception):
    """A tool raises this to return `content` as its result, marked as an error.

    For any other exception, the result is the type and the message of the exception.
    """

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
    repeatable: bool = False,
) -> FunctionTool:
    """A function as a tool, with more control than passing the function itself.

    `schema` describes the input instead of the signature. With a JSON schema the function gets the
    members as keyword arguments, as the model wrote them. With a class (pydantic model, dataclass,
    `TypedDict`, `msgspec.Struct`) it gets one validated object. With `ask`, a call needs the
    permission of a person. With `repeatable`, `Agent.resume` runs a call again that was
    interrupted. Raises `ConfigError` if an argument is wrong.
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
    summary = read_docstring(inspect.getdoc(function) or "")[0] or None
    if schema is None:
        signature = read_tool(function, own_name)
        parameters, shape, is_whole_input = signature.definition.parameters, signature.shape, False
    elif isinstance(schema, type):
        parameters, shape, is_whole_input = _class_schema(own_name, schema), schema, True
        summary = summary or read_docstring(inspect.getdoc(schema) or "")[0] or None
    elif isinstance(cast(object, schema), dict) and schema.get("type", "object") == "object":
        parameters, shape, is_whole_input = {"type": "object", **schema}, None, False
    else:
        raise ConfigError("tool: schema must be a class, or a JSON schema of type 'object'")
    definition = Tool(own_name, description or summary, parameters)
    return FunctionTool(
        definition, function, shape, is_whole_input, timeout, ask, repeatable=repeatable
    )


def is_tool_name(name: object) -> bool:
    """Whether every vendor accepts this name."""
    return isinstance(name, str) and _TOOL_NAME.fullmatch(name) is not None


def read_tools(tools: Iterable[Any]) -> dict[str, FunctionTool]:
    """The tools by name; raises `ConfigError` if two have the same name.

    Each is a function, a `FunctionTool`, or an object with `tools` of its own (an MCP server).
    """
    by_name: dict[str, FunctionTool] = {}
    for item in tools:
        for tool in _read_item(item):
            if tool.name in by_name:
                raise ConfigError(f"two tools are named {tool.name!r}")
            by_name[tool.name] = tool
    return by_name


def _read_item(item: Any) -> Iterable[FunctionTool]:
    """The tools of one item of a list of tools."""
    if isinstance(item, FunctionTool):
        return (item,)
    item_tools = getattr(item, "tools", None)
    if isinstance(item_tools, tuple):
        return cast(tuple[FunctionTool, ...], item_tools)
    return (read_tool(item),)


def read_tool(function: Callable[..., Any], name: str | None = None) -> FunctionTool:
    """The tool for a function; raises `ConfigError` if a schema cannot be made for it."""
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
        if default is parameter.empty:
            fields.append((parameter.name, kind))
        else:
            fields.append((parameter.name, kind, msgspec.field(default=default)))
    shape = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
    return FunctionTool(Tool(name, summary or None, _schema(name, shape)), function, shape)


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The first paragraph, and the description of each parameter under `Args:`."""
    summary = " ".join(text.partition("\n\n")[0].split())
    descriptions: dict[str, str] = {}
    in_parameters = False
    for line in text.splitlines():
        if _PARAMETERS_HEADING.match(line):
            in_parameters = True
        elif in_parameters and line and not line[0].isspace():
            in_parameters = False
        elif in_parameters and (parameter := _PARAMETER_LINE.match(line)):
            descriptions[parameter[1]] = parameter[2].strip()
    return summary, descriptions


def _class_schema(name: str, kind: type) -> JsonObject:
    """The JSON schema of a class with fields."""
    if callable(getattr(kind, "model_json_schema", None)):
        return _own_schema(kind)
    schema = _schema(name, kind)
    if schema.get("type") != "object":
        raise ConfigError(f"tool {name!r}: {kind.__name__} is not a class with fields")
    return schema


def _schema(name: str, shape: type) -> JsonObject:
    """The JSON schema of a struct; the schemas of its fields' own classes are in `$defs`."""
    try:
        _, definitions = msgspec.json.schema_components(
            [shape], schema_hook=_own_schema, ref_template="#/$defs/{name}"
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


def _own_schema(kind: type) -> JsonObject:
    """The schema of a class that makes it itself, as pydantic's models do."""
    make_schema = getattr(kind, "model_json_schema", None)
    if not callable(make_schema) or not callable(getattr(kind, "model_validate", None)):
        raise _NoSchema(getattr(kind, "__name__", str(kind)))
    schema = dict(cast(JsonObject, make_schema()))
    definitions = cast(JsonObject, schema.pop("$defs", {}))
    return cast(JsonObject, _inline_definitions(schema, definitions, ()))


def _inline_definitions(value: Any, definitions: JsonObject, outer_names: tuple[str, ...]) -> Any:
    """A schema with each `$ref` replaced by its definition.

    The definitions of two classes may have the same name, so they cannot share one `$defs`. A
    schema that refers to itself accepts anything at that point; `outer_names` are the definitions
    that this one is inside of.
    """
    if isinstance(value, list):
        return [
            _inline_definitions(item, definitions, outer_names) for item in cast(list[Any], value)
        ]
    if not isinstance(value, dict):
        return value
    schema = cast(JsonObject, value)
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if name in definitions:
        other_keywords = {key: item for key, item in schema.items() if key != "$ref"}
        if name in outer_names:
            return other_keywords
        inner = _inline_definitions(definitions[name], definitions, (*outer_names, name))
        return {**cast(JsonObject, inner), **other_keywords}
    return {
        key: _inline_definitions(item, definitions, outer_names) for key, item in schema.items()
    }
