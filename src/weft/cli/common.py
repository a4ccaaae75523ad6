"""Helpers of the commands on threads: find the store, open the thread, print results.

`--store` names the store, or else the environment variable `WEFT_STORE`. Commands that only read
never create a store or a thread.
"""

import argparse
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from weft import exact_json
from weft.errors import ConfigError
from weft.printable import escape_json
from weft.store import Store, check_address, without_password
from weft.thread import (
    PREFIXES,
    CommitInfo,
    Thread,
    find_local_thread,
    match_names,
    open as open_thread,
    open_existing,
)

from .console import print_error
from .describe import ID_LENGTH, describe
from .main import DEFAULT_STORE, DEFAULT_THREAD, add_store_option, nonempty
from .terminal import read_screen

if TYPE_CHECKING:
    from weft.catalog import Catalog
    from weft.client import Route

NAMES_SHOWN = 8
USUAL_THREAD = f"(default: {DEFAULT_THREAD!r}, or the only thread)"
THREAD_HELP = {
    "commit": f"the thread, by its whole name; a new name creates it {USUAL_THREAD}",
    "forget": f"the thread that has the message of --id {USUAL_THREAD}",
    "import": "the thread, by its whole name; a new name creates it (default: the session's own "
    "thread; for other files, one with the file's name)",
    "search": "search only this thread: its name or a unique prefix of it (default: all threads)",
}
"""The help of `--thread` for commands that use it in another way."""

REVISION = "an id or a prefix of one, a branch, a tag or HEAD, optionally with ~N or ^"
"""The ways to name a commit, as `weft.thread.resolve` reads them."""

MESSAGE = "the message's id or a prefix of it, or the commit that added it: HEAD, HEAD~N, main^"

Verb = Callable[[Thread, argparse.Namespace], None]
AddOptions = Callable[[argparse.ArgumentParser], None]


