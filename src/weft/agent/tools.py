"""Run the tools that a model calls, if a person allows it.

The arguments that the model writes are first checked against the tool's types. Every error, in the
arguments or in the function, goes back to the model as text. A tool never ends a run.

A caller's own functions run without a question, because the caller passed them to the agent. Tools
of MCP servers, tools of Claude Code, and tools made with `ask=True`, run only if the agent's
`permission` allows it. An agent without `permission` refuses them. The answers `thread` and
`always` are remembered.

An agent may also have questions of its own (`UserQuestion`), for example which of two options to
use. Their answers are not remembered.
"""

import asyncio
import contextvars
import copy
import inspect
import json
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal, cast, get_args

import msgspec
from msgspec import Struct

from weft import exact_json
from weft.checked import checked_class
from weft.errors import ConfigError
from weft.function_tools import FunctionTool, ToolFailed
from weft.lazy import lazy_pattern
from weft.model import Audio, Block, File, Image, JsonObject, Text, ToolCall, ToolResult
from weft.printable import encodable
from weft.store import write_private

RESULT_BLOCKS = (Text, Image, File, Audio)
"""The blocks that a tool may return."""

Permission = Literal["once", "thread", "always", "deny"]
"""An answer: allow this call, the tool in this thread, the tool everywhere, or nothing."""


class ToolRequest(Struct, frozen=True):
    """A call that waits for permission. `server` is the name of the tool's MCP server, if any."""

    id: str
    name: str
    input: JsonObject | str
    thread: str
    server: str | None = None


AskPermission = Callable[[ToolRequest], Permission | Awaitable[Permission]]


class UserQuestion(Struct, frozen=True):
    """What an agent asks the person: one or more questions, each with options to choose from.

    A question is `{"question", "header", "multiSelect", "options": [{"label", "description"}]}`,
    as Claude Code's tool `AskUserQuestion` writes it. All of it is the model's text: untrusted.
    """

    id: str
    questions: tuple[JsonObject, ...]
    thread: str


AskUser = Callable[[UserQuestion], Awaitable[dict[str, str] | None]]
"""Answers a `UserQuestion`: a dict from the text of each question to its answer, or None if the
person does not answer."""


@checked_class(eager=("__init__",))
class Permissions:
    """Asks a person about calls, one at a time, and remembers the answers `thread` and `always`.

    The answer `thread` is remembered as long as this object exists. The answer `always` is also
    written to the file `path`, if there is one; a new object reads it from there.
    """

    def __init__(self, ask: AskPermission, *, path: str | os.PathLike[str] | None = None) -> None:
        """Raises `ConfigError` if the file `path` exists, but has no list of allowed tools."""
        self._ask = ask
        self._path = None if path is None else Path(path)
        self._in_thread: set[tuple[str, str]] = set()  # (thread, tool)
        self._always = _read_allowed(self._path)  # tools, named as in `always`
        self._lock = asyncio.Lock()

    @property
    def always(self) -> frozenset[str]:
        """The tools that are allowed everywhere, as `tool` or `server/tool`."""
        return frozenset(self._always)

    def with_ask(self, ask: AskPermission) -> "Permissions":
        """A copy with another way to ask, for example in another window. Both share the
        remembered answers."""
        other = copy.copy(self)
        other._ask = ask
        other._lock = asyncio.Lock()
        return other

    def is_allowed(self, request: ToolRequest) -> bool:
        """Whether an earlier answer allows this call."""
        tool = _full_name(request)
        return tool in self._always or (request.thread, tool) in self._in_thread

    async def check(self, request: ToolRequest) -> bool:
        """Whether the call may run; asks if no earlier answer allows it."""
        if self.is_allowed(request):
            return True
        async with self._lock:  # a terminal can show one question at a time
            if self.is_allowed(request):  # the answer to the previous question allows it
                return True
            answer: Any = self._ask(request)
            if isinstance(answer, Awaitable):
                answer = await cast(Awaitable[Any], answer)
            return self._apply_answer(request, answer)

    def forget(self, tool: str) -> None:
        """Ask again about a tool that was allowed; `tool` is a name as in `always`."""
        self._in_thread -= {pair for pair in self._in_thread if pair[1] == tool}
        if tool in self._always:
            self._always |= _read_allowed(self._path)
            self._always.discard(tool)
            self._save()

    def _apply_answer(self, request: ToolRequest, answer: Any) -> bool:
        """Whether the answer allows the call; remembers `thread` and `always`."""
        tool = _full_name(request)
        match answer:
            case "once":
                return True
            case "thread":
                self._in_thread.add((request.thread, tool))
                return True
            case "always":
                self._always |= {tool} | _read_allowed(self._path)  # another program may write it
                self._save()
                return True
            case "deny":
                return False
            case _:
                choices = ", ".join(repr(choice) for choice in get_args(Permission))
                raise ConfigError(
                    f"permission: the function must return one of {choices}, not {answer!r}"
                )

    def _save(self) -> None:
        """Write the file as a whole, or not at all; only its owner may read it."""
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        data = exact_json.dumps({"allow": sorted(self._always)}, option=exact_json.OPT_INDENT_2)
        write_private(self._path, data + b"\n")


def permissions_path(environ: Mapping[str, str]) -> Path:
    """The file with the tools that the person who runs Weft always allows."""
    folder = environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "weft" / "permissions.json"


def _full_name(request: ToolRequest) -> str:
    """The tool's name, with its server's name in front: two servers may have tools of the same
    name."""
    return request.name if request.server is None else f"{request.server}/{request.name}"


