"""What the commands on threads share: where the store is, how a thread is opened, how one prints.

The environment is read here and nowhere below: `WEFT_STORE` names the store where `--store` does
not. Commands that only read never make a store or a thread that is not there.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

import orjson

from weft.errors import ConfigError
from weft.thread import CommitInfo, Thread, threads
from weft.thread import open as open_thread

from .terminal import PLAIN, Screen

SHORT = 12
DEFAULT_STORE = "~/.local/share/weft/weft.db"

Verb = Callable[[Thread, argparse.Namespace], None]


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that every command on threads has."""
    parser.add_argument("--store", help=f"the store's path (WEFT_STORE, or {DEFAULT_STORE})")
    parser.add_argument("--thread", default="default", help="the thread's name")
    parser.add_argument("--json", action="store_true", help="print JSON")


def store_path(args: argparse.Namespace) -> str:
    """The address of the store that the command is about."""
    return args.store or os.environ.get("WEFT_STORE") or str(Path(DEFAULT_STORE).expanduser())


def existing_store(args: argparse.Namespace) -> str:
    """The address of a store that must be there."""
    path = store_path(args)
    file = path.removeprefix("sqlite://")
    if "://" not in file and not Path(file).is_file():
        raise ConfigError(f"there is no store at {path!r}")
    return path


def run_on_thread(args: argparse.Namespace, verb: Verb) -> int:
    """Run a verb on a thread that must be there."""
    path = existing_store(args)
    if args.thread not in {record.name for record in threads(path)}:
        raise ConfigError(f"there is no thread {args.thread!r} in {path!r}")
    with open_thread(path, args.thread) as thread:
        verb(thread, args)
    return 0


def read_text(text: str | None, stdin: TextIO | None = None) -> str:
    """The text given; for `-` and for nothing all of standard input, less its last newline."""
    if text is not None and text != "-":
        return text
    return (stdin or sys.stdin).read().removesuffix("\n")


def count(text: str) -> int:
    """A number of things: whole and not negative."""
    number = int(text)
    if number < 0:
        raise ValueError
    return number


def print_json(value: Any) -> None:
    sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2, default=str).decode() + "\n")


def print_info(args: argparse.Namespace, info: CommitInfo | None) -> None:
    """The commit that a verb made, or the head it left."""
    if args.json:
        print_json(None if info is None else info.to_dict())
    else:
        print("the branch is empty" if info is None else describe(info))


def describe(info: CommitInfo, screen: Screen = PLAIN, taken: int = 0) -> str:
    """A commit in one line, which a screen may shorten; `taken` columns stand before it."""
    note = screen.fit(info.message or "", taken + SHORT + 10)
    id, kind = screen.paint(info.id[:SHORT], "id"), screen.paint(f"{info.kind:<8}", "kind")
    return f"{id} {kind} {note}".rstrip()


def print_rows(args: argparse.Namespace, rows: Sequence[Any], line: Callable[[Any], str]) -> None:
    """A list: as JSON, or a line for each."""
    if args.json:
        print_json([row if isinstance(row, dict) else row.to_dict() for row in rows])
        return
    for row in rows:
        print(line(row))
