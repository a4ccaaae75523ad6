"""Helpers of the commands on threads: find the store, open the thread, print results.

`--store` names the store, or else the environment variable `WEFT_STORE`. Commands that only read
never create a store or a thread.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import orjson

from weft.errors import ConfigError
from weft.printable import escape_json
from weft.thread import CommitInfo, Thread, open as open_thread, threads

from .describe import ID_LENGTH, describe
from .main import DEFAULT_STORE, DEFAULT_THREAD
from .terminal import read_screen

if TYPE_CHECKING:
    from weft.catalog import Catalog
    from weft.client import Route

NAMES_SHOWN = 8
REVISION = "an id or a prefix of one, a branch, a tag or HEAD, optionally with ~N or ^"
"""The ways to name a commit, as `weft.thread.resolve` reads them."""

MESSAGE = "the message's id or a prefix of it, or the commit that added it: HEAD, HEAD~N, main^"

Verb = Callable[[Thread, argparse.Namespace], None]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command on threads."""
    parser.add_argument(
        "--store", metavar="PATH", help=f"the store (default: WEFT_STORE, or {DEFAULT_STORE})"
    )
    parser.add_argument(
        "--thread",
        metavar="NAME",
        help=f"the thread (default: {DEFAULT_THREAD!r}, or the only one there is)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def store_path(args: argparse.Namespace) -> str:
    """The address of the store."""
    return args.store or os.environ.get("WEFT_STORE") or str(Path(DEFAULT_STORE).expanduser())


def existing_store(args: argparse.Namespace) -> str:
    """The address of a store that must exist."""
    path = store_path(args)
    file = path.removeprefix("sqlite://")
    if "://" not in file and not Path(file).is_file():
        raise ConfigError(f"there is no store at {path!r}")
    return path


def writable_store(args: argparse.Namespace) -> str:
    """The address of a store that may be new; only the default folder is created."""
    path = store_path(args)
    file = path.removeprefix("sqlite://")
    is_default = not args.store and not os.environ.get("WEFT_STORE")
    folder = Path(file).parent
    if not is_default and "://" not in file and not folder.is_dir():
        raise ConfigError(f"there is no folder {str(folder)!r} for the store")
    if is_default:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def choose_thread(args: argparse.Namespace, existing: Sequence[str]) -> str | None:
    """The named thread, the default thread or the only one; None if it does not exist."""
    if args.thread is not None:
        return args.thread if args.thread in existing else None
    if DEFAULT_THREAD in existing:
        return DEFAULT_THREAD
    return existing[0] if len(existing) == 1 else None


def existing_thread(args: argparse.Namespace, path: str) -> str:
    """The name of a thread that must exist; the error lists the existing ones."""
    existing = [record.name for record in reversed(threads(path))]  # newest first
    name = choose_thread(args, existing)
    if name is not None:
        return name
    missing = f"there is no thread {args.thread or DEFAULT_THREAD!r} in {path!r}"
    if not existing:
        raise ConfigError(f"{missing}, nor any other: `weft commit TEXT` creates one")
    names = ", ".join(map(repr, existing[:NAMES_SHOWN]))
    more = f" and {len(existing) - NAMES_SHOWN} more" if len(existing) > NAMES_SHOWN else ""
    raise ConfigError(f"{missing}: choose with --thread NAME; there are {names}{more}")


def run_on_thread(args: argparse.Namespace, verb: Verb) -> int:
    """Run a verb on a thread that must exist."""
    path = existing_store(args)
    with open_thread(path, existing_thread(args, path)) as thread:
        verb(thread, args)
    return 0


def find_model_route(args: argparse.Namespace, catalog: "Catalog") -> "Route":
    """The upstream for `--model`, from `--upstream`, `--config` and the environment."""
    from weft.client import find_route, read_tables, read_upstreams

    tables = () if args.config is None else read_tables(args.config)
    providers = read_upstreams(args.upstream or (), tables, os.environ, base_urls=True)
    return find_route(args.model, "", providers, catalog, pays=False)


def read_text(text: str | None, stdin: TextIO | None = None) -> str:
    """The text; for `-` or None all of standard input without its last newline."""
    if text is not None and text != "-":
        return text
    if stdin is None and sys.stdin.isatty():
        print("reading the text from the terminal; Ctrl-D ends it", file=sys.stderr)
    return (stdin or sys.stdin).read().removesuffix("\n")


def count(text: str) -> int:
    """A whole number of at least 0."""
    number = int(text)
    if number < 0:
        raise ValueError
    return number


def print_json(value: Any) -> None:
    """Print a value as JSON; on a terminal, control characters are written as JSON escapes."""
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2, default=str).decode() + "\n"
    sys.stdout.write(escape_json(text) if sys.stdout.isatty() else text)


def print_info(args: argparse.Namespace, thread: Thread, info: CommitInfo) -> None:
    """Print the new commit."""
    if args.json:
        print_json(info.to_dict())
    else:
        print(safe(describe(thread, info)))


def print_done(args: argparse.Namespace, info: CommitInfo | None, sentence: str) -> None:
    """Print one sentence; as JSON, the commit that a branch or tag points to (or pointed to)."""
    if args.json:
        print_json(None if info is None else info.to_dict())
    else:
        print(safe(sentence))


def safe(line: str) -> str:
    """The line, safe for a terminal if standard output is one."""
    return read_screen(sys.stdout, os.environ).safe(line)


def at_commit(info: CommitInfo) -> str:
    return f"at {info.id[:ID_LENGTH]}"


def print_rows(args: argparse.Namespace, rows: Sequence[Any], line: Callable[[Any], str]) -> None:
    """Print a list as JSON, or one line for each row."""
    if args.json:
        print_json([row if isinstance(row, dict) else row.to_dict() for row in rows])
        return
    for row in rows:
        print(line(row))
