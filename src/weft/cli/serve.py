"""`weft serve`: the gateway and the page."""

import argparse
import asyncio
import math
import os
import signal
import sys
from contextlib import suppress
from importlib.util import find_spec
from threading import Thread

from weft.codec import CODECS
from weft.errors import ConfigError
from weft.printable import clean_line

from .main import DEFAULT_STORE, add_store_option

CLOSE_SECONDS = 15.0
"""How long a server with `--until-eof` may take to close, after its running requests."""
SERVER_LIBRARIES = ("granian", "markdown_it", "nh3", "pygments", "starlette", "zstandard")
"""The modules of the extra `serve`."""


def require_server() -> None:
    """Raises `ConfigError` if the extra `serve` is not installed."""
    missing = [name for name in SERVER_LIBRARIES if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"the gateway needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'}"
            " not installed: pip install 'weft[serve]' (in a clone of Weft: pip install '.[serve]')"
        )


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options; defaults come from the config file, then from the environment."""
    parser.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    parser.add_argument(
        "--port", type=int, help="port to listen on; 0 picks a free one (default 8787)"
    )
    add_store_option(parser)
    parser.add_argument(
        "--config", metavar="FILE", help="a TOML file with these and other settings"
    )
    parser.add_argument(
        "--upstream",
        metavar="NAME=PROTOCOL:URL",
        action="append",
        default=[],
        help=f"an upstream (repeatable); PROTOCOL is one of {', '.join(sorted(CODECS))}. Settings "
        "may follow the URL: 'NAME=PROTOCOL:URL auth_header=api-key query.api-version=1'",
    )
    parser.add_argument(
        "--pass-through",
        metavar="NAME",
        action="append",
        default=[],
        help="forward a client's own key to this upstream, if no key is configured for it "
        "(repeatable)",
    )
    parser.add_argument(
        "--alias",
        metavar="PATTERN=MODEL",
        action="append",
        default=[],
        help="requests for model names that match the pattern go to this model (repeatable)",
    )
    parser.add_argument("--no-record", action="store_true", help="relay only: record nothing")
    parser.add_argument(
        "--auto-compact",
        action="store_true",
        default=None,
        help="compact the thread of a session before its model's window overflows",
    )
    parser.add_argument(
        "--mcp",
        metavar="COMMAND_OR_URL",
        action="append",
        default=[],
        help="an MCP server whose tools the page's agent may use (repeatable); the page asks for "
        "permission before a call, unless you have already allowed the tool",
    )
    parser.add_argument(
        "--agent",
        choices=["claude"],
        help="let the page choose Claude Code as the agent of a thread; only on a loopback address",
    )
    parser.add_argument("--agent-dir", metavar="DIR", help="the folder in which the agent works")
    parser.add_argument(
        "--agent-program",
        metavar="PATH",
        help="the Claude Code program (default: the one in the Claude Agent SDK)",
    )
    parser.add_argument(
        "--no-import",
        action="store_true",
        help="do not offer to import the sessions of Claude Code and Codex into a new store",
    )
    parser.add_argument(
        "--no-sample",
        action="store_true",
        help="do not add the sample thread, which an empty store at the default path gets",
    )
    parser.add_argument(
        "--until-eof",
        action="store_true",
        help="stop when standard input ends, so that the server ends with the program that started "
        "it; the last line of output is then JSON with the threads that were recorded",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until interrupted."""
    require_server()

    from weft import exact_json
    from weft.gateway import Flags, read_settings, serve
    from weft.store import without_password

    flags = Flags(
        host=args.host,
        port=args.port,
        store=args.store,
        config=args.config,
        upstreams=args.upstream,
        pass_through=args.pass_through,
        aliases=args.alias,
        record=False if args.no_record else None,
        sample=not args.no_sample,
        auto_compact=args.auto_compact,
        mcp=args.mcp,
        agent=args.agent,
        agent_dir=args.agent_dir,
        agent_program=args.agent_program,
    )
    settings = read_settings(flags, os.environ)
    if settings.offer_import and settings.record and not args.no_import:
        offer_import(settings.store)
    if args.until_eof:
        stop_at_eof(settings.limits.drain_seconds + CLOSE_SECONDS)
    recorded = asyncio.run(serve(settings, lambda url: _announce(url, settings.store)))
    if args.until_eof:
        facts = {"store": without_password(settings.store), **recorded}
        with suppress(OSError):  # the program that started it may be gone
            print(exact_json.dumps(facts).decode(), flush=True)
    return 0


def stop_at_eof(seconds: float) -> None:
    """Stop this process when standard input ends: as SIGTERM does, but after so many seconds in any
    case.
    """

    def read() -> None:
        with suppress(OSError):
            while os.read(0, 4096):
                pass
        signal.alarm(math.ceil(seconds))  # the kernel ends the process, even if it hangs
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=read, name="weft-until-eof", daemon=True).start()


def offer_import(store: str) -> None:
    """Ask once, when the store is new, whether to import the sessions of clients on this machine.

    It asks only on a terminal, and reads nothing unless the answer is yes.
    """
    store = store.removeprefix("sqlite://")
    is_new = "://" not in store and not os.path.exists(store)
    if not is_new or not sys.stdin.isatty() or not sys.stdout.isatty():
        return
    from .terminal import plural
    from .transfer import find_client_sessions, import_client_sessions

    sessions = find_client_sessions(os.environ)
    if not sessions:
        return
    for client in sessions:
        files = plural(len(client.files), "session file")
        size = f"{client.size / 1_000_000:.1f} MB"
        print(clean_line(f"{client.client} has {files} ({size}) in {client.folder}"))
    print("Import them into the new store? The files are only read. [y/N] ", end="", flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        if store == os.path.expanduser(DEFAULT_STORE):  # only this folder is created
            os.makedirs(os.path.dirname(store), mode=0o700, exist_ok=True)
        print(import_client_sessions(store, sessions))
        return
    folders = " ".join(client.folder for client in sessions)
    print(clean_line(f"`weft import {folders}` imports them later"))


def _announce(url: str, store: str) -> None:
    """Print the URL of the server, and the address of the store without its password."""
    from weft.store import without_password

    print(f"weft serves on {url}", file=sys.stdout)
    print(
        clean_line(f"threads are stored in {without_password(store)}"), flush=True, file=sys.stdout
    )
