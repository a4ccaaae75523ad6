"""Commands on a whole store (`weft fsck`, `gc`, `forget`) or a whole thread (`delete`, `undelete`,
`rename`, `clear`)."""

import argparse
import shlex
import sys
from collections.abc import Sequence

from weft.errors import ConfigError
from weft.history import Erased, LiveName, Swept
from weft.store import descendants
from weft.thread import (
    RETENTION_DAYS,
    CommitInfo,
    Thread,
    forget,
    fsck,
    gc,
    kept_copies,
    open as open_thread,
    repair_store,
    undelete,
)

from .common import (
    add_command_options,
    at_commit,
    existing_store,
    existing_thread,
    print_json,
    read_text,
    run_on_thread,
    safe,
)
from .console import print_error
from .history import preview_json
from .terminal import ProgressBar, plural

EXIT_DAMAGED = 1
EXIT_NAMES_LEFT = 1
"""The exit codes of `fsck` if there is damage, and of `forget` if names still contain the text."""


def run(args: argparse.Namespace) -> int:
    return VERBS[args.command](args)


def check_store(args: argparse.Namespace) -> int:
    """List all damage; with `--repair` recover what is intact. Fails if damage remains."""
    address = existing_store(args)
    repairs, report = repair_store(address) if args.repair else ([], fsck(address))
    if args.json:
        print_json({**report.to_dict(), "done": repairs})
    else:
        for line in [*repairs, *map(str, report.flaws)]:
            print(safe(line))
        state = "clean" if report.clean else f"{len(report.flaws)} damaged"
        print(f"{plural(report.commits, 'commit')}, {plural(report.entries, 'entry')}: {state}")
    return 0 if report.clean else EXIT_DAMAGED


def collect_garbage(args: argparse.Namespace) -> int:
    """Remove old data that no branch or tag refers to, and print how much."""
    address = existing_store(args)
    bar = ProgressBar("removing old data")
    try:
        swept = gc(address, days=args.days, preview=args.preview, shrink=args.shrink, progress=bar)
    finally:
        bar.close()
    if args.json:
        counts: dict[str, int | None] = dict(swept.to_dict())
        if args.preview:  # only the deletion finds out which entries no other commit uses
            counts |= {"entries": None, "operations": None}
        print_json({**counts, "preview": args.preview})
    elif not swept.commits and not swept.entries and not swept.threads:
        verb = "would be removed" if args.preview else "was removed"
        print(f"nothing {verb}: {_why_nothing(address, args.days)}")
    else:
        verb = "would be removed" if args.preview else "were removed"
        print(f"{_describe_swept(swept, preview=args.preview)} {verb}")
    return 0


def _why_nothing(address: str, days: float) -> str:
    """Why nothing is removed: everything is referenced, or the rest is too recent."""
    recent = gc(address, days=0, preview=True)
    if not recent.commits and not recent.entries:
        return "branches and tags reach everything"
    count = plural(recent.commits, "commit") if recent.commits else plural(recent.entries, "entry")
    were = "was" if count.startswith("1 ") else "were"
    return f"{count} {were} in use in the last {days:g} days (--days 0 removes all)"


def _describe_swept(swept: Swept, *, preview: bool = False) -> str:
    """`3 commits and 5 entries, with 1 deleted thread,`; a preview does not count entries."""
    entries = "" if preview else f" and {plural(swept.entries, 'entry')}"
    threads = f", with {plural(swept.threads, 'deleted thread')}," if swept.threads else ""
    return f"{plural(swept.commits, 'commit')}{entries}{threads}"


