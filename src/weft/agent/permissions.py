"""Permissions for tools: asks a person before a call, and remembers the answer.

A caller's own functions run without a question, because the caller passed them to the agent. Tools
of MCP servers, tools of Claude Code, and tools made with `ask=True`, run only if the agent's
`permission` allows it. An agent without `permission` refuses them.

An agent may also have questions of its own (`UserQuestion`), for example which of two options to
use. Their answers are not remembered.
"""

import asyncio
import copy
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal, cast, get_args

import orjson
from msgspec import Struct

from weft.checked import checked_class
from weft.errors import ConfigError
from weft.model import JsonObject
from weft.store import write_private

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
"""Answers a `UserQuestion`: a text for each question, or None if the person does not answer."""


@checked_class(eager=("__init__",))
class Permissions:
    """Asks a person about calls, one at a time, and remembers answers for later calls.

    Tools that are allowed in a thread are remembered as long as this object. Tools that are always
    allowed are written to the file `path`, if there is one, and read from it again.
    """

    def __init__(self, ask: AskPermission, *, path: str | os.PathLike[str] | None = None) -> None:
        """Raises `ConfigError` if `path` holds something else than a list of tools."""
        self._ask = ask
        self._path = None if path is None else Path(path)
        self._in_thread: set[tuple[str, str]] = set()
        self._always = _read_allowed(self._path)
        self._lock = asyncio.Lock()

    @property
    def always(self) -> frozenset[str]:
        """The tools that are allowed everywhere, as `tool` or `server/tool`."""
        return frozenset(self._always)

    def with_ask(self, ask: AskPermission) -> "Permissions":
        """The same memory with another way to ask, for example in another window."""
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
        async with self._lock:  # two questions at once cannot be told apart in a terminal
            if self.is_allowed(request):  # the answer to the question before
                return True
            answer: Any = self._ask(request)
            if isinstance(answer, Awaitable):
                answer = await cast(Awaitable[Any], answer)
            return self._remember(request, answer)

    def forget(self, tool: str) -> None:
        """Ask again about a tool that was allowed; `tool` is a name as in `always`."""
        self._in_thread -= {pair for pair in self._in_thread if pair[1] == tool}
        if tool in self._always:
            self._always |= _read_allowed(self._path)
            self._always.discard(tool)
            self._save()

    def _remember(self, request: ToolRequest, answer: Any) -> bool:
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
                raise ConfigError(f"permission: must return {choices}, not {answer!r}")

    def _save(self) -> None:
        """Write the file as a whole, or not at all; only its owner may read it."""
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        data = orjson.dumps({"allow": sorted(self._always)}, option=orjson.OPT_INDENT_2)
        write_private(self._path, data + b"\n")


def permissions_path(environ: Mapping[str, str]) -> Path:
    """The file with the tools that the person who runs Weft always allows."""
    folder = environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "weft" / "permissions.json"


def _full_name(request: ToolRequest) -> str:
    """A tool of a server by both names: two servers may have a tool of one name."""
    return request.name if request.server is None else f"{request.server}/{request.name}"


def _read_allowed(path: Path | None) -> set[str]:
    if path is None or not path.exists():
        return set()
    try:
        value: Any = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
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
        raise ConfigError(f"permission: must be a function or 'allow', not {value!r}")
    return Permissions(value)


async def is_allowed(permissions: "Permissions | bool", request: ToolRequest) -> bool:
    """Whether a call that needs permission may run."""
    if isinstance(permissions, bool):
        return permissions
    return await permissions.check(request)
