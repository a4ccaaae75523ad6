"""Running the tools that a model calls.

The arguments that the model writes are checked against the function's types first. Every error, in
the arguments or in the function, goes back to the model as text it can read. A tool never ends a
run.
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
    """What a call came to, in the words that the model gets."""

    text: str
    is_error: bool = False


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