def add_options(parser: argparse.ArgumentParser, *, ignores_thread: bool = False) -> None:
    """Add `--store`, `--thread` and `--json`, the options of every command on threads.

    A command that ignores `--thread` still accepts it, for scripts that give it to every command,
    but its help does not list it.
    """
    command = parser.get_default("command")
    thread_help = THREAD_HELP.get(
        command, f"the thread, by its name or a unique prefix of it {USUAL_THREAD}"
    )
    add_store_option(parser)
    parser.add_argument(
        "--thread",
        type=nonempty,
        metavar="NAME",
        help=argparse.SUPPRESS if ignores_thread else thread_help,
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_command_options(
    options: Mapping[str, AddOptions], ignoring_thread: Collection[str] = ()
) -> AddOptions:
    """The `configure` of a module with several commands, each with options of its own.

    `ignoring_thread` are the commands that work on the whole store.
    """

    def configure(parser: argparse.ArgumentParser) -> None:
        command = parser.get_default("command")
        add_options(parser, ignores_thread=command in ignoring_thread)
        options[command](parser)

    return configure


def store_path(args: argparse.Namespace) -> str:
    """The address of the store; raises `ConfigError` if it can only be a mistake."""
    address = args.store or os.environ.get("WEFT_STORE")
    if not address:
        return str(Path(DEFAULT_STORE).expanduser())
    check_address(address)
    return address


def _refuse_folder(path: str) -> None:
    if Path(path.removeprefix("sqlite://")).is_dir():
        raise ConfigError(f"{path!r} is a folder, not a store: name the file")


def existing_store(args: argparse.Namespace) -> str:
    """The address of a store that must exist."""
    path = store_path(args)
    file = path.removeprefix("sqlite://")
    _refuse_folder(path)
    if "://" not in file and not Path(file).is_file():
        raise ConfigError(
            f"there is no store at {path!r}: `weft commit TEXT` creates it, and --store names "
            "another"
        )
    return path


def writable_store(args: argparse.Namespace) -> str:
    """The address of a store that may be new; only the default folder is created."""
    path = store_path(args)
    file = path.removeprefix("sqlite://")
    _refuse_folder(path)
    is_default = not args.store and not os.environ.get("WEFT_STORE")
    folder = Path(file).parent
    if not is_default and "://" not in file and not folder.is_dir():
        raise ConfigError(f"there is no folder {str(folder)!r} for the store")
    if is_default:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def choose_thread(store: Store) -> str | None:
    """The thread of a command without `--thread`: the default one, or the store's only one."""
    if store.read_thread(DEFAULT_THREAD) is not None:
        return DEFAULT_THREAD
    records = store.threads()
    return records[0].name if len(records) == 1 else None


def existing_thread(args: argparse.Namespace, path: str) -> str:
    """The full name of a thread that must exist, from its name or a unique prefix of it.

    The id of a client's session works too, also the new id of a resumed session.
    """
    with open_existing(path) as store:
        if args.thread is None:
            name = choose_thread(store)
            if name is not None:
                return name
        elif store.read_thread(args.thread) is not None:
            return args.thread
        else:
            aliases = (
                find_local_thread(store, f"{prefix}{args.thread}") for prefix in PREFIXES.values()
            )
            alias = next((name for name in aliases if name is not None), None)
            if alias is not None:
                return alias
        active = store.last_active()
    names = sorted(reversed(active), key=active.__getitem__, reverse=True)
    if args.thread:
        matches = match_names(names, args.thread)
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise ConfigError(
                f"{args.thread!r} matches {len(matches)} threads: {_list_names(matches)}"
            )
    missing = f"there is no thread {args.thread or DEFAULT_THREAD!r} in {without_password(path)!r}"
    if not names:
        raise ConfigError(f"{missing}, and no other thread: `weft commit TEXT` creates one")
    if args.thread:
        are = "is" if len(names) == 1 else "are"
        raise ConfigError(f"{missing}: there {are} {_list_names(names)}")
    raise ConfigError(f"{missing}: choose with --thread NAME: {_list_names(names)}")


def _list_names(names: Sequence[str]) -> str:
    """The most recently active threads by name, and how many more there are."""
    shown = ", ".join(map(repr, names[:NAMES_SHOWN]))
    more = len(names) - NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


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
    return find_route(args.model, "", providers, catalog, has_credentials=False)


def read_text(text: str | None, stdin: TextIO | None = None) -> str:
    """The text; for `-` or None all of standard input without its last newline."""
    try:
        content = _read_stdin(stdin) if text is None or text == "-" else text
        content.encode()
    except UnicodeError:  # bytes that are not UTF-8 may have become surrogates
        raise ConfigError("the text is not UTF-8") from None
    return content


def _read_stdin(stdin: TextIO | None) -> str:
    if stdin is None and sys.stdin.isatty():
        print("reading the text from the terminal; Ctrl-D ends it", file=sys.stderr)
    return (stdin or sys.stdin).read().removesuffix("\n")


def whole_number(text: str) -> int:
    """A whole number of at least 0."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 0, not {text!r}")
    return number


def print_json(value: Any) -> None:
    """Print a value as JSON; on a terminal, control characters are written as JSON escapes."""
    text = exact_json.dumps(value, option=exact_json.OPT_INDENT_2, default=str).decode() + "\n"
    sys.stdout.write(escape_json(text) if sys.stdout.isatty() else text)


def print_info(args: argparse.Namespace, thread: Thread, info: CommitInfo) -> None:
    """Print the new commit."""
    if args.json:
        print_json(info.to_dict())
    else:
        print(safe(describe(thread, info)))


def print_done(args: argparse.Namespace, info: CommitInfo | None, sentence: str) -> None:
    """Print one sentence; with `--json`, the commit of the branch or tag instead."""
    if args.json:
        print_json(None if info is None else info.to_dict())
    else:
        print(safe(sentence))


def safe(line: str) -> str:
    """The line, safe for a terminal if standard output is one."""
    return read_screen(sys.stdout, os.environ).safe(line)


def create_or_delete(
    args: argparse.Namespace,
    noun: str,
    create: Callable[[str, str | None], CommitInfo],
    delete: Callable[[str], CommitInfo],
) -> None:
    """Create a branch or a tag, or delete it with `--delete`, and print what was done."""
    if args.delete:
        info = delete(args.name)
        print_done(args, info, f"deleted {noun} {args.name!r}, which was {at_commit(info)}")
    else:
        info = create(args.name, args.at)
        print_done(args, info, f"{noun} {args.name!r} {at_commit(info)}")


def at_commit(info: CommitInfo) -> str:
    return f"at {info.id[:ID_LENGTH]}"


def print_empty(sentence: str) -> None:
    """Say why a list has no rows; on standard error, because a pipe must get nothing."""
    print_error(f"weft: {sentence}")


def print_rows(
    args: argparse.Namespace, rows: Sequence[Any], line: Callable[[Any], str], empty: str = ""
) -> None:
    """Print a list as JSON, or one line for each row; `empty` says why there are none."""
    if args.json:
        print_json([row if isinstance(row, dict) else row.to_dict() for row in rows])
        return
    for row in rows:
        print(line(row))
    if empty and not rows:
        print_empty(empty)
