"""Helpers of the commands on threads: find the store, open the thread, print results.

`--store` names the store, or else the environment variable `WEFT_STORE`. Commands that only read
never create a store or a thread.
"""

import argparse
import os
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
USUAL_THREAD = "(default: WEFT_THREAD, or the current folder's thread that was active last)"
ID_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "show": ("id",),
    "diff": ("before", "after"),
    "compile": ("at",),
    "recall": ("words",),
    "edit": ("id",),
    "pin": ("id",),
    "skip": ("id",),
    "note": ("id",),
    "tag": ("at",),
    "blame": ("text",),
    "versions": ("id",),
    "branch": ("at",),
    "reset": ("at",),
    "rebase": ("onto",),
    "cherry-pick": ("id",),
    "revert": ("id",),
    "restore": ("id",),
    "compact": ("first", "last"),
    "forget": ("id",),
}
"""The arguments of each command that may be an id, which is then looked for in every thread."""

MOVING_COMMANDS = frozenset(
    [
        "commit",
        "edit",
        "chat",
        "switch",
        "merge",
        "compact",
        "undo",
        "redo",
        "revert",
        "restore",
        "reset",
        "clear",
        "rebase",
        "cherry-pick",
        "rename",
        "delete",
    ]
)
"""The commands that move a branch, or rename or delete the thread. An id does not choose the thread
for them: they only write in the current thread, or in one that is named."""

MARKING_COMMANDS = frozenset(["pin", "skip", "tag", "note", "branch", "forget"])
"""The other commands that write. They find an id in every thread, as reading commands do."""

MAX_NUMBER = 10**15
"""The largest number of an option, such as a limit; databases hold the sum of two such numbers."""

MIN_PREFIX = 4
"""The shortest prefix that is taken for an id."""
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
        "-t",
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


def choose_thread(store: Store, *, reads: bool) -> str | None:
    """The current thread: the main thread of the current folder, or of the nearest folder above it,
    that was active last; else a thread without a folder, if it is the store's only main thread or
    has the default name. A command that only reads also gets an only main thread of another folder.

    The home folder and the root only count for themselves, not for everything below them.
    """
    records = {record.name: record for record in store.threads()}
    mains = [record for record in records.values() if record.parent not in records]
    in_folder: dict[str, list[str]] = {}
    for record in mains:
        if record.folder is not None:
            in_folder.setdefault(os.path.realpath(record.folder), []).append(record.name)
    last_active = store.last_active() if in_folder else {}
    for folder in _folders_above():
        if names := in_folder.get(folder):
            return max(reversed(names), key=lambda name: last_active.get(name, 0.0))
    if len(mains) == 1 and (reads or mains[0].folder is None):
        return mains[0].name
    usual = records.get(DEFAULT_THREAD)
    return None if usual is None or usual.folder is not None else usual.name


def _folders_above() -> Iterator[str]:
    """The current folder and those above it, up to the home folder or the root."""
    folder = os.path.realpath(os.getcwd())
    ends = ("/", os.path.realpath(os.path.expanduser("~")))
    yield folder
    while folder not in ends and (folder := os.path.dirname(folder)) not in ends:
        yield folder


def only_reads(args: argparse.Namespace) -> bool:
    """Whether the command, with these arguments, changes nothing."""
    if getattr(args, "preview", False) or getattr(args, "list", False):
        return True
    if args.command in ("branch", "tag"):
        return args.name is None
    if args.command == "note":
        return args.id is None
    return args.command not in MOVING_COMMANDS | MARKING_COMMANDS


def say_thread(store: Store, name: str) -> None:
    """Say on standard error which thread was chosen, unless it is the only one, and belongs to the
    current folder or to none."""
    record = store.read_thread(name)
    folder = None if record is None else record.folder
    is_elsewhere = folder is not None and os.path.realpath(folder) != os.path.realpath(os.getcwd())
    if is_elsewhere or len(store.threads()) > 1:
        print_error(f"weft: thread {name!r}")


def say_new_thread(name: str) -> None:
    print_error(f"weft: new thread {name!r}")


def named_thread(args: argparse.Namespace) -> str | None:
    """The thread that `--thread` or WEFT_THREAD names."""
    return args.thread or os.environ.get("WEFT_THREAD") or None


