"""Tools of MCP servers: a program on this machine (stdio), or a server at a URL (HTTP).

    with weft.McpServer("uvx mcp-server-time") as time:
        agent = weft.Agent(thread, model, [time, my_function], permission=ask)

The connection has a thread and an event loop of its own, because runs start and end in any loop,
and the server must stay up between them. It needs the extra `mcp`.

A server is untrusted: its tools run only with permission (see `tools`), and it can ask for
nothing in return, neither answers of the model nor questions to the user.

https://modelcontextprotocol.io
"""

import asyncio
import os
import shlex
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack
from importlib.util import find_spec
from typing import Any, Self, cast

from weft.checked import checked_class
from weft.errors import ConfigError
from weft.function_tools import FunctionTool, ToolFailed, is_tool_name
from weft.model import Audio, Block, File, Image, Inline, JsonObject, Text, Tool

START_SECONDS = 30.0
CLOSE_SECONDS = 10.0
HTTP_SECONDS, HTTP_READ_SECONDS = 30.0, 300.0
PAGES = 100
"""How many pages of a tool list are read; a server could send an endless one."""

ERROR_LINES, LINE_LENGTH = 5, 500
"""How many of the last lines of a server's error output an error has, and their length."""


@checked_class(eager=("__init__",))
class McpServer:
    """A connection to an MCP server, with its `tools`.

    Use it as a context manager, or call `close`. `Agent(tools=[server])` takes the server itself.
    """

    def __init__(
        self,
        server: str | Sequence[str],
        *,
        name: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        headers: Mapping[str, str] | None = None,
        prefix: bool = False,
        timeout: float = START_SECONDS,
    ) -> None:
        """The constructor starts the server and reads the list of its tools.

        `server` is a command (a string as in a shell, or a list of arguments) or an `http(s)://`
        URL. A command is started with a minimal environment and the variables in `env`. It does not
        get this program's other variables, such as API keys. `headers` are sent with every request
        to a URL. `name` is used when a person is asked for permission, and in errors (default: the
        server's own name). With `prefix`, its tools are named `NAME_TOOL`, for servers whose tools
        have the same names.

        Raises `ConfigError` if the server does not start and answer within `timeout` seconds.
        """
        if find_spec("mcp") is None:
            raise ConfigError(
                "the MCP client is not installed: pip install '.[mcp]' in the folder of Weft"
            )
        self._command = read_command(server)
        self._label = name or (server if isinstance(server, str) else shlex.join(server))
        self._options = (dict(env or {}), cwd, dict(headers or {}))
        self._errors = _LastLines()
        self._client: Any = None
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        started: Future[tuple[str, list[Any]]] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(started,), name="weft-mcp", daemon=True
        )
        self._thread.start()
        try:
            own_name, tools = started.result(timeout)
        except TimeoutError:
            self.close()
            raise ConfigError(
                f"MCP server {self._label!r} did not answer within {timeout:g} seconds"
                + self._errors.text()
            ) from None
        except Exception as error:  # the `mcp` package documents no errors of its own
            # It passes on those of processes, of HTTP and of groups of tasks.
            self.close()
            raise ConfigError(
                f"MCP server {self._label!r}: {_reason(error)}{self._errors.text()}"
            ) from error
        self.name: str = name or own_name
        """The server's name in questions and errors."""
        self.tools: tuple[FunctionTool, ...] = tuple(
            self._read_tool(tool, f"{self.name}_" if prefix else "") for tool in tools
        )
        """The tools, for `Agent(tools=...)`."""

    def close(self) -> None:
        """Close the connection, and stop the server if this object started it."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(CLOSE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _run(self, started: "Future[tuple[str, list[Any]]]") -> None:
        """The function of the thread: connect, and keep the connection until `close`."""
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._stay_connected(started))
        except BaseException as error:  # reported to the caller, who waits for the start
            if not started.done():
                started.set_exception(error)
        finally:
            self._errors.close()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _stay_connected(self, started: "Future[tuple[str, list[Any]]]") -> None:
        connection = asyncio.ensure_future(self._connect(started))
        stop = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait({connection, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not connection.done() and not started.done():  # it hangs while it starts
            connection.cancel()
        await asyncio.gather(connection, return_exceptions=started.done())

    async def _connect(self, started: "Future[tuple[str, list[Any]]]") -> None:
        from mcp import Client

        async with AsyncExitStack() as stack:
            transport = await self._transport(stack)
            self._client = await stack.enter_async_context(Client(transport))
            tools = await self._list_tools()
            started.set_result((_server_name(self._client) or self._label, tools))
            await self._stopping.wait()

    async def _transport(self, stack: AsyncExitStack) -> Any:
        env, cwd, headers = self._options
        if isinstance(self._command, str):
            import httpx2
            from mcp.client.streamable_http import streamable_http_client

            limits = httpx2.Timeout(HTTP_SECONDS, read=HTTP_READ_SECONDS)
            client = httpx2.AsyncClient(headers=headers, timeout=limits)
            http = await stack.enter_async_context(client)
            return streamable_http_client(self._command, http_client=http)
        from mcp import StdioServerParameters, stdio_client

        command, *args = self._command
        parameters = StdioServerParameters(command=command, args=args, env=env, cwd=_path(cwd))
        return stdio_client(parameters, errlog=self._errors.file)

    async def _list_tools(self) -> list[Any]:
        tools: list[Any] = []
        cursor: str | None = None
        for _ in range(PAGES):
            page = await self._client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
        return tools

    def _read_tool(self, tool: Any, prefix: str) -> FunctionTool:
        own_name: str = tool.name

        async def call(**arguments: Any) -> tuple[Block, ...]:
            return await self._call(own_name, arguments)

        name = f"{prefix}{own_name}"
        if not is_tool_name(name):
            name = "".join(c if is_tool_name(c) else "_" for c in name)[:64]
        schema = cast(JsonObject, tool.input_schema)
        definition = Tool(name, tool.description, {"type": "object", **schema})
        hints = tool.annotations
        is_repeatable = hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)
        return FunctionTool(definition, call, ask=True, server=self.name, repeatable=is_repeatable)

    async def _call(self, name: str, arguments: dict[str, Any]) -> tuple[Block, ...]:
        if not self._thread.is_alive():
            raise ToolFailed(f"the MCP server {self.name!r} is not running")
        future = asyncio.run_coroutine_threadsafe(
            self._client.call_tool(name, arguments), self._loop
        )
        try:
            result = await asyncio.wrap_future(future)
        except Exception as error:  # the `mcp` package documents no errors of its own
            # The model gets the reason, and can go on without the tool.
            raise ToolFailed(_reason(error)) from error
        content = tuple(map(_read_content, result.content))
        if result.is_error:
            raise ToolFailed(content or "the tool failed without a reason")
        return content or (Text(""),)


def read_command(server: str | Sequence[str]) -> str | list[str]:
    """The URL unchanged, or a command as the list of its arguments."""
    if isinstance(server, str) and server.lower().startswith(("http://", "https://")):
        return server
    if not isinstance(server, str) and not all(
        isinstance(item, str) for item in cast(Sequence[object], server)
    ):
        raise ConfigError(f"MCP server: must be a command or a URL, not {server!r}")
    try:
        command = shlex.split(server) if isinstance(server, str) else list(server)
    except ValueError as error:
        raise ConfigError(f"MCP server {server!r}: {error}") from error
    if not command:
        raise ConfigError("an MCP server is a command or a URL, not an empty text")
    return command


def _read_content(part: Any) -> Block:
    """A part of a result as a block; a part that no model can read becomes its type's name."""
    match part.type:
        case "text":
            return Text(part.text)
        case "image":
            return Image(Inline(part.data, part.mime_type))
        case "audio":
            return Audio(Inline(part.data, part.mime_type))
        case "resource":
            inner = part.resource
            text = getattr(inner, "text", None)
            if isinstance(text, str):
                return Text(text)
            return File(Inline(inner.blob, inner.mime_type or ""), name=str(inner.uri))
        case "resource_link":
            return Text(f"{part.name}: {part.uri}")
        case _:
            return Text(f"[{part.type}]")


