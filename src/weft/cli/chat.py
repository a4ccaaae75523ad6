"""`weft chat`: chat with a model in the terminal, in a stored thread.

Answers are streamed, with tool calls and compactions; on a terminal Markdown is shown with styles.
With a text on the command line the chat sends it, prints the answer and exits; otherwise it reads
lines until the end of input. A line that begins with a slash and a word is a command and is not
sent.

After an answer that failed or was stopped (Ctrl-C), an empty line or `/retry` asks the model again
without repeating the question. The part that had arrived is stored as an attempt, which `weft log`
shows.

Tools come from MCP servers (`--mcp`). Each call needs permission, unless the tool was allowed
before; a chat that has no terminal to ask in refuses them. A line that is typed while an answer is
written is a hint: the model gets it before its next request.

With `--agent claude` the answers come from Claude Code, driven by the Claude Agent SDK. It talks to
a gateway of the same store: the one that serves the store, or one that is started for the chat.
"""

import argparse
import asyncio
import os
import re
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import ExitStack, aclosing, closing, contextmanager
from datetime import datetime
from time import monotonic
from typing import TYPE_CHECKING, Any, TextIO, cast

from weft.errors import ConfigError, ThreadError, WeftError
from weft.printable import clean_text, escape_json

from .common import (
    existing_thread,
    find_model_route,
    named_thread,
    open_for_writing,
    safe,
    say_new_thread,
    writable_store,
)
from .console import print_error
from .line_editor import LineEditor, history_path
from .main import EXIT_FAILED, EXIT_INTERRUPTED, add_store_option, nonempty
from .terminal import MarkdownStream, read_screen

if TYPE_CHECKING:
    from weft.agent import (
        Agent,
        AgentEvent,
        ClaudeAgent,
        Compaction,
        FunctionTool,
        McpServer,
        Permission,
        Permissions,
        ToolRequest,
        UsageReport,
        UserQuestion,
    )
    from weft.catalog import Catalog
    from weft.client import Route
    from weft.model import JsonObject
    from weft.thread import Media, Thread

LINE_LENGTH = 200
GREETING = "chatting with {model} in {thread!r}; /help for help, /quit or Ctrl-D to leave"
LEAVE_COMMANDS = ("/quit", "/exit")
COMMAND = re.compile(r"/[a-z]+(?=\s|$)")
HELP = """/help            show this help
/model [NAME]    show or change the model
/branch [NAME]   list the branches; switch to one, or create it here
/undo            undo your last message and its answer
/retry           ask again after an answer that failed or was stopped; so does an empty line
/compact         compact the thread now
/diff [COMMIT]   what changed since a commit or branch (default: your last message)
/attach FILE     send a file (image, PDF, text, audio) with your next message
/thinking        show or hide what the model thinks
/tools           list the tools
/quit            leave; the thread stays (`weft log --thread {thread}`)
The arrow keys edit the line and bring back earlier lines; Ctrl-R searches them. Ctrl-C stops an
answer. At the prompt it clears the line, and a second Ctrl-C leaves. Everything else is sent to the
model; what you type while it answers is a hint for its next step."""
LEAVE_NOTE = "\n(Ctrl-C again, Ctrl-D or /quit leaves)"
HINT_NOTE = "(queued: it is read before the next step)"
AGENTS = ("weft", "claude")
RETRY_HINT = "an empty line or /retry asks again"
ANSWERS: "dict[str, Permission]" = {"y": "once", "t": "thread", "a": "always", "n": "deny"}
QUESTION = "allow it? [y] once  [t] in this thread  [a] always  [n] no: "


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.epilog = "Type /help in the chat to see its commands, such as /model, /branch and /undo."
    add_store_option(parser)
    parser.add_argument(
        "-t",
        "--thread",
        type=nonempty,
        metavar="NAME",
        help="the thread to chat in (default: WEFT_THREAD, or a new one)",
    )
    parser.add_argument(
        "-c",
        "--continue",
        dest="continues",
        action="store_true",
        help="continue the current folder's thread that was active last",
    )
    parser.add_argument("--model", help="the model (default weft-offline, or Claude Code's own)")
    parser.add_argument(
        "--agent",
        choices=AGENTS,
        default="weft",
        help="who answers: Weft's own agent (weft, the default), or Claude Code (claude), whose "
        "requests are recorded in this store",
    )
    parser.add_argument(
        "--agent-dir", metavar="DIR", help="the working directory of Claude Code (default: here)"
    )
    parser.add_argument(
        "--agent-program",
        metavar="PATH",
        help="the Claude Code program (default: the one in the Claude Agent SDK)",
    )
    parser.add_argument(
        "--agent-settings",
        action="store_true",
        help="load Claude Code's own settings: CLAUDE.md, hooks, MCP servers, allowed tools",
    )
    parser.add_argument(
        "--upstream",
        metavar="NAME=PROTOCOL:URL",
        action="append",
        default=[],
        help="an upstream that serves the model (repeatable)",
    )
    parser.add_argument(
        "--config", metavar="FILE", help="a TOML file with upstreams, models and [compaction]"
    )
    parser.add_argument("--system", help="the system prompt of a new thread")
    parser.add_argument(
        "-a",
        "--attach",
        metavar="FILE",
        action="append",
        default=[],
        help="a file to attach to the first message: image, PDF, text or audio (repeatable)",
    )
    parser.add_argument(
        "--mcp",
        metavar="COMMAND_OR_URL",
        action="append",
        default=[],
        help="an MCP server whose tools the model may use (repeatable); you are asked for "
        "permission before a call, unless you have already allowed the tool",
    )
    parser.add_argument("--json", action="store_true", help="print events as JSON lines")
    parser.add_argument("words", nargs="*", help="send this, print the answer and exit")


