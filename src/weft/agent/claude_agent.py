"""`ClaudeAgent`: Claude Code as the agent of a thread, driven by the Claude Agent SDK.

Claude Code runs as a child process and sends its requests to a gateway of the same store. The
gateway records them, so the conversation is in the thread like any other, and any upstream can
answer. This class starts the process, answers its questions, and converts its messages to the
events of a run (`claude.EventDecoder`).

What always holds:

- The thread is the source of truth. Each run continues Claude Code's own session if nothing else
  has changed the thread since. Otherwise it continues a session file that is written from the
  thread. So undo, edits, branches and compactions in Weft apply to Claude Code too.
- Nothing runs unasked: a hook makes Claude Code ask about every call, also about those that it
  would allow by itself, such as reading a file. `Permissions` answers.
- The settings of Claude Code (hooks, MCP servers, allowed tools, CLAUDE.md) are not loaded, unless
  `ClaudeOptions.settings` is set.

https://docs.claude.com/en/api/agent-sdk/python
"""

import asyncio
import os
import re
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, cast
from uuid import uuid4

from msgspec import Struct, field, structs

from weft.catalog import Catalog, Price, cost, load_catalog
from weft.codec import CODECS
from weft.errors import ConfigError, ThreadError
from weft.history import split_typed
from weft.model import JsonObject, Message, Text, ToolResult, is_system
from weft.store import write_private
from weft.thread import (
    LOCAL_SCOPE,
    Attachment,
    Media,
    Thread,
    link_session,
    open as open_thread,
    read_attachments,
    session_name,
    write_session,
)

from .claude import EventDecoder, load_sdk, to_json_object
from .events import AgentEvent, Failure, MessageComplete, SystemMessage, UsageReport
from .loop import DENIED, check_unanswered
from .mcp import read_command
from .tools import (
    AskPermission,
    AskUser,
    Permissions,
    ToolRequest,
    UserQuestion,
    check_permission,
    read_permission,
)

FORMAT = "claude-code"
SERVER = "claude"
"""The name under which permissions for Claude Code's tools are remembered: `claude/Bash`."""
QUESTION_TOOL = "AskUserQuestion"
NEVER_ASKED = frozenset({QUESTION_TOOL, "TodoWrite", "ToolSearch"})
"""Tools that change nothing outside the session, and the tool that asks the user itself."""
DISABLED_TOOLS = ["CronCreate", "CronDelete", "CronList", "Monitor", "ScheduleWakeup"]
"""Tools for work after the end of a run; the process has ended by then."""
PLACEHOLDER_KEY = "weft"
"""Claude Code does not start without a key; a gateway without keys accepts any."""
LOGIN_FILE = "~/.claude/.credentials.json"
CONTINUE = "Continue."
NO_ANSWER = "The user did not answer the question."
INTERRUPT_SECONDS = 5.0
LAST_HINT_SECONDS = 10.0
"""How long a run waits for the turn of a hint that Claude Code has not confirmed."""
ERROR_LINES = 5
SMALL_MODEL_VARIABLES = (
    "ANTHROPIC_SMALL_FAST_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    "CLAUDE_CODE_SUBAGENT_MODEL",
)
QUIET_VARIABLES = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER")


class ClaudeOptions(Struct, frozen=True, kw_only=True):
    """How Claude Code is started.

    - `model`: the model that answers; None for Claude Code's own default
    - `folder`: its working directory; None for that of this process
    - `program`: its binary; None for the one that comes with the SDK
    - `key`: a key of the gateway, if the gateway needs one
    - `scope`: the gateway's name for the owner of that key, and `suffix` what it adds to the names
      of that owner's sessions
    - `mcp`: MCP servers, as commands or URLs
    - `settings`: whether to load Claude Code's own settings, of the user and of the folder
    - `system`: text that is added to its system prompt
    - `steps`, `cost_limit`: the most requests and dollars of one run
    - `env`: variables of the process, above those of this one
    """

    model: str | None = None
    folder: str | None = None
    program: str | None = None
    key: str | None = None
    scope: str = LOCAL_SCOPE
    suffix: str = ""
    mcp: tuple[str, ...] = ()
    settings: bool = False
    system: str | None = None
    steps: int | None = None
    cost_limit: float | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])


