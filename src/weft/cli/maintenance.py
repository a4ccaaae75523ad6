"""`weft fsck`, `gc`, `forget` look after a whole store; `--thread` means nothing to them."""

import argparse

from weft.history import Swept
from weft.thread import open as open_thread
from weft.thread.maintenance import RETENTION_DAYS, forget, fsck, gc, kept_copies, repair_store

from .common import add_options, existing_store, existing_thread, print_json, read_text, safe
from .console import complain
from .terminal import plural

EXIT_DAMAGED = 1


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command that the parser is for."""
    add_options(parser)
    OPTIONS[parser.get_default("command")](parser)


def run(args: argparse.Namespace) -> int:
    return VERBS[args.command](args)


def check(args: argparse.Namespace) -> int:
    """Name all damage; with `--repair` recover what is intact, and fail if any is left."""
    address = existing_store(args)
    done, report = repair_store(address) if args.repair else ([], fsck(address))
    if args.json:
        print_json({**report.to_dict(), "done": done})
    else:
        for line in [*done, *map(str, report.flaws)]:
            print(safe(line))
        told = "clean" if report.clean else f"{len(report.flaws)} damaged"
        print(f"{plural(report.commits, 'commit')}, {plural(report.entries, 'entry')}: {told}")
    return 0 if report.clean else EXIT_DAMAGED


def collect(args: argparse.Namespace) -> int:
    address = existing_store(args)
    swept = gc(address, days=args.days, preview=args.preview)
    if args.json:
        print_json({**swept.to_dict(), "preview": args.preview})
    elif not swept.commits and not swept.entries and not swept.threads:
        verb = "would go" if args.preview else "went"
        print(f"nothing {verb}: {_why_kept(address, args.days)}")
    else:
        print(f"{_sizes(swept)} {'would go' if args.preview else 'went'}")
    return 0


def _why_kept(address: str, days: float) -> str:
    """Whether all is named, or what is not is too young to go."""
    young = gc(address, days=0, preview=True)
    if not young.commits and not young.entries:
        return "branches and tags lead to all there is"
    left = plural(young.commits, "commit") if young.commits else plural(young.entries, "entry")
    were = "was" if left.startswith("1 ") else "were"
    return f"{left} {were} still named in the last {days:g} days (--days 0 takes all)"


def _sizes(swept: Swept) -> str:
    told = f"{plural(swept.commits, 'commit')} and {plural(swept.entries, 'entry')}"
    deleted = f", with {plural(swept.threads, 'deleted thread')}," if swept.threads else ""
    return told + deleted


def erase(args: argparse.Namespace) -> int:
    """Erase a text, or all that the message of an id says."""
    address = existing_store(args)
    text = read_text(args.text) if args.id is None else _words_of(args, address)
    erased = forget(address, text, preview=args.preview)
    copies = kept_copies(address)
    if args.json:
        print_json({**erased.to_dict(), "preview": args.preview, "copies": copies})
        return 0
    for copy in copies:
        line = f"weft: {copy!r} was kept by a repair and may hold it: delete it yourself"
        complain(line)
    if not erased:
        print("nothing here holds that text")
    else:
        verb = "would be erased" if args.preview else "erased"
        entries, notes = plural(len(erased.entries), "entry"), plural(len(erased.commits), "note")
        attempts = plural(len(erased.attempts), "attempt")
        tail = f"{notes} and {attempts}" if erased.attempts else notes
        print(f"{verb} from {entries}{',' if erased.attempts else ' and'} {tail}")
    return 0


def _words_of(args: argparse.Namespace, address: str) -> str:
    with open_thread(address, existing_thread(args, address)) as opened:
        return opened.show(args.id).text


def _fsck_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repair", action="store_true", help="recover what is intact")


def _days(text: str) -> float:
    """A time to look back: a number of days, none below zero."""
    days = float(text)
    if not days >= 0:  # what is no number is not above it either
        raise ValueError
    return days


def _gc_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--days",
        type=_days,
        default=RETENTION_DAYS,
        help="keep what the log of the last DAYS days refers to (30)",
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
VERBS = {"fsck": check, "gc": collect, "forget": erase}