def run(args: argparse.Namespace) -> int:
    """Chat until the end of input; returns 1 if the last answer failed, 130 if it was stopped."""
    from weft.catalog import load_catalog
    from weft.client import load_toml
    from weft.store import open_store
    from weft.thread import Thread, open as open_thread, read_attachments

    if args.config is not None:
        args.store = args.store or load_toml(args.config).get("store")
    files = read_attachments(args.attach)
    if args.words and not files and not " ".join(args.words).strip():
        raise ConfigError("the text is empty: leave it out to chat, or give a text")
    catalog = load_catalog(args.config)
    check_agent(args, catalog)
    with ExitStack() as stack:
        servers = [
            stack.enter_context(_connect(server)) for server in args.mcp if args.agent != "claude"
        ]
        path = writable_store(args)
        name = choose_chat_thread(args, path)

        def open_stored() -> Thread:
            return stack.enter_context(open_for_writing(path, name, checkpoints=True))

        with closing(open_store(path)) as store:
            is_new = store.read_thread(name) is None
        if is_new and named_thread(args) is not None:
            say_new_thread(name)
        # A new thread is stored with its first message: a chat that is left before leaves nothing.
        thread = open_thread(None, name, checkpoints=True) if is_new else open_stored()
        chat = Chat(args, thread, catalog, servers, files, open_stored if is_new else None)
        if args.agent == "claude":
            chat.gateway = stack.enter_context(gateway_of_store(args))
        chat.use_model(args.model)
        if args.words:
            code = asyncio.run(chat.run_turn(" ".join(args.words), chat.take_files()))
            if named_thread(args) is None and not args.continues:
                print_error(f"weft: thread {thread.name!r}; `weft chat -c` continues it")
            return code
        return chat.read_lines()


def choose_chat_thread(args: argparse.Namespace, path: str) -> str:
    """The thread that is named, with `-c` the current one, or a new one."""
    named = named_thread(args)
    if args.continues and args.thread is not None:
        raise ConfigError("-c continues the current thread: leave out -t")
    if args.continues:
        return existing_thread(args, path)
    if named is None:
        return f"chat-{datetime.now():%Y%m%d-%H%M%S}-{os.urandom(2).hex()}"
    return named


