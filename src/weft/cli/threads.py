"""`weft delete`, `undelete`, `rename`, `clear`: commands on a whole thread."""

import argparse
import sys
from collections.abc import Sequence

from weft.errors import ConfigError
from weft.store import descendants
from weft.thread import CommitInfo, Thread, open as open_thread, undelete

from .common import (
    add_command_options,
    at_commit,
    existing_store,
    existing_thread,
    print_json,
    run_on_thread,
    safe,
)
from .history import preview_json
from .terminal import plural


def run(args: argparse.Namespace) -> int:
    return COMMANDS[args.command](args)


def delete(args: argparse.Namespace) -> int:
    """Delete a thread after confirmation."""
    path = existing_store(args)
    args.thread = args.name or args.thread
    name = existing_thread(args, path)
    with open_thread(path, name) as thread:
        commits = thread.stats().commits
        children = descendants(thread.store.threads(), name)
        if not args.yes:
            facts = f"{plural(commits, 'commit')}{_and_children(children)}"
            _confirm(f"delete the thread {name!r} with {facts}?")
        thread.delete()
    if args.json:
        print_json({"deleted": name, "commits": commits, "children": children})
    else:
        what = f"{name!r}{_and_children(children)}"
        print(safe(f"deleted {what}; `weft undelete {name}` restores it until `weft gc`"))
    return 0


def _and_children(children: Sequence[str]) -> str:
    """How many subagents and side questions are deleted with their session."""
    if not children:
        return ""
    return " and its child thread" if len(children) == 1 else f" and {len(children)} child threads"


def restore(args: argparse.Namespace) -> int:
    record = undelete(existing_store(args), args.name)
    if args.json:
        print_json({"thread": record.name})
    else:
        print(safe(f"restored {record.name!r}"))
    return 0


def rename(args: argparse.Namespace) -> int:
    def verb(thread: Thread, args: argparse.Namespace) -> None:
        old = thread.name
        thread.rename(args.name)
        if args.json:
            print_json({"thread": thread.name, "was": old})
        else:
            print(safe(f"{old!r} is now {thread.name!r}"))

    return run_on_thread(args, verb)


def clear(args: argparse.Namespace) -> int:
    def verb(thread: Thread, args: argparse.Namespace) -> None:
        result = thread.clear(preview=bool(args.preview))
        if result is not None and not isinstance(result, CommitInfo):
            if args.json:
                print_json(preview_json(result))
            else:
                print(safe(str(result)))
        elif args.json:
            print_json({"branch": thread.current, "was": None if result is None else result.id})
        elif result is None:
            print(safe(f"branch {thread.current!r} is already empty"))
        else:
            was = f"it was {at_commit(result)}"
            print(safe(f"cleared branch {thread.current!r}; {was}, and `weft undo` restores it"))

    return run_on_thread(args, verb)


def _confirm(question: str) -> None:
    """Ask; raises `ConfigError` if the answer is not yes, or if there is no terminal."""
    if not sys.stdin.isatty():
        raise ConfigError("cannot ask for confirmation here: use --yes to delete")
    sys.stderr.write(f"{safe(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ConfigError("nothing was deleted")


def _delete_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="the thread to delete; the same as --thread")
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask for confirmation")


def _undelete_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the name of the deleted thread")


def _rename_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the new name; --thread names the thread to rename")


def _clear_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--preview", action="store_true", help="show what it would do")


OPTIONS = {
    "delete": _delete_options,
    "undelete": _undelete_options,
    "rename": _rename_options,
    "clear": _clear_options,
}

configure = add_command_options(OPTIONS)
COMMANDS = {"delete": delete, "undelete": restore, "rename": rename, "clear": clear}