def find_by_id(args: argparse.Namespace, store: Store, current: str | None) -> str | None:
    """The thread that has the ids that the command got; the current thread wins.

    Raises `ConfigError` if several other threads have them, or if the command would move a branch
    of another thread.
    """
    for argument in ID_ARGUMENTS.get(args.command, ()):
        value = getattr(args, argument, None)
        prefix = "" if not isinstance(value, str) else _id_part(value)
        if len(prefix) < MIN_PREFIX:
            continue
        if current is not None and _has_name(store, current, str(value), prefix):
            return current
        names = [record.name for record in store.threads() if store.find(record.name, prefix)]
        if len(names) > 1:
            raise ConfigError(
                f"{value!r} is in {len(names)} threads: choose with -t NAME: {_list_names(names)}"
            )
        if names and args.command in MOVING_COMMANDS and not only_reads(args):
            words = shlex.join(["weft", args.command, "-t", names[0], *args.given])
            raise ConfigError(
                f"{value!r} is in the thread {names[0]!r}, not in the current one: to change "
                f"{names[0]!r}, run `{words}`"
            )
        if names:
            return names[0]
    return current


def _id_part(value: str) -> str:
    """The id or prefix in a revision such as `1f2e3d~2`; empty if it has none."""
    base = re.split("[~^]", value.strip().lower(), maxsplit=1)[0]
    return base if len(base) <= 40 and set(base) <= set("0123456789abcdef") else ""


def _has_name(store: Store, thread: str, value: str, prefix: str) -> bool:
    """Whether a thread has a branch or a tag of this name, or an id with this prefix."""
    refs = store.refs(thread)
    return value in refs or f"tag:{value}" in refs or bool(store.find(thread, prefix))


def existing_thread(args: argparse.Namespace, path: str) -> str:
    """The full name of a thread that must exist, from its name or a unique prefix of it.

    The id of a client's session works too, also the new id of a resumed session. Without a name it
    is the thread that has the given id, or the current thread; standard error says which, if the
    store has others.
    """
    named = named_thread(args)
    with open_existing(path) as store:
        if named is None:
            name = find_by_id(args, store, choose_thread(store, reads=only_reads(args)))
            if name is not None:
                say_thread(store, name)
                return name
        elif store.read_thread(named) is not None:
            return named
        else:
            aliases = (find_local_thread(store, f"{prefix}{named}") for prefix in PREFIXES.values())
            alias = next((name for name in aliases if name is not None), None)
            if alias is not None:
                return alias
        active = store.last_active()
    names = sorted(reversed(active), key=active.__getitem__, reverse=True)
    if named:
        matches = match_names(names, named)
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise ConfigError(f"{named!r} matches {len(matches)} threads: {_list_names(matches)}")
    store_name = repr(without_password(path))
    if not names:
        missing = f"there is no thread {named or DEFAULT_THREAD!r} in {store_name}"
        raise ConfigError(f"{missing}, and no other thread: `weft commit TEXT` creates one")
    if named:
        are = "is" if len(names) == 1 else "are"
        missing = f"there is no thread {named!r} in {store_name}"
        raise ConfigError(f"{missing}: there {are} {_list_names(names)}")
    raise ConfigError(
        f"no thread of {store_name} belongs to this folder: choose with -t NAME: "
        f"{_list_names(names)}"
    )


def thread_to_write(args: argparse.Namespace, store: Store) -> str:
    """The thread to append to: the one that is named, the current one, or a new one."""
    named = named_thread(args)
    if named is not None:
        if store.read_thread(named) is None:
            say_new_thread(named)
        return named
    chosen = choose_thread(store, reads=False)
    if chosen is not None:
        say_thread(store, chosen)
        return chosen
    name = base = DEFAULT_THREAD
    if store.read_thread(name) is not None:  # it belongs to another folder
        name = base = os.path.basename(os.path.realpath(os.getcwd())) or DEFAULT_THREAD
    number = 1
    while store.read_thread(name) is not None:
        number += 1
        name = f"{base}-{number}"
    if store.threads():
        say_new_thread(name)
    return name


def open_for_writing(path: str, name: str, *, checkpoints: bool = False) -> Thread:
    """Open a thread that may be new; a new one belongs to the current folder."""
    thread = open_thread(path, name, checkpoints)
    if thread.head is None:
        thread.store.describe_thread(name, folder=os.path.realpath(os.getcwd()))
    return thread


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
    """A whole number of at least 0, and small enough for every store."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 0, not {text!r}")
    if number > MAX_NUMBER:
        raise argparse.ArgumentTypeError(f"must be at most {MAX_NUMBER}, not {text!r}")
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