def _read_allowed(path: Path | None) -> set[str]:
    if path is None or not path.exists():
        return set()
    try:
        value: Any = exact_json.loads(path.read_bytes())
    except (OSError, exact_json.JSONDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    names: Any = cast(JsonObject, value).get("allow") if isinstance(value, dict) else None
    if not isinstance(names, list) or not all(
        isinstance(name, str) for name in cast(list[object], names)
    ):
        raise ConfigError(f'{path}: must be {{"allow": ["tool", "server/tool", ...]}}')
    return set(cast(list[str], names))


def read_permission(
    value: "Permissions | AskPermission | Literal['allow'] | None",
) -> "Permissions | bool":
    """The agent's `permission`: a `Permissions`, or the same answer for every call."""
    if value is None or value == "allow":
        return value is not None
    if isinstance(value, Permissions):
        return value
    if not callable(value):
        raise ConfigError(
            f"permission: must be a function, a weft.Permissions, 'allow' or None, not {value!r}"
        )
    return Permissions(value)


async def check_permission(permissions: "Permissions | bool", request: ToolRequest) -> bool:
    """Whether a call that needs permission may run; asks the person if needed."""
    if isinstance(permissions, bool):
        return permissions
    return await permissions.check(request)


class Outcome(Struct, frozen=True, gc=False):
    """The result of a call, as the text that the model gets.

    `content` is the whole result if it is more than the text: a tool may return images.
    """

    text: str
    is_error: bool = False
    content: tuple[Block, ...] = ()

    def to_result(self, call: ToolCall) -> ToolResult:
        """The result of a call as a block of a message."""
        return ToolResult(call.id, self.blocks, is_error=self.is_error or None, name=call.name)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The content of the tool result."""
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
        value = exact_json.loads_as_floats(arguments or "{}")
        if tool.shape is None:
            if not isinstance(value, dict):
                return Outcome("the arguments are not an object", is_error=True)
            return cast(dict[str, Any], value)
        converted = convert(value, tool.shape)
    except exact_json.JSONDecodeError as error:
        return Outcome(f"the arguments are not JSON: {error}", is_error=True)
    except ValueError as error:  # raised by msgspec, or by a class that validates its own input
        return Outcome(f"the arguments do not match the tool's schema: {error}", is_error=True)
    return (converted,) if tool.whole_input else msgspec.structs.asdict(converted)


def convert(value: Any, kind: Any) -> Any:
    """A JSON value as an object of a class; raises `ValueError` if it does not match."""
    return msgspec.convert(value, kind, dec_hook=_read_custom)


async def call_tool(
    tool: FunctionTool, arguments: dict[str, Any] | tuple[Any], timeout: float | None = None
) -> Outcome:
    """Run a tool; never raises. `timeout` applies to tools that have none of their own."""
    seconds = tool.timeout if tool.timeout is not None else timeout
    try:
        async with asyncio.timeout(seconds):
            try:
                return make_outcome(await _run(tool.function, arguments))
            except ToolFailed as error:
                return msgspec.structs.replace(make_outcome(error.content), is_error=True)
            except Exception as error:  # the function is the caller's code and may raise anything
                # The model gets the error as the result of its call.
                return Outcome(encodable(f"{type(error).__name__}: {error}"), is_error=True)
            except SystemExit as error:  # `argparse` raises it; a tool never ends the program
                return Outcome(encodable(f"SystemExit: {error}"), is_error=True)
    except TimeoutError:
        return Outcome(f"the tool did not end within {seconds:g} seconds", is_error=True)


async def _run(function: Callable[..., Any], arguments: dict[str, Any] | tuple[Any]) -> Any:
    args, kwargs = ((), arguments) if isinstance(arguments, dict) else (arguments, {})
    if inspect.iscoroutinefunction(function):
        return await cast(Awaitable[Any], function(*args, **kwargs))
    return await _run_in_thread(lambda: function(*args, **kwargs))


async def _run_in_thread(function: Callable[[], Any]) -> Any:
    """Run a function in a new worker thread (a daemon).

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


_DEFAULT_REPR = lazy_pattern(r" at 0x[0-9a-fA-F]+>")
"""The end of Python's default `repr`, which is useless to a model."""


def make_outcome(value: Any) -> Outcome:
    """The outcome of a call that returned this value: a string as it is, blocks as content, other
    values as JSON."""
    is_list = isinstance(value, list | tuple)
    items = tuple(cast(list[object], value)) if is_list else (cast(object, value),)
    if items and all(isinstance(item, RESULT_BLOCKS) for item in items):
        blocks = tuple(
            msgspec.structs.replace(item, text=encodable(item.text))
            if isinstance(item, Text)
            else item
            for item in cast(tuple[Block, ...], items)
        )
        return Outcome("\n".join(map(_block_text, blocks)), content=blocks)
    text = encodable(result_text(value))
    if _DEFAULT_REPR.search(text) and not isinstance(value, str):
        problem = f"the tool returned a value without a text form ({type(value).__name__})"
        return Outcome(f"{problem}: return a string, JSON values or content blocks", is_error=True)
    return Outcome(text)


def _block_text(block: Block) -> str:
    return block.text if isinstance(block, Text) else f"[{type(block).__name__.lower()}]"


def result_text(value: Any) -> str:
    """A tool's return value as text: a string as it is, other values as JSON, or their `str`."""
    if isinstance(value, str):
        return value
    dump = getattr(cast(object, value), "model_dump_json", None)
    if callable(dump):
        return str(dump())
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # lone surrogates, for example in a file name that is not UTF-8
        return json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
    except (TypeError, msgspec.MsgspecError):
        return str(value)