class ClaudeSession(Struct, frozen=True):
    """A session of Claude Code, and the head of the thread when its last run ended."""

    id: str
    head: str | None


class Turn(Struct, frozen=True):
    """The content that a run sends, and its session; `is_new` if the session has no file yet."""

    session: str
    is_new: bool
    content: str | list[JsonObject]


class ClaudeAgent:
    """Claude Code as the agent of a thread. It has the methods that a run needs of an `Agent`."""

    def __init__(
        self,
        thread: Thread,
        url: str,
        options: ClaudeOptions | None = None,
        *,
        permission: Permissions | AskPermission | Literal["allow"] | None = None,
        ask_user: AskUser | None = None,
        sessions: dict[tuple[str, str], ClaudeSession] | None = None,
        wait_recorded: Callable[[], Awaitable[None]] | None = None,
        catalog: Catalog | None = None,
    ) -> None:
        """`url` is the address of a gateway that records to the store of the thread.

        `permission` decides on every call of a tool, as for `Agent`; without it all are refused.
        `ask_user` answers what Claude Code asks. `sessions` keeps the sessions of threads for
        later agents. `wait_recorded` is awaited after a run: the gateway may still be recording
        the end of a stopped answer.

        Raises `ConfigError` if the Claude Agent SDK is not installed.
        """
        self._sdk = load_sdk()
        self.thread = thread
        self.options = options or ClaudeOptions()
        self._url = url
        self._permissions = read_permission(permission)
        self._ask_user = ask_user
        self._sessions = {} if sessions is None else sessions
        self._wait_recorded = wait_recorded
        self._catalog = catalog or load_catalog()
        model = self.options.model
        if self.options.cost_limit is not None and model is not None and not self._price(model):
            raise ConfigError(
                f"cost_limit: the catalogue has no price for {model!r}; add one to weft.toml"
            )
        self._hints: deque[str] = deque()
        self._unconfirmed: list[str] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_hints = asyncio.Event()
        self._error_lines: deque[str] = deque(maxlen=ERROR_LINES)

    @property
    def model(self) -> str:
        """The model that answers, or Claude Code's name for its default."""
        return self.options.model or "default"

    async def run(
        self, text: str | None, *, attach: Attachment | Iterable[Attachment] | None = None
    ) -> AsyncGenerator[AgentEvent]:
        """Send a text and yield the events of the run, as `Agent.run` does.

        With `None`, or the same text again after it failed, the last message is sent again.
        """
        attached = await asyncio.to_thread(read_attachments, attach)
        turn = await asyncio.to_thread(self._prepare, text, attached)
        client = self._sdk.ClaudeSDKClient(self._sdk_options(turn))
        self._loop = asyncio.get_running_loop()
        self._has_hints = asyncio.Event()  # an event belongs to one event loop
        hint_sender: asyncio.Task[None] | None = None
        try:
            await client.connect()
            await client.query(_user_message(turn.content))
            hint_sender = asyncio.create_task(self._send_hints(client))
            async for event in self._read(client):
                yield event
        except (asyncio.CancelledError, GeneratorExit):
            await self._interrupt(client)
            raise
        except self._sdk.ClaudeSDKError as error:
            yield Failure(self._with_error_output(error))
        finally:
            self._loop = None
            if hint_sender is not None:
                hint_sender.cancel()
            with suppress(self._sdk.ClaudeSDKError):
                await client.disconnect()
            if self._wait_recorded is not None:
                await self._wait_recorded()
            await asyncio.to_thread(self._remember, turn.session)

    def hint(self, text: str) -> None:
        """Send Claude Code a text while it works, from any OS thread."""
        if not text.strip():
            raise ThreadError("the hint is empty")
        self._hints.append(text)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._has_hints.set)

    def take_hints(self) -> list[str]:
        """Remove the hints that Claude Code has not read, and return them."""
        hints = [*self._unconfirmed, *self._hints]
        self._unconfirmed.clear()
        self._hints.clear()
        return hints

    def _prepare(self, text: str | None, attached: tuple[Media, ...]) -> Turn:
        """The session that continues the thread, and the content of its next message."""
        if text is not None and not text.strip() and not attached:
            raise ThreadError("the text is empty; pass None to ask again")
        thread = self.thread
        open_thread(thread.store, thread.name).switch(thread.current)  # the gateway records there
        retried = self._find_retried(text, attached)
        base = None if thread.head is None else thread.head.id
        content = _content(text or CONTINUE, attached)
        if retried is not None:
            base, message = retried
            content = _typed_content(message)
        session = self._sessions.get((thread.name, thread.current))
        folder = os.path.realpath(self.options.folder or os.getcwd())
        if session is not None and session.head == base and base is not None:
            path = claude_session_path(session.id, folder, self._environ())
            if path.exists():
                return Turn(session.id, False, content)
        return self._start_session(base, folder, content)

    def _start_session(
        self, base: str | None, folder: str, content: str | list[JsonObject]
    ) -> Turn:
        """A new session that continues the thread at commit `base`, and its first message."""
        thread, store, scope = self.thread, self.thread.store, self.options.scope
        id = str(uuid4())
        is_new = base is None or not _has_dialogue(thread, base)
        if thread.head is None:
            thread.setup()  # a session can only be linked to a commit
        if not is_new:
            file = write_session(
                store, thread.name, FORMAT, id, commit=base, folder=folder, scope=scope
            )
            write_session_file(claude_session_path(id, folder, self._environ()), file.data)
        name = f"{session_name(FORMAT, id)}{self.options.suffix}"
        link_session(store, thread.name, name, scope)
        return Turn(id, is_new, content)

    def _find_retried(
        self, text: str | None, attached: tuple[Media, ...]
    ) -> tuple[str | None, Message] | None:
        """The message that is sent again, and the commit before it; None for a new message."""
        thread = self.thread
        if text is None:
            check_unanswered(thread)
        elif attached or not thread.attempts(thread.head):
            return None
        dialogue = [m for m in thread.compile().messages if not is_system(m)]
        last = dialogue[-1] if dialogue else None
        if last is None or last.role != "user" or not _typed_text(last).strip():
            return None
        if any(isinstance(block, ToolResult) for block in last.blocks):
            return None
        if text is not None and _typed_text(last).strip() != text.strip():
            return None
        for info in thread.log():
            if last in info.messages:
                return (info.parents[0] if info.parents else None), last
        return None

    def _environ(self) -> dict[str, str]:
        return {**os.environ, **self.options.env}

    def _variables(self) -> dict[str, str]:
        """The variables of the process: the gateway, its key, and one model for everything."""
        options = self.options
        variables = {name: "1" for name in QUIET_VARIABLES if name not in os.environ}
        variables |= options.env
        variables["ANTHROPIC_BASE_URL"] = self._url
        if options.model is not None:
            variables |= dict.fromkeys(SMALL_MODEL_VARIABLES, options.model)
        if options.key is not None:
            variables |= {"ANTHROPIC_API_KEY": options.key, "ANTHROPIC_AUTH_TOKEN": ""}
        elif not _has_credentials(self._environ()):
            variables["ANTHROPIC_API_KEY"] = PLACEHOLDER_KEY
        return variables

    def _sdk_options(self, turn: Turn) -> Any:
        sdk, options = self._sdk, self.options
        prompt: JsonObject = {"type": "preset", "preset": "claude_code"}
        if options.system is not None:
            prompt["append"] = options.system
        matcher = sdk.HookMatcher(matcher=None, hooks=[_ask_always])
        return sdk.ClaudeAgentOptions(
            model=options.model,
            cwd=options.folder,
            cli_path=options.program,
            env=self._variables(),
            system_prompt=prompt,
            permission_mode="default",
            can_use_tool=self._decide,
            hooks={"PreToolUse": [matcher]},
            disallowed_tools=DISABLED_TOOLS,
            mcp_servers=_mcp_servers(options.mcp),
            strict_mcp_config=not options.settings,
            setting_sources=["user", "project", "local"] if options.settings else [],
            include_partial_messages=True,
            extra_args={"replay-user-messages": None},  # so that a hint is confirmed
            max_turns=options.steps,
            max_budget_usd=options.cost_limit,
            stderr=self._error_lines.append,
            **({"session_id": turn.session} if turn.is_new else {"resume": turn.session}),
        )

    async def _send_hints(self, client: Any) -> None:
        """Send each hint when it arrives, until the run ends."""
        while True:
            self._has_hints.clear()
            while self._hints:
                text = self._hints.popleft()
                self._unconfirmed.append(text)
                await client.query(text)
            await self._has_hints.wait()

    async def _read(self, client: Any) -> AsyncGenerator[AgentEvent]:
        """The events of the run, up to its end. A hint that comes too late starts another turn."""
        decoder, messages = EventDecoder(), client.receive_messages()
        end: AgentEvent | None = None  # the last event, held back while a hint is unread
        while True:
            try:
                async with asyncio.timeout(None if end is None else LAST_HINT_SECONDS):
                    message = await anext(messages)
            except (TimeoutError, StopAsyncIteration):
                no_result = "Claude Code ended without a result"
                yield end or Failure(self._with_error_output(no_result))
                return
            confirmed = self._confirm(to_json_object(message))
            if confirmed is not None:
                yield SystemMessage("hint", {"content": confirmed})
            for event in decoder.feed(message):
                if isinstance(event, MessageComplete | Failure):
                    end = event
                    break
                end = None
                yield self._priced(event)
            if end is not None and not (self._hints or self._unconfirmed):
                yield end
                return

    def _confirm(self, message: JsonObject) -> str | None:
        """The hint that Claude Code has read, if this message says so."""
        content = cast(JsonObject, message.get("message") or {}).get("content")
        if message.get("type") != "user" or not isinstance(content, str):
            return None
        for hint in self._unconfirmed:
            if hint.strip() == content.strip():
                self._unconfirmed.remove(hint)
                return hint
        return None

    def _priced(self, event: AgentEvent) -> AgentEvent:
        """Usage with the catalogue's price: Claude Code has no prices of other vendors."""
        model = self.options.model
        if not isinstance(event, UsageReport) or model is None:
            return event
        price = self._price(model)
        if price is None:
            return structs.replace(event, cost=None)
        dollars = cost(
            price,
            input=event.input,
            output=event.output,
            cached=event.cached or 0,
            written=event.written or 0,
            written_1h=event.written_1h or 0,
        )
        return structs.replace(event, cost=dollars)

    def _price(self, model: str) -> Price | None:
        """The price of a model; its name may begin with the name of an upstream."""
        return self._catalog.find(model).price or self._catalog.find(model.rpartition("/")[2]).price

    async def _decide(self, name: str, input: JsonObject, context: Any) -> Any:
        """The SDK's callback before each call: a permission, or the user's answers to questions."""
        id = str(getattr(context, "tool_use_id", None) or "")
        if name == QUESTION_TOOL:
            return await self._answer(id, input)
        request = ToolRequest(id, name, input, self.thread.name, SERVER)
        if await check_permission(self._permissions, request):
            return self._sdk.PermissionResultAllow(updated_input=input)
        return self._sdk.PermissionResultDeny(message=DENIED)

    async def _answer(self, id: str, input: JsonObject) -> Any:
        value = input.get("questions")
        items = cast(list[object], value) if isinstance(value, list) else []
        questions = tuple(cast(JsonObject, item) for item in items if isinstance(item, dict))
        answers = None
        if self._ask_user is not None and questions:
            answers = await self._ask_user(UserQuestion(id, questions, self.thread.name))
        if answers is None:
            return self._sdk.PermissionResultDeny(message=NO_ANSWER)
        return self._sdk.PermissionResultAllow(updated_input={**input, "answers": answers})

    async def _interrupt(self, client: Any) -> None:
        """Ask Claude Code to stop, so that it closes its request; the process ends afterwards."""
        with suppress(Exception):  # it may have ended already
            async with asyncio.timeout(INTERRUPT_SECONDS):
                await client.interrupt()

    def _remember(self, session: str) -> None:
        head = self.thread.head
        key = (self.thread.name, self.thread.current)
        self._sessions[key] = ClaudeSession(session, None if head is None else head.id)

    def _with_error_output(self, error: object) -> str:
        """The error, with the last line that Claude Code printed to its error output."""
        lines = [line.strip() for line in self._error_lines if line.strip()]
        return f"{error}: {lines[-1]}" if lines else str(error)