def erase_text(args: argparse.Namespace) -> int:
    """Erase a text, or with `--id` the whole text of a message."""
    address = existing_store(args)
    text = read_text(args.text) if args.id is None else _read_message_text(args, address)
    erased = forget(address, text, preview=args.preview)
    copies = kept_copies(address)
    names = erased.live_names
    exit_code = EXIT_NAMES_LEFT if names and not args.preview else 0
    if args.json:
        rows = [
            {**row, "command": _command_for(name)}
            for row, name in zip(erased.to_dict()["live_names"], names, strict=True)
        ]
        facts = {**erased.to_dict(), "live_names": rows}
        print_json({**facts, "preview": args.preview, "copies": copies})
        return exit_code
    for copy in copies:
        line = f"weft: {copy!r} was left by a repair and may contain the text: delete it yourself"
        print_error(line)
    if erased:
        verb = "would be erased" if args.preview else "erased"
        print(f"{verb} from {_describe_erased(erased)}")
    elif not names:
        print("nothing contains that text")
    for name in names:
        what = f"the name of the {name.kind} {name.name!r}"
        owner = "" if name.kind == "thread" else f" of the thread {name.thread!r}"
        print_error(f"weft: {what}{owner} contains the text: `{_command_for(name)}` changes that")
    if names:
        print_error("weft: then run `weft forget` again, which erases the old names too")
    return exit_code


def _describe_erased(erased: Erased) -> str:
    """`2 entries, 1 note and 3 names`; entries and notes are always listed."""
    places = [plural(len(erased.entries), "entry"), plural(len(erased.commits), "note")]
    if erased.attempts:
        places.append(plural(len(erased.attempts), "attempt"))
    if erased.names:
        places.append(plural(erased.names, "name"))
    return f"{', '.join(places[:-1])} and {places[-1]}"


def _command_for(name: LiveName) -> str:
    """The command that renames a thread, or deletes a branch or a tag."""
    if name.kind == "thread":
        return shlex.join(["weft", "rename", "NEW", "--thread", name.thread])
    return shlex.join(["weft", name.kind, name.name, "--delete", "--thread", name.thread])


def _read_message_text(args: argparse.Namespace, address: str) -> str:
    with open_thread(address, existing_thread(args, address)) as opened:
        return opened.show(args.id).text


def _fsck_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--repair", action="store_true", help="rebuild the store from everything that is intact"
    )
    parser.epilog = (
        "Exit code: 0 if the store is intact (with --repair: after the repair), 1 if not."
    )


def _days(text: str) -> float:
    """A number of days, at least 0."""
    try:
        days = float(text)
    except ValueError:
        days = -1.0
    if not days >= 0:  # NaN compares false
        raise argparse.ArgumentTypeError(f"must be a number of at least 0, not {text!r}")
    return days


def _gc_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--days",
        type=_days,
        default=RETENTION_DAYS,
        help="keep data that a branch or tag referred to in the last DAYS days, even if it was "
        "undone or deleted since (default: 30)",
    )
    parser.add_argument("--preview", action="store_true", help="show what would be removed")
    parser.add_argument(
        "--shrink",
        action="store_true",
        help="give the free space back to the disk; other programs wait while the store is "
        "rewritten (default: later data uses it)",
    )


def _forget_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "text", nargs="?", help="the text to erase; - or nothing reads standard input"
    )
    parser.add_argument("--id", help="erase the whole text of this message instead")
    parser.add_argument(
        "--preview", action="store_true", help="count the matches and erase nothing"
    )
    parser.epilog = (
        "The text is erased from messages, notes, attempts and titles, and from the names of "
        "deleted threads, branches and tags. Names in use stay: each is listed with the command "
        "that renames or deletes it, and the exit code is 1. Run that command, then "
        "`weft forget` again to erase the old name. If a forgotten message is added again with "
        "exactly the same content, it reads `[forgotten]` too."
    )


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


def restore_thread(args: argparse.Namespace) -> int:
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
    "fsck": _fsck_options,
    "gc": _gc_options,
    "forget": _forget_options,
    "delete": _delete_options,
    "undelete": _undelete_options,
    "rename": _rename_options,
    "clear": _clear_options,
}

configure = add_command_options(OPTIONS, ignoring_thread=["fsck", "gc", "undelete"])
VERBS = {
    "fsck": check_store,
    "gc": collect_garbage,
    "forget": erase_text,
    "delete": delete,
    "undelete": restore_thread,
    "rename": rename,
    "clear": clear,
}
