"""Run the tools that a model calls.

The arguments that the model writes are first checked against the function's types. Every error, in
the arguments or in the function, goes back to the model as text. A tool never ends a run.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec
import orjson
from msgspec import Struct

from weft.function_tools import FunctionTool


class Outcome(Struct, frozen=True, gc=False):
    """The result of a call, as the text that the model gets."""

    text: str
    is_error: bool = False


def _read_custom(kind: type, value: Any) -> Any:
    """A value of a class that validates its own input, such as a pydantic model."""
    read = getattr(kind, "model_validate", None)
    if not callable(read):
        # msgspec expects this error from a hook that does not support a type.
        raise NotImplementedError(f"a {kind.__name__} cannot be read")
    return read(value)


async def call_tool(tools: dict[str, FunctionTool], name: str, arguments: str) -> Outcome:
    """Run a tool on the arguments that a model wrote; never raises."""
    tool = tools.get(name)
    if tool is None:
        names = ", ".join(sorted(tools)) or "none"
        return Outcome(f"there is no tool {name!r}; the tools are: {names}", is_error=True)
    try:
        values = msgspec.convert(orjson.loads(arguments or "{}"), tool.shape, dec_hook=_read_custom)
    except orjson.JSONDecodeError as error:
        return Outcome(f"the arguments are not JSON: {error}", is_error=True)
    except ValueError as error:  # of msgspec, or of a class that validates its own input
        return Outcome(f"the arguments do not fit: {error}", is_error=True)
    try:
        return Outcome(write_result(await _run(tool.function, msgspec.structs.asdict(values))))
    except Exception as error:  # any error of the caller's function goes to the model
        return Outcome(f"{type(error).__name__}: {error}", is_error=True)


async def _run(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    if inspect.iscoroutinefunction(function):
        return await cast(Awaitable[Any], function(**arguments))
    return await asyncio.to_thread(function, **arguments)


def write_result(value: Any) -> str:
    """A tool's return value as text: a string as it is, other values as JSON, or their `str`."""
    if isinstance(value, str):
        return value
    dump = getattr(cast(object, value), "model_dump_json", None)
    if callable(dump):
        return str(dump())
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, msgspec.MsgspecError):
        return str(value)