def is_installed() -> bool:
    """Whether the Claude Agent SDK is installed."""
    from importlib.util import find_spec

    return find_spec("claude_agent_sdk") is not None


def claude_session_path(session: str, folder: str, environ: Mapping[str, str]) -> Path:
    """The file of a session: Claude Code names its folder after its working directory."""
    home = Path(environ.get("CLAUDE_CONFIG_DIR") or "~/.claude").expanduser()
    project = re.sub(r"[^A-Za-z0-9]", "-", os.path.realpath(folder))
    return home / "projects" / project / f"{session}.jsonl"


def write_session_file(path: Path, data: bytes) -> None:
    """Write the file of a session, and create its folder."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(path, data)


async def _ask_always(input: Any, _: str | None, __: Any) -> JsonObject:
    """The hook before every call: it makes Claude Code ask, whatever its own rules say."""
    if cast(JsonObject, input).get("tool_name") in NEVER_ASKED:
        return {}
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "ask",
            "permissionDecisionReason": "every call is asked about",
        }
    }


async def _user_message(content: str | list[JsonObject]) -> AsyncIterator[JsonObject]:
    message = {"role": "user", "content": content}
    yield {"type": "user", "message": message, "parent_tool_use_id": None}


def _content(text: str, attached: tuple[Media, ...]) -> str | list[JsonObject]:
    """The content of a message: a string, or Anthropic's blocks if it has attached files."""
    if not attached:
        return text
    blocks = (*attached, *((Text(text),) if text.strip() else ()))
    body = CODECS["anthropic"].write_messages([Message("user", blocks)])
    content: list[JsonObject] = body["messages"][0]["content"]
    return content


