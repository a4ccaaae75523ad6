"""`weft fsck`, `gc`, `forget`: commands on a whole store, which ignore `--thread`."""

import argparse

from weft.history import Swept
from weft.thread import (
    RETENTION_DAYS,
    forget,
    fsck,
    gc,
    kept_copies,
    open as open_thread,
    repair_store,
)

from .common import (
    add_command_options,
    existing_store,
    existing_thread,
    print_json,
    read_text,
    safe,
)
from .console import print_error
from .terminal import plural

EXIT_DAMAGED = 1


def run(args: argparse.Namespace) -> int:
    return VERBS[args.command](args)


def check(args: argparse.Namespace) -> int:
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


def collect(args: argparse.Namespace) -> int:
    address = existing_store(args)
    swept = gc(address, days=args.days, preview=args.preview)
    if args.json:
        print_json({**swept.to_dict(), "preview": args.preview})
    elif not swept.commits and not swept.entries and not swept.threads:
        verb = "would be removed" if args.preview else "was removed"
        print(f"nothing {verb}: {_why_nothing(address, args.days)}")
    else:
        print(f"{_sizes(swept)} {'would be removed' if args.preview else 'were removed'}")
    return 0


def _why_nothing(address: str, days: float) -> str:
    """Why nothing is removed: everything is referenced, or the rest is too recent."""
    recent = gc(address, days=0, preview=True)
    if not recent.commits and not recent.entries:
        return "branches and tags reach everything"
    count = plural(recent.commits, "commit") if recent.commits else plural(recent.entries, "entry")
    were = "was" if count.startswith("1 ") else "were"
    return f"{count} {were} in use in the last {days:g} days (--days 0 removes all)"


def _sizes(swept: Swept) -> str:
    objects = f"{plural(swept.commits, 'commit')} and {plural(swept.entries, 'entry')}"
    threads = f", with {plural(swept.threads, 'deleted thread')}," if swept.threads else ""
    return objects + threads


def erase(args: argparse.Namespace) -> int:
    """Erase a text, or with `--id` the whole text of a message."""
    address = existing_store(args)
    text = read_text(args.text) if args.id is None else _message_text(args, address)
    erased = forget(address, text, preview=args.preview)
    copies = kept_copies(address)
    if args.json:
        print_json({**erased.to_dict(), "preview": args.preview, "copies": copies})
        return 0
    for copy in copies:
        line = f"weft: {copy!r} was left by a repair and may contain the text: delete it yourself"
        print_error(line)
    if not erased:
        print("nothing contains that text")
    else:
        verb = "would be erased" if args.preview else "erased"
        entries, notes = plural(len(erased.entries), "entry"), plural(len(erased.commits), "note")
        attempts = plural(len(erased.attempts), "attempt")
        tail = f"{notes} and {attempts}" if erased.attempts else notes
        print(f"{verb} from {entries}{',' if erased.attempts else ' and'} {tail}")
    return 0


def _message_text(args: argparse.Namespace, address: str) -> str:
    with open_thread(address, existing_thread(args, address)) as opened:
        return opened.show(args.id).text


def _fsck_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repair", action="store_true", help="recover what is intact")


def _days(text: str) -> float:
    """A number of days, at least 0."""
    days = float(text)
    if not days >= 0:  # NaN compares false
        raise ValueError
    return days


def _gc_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--days",
        type=_days,
        default=RETENTION_DAYS,
        help="keep data that operations of the last DAYS days refer to (default: 30)",
    )
    parser.add_argument("--preview", action="store_true", help="show what would be removed")


def _forget_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "text", nargs="?", help="the text to erase; - or nothing reads standard input"
    )
    parser.add_argument("--id", help="erase the whole content of this message instead")
    parser.add_argument(
        "--preview", action="store_true", help="show where the text is, erase nothing"
    )


OPTIONS = {"fsck": _fsck_options, "gc": _gc_options, "forget": _forget_options}

configure = add_command_options(OPTIONS)
VERBS = {"fsck": check, "gc": collect, "forget": erase}