def check_agent(args: argparse.Namespace, catalog: "Catalog") -> None:
    """Raise an error if the chat cannot start with these options.

    Opening the store creates it, so this is checked before: a chat that is refused must not leave
    an empty store.
    """
    if args.agent == "claude":
        from weft.agent import load_claude_sdk

        load_claude_sdk()
    else:
        find_chat_route(args, args.model, catalog)
        make_compaction(args, catalog)


def find_chat_route(args: argparse.Namespace, model: str | None, catalog: "Catalog") -> "Route":
    """The upstream for a model; the offline model is the default."""
    from weft.client import OFFLINE_MODEL

    route_args = argparse.Namespace(**{**vars(args), "model": model or OFFLINE_MODEL})
    return find_model_route(route_args, catalog)


def make_compaction(args: argparse.Namespace, catalog: "Catalog") -> "Compaction":
    """The agent's compaction, configured by the `[compaction]` table of `--config`."""
    from weft.agent import configured_compaction
    from weft.client import SAME_MODEL, read_compaction, summary_client

    settings = read_compaction(args.config)
    if settings.model is None or settings.model == SAME_MODEL:
        return configured_compaction(settings)
    route = find_chat_route(args, settings.model, catalog)
    return configured_compaction(settings, summary_client(route, catalog, settings.retries))


@contextmanager
def gateway_of_store(args: argparse.Namespace) -> Generator[str]:
    """The URL of a gateway that records to the store of the chat.

    A running server of the store is used, unless it requires a key or the options name other
    upstreams.
    """
    from weft.store import SERVER_SUFFIX, companion_path, read_server

    from .run import is_gateway, start_gateway

    store = writable_store(args)
    server_file = companion_path(store, SERVER_SUFFIX, os.environ)
    url = None if args.upstream or args.config else read_server(server_file)
    if url is not None and is_gateway(url, "/api/system-table"):
        yield url
        return
    flags = [f"--store={store}", "--no-import", *(f"--upstream={each}" for each in args.upstream)]
    if args.config is not None:
        flags.append(f"--config={args.config}")
    environ = {name: value for name, value in os.environ.items() if name != "WEFT_API_KEYS"}
    gateway = start_gateway(flags, environ)
    try:
        yield gateway.url
    finally:
        gateway.stop()
        gateway.read_recorded()


def _connect(server: str) -> "McpServer":
    from weft.agent import McpServer

    return McpServer(server)


