"""`weft chat`: talk with a model in the terminal, in a stored thread.

Answers are streamed, with tool calls and compactions. With a text on the command line the chat
sends it, prints the answer and exits; otherwise it reads lines until the end of input. A line of
one word after a slash is a command and is not sent. `/attach FILE` (and `--attach FILE` for the
first message) sends files with the next message.

After an answer that failed or was stopped (Ctrl-C), an empty line or `/retry` asks the model again
without repeating the question. The part that had arrived is stored as an attempt, which `weft log`
shows.
"""

import argparse
import asyncio
import re
import sys
from typing import TYPE_CHECKING, TextIO

from weft.errors import ThreadError
from weft.printable import clean_text, escape_json

from .common import find_model_route, safe, writable_store
from .main import DEFAULT_STORE

if TYPE_CHECKING:
    from weft.agent import Agent, AgentEvent
    from weft.thread import Media

LINE_LENGTH = 200
HELLO = "chatting with {model} in {thread!r}; /help for help, /quit or Ctrl-D to leave"
LEAVE = ("/quit", "/exit")
COMMAND = re.compile(r"/[a-z]+")
HELP = """/help   show this help
/retry  ask the model again after an answer that failed or was stopped; so does an empty line
/attach FILE  send a file (image, PDF, text, audio) with your next message
/undo   undo your last message and its answer
/quit   leave; the thread stays (`weft log --thread {thread}`)
Ctrl-C stops an answer. Everything else is sent to the model."""
RETRY = "/retry"
UNDO = "/undo"
ATTACH = "/attach"
RETRY_HINT = "an empty line or /retry asks again"
EXIT_FAILED, EXIT_STOPPED = 1, 130


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.epilog = "Type /help in the chat to see its commands, such as /retry, /attach and /undo."
    parser.add_argument(
        "--store", metavar="PATH", help=f"the store (default: WEFT_STORE, or {DEFAULT_STORE})"
    )
    parser.add_argument("--thread", default="default", metavar="NAME", help="the thread to chat in")
    parser.add_argument("--model", default="weft-offline", help="the model (default weft-offline)")
    parser.add_argument(
        "--upstream",
        metavar="NAME=PROTOCOL:URL",
        action="append",
        default=[],
        help="an upstream that serves the model",
    )
    parser.add_argument("--config", metavar="FILE", help="a TOML file with upstreams and models")
    parser.add_argument("--system", help="the system prompt of a new thread")
    parser.add_argument(
        "-a",
        "--attach",
        metavar="FILE",
        action="append",
        default=[],
        help="a file to attach to the first message: image, PDF, text or audio (repeatable)",
    )
    parser.add_argument("--json", action="store_true", help="print events as JSON lines")
    parser.add_argument("words", nargs="*", help="send this, print the answer and exit")


def run(args: argparse.Namespace) -> int:
    """Chat until the end of input; returns 1 if the last answer failed, 130 if it was stopped."""
    import weft.thread
    from weft.agent import Agent
    from weft.catalog import load_catalog
    from weft.client import load_toml
    from weft.thread import read_attachments

    if args.config is not None:
        args.store = args.store or load_toml(args.config).get("store")
    files = read_attachments(args.attach)
    catalog = load_catalog(args.config)
    route = find_model_route(args, catalog)
    with weft.thread.open(writable_store(args), args.thread, checkpoints=True) as thread:
        agent = Agent(
            thread, route.model, system=args.system, provider=route.provider, catalog=catalog
        )
        if args.words:
            text = " ".join(args.words)
            return asyncio.run(run_turn(agent, text, args.json, sys.stdout, files))
        return run_chat(agent, args.json, files)