def _server_name(client: Any) -> str | None:
    info = getattr(client, "server_info", None)
    name = getattr(info, "name", None)
    return name if isinstance(name, str) and name else None


def _reason(error: BaseException) -> str:
    """The first error inside groups of errors, which tasks raise together."""
    while isinstance(error, BaseExceptionGroup):
        error = cast(BaseException, error.exceptions[0])
    return str(error) or type(error).__name__


def _path(cwd: str | os.PathLike[str] | None) -> str | None:
    return None if cwd is None else os.fspath(cwd)


class _LastLines:
    """A file for a program's error output that keeps only the last lines."""

    def __init__(self) -> None:
        reading, writing = os.pipe()
        self.file = os.fdopen(writing, "w")
        self._lines: deque[str] = deque(maxlen=ERROR_LINES)
        self._thread = threading.Thread(target=self._read, args=(reading,), daemon=True)
        self._thread.start()

    def text(self) -> str:
        """The last lines, for the end of an error message."""
        self.close()
        lines = "\n".join(self._lines).strip()
        return f"; it printed:\n{lines}" if lines else ""

    def close(self) -> None:
        if not self.file.closed:
            self.file.close()
        self._thread.join(1.0)

    def _read(self, reading: int) -> None:
        with os.fdopen(reading, errors="replace") as file:
            while line := file.readline(LINE_LENGTH):
                self._lines.append(line.rstrip("\n"))