class Chat:
    """One chat: the thread, the agent that answers, and the files for the next message."""

    def __init__(
        self,
        args: argparse.Namespace,
        thread: "Thread",
        catalog: "Catalog",
        servers: "list[McpServer]",
        files: "tuple[Media, ...]" = (),
        open_stored: "Callable[[], Thread] | None" = None,
    ) -> None:
        """`open_stored` opens the stored thread; until the first message, `thread` is in memory."""
        self.thread = thread
        self._open_stored = open_stored
        self._model: str | None = None
        self.servers = servers
        self.gateway: str | None = None
        self.agent: Agent | ClaudeAgent
        self._args = args
        self._catalog = catalog
        self._files = files
        self._exit_code = 0
        self._is_terminal = sys.stdin.isatty() and not args.json
        self._shows_thinking = True
        self._typed_lines: TypedLines | None = None
        self._queued_lines: list[str] = []
        """Lines to read after the answer: commands, and hints that came too late."""
        self._permissions = self._make_permissions()

    def use_model(self, name: str | None) -> None:
        """Let another model answer from now on."""
        from weft.agent import Agent

        self._model = name
        if self.gateway is not None:
            self.agent = self._make_claude(self.gateway, name)
            return
        route = find_chat_route(self._args, name, self._catalog)
        self.agent = Agent(
            self.thread,
            route.model,
            [*self.servers, *self._demo_tools(route)],
            system=self._args.system,
            provider=route.provider,
            catalog=self._catalog,
            permission=self._permissions,
            compaction=make_compaction(self._args, self._catalog),
        )

    def _demo_tools(self, route: "Route") -> "Sequence[Callable[..., Any] | FunctionTool]":
        """The tools of the offline model, which has nothing else to show."""
        from weft.client import OFFLINE

        if route.provider is not OFFLINE:
            return ()
        from weft.demo import demo_tools
        from weft.thread import threads

        return demo_tools(self.thread.store, lambda: threads(self.thread.store))

    def _make_claude(self, url: str, model: str | None) -> "ClaudeAgent":
        from weft.agent import ClaudeAgent, ClaudeOptions

        args = self._args
        options = ClaudeOptions(
            model=model,
            folder=args.agent_dir,
            program=args.agent_program,
            mcp=tuple(args.mcp),
            settings=args.agent_settings,
            system=args.system,
        )
        return ClaudeAgent(
            self.thread,
            url,
            options,
            permission=self._permissions,
            ask_user=self._ask_user if self._is_terminal else None,
            catalog=self._catalog,
        )

    def take_files(self) -> "tuple[Media, ...]":
        """The files for the next message; they are sent once."""
        files, self._files = self._files, ()
        return files

    def read_lines(self) -> int:
        """Read lines and send them, or run them as commands."""
        as_json = self._args.json
        read_line: Callable[[], str] = input
        if self._is_terminal:
            read_line = LineEditor("> ", history_path(os.environ)).read
            print(safe(GREETING.format(model=self.agent.model, thread=self.thread.name)))
        is_leaving = False
        while True:
            try:
                line = self._queued_lines.pop(0) if self._queued_lines else read_line()
            except EOFError:
                return self._exit_code
            except KeyboardInterrupt:
                if not self._is_terminal:
                    raise
                if is_leaving:
                    print()
                    return self._exit_code
                is_leaving = True
                print(LEAVE_NOTE)
                continue
            is_leaving = False
            text = line.strip()
            command = None if as_json else COMMAND.match(text)
            if command is not None and command[0] in LEAVE_COMMANDS:
                return self._exit_code
            if command is not None:
                self._run_command(command[0], text[command.end() :].strip())
            elif text:
                self._exit_code = self._try_turn(line, self.take_files())
            elif self._exit_code != 0:
                self._exit_code = self._try_turn(None)

    def _run_command(self, name: str, argument: str) -> None:
        """Run a line such as `/model NAME`; an error does not end the chat."""
        run = CHAT_COMMANDS.get(name)
        if run is None:
            print(safe(f"no command {name!r}"))
            self.help("")
            return
        try:
            run(self, argument)
        except WeftError as error:
            print(safe(f"error: {error}"))

    def _try_turn(self, text: str | None, files: "tuple[Media, ...]" = ()) -> int:
        """Run one turn of a chat; in a terminal, Ctrl-C and a refused retry do not end it."""
        try:
            code = asyncio.run(self.run_turn(text, files))
        except KeyboardInterrupt:
            if not self._is_terminal:
                raise
            print(f"\nstopped; {RETRY_HINT}")
            for hint in self.agent.take_hints():
                print(safe(f"not sent: {hint}"))
            return EXIT_INTERRUPTED
        except ThreadError as error:
            if self._args.json or text is not None:
                raise
            print(safe(f"error: {error}"))
            return 0
        self._queued_lines += self.agent.take_hints()
        if code != 0 and self._is_terminal:
            print(RETRY_HINT)
        return code

    async def run_turn(self, text: str | None, files: "tuple[Media, ...]" = ()) -> int:
        """Run one turn; what is typed meanwhile is a hint, or answers a question."""
        if text is not None and self._open_stored is not None:
            self.thread, self._open_stored = self._open_stored(), None
            self.use_model(self._model)
        if not self._is_terminal:
            return await print_turn(self.agent, text, self._args.json, sys.stdout, files)
        with TypedLines(self._hint) as self._typed_lines:
            return await print_turn(
                self.agent, text, self._args.json, sys.stdout, files, self._shows_thinking
            )

    def _hint(self, line: str) -> None:
        """Take a line that was typed while an answer is written: a command waits, other text is a
        hint."""
        if COMMAND.match(line.strip()):
            self._queued_lines.append(line)  # it is run after the answer
        elif line.strip():
            self.agent.hint(line)
            print(HINT_NOTE)

    async def _ask(self, prompt: str) -> str | None:
        return None if self._typed_lines is None else await self._typed_lines.ask(prompt)

    async def _ask_permission(self, request: "ToolRequest") -> "Permission":
        """Ask in the terminal; the end of input is a no."""
        server = "" if request.server is None else f" of {request.server}"
        input = clip(str(request.input))
        print(safe(f"\nthe model wants to run {request.name}{server} with {input}"))
        while (line := await self._ask(QUESTION)) is not None:
            answer = line.strip().lower()[:1]
            if answer in ANSWERS:
                return ANSWERS[answer]
        return "deny"

    async def _ask_user(self, question: "UserQuestion") -> dict[str, str] | None:
        """Ask the agent's own question; the end of input means no answer."""
        answers: dict[str, str] = {}
        for each in question.questions:
            title = str(each.get("question", ""))
            labels = option_labels(each)
            print(safe(f"\n{title}"))
            for number, (label, description) in enumerate(labels, 1):
                print(safe(f"  {number}  {label}{f': {description}' if description else ''}"))
            line = ""
            while not line:
                typed = await self._ask("a number, or your own answer: ")
                if typed is None:
                    return None
                line = typed.strip()
            answers[title] = read_choice(line, [label for label, _ in labels])
        return answers

    def help(self, _: str) -> None:
        print(safe(HELP.format(thread=self.thread.name)))

    def model(self, name: str) -> None:
        """Show the model, or change it."""
        if name:
            self.use_model(name)
        print(safe(f"the model is {self.agent.model}"))

    def branch(self, name: str) -> None:
        """List the branches; with a name, switch to that branch, which may be new."""
        if name and name not in self.thread.branches():
            self.thread.branch(name)
            print(safe(f"new branch {name!r}"))
        if name:
            self.thread.switch(name)
        for branch in self.thread.branches():
            print(safe(f"{'*' if branch == self.thread.current else ' '} {branch}"))

    def undo(self, _: str) -> None:
        """Undo the last turn."""
        undone = self.thread.undo(turn=True)
        message_text = "" if undone.commit is None else undone.commit.text
        text = message_text or str(undone)
        print(safe(f"undone: {undone.verb} {clip(text)}"))
        self._exit_code = 0

    def retry(self, _: str) -> None:
        self._exit_code = self._try_turn(None)

    def compact(self, _: str) -> None:
        """Compact the thread to half of its size."""
        settings = make_compaction(self._args, self._catalog)
        if settings.by is None:
            result = self.thread.compact()
        else:
            budget = max(1, self.thread.compile().tokens // 2)
            result = self.thread.compact(
                budget=budget, model=settings.by, prompt=settings.prompt, timeout=settings.timeout
            )
        print(safe(str(result)))

    def diff(self, commit: str) -> None:
        """Show what changed since a commit, or since before the last message."""
        if not commit:
            commit = self._before_last_message()
        print(safe(str(self.thread.diff(commit)) or "nothing changed"))

    def attach(self, path: str) -> None:
        """Send a file with the next message."""
        from weft.thread import read_attachments

        if not path:
            print("usage: /attach FILE")
            return
        self._files += read_attachments(path)
        print(safe(f"{path!r} will be sent with your next message"))

    def thinking(self, _: str) -> None:
        """Show or hide the thinking of later answers."""
        self._shows_thinking = not self._shows_thinking
        print("thinking is shown" if self._shows_thinking else "thinking is hidden")

    def tools(self, _: str) -> None:
        """List the tools."""
        from weft.agent import ClaudeAgent

        if isinstance(self.agent, ClaudeAgent):
            print("the tools of Claude Code; they need permission, unless you have allowed them")
            return
        for tool in self.agent.tools.values():
            server = "" if tool.server is None else f" ({tool.server})"
            print(safe(f"{tool.name}{server}: {clip(tool.definition.description or '')}"))
        if not self.agent.tools:
            print("no tools; start the chat with --mcp COMMAND to add some")

    def _before_last_message(self) -> str:
        """The commit before the user's last message; raises `ThreadError` if there is none."""
        for info in self.thread.log():
            is_user = any(m.role == "user" and m.text for m in info.messages)
            if info.kind == "append" and is_user and info.parents:
                return info.parents[0]
        raise ThreadError("there is nothing before your last message")

    def _make_permissions(self) -> "Permissions | None":
        """Asks before calls of tools; `None` if there is no terminal to ask in."""
        from weft.agent import Permissions, permissions_path

        if not self._is_terminal:
            return None
        return Permissions(self._ask_permission, path=permissions_path(os.environ))


CHAT_COMMANDS: dict[str, Callable[[Chat, str], None]] = {
    "/attach": Chat.attach,
    "/branch": Chat.branch,
    "/compact": Chat.compact,
    "/diff": Chat.diff,
    "/help": Chat.help,
    "/model": Chat.model,
    "/retry": Chat.retry,
    "/thinking": Chat.thinking,
    "/tools": Chat.tools,
    "/undo": Chat.undo,
}


class TypedLines:
    """The lines that are typed while an answer is written, read by the event loop.

    A line answers the question that waits for one; otherwise `on_line` gets it. `input` cannot be
    used here: a thread that waits in it cannot be stopped when the answer is complete.
    """

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._file = sys.stdin.fileno()
        self._buffer = b""
        self._is_open = True
        self._waiting: asyncio.Future[str | None] | None = None

    def __enter__(self) -> "TypedLines":
        asyncio.get_running_loop().add_reader(self._file, self._read)
        return self

    def __exit__(self, *error: object) -> None:
        asyncio.get_running_loop().remove_reader(self._file)

    async def ask(self, prompt: str) -> str | None:
        """The next line; None at the end of input."""
        if not self._is_open:
            return None
        print(prompt, end="", flush=True)
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            return await self._waiting
        finally:
            self._waiting = None

    def _read(self) -> None:
        """Read what was typed; called by the event loop."""
        data = os.read(self._file, 65536)
        if not data:
            self._is_open = False
            asyncio.get_running_loop().remove_reader(self._file)
            if self._waiting is not None and not self._waiting.done():
                self._waiting.set_result(None)
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace")
            if self._waiting is not None and not self._waiting.done():
                self._waiting.set_result(text)
            else:
                self._on_line(text)


def option_labels(question: "JsonObject") -> list[tuple[str, str]]:
    """The labels and descriptions of a question's options."""
    options = question.get("options")
    items = cast(list[object], options) if isinstance(options, list) else []
    objects = [cast("JsonObject", item) for item in items if isinstance(item, dict)]
    return [(str(each.get("label", "")), str(each.get("description", ""))) for each in objects]


def read_choice(line: str, labels: Sequence[str]) -> str:
    """The options whose numbers were typed (`1` or `1, 3`), or the text itself."""
    numbers = [word.strip() for word in line.split(",")]
    if all(word.isdecimal() and 0 < int(word) <= len(labels) for word in numbers):
        return ", ".join(labels[int(word) - 1] for word in numbers)
    return line


async def print_turn(
    agent: "Agent | ClaudeAgent",
    text: str | None,
    as_json: bool,
    out: TextIO,
    files: "tuple[Media, ...]" = (),
    shows_thinking: bool = False,
) -> int:
    """Run one turn and print its events; without a text the model is asked again.

    A terminal also gets the thinking, and what the turn took.
    """
    from weft.agent import Failure, TextDelta, ThinkingDelta, UsageReport, to_json

    code = 0
    start = monotonic()
    reports: list[UsageReport] = []
    printer = AnswerPrinter(out)
    running = cast("AsyncGenerator[AgentEvent]", agent.run(text, attach=files))
    async with aclosing(running) as events:
        async for event in events:
            if isinstance(event, Failure):
                code = EXIT_FAILED
            if as_json:
                from weft import exact_json

                line = exact_json.dumps(to_json(event)).decode()
                print(escape_json(line) if out.isatty() else line, file=out, flush=True)
            elif isinstance(event, TextDelta):
                printer.add(event.id, event.text)
            elif isinstance(event, ThinkingDelta):
                if shows_thinking:
                    printer.think(event.text)
            elif isinstance(event, UsageReport):
                reports.append(event)
            else:
                printer.close()
                shown_text = event_text(event)
                print(clean_text(shown_text) if out.isatty() else shown_text, end="", file=out)
                out.flush()
    printer.close()
    if not as_json and out.isatty() and reports:
        print(printer.dim(usage_line(reports, monotonic() - start)), file=out)
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        # Ctrl-C closed the connection, and the run reported that as a failure of the upstream.
        raise asyncio.CancelledError
    return code


class AnswerPrinter:
    """Prints the text of answers: with styles on a terminal, unchanged elsewhere."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._screen = read_screen(out, os.environ)
        self._stream: MarkdownStream | None = None
        self._block = ""
        self._is_thinking = False

    def think(self, text: str) -> None:
        """Print more of the thinking; a terminal shows it, other programs get the answer only."""
        if not self._out.isatty():
            return
        if not self._is_thinking:
            self.close()
            self._is_thinking = True
        print(self.dim(clean_text(text)), end="", file=self._out, flush=True)

    def dim(self, text: str) -> str:
        return self._screen.paint(text, "dim")

    def add(self, block: str, text: str) -> None:
        """Print more of a block."""
        if self._is_thinking:
            self.close()
        if not self._out.isatty():
            print(text, end="", file=self._out, flush=True)
            return
        if block != self._block:
            self.close()
            self._block = block
        if self._stream is None:
            self._stream = MarkdownStream(self._screen.colour)
        print(self._stream.feed(clean_text(text)), end="", file=self._out, flush=True)

    def close(self) -> None:
        """Print the rest of the block."""
        if self._is_thinking:
            print("\n", file=self._out, flush=True)
            self._is_thinking = False
        if self._stream is not None:
            print(self._stream.close(), end="", file=self._out, flush=True)
            self._stream = None


def usage_line(reports: "Sequence[UsageReport]", seconds: float) -> str:
    """The tokens, the cost and the time of a turn: `1,200 in, 35 out · $0.0042 · 3.1 s`."""
    cached = sum(report.cached or 0 for report in reports)
    tokens_in = sum(report.input for report in reports)
    tokens = f"{tokens_in:,} in{f' ({cached:,} cached)' if cached else ''}"
    cost = reports[-1].cost  # of the whole run
    price = "$?" if cost is None else f"${cost:.{4 if 0 < cost < 1 else 2}f}"
    output = sum(report.output for report in reports)
    return f"{tokens}, {output:,} out · {price} · {seconds:.1f} s"


def event_text(event: "AgentEvent") -> str:
    """An event as text for the terminal."""
    from weft.agent import (
        Failure,
        LossReport,
        MessageComplete,
        SystemMessage,
        ToolEnd,
        ToolStart,
        display_system_message,
        to_json,
    )

    match event:
        case ToolStart(name=name, input=input):
            return f"\n[{name} {clip(str(input))}]\n"
        case ToolEnd(content=content, is_error=failed):
            return f"[{'failed: ' if failed else ''}{clip(content)}]\n"
        case SystemMessage() | LossReport():
            notice = display_system_message(to_json(event))
            return "" if notice is None else f"\n{notice.text}\n"
        case Failure(message=message):
            return f"\nerror: {message}\n"
        case MessageComplete():
            return "\n"
        case _:
            return ""


def clip(text: str) -> str:
    """The text as one short line."""
    line = " ".join(text.split())
    return line if len(line) <= LINE_LENGTH else line[: LINE_LENGTH - 1] + "…"
