"""The arguments of a vendor's `create(**...)`: a compiled thread, written by that vendor's codec.

They contain no `None` and nothing that the vendor refuses; `losses` lists what was left out. If no
model was named, there is no `model`, so that the caller can name it in the call.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct, structs

from weft.catalog import Model, load_catalog
from weft.codec import CODECS, SystemPolicy, Target, write_request
from weft.errors import ConfigError, Refused, ThreadError
from weft.function_tools import FunctionTool, read_tool
from weft.history import Setup
from weft.lazy import lazy_pattern
from weft.model import JsonObject, Loss, Message, Params, Position, Request, Tool, make_loss

ANTHROPIC = "anthropic"
GEMINI = "gemini"
UNSTREAMED = 8192
"""A token limit that every model accepts without streaming.

https://platform.claude.com/docs/en/cli-sdks-libraries/sdks/python#long-requests
"""

NO_MARKS: Mapping[Position, Any] = {}
NO_REST: Mapping[str, Any] = {}

ToolLike = Tool | Mapping[str, Any] | Any
"""A `Tool`, a vendor's dict, a function, or an object with `name`, `description`, `parameters`."""


class Recipe(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a request was built from a thread: the commit, the protocol, the model and the policies.

    `tools` is set only if the caller passed other tools than the thread's.
    """

    head: str | None
    protocol: str
    model: str | None = None
    system: SystemPolicy = "auto"
    max_tokens: int | None = None
    tools: tuple[Tool, ...] | None = None
    last: int | None = None
    reasoning: bool = False


class VendorParams(dict[str, Any]):
    """The members of a request, to unpack with `**`, and its `losses`.

    Pass it back with the answer (`t.assistant(answer, sent=params)`); then the thread can show the
    sent request later.
    """

    losses: tuple[Loss, ...] = ()
    recipe: Recipe | None = None
    written: frozenset[str] = frozenset()


def write_params(
    recipe: Recipe,
    messages: Sequence[Message],
    setup: Setup,
    earlier_losses: Sequence[Loss] = (),
    marks: Mapping[Position, Any] = NO_MARKS,
    rest: Mapping[str, Any] = NO_REST,
) -> VendorParams:
    """Write the request for these messages.

    `earlier_losses` are included in the result. `marks` are cache breakpoints by position. `rest`
    are values without a field in the model, which are written or reported.
    """
    if recipe.protocol not in CODECS:
        raise ThreadError(f"unknown protocol: {recipe.protocol!r}")
    params, model = setup.params, recipe.model
    catalog_model = load_catalog().find(model or "")
    if recipe.max_tokens is not None:
        params = structs.replace(params, max_tokens=recipe.max_tokens)
    elif recipe.protocol == ANTHROPIC and params.max_tokens is None and not params.stream:
        params = structs.replace(params, max_tokens=_unstreamed(catalog_model, params))
        # The API requires a limit, and its SDK refuses larger answers that are not streamed.
        earlier_losses = (
            *earlier_losses,
            make_loss("default_added", "max_tokens", params.max_tokens),
        )
    request = Request(
        model=model or "",
        messages=tuple(messages),
        tools=setup.tools if recipe.tools is None else recipe.tools,
        params=params,
        marks=marks,
        rest=rest,
    )
    target = Target(catalog_model, recipe.system)
    request_body = write_request(request, CODECS[recipe.protocol], target)
    body = {key: value for key, value in request_body.body.items() if value is not None}
    if recipe.protocol == GEMINI:
        body = _gemini_arguments(body, model)
    if model is None:
        body.pop("model", None)
    written = VendorParams(body)
    written.losses = (*earlier_losses, *request_body.losses)
    written.recipe = recipe
    written.written = frozenset(written)
    return written


def _unstreamed(model: Model, params: Params) -> int:
    """The token limit of an answer without streaming, including its thinking budget."""
    budget = params.reasoning.budget if params.reasoning is not None else None
    return min(model.output, UNSTREAMED + (budget or 0))


def _gemini_arguments(body: JsonObject, model: str | None) -> JsonObject:
    """Google's SDK takes `model`, `contents`, and all else as one `config`.

    https://googleapis.github.io/python-genai/genai.html#genai.models.Models.generate_content
    """
    options = {key: value for key, value in body.items() if key not in ("contents", "model")}
    config = {**options.pop("generationConfig", {}), **options}
    model_argument = {"model": model} if model is not None else {}
    return {
        **model_argument,
        "contents": body["contents"],
        **({"config": config} if config else {}),
    }


def read_tools(tools: Iterable[ToolLike]) -> tuple[Tool, ...]:
    """Convert tools of any accepted form; raises `ThreadError` with the place of other values.

    A definition in a vendor's form is decoded by that vendor's codec, which keeps the original.
    """
    definitions: list[Tool] = []
    for number, tool in enumerate(tools):
        place = f"tools[{number}]"
        try:
            definitions += _read_tool(tool)
        except Refused as error:
            raise ThreadError(f"{place}{str(error).removeprefix('tools[0]')}") from None
        except ThreadError as error:
            raise ThreadError(f"{place}: {error}") from None
    return tuple(definitions)


def _read_tool(tool: ToolLike) -> tuple[Tool, ...]:
    if isinstance(tool, Tool):
        return (tool,)
    if isinstance(tool, FunctionTool):
        return (tool.definition,)
    if isinstance(tool, Mapping):
        return _read_definition(dict(cast(Mapping[str, Any], tool)))
    if inspect.isroutine(tool):
        return (_read_function(tool),)
    members = (getattr(tool, name, None) for name in ("name", "description", "parameters"))
    return (_tool(*members),)


def _read_function(function: Callable[..., Any]) -> Tool:
    try:
        return read_tool(function).definition
    except ConfigError as error:
        raise ThreadError(str(error)) from None


def _read_definition(raw: JsonObject) -> tuple[Tool, ...]:
    """The tools in one definition; Gemini entries and namespaces have several."""
    inner = raw.get("function") if raw.get("type", "function") == "function" else None
    function = cast(JsonObject, inner) if isinstance(inner, dict) else raw
    is_plain = function.keys() <= PLAIN_TOOL or raw.keys() <= OWN_TOOL
    if is_plain and raw.get("type", "function") == "function":
        schema = function.get("parameters", function.get("input_schema"))
        _check_members(function, str, ("description",), "a text")
        _check_members(function, dict, ("parameters", "input_schema"), "a JSON schema")
        described, strict = function.get("description"), function.get("strict")
        return (_tool(function.get("name"), described, schema, strict),)
    protocol = _dialect(raw)
    if protocol == GEMINI:  # each member is a tool with its settings: `{"googleSearch": {}}`
        _check_members(raw, (dict, list), raw, "an object with the tool's settings")
    body = {"tools": [raw], **CODECS[protocol].empty_request}
    request = CODECS[protocol].decode_request(body, "any")
    mark = raw.get("cache_control")
    if mark is None or len(request.tools) != 1:
        return request.tools
    (tool,) = request.tools
    definition = {**(tool.raw or {}).get(protocol, {}), "cache_control": mark}
    return (structs.replace(tool, raw={**(tool.raw or {}), protocol: definition}),)


def _check_members(
    raw: JsonObject, kind: type | tuple[type, ...], names: Iterable[str], expected: str
) -> None:
    for name in names:
        value = raw.get(name)
        if value is not None and not isinstance(value, kind):
            raise ThreadError(f"{name}: must be {expected}, not {type(value).__name__}")


PLAIN_TOOL = frozenset({"type", "name", "description", "parameters", "input_schema"})
"""Members of a function definition that all vendors have, under any of their names."""

OWN_TOOL = frozenset({"name", "description", "parameters", "strict"})
"""Members of a definition in the form of `weft.Tool`."""

_VERSIONED = lazy_pattern(r"\w+_20\d{6}")
"""The types of Anthropic's own tools end in a date: `web_search_20250305`."""


def _dialect(raw: JsonObject) -> str:
    """The protocol whose form a definition has."""
    kind = raw.get("type")
    if "input_schema" in raw or (isinstance(kind, str) and _VERSIONED.fullmatch(kind)):
        return "anthropic"
    if kind in ("function", "custom") and isinstance(raw.get(kind), dict):
        return "openai-chat"
    if kind is None and "name" not in raw:
        return GEMINI
    return "openai-responses" if kind is not None else "anthropic"


def _tool(name: Any, description: Any, schema: Any, strict: Any = None) -> Tool:
    if not isinstance(name, str) or not name:
        raise ThreadError("a tool needs a name")
    described = description if isinstance(description, str) else None
    parameters = cast(JsonObject, schema) if isinstance(schema, dict) else None
    return Tool(name, described, parameters, strict if isinstance(strict, bool) else None)
