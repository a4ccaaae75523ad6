"""Run the tools that a model calls.

The arguments that the model writes are first checked against the tool's types. Every error, in the
arguments or in the function, goes back to the model as text. A tool never ends a run.
"""

import asyncio
import contextvars
import inspect
import json
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import msgspec
import orjson
from msgspec import Struct

from weft.function_tools import FunctionTool, ToolFailed
from weft.lazy import lazy_pattern
from weft.model import Audio, Block, File, Image, Text
from weft.printable import encodable

CONTENT = (Text, Image, File, Audio)


class Outcome(Struct, frozen=True, gc=False):
    """The result of a call, as the text that the model gets.

    `content` is the whole result if it is more than the text: a tool may return images.
    """

    text: str
    is_error: bool = False
    content: tuple[Block, ...] = ()

    @property
    def blocks(self) -> tuple[Block, ...]:
        """What the tool result holds."""
        return self.content or (Text(self.text),)


def _read_custom(kind: type, value: Any) -> Any:
    """A value of a class that validates its own input, such as a pydantic model."""
    read = getattr(kind, "model_validate", None)
    if not callable(read):
        # Not unfinished: msgspec requires this error of a `dec_hook` that does not support a type.
        raise NotImplementedError(f"a {kind.__name__} cannot be read")
    return read(value)


def find_tool(tools: Mapping[str, FunctionTool], name: str) -> FunctionTool | Outcome:
    """The tool of this name; an error for the model if there is none."""
    tool = tools.get(name)
    if tool is not None:
        return tool
    names = ", ".join(sorted(tools)) or "none"
    return Outcome(f"there is no tool {name!r}; the tools are: {names}", is_error=True)


def read_arguments(tool: FunctionTool, arguments: str) -> dict[str, Any] | tuple[Any] | Outcome:
    """The arguments for the function: keywords, one object, or an error for the model."""
    try:
        value = orjson.loads(arguments or "{}")
        if tool.shape is None:
            if not isinstance(value, dict):
                return Outcome("the arguments are not an object", is_error=True)
            return cast(dict[str, Any], value)
        converted = convert(value, tool.shape)
    except orjson.JSONDecodeError as error:
        return Outcome(f"the arguments are not JSON: {error}", is_error=True)
    except ValueError as error:  # of msgspec, or of a class that validates its own input
        return Outcome(f"the arguments do not fit: {error}", is_error=True)
    return (converted,) if tool.whole_input else msgspec.structs.asdict(converted)


def convert(value: Any, kind: Any) -> Any:
    """A JSON value as an object of a class; raises `ValueError` if it does not fit."""
    return msgspec.convert(value, kind, dec_hook=_read_custom)


async def call_tool(
    tool: FunctionTool, arguments: dict[str, Any] | tuple[Any], timeout: float | None = None
) -> Outcome:
    """Run a tool; never raises. `timeout` applies to tools that have none of their own."""
    seconds = tool.timeout if tool.timeout is not None else timeout
    try:
        async with asyncio.timeout(seconds):
            try:
                return read_outcome(await _run(tool.function, arguments))
            except ToolFailed as error:
                return msgspec.structs.replace(read_outcome(error.content), is_error=True)
            except Exception as error:  # the function is the caller's code and may raise anything
                # The model gets the error as the result of its call.
                return Outcome(encodable(f"{type(error).__name__}: {error}"), is_error=True)
            except SystemExit as error:  # `argparse` raises it; a tool never ends the program
                return Outcome(encodable(f"SystemExit: {error}"), is_error=True)
    except TimeoutError:
        return Outcome(f"the tool did not end within {seconds:g} seconds", is_error=True)


async def _run(function: Callable[..., Any], arguments: dict[str, Any] | tuple[Any]) -> Any:
    args, options = ((), arguments) if isinstance(arguments, dict) else (arguments, {})
    if inspect.iscoroutinefunction(function):
        return await cast(Awaitable[Any], function(*args, **options))
    return await _run_in_thread(lambda: function(*args, **options))


async def _run_in_thread(function: Callable[[], Any]) -> Any:
    """Run a function in a new daemon thread.

    A thread cannot be stopped. The event loop waits for threads of its own pool when it closes, so
    a tool that hangs would keep the program from ending.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def finish(value: Any, error: BaseException | None) -> None:
        if future.done():  # nobody waits any more
            return
        if error is None:
            future.set_result(value)
        elif isinstance(error, StopIteration):  # a future cannot raise it
            future.set_exception(RuntimeError("the tool raised StopIteration"))
        else:
            future.set_exception(error)

    def run() -> None:
        value, error = None, None
        try:
            value = context.run(function)
        except BaseException as raised:  # raised again where the call waits
            error = raised
        try:
            loop.call_soon_threadsafe(finish, value, error)
        except RuntimeError:  # the loop is closed: the run timed out or was stopped
            return

    threading.Thread(target=run, name="weft-tool", daemon=True).start()
    return await future


_ADDRESS = lazy_pattern(r" at 0x[0-9a-fA-F]+>")
"""The default text of an object, which says nothing to a model."""


def read_outcome(value: Any) -> Outcome:
    """A tool's return value: a string as it is, blocks as content, other values as JSON."""
    is_list = isinstance(value, list | tuple)
    items = tuple(cast(list[object], value)) if is_list else (cast(object, value),)
    if items and all(isinstance(item, CONTENT) for item in items):
        blocks = tuple(
            msgspec.structs.replace(item, text=encodable(item.text))
            if isinstance(item, Text)
            else item
            for item in cast(tuple[Block, ...], items)
        )
        return Outcome("\n".join(map(_describe, blocks)), content=blocks)
    text = encodable(write_result(value))
    if _ADDRESS.search(text) and not isinstance(value, str):
        what = f"the tool returned a value without a text form ({type(value).__name__})"
        return Outcome(f"{what}: return a string, JSON values or content blocks", is_error=True)
    return Outcome(text)


def _describe(block: Block) -> str:
    return block.text if isinstance(block, Text) else f"[{type(block).__name__.lower()}]"


def write_result(value: Any) -> str:
    """A tool's return value as text: a string as it is, other values as JSON, or their `str`."""
    if isinstance(value, str):
        return value
    dump = getattr(cast(object, value), "model_dump_json", None)
    if callable(dump):
        return str(dump())
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # names of files that are not UTF-8
        return json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
    except (TypeError, msgspec.MsgspecError):
        return str(value)