def _typed_content(message: Message) -> str | list[JsonObject]:
    """The content of a message that is sent again, without what Claude Code adds to it."""
    media = tuple(block for block in message.blocks if isinstance(block, Media))
    return _content(_typed_text(message), media)


def _typed_text(message: Message) -> str:
    """The text of a message that the user typed, without what Claude Code added."""
    texts = [split_typed(block.text)[0] for block in message.blocks if isinstance(block, Text)]
    return "\n".join(text for text in texts if text.strip())


def _has_dialogue(thread: Thread, commit: str) -> bool:
    messages = thread.compile(at=commit).messages
    return any(not is_system(message) for message in messages)


def _has_credentials(environ: Mapping[str, str]) -> bool:
    """Whether Claude Code has a key or a login; on macOS the login is in the keychain."""
    if environ.get("ANTHROPIC_API_KEY") or environ.get("ANTHROPIC_AUTH_TOKEN"):
        return True
    return sys.platform == "darwin" or Path(LOGIN_FILE).expanduser().exists()


def _mcp_servers(servers: Iterable[str]) -> JsonObject:
    """MCP servers as Claude Code configures them."""
    configured: JsonObject = {}
    for number, server in enumerate(servers, 1):
        command = read_command(server)
        if isinstance(command, str):
            configured[f"server{number}"] = {"type": "http", "url": command}
        else:
            program, *args = command
            name = re.sub(r"[^A-Za-z0-9_-]", "-", Path(program).stem) or "server"
            config = {"type": "stdio", "command": program, "args": args}
            configured[f"{name}{number}"] = config
    return configured
