"""`weft resume THREAD[@COMMIT]`: continue a recorded session in Claude Code or Codex.

The thread, as it was at the commit, is written as a session file under a new id, and the client is
started on it through the gateway. The new id is an alias of the same thread: what the client does
next continues this thread, on a branch of its own if the thread has gone on since that commit. No
existing session file is changed.
"""

import argparse
import os
import shlex
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from weft.errors import ConfigError
from weft.store import Store
from weft.thread import (
    PREFIXES,
    SessionFile,
    open as open_thread,
    open_existing,
    read_origin,
    write_session,
)

from .common import REVISION, add_options, existing_store, existing_thread, print_json, safe
from .console import print_error
from .run import add_gateway_options, run_through_gateway


class ResumableClient(NamedTuple):
    """A client that resumes sessions: its program, its file format, and where it looks for files.

    `path` takes the session and the environment; `words` come before the id of the session.
    """

    program: str
    format: str
    path: Callable[[SessionFile, Mapping[str, str]], Path]
    words: tuple[str, ...]


def claude_path(file: SessionFile, environ: Mapping[str, str]) -> Path:
    """Where Claude Code looks for a session."""
    from weft.agent import claude_session_path

    return claude_session_path(file.session, file.folder, environ)


def codex_path(file: SessionFile, environ: Mapping[str, str]) -> Path:
    """Codex keeps a session in a folder that is named after its day."""
    home = Path(environ.get("CODEX_HOME") or "~/.codex").expanduser()
    now = datetime.now(UTC)
    name = f"rollout-{now:%Y-%m-%dT%H-%M-%S}-{file.session}.jsonl"
    return home / "sessions" / f"{now:%Y}" / f"{now:%m}" / f"{now:%d}" / name


RESUMABLE_CLIENTS = {
    "claude": ResumableClient("claude", "claude-code", claude_path, ("--resume",)),
    "codex": ResumableClient("codex", "codex", codex_path, ("resume",)),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.usage = "weft resume THREAD[@COMMIT] [options] [-- ARG ...]"
    add_options(parser, ignores_thread=True)  # the first argument names the thread
    add_gateway_options(parser, store=False)
    parser.add_argument(
        "target",
        metavar="THREAD[@COMMIT]",
        help=f"the thread, by its name or a unique prefix, and the commit to continue from: "
        f"{REVISION} (default: the newest)",
    )
    parser.add_argument(
        "--client",
        choices=RESUMABLE_CLIENTS,
        help="the client to start (default: the session's own)",
    )
    parser.add_argument("--program", metavar="PATH", help="the client's program, if not on PATH")
    parser.add_argument(
        "--folder", metavar="DIR", help="where to start the client (default: the session's own)"
    )
    parser.add_argument(
        "--no-start",
        "--print",
        dest="no_start",
        action="store_true",
        help="only write the session file and print the command; --json does the same",
    )
    parser.epilog = "Arguments after -- are passed to the client."
    parser.set_defaults(arguments=[])  # `weft.cli.main` puts the words after -- there


def run(args: argparse.Namespace) -> int:
    """Write the session file, and start the client on it."""
    path = existing_store(args)
    if args.folder is not None and not os.path.isdir(args.folder):
        raise ConfigError(f"there is no folder {args.folder!r}")
    thread, commit = read_target(args, path)
    with open_existing(path) as store:
        client = choose_client(args.client, store, thread)
        folder = os.path.realpath(args.folder or os.getcwd())
        file = write_session(
            store, thread, client.format, str(uuid4()), commit=commit, folder=folder
        )
    folder = choose_folder(args.folder, file.folder)
    file = SessionFile(session=file.session, format=file.format, data=file.data, folder=folder)
    from weft.agent import write_session_file

    written = client.path(file, os.environ)
    write_session_file(written, file.data)
    command = [args.program or client.program, *client.words, file.session, *args.arguments]
    store_words = [] if args.store is None else ["--store", path]
    full_command = ["weft", "run", *store_words, "--", *command]
    if args.json:
        print_json(
            {
                "thread": thread,
                "commit": commit,
                "client": client.program,
                "session": file.session,
                "file": str(written),
                "folder": folder,
                "command": full_command,
            }
        )
        return 0
    if args.no_start:
        print(safe(f"wrote {thread!r} as session {file.session} to {str(written)!r}"))
        print(safe(f"cd {shlex.quote(folder)} && {shlex.join(full_command)}"))
        return 0
    args.store = args.store or os.environ.get("WEFT_STORE")  # the gateway must use the same store
    return run_through_gateway(args, command, folder)


def read_target(args: argparse.Namespace, path: str) -> tuple[str, str | None]:
    """The thread and the commit that `THREAD[@COMMIT]` names; a thread's name may contain an @."""
    name, at, revision = args.target.rpartition("@")
    with open_existing(path) as store:
        is_name = store.read_thread(args.target) is not None
    args.thread = args.target if is_name or not at else name
    thread = existing_thread(args, path)
    if is_name or not at:
        return thread, None
    with open_thread(path, thread) as opened:
        return thread, opened.show(revision).id


def choose_client(name: str | None, store: Store, thread: str) -> ResumableClient:
    """The client that is asked for, or the one that the session comes from."""
    if name is not None:
        return RESUMABLE_CLIENTS[name]
    origin = read_origin(store, thread)
    for client in RESUMABLE_CLIENTS.values():
        if origin == client.format or thread.startswith(PREFIXES[client.format]):
            return client
    raise ConfigError(f"{thread!r} is not a client's session: choose a client with --client")


def choose_folder(chosen: str | None, recorded: str) -> str:
    """The folder to start in: the chosen one, the session's own, or the current one."""
    if chosen is not None:
        return os.path.realpath(chosen)
    if os.path.isdir(recorded):
        return os.path.realpath(recorded)
    print_error(f"weft: the session's folder {recorded!r} is gone; starting in the current one")
    return os.getcwd()