def run_chat(agent: "Agent", as_json: bool, files: "tuple[Media, ...]" = ()) -> int:
    """Read lines and send them; `files` are attached to the first message."""
    prompt = "" if as_json or not sys.stdin.isatty() else "> "
    code = 0
    names = {"model": agent.model, "thread": agent.thread.name}
    if prompt:
        print(safe(HELLO.format_map(names)))
    while True:
        try:
            line = input(prompt)
        except EOFError:
            return code
        stripped = line.strip()
        if not as_json and stripped in LEAVE:
            return code
        if (not as_json and stripped == RETRY) or (not stripped and code != 0):
            code = turn(agent, None, as_json, bool(prompt))
        elif not as_json and stripped == UNDO:
            code = undo(agent)
        elif not as_json and stripped.split(maxsplit=1)[:1] == [ATTACH]:
            files += attach(stripped.removeprefix(ATTACH).strip())
        elif not as_json and COMMAND.fullmatch(stripped):
            text = HELP if stripped == "/help" else "no command {command!r}\n" + HELP
            print(safe(text.format_map({**names, "command": stripped})))
        elif stripped:
            code = turn(agent, line, as_json, bool(prompt), files)
            files = ()


def attach(path: str) -> "tuple[Media, ...]":
    """The file to send with the next message; nothing if it cannot be read."""
    from weft.thread import read_attachments

    if not path:
        print(f"usage: {ATTACH} FILE")
        return ()
    try:
        blocks = read_attachments(path)
    except ThreadError as error:
        print(safe(f"error: {error}"))
        return ()
    print(safe(f"{path!r} will be sent with your next message"))
    return blocks


def undo(agent: "Agent") -> int:
    """Undo the last turn and print it."""
    try:
        undone = agent.thread.undo(turn=True)
    except ThreadError as error:
        print(safe(f"error: {error}"))
        return 0
    text = str(undone) if undone.commit is None else undone.commit.text or str(undone)
    print(safe(f"undone: {undone.verb} {clip(text)}"))
    return 0


def turn(
    agent: "Agent",
    text: str | None,
    as_json: bool,
    interactive: bool,
    files: "tuple[Media, ...]" = (),
) -> int:
    """Run one turn; in a terminal, Ctrl-C and a refused retry do not end the chat."""
    try:
        code = asyncio.run(run_turn(agent, text, as_json, sys.stdout, files))
    except KeyboardInterrupt:
        if not interactive:
            raise
        print(f"\nstopped; {RETRY_HINT}")
        return EXIT_STOPPED
    except ThreadError as error:
        if as_json or text is not None:
            raise
        print(safe(f"error: {error}"))
        return 0
    if code != 0 and interactive:
        print(RETRY_HINT)
    return code


async def run_turn(
    agent: "Agent",
    text: str | None,
    as_json: bool,
    out: TextIO,
    files: "tuple[Media, ...]" = (),
) -> int:
    """Run one turn and print its events; without a text the model is asked again."""
    from weft.agent import Failure, to_json

    code = 0
    async for event in agent.run(text, attach=files):
        if isinstance(event, Failure):
            code = EXIT_FAILED
        if as_json:
            import orjson

            line = orjson.dumps(to_json(event)).decode()
            print(escape_json(line) if out.isatty() else line, file=out, flush=True)
        else:
            shown = show(event)
            print(clean_text(shown) if out.isatty() else shown, end="", file=out, flush=True)
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        # Ctrl-C closed the connection, and the run reported that as a failure of the upstream.
        raise asyncio.CancelledError
    return code


def show(event: "AgentEvent") -> str:
    """An event as text for the terminal."""
    from weft.agent import (
        Failure,
        LossReport,
        MessageComplete,
        SystemMessage,
        TextDelta,
        ToolEnd,
        ToolStart,
        present,
        to_json,
    )

    match event:
        case TextDelta(text=text):
            return text
        case ToolStart(name=name, input=input):
            return f"\n[{name} {clip(str(input))}]\n"
        case ToolEnd(content=content, is_error=failed):
            return f"[{'failed: ' if failed else ''}{clip(content)}]\n"
        case SystemMessage() | LossReport():
            shown = present(to_json(event))
            return "" if shown is None else f"\n{shown.text}\n"
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
