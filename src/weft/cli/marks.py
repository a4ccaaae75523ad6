"""`weft tag`, `note`, `blame`, `versions`: labels of commits, and the origin of a text."""

import argparse
from typing import Any

from weft.thread import Thread

from .common import (
    ID_LENGTH,
    MESSAGE,
    REVISION,
    AddOptions,
    Verb,
    add_command_options,
    at_commit,
    count,
    print_done,
    print_info,
    print_json,
    print_rows,
    read_text,
    run_on_thread,
    safe,
)
from .console import print_error


def run(args: argparse.Namespace) -> int:
    return run_on_thread(args, VERBS[args.command])


def tag(thread: Thread, args: argparse.Namespace) -> None:
    if args.name is None:
        _list_tags(thread, args)
    elif args.delete:
        info = thread.untag(args.name)
        print_done(args, info, f"deleted tag {args.name!r}, which was {at_commit(info)}")
    else:
        info = thread.tag(args.name, args.at)
        print_done(args, info, f"tag {args.name!r} {at_commit(info)}")


def note(thread: Thread, args: argparse.Namespace) -> None:
    if args.id is None or args.list:
        print_rows(args, [_note_json(info) for info in thread.notes(args.id)], _note_line)
    else:
        print_info(args, thread, thread.note(args.id, read_text(args.text)))


def blame(thread: Thread, args: argparse.Namespace) -> None:
    rows = [row.to_dict() for row in thread.blame(args.text, args.limit)]
    print_rows(args, rows, _blame_line)
    if not rows and not args.json:
        print_error(f"weft: no message contains {args.text!r}")


def versions(thread: Thread, args: argparse.Namespace) -> None:
    rows = [version.to_dict() for version in thread.edit_history(args.id)]
    print_rows(args, rows, _version_line)


def _list_tags(thread: Thread, args: argparse.Namespace) -> None:
    tags = thread.tags()
    if args.json:
        print_json(tags)
        return
    for name, id in tags.items():
        print(safe(f"{name} {id[:ID_LENGTH]}"))


def _note_json(info: Any) -> dict[str, Any]:
    return {
        "id": info.id,
        "about": info.metadata["about"],
        "text": info.message,
        "created": info.created.isoformat(),
    }


def _note_line(note: dict[str, Any]) -> str:
    return safe(f"{note['about'][:ID_LENGTH]} {note['text']}")


def _blame_line(row: dict[str, Any]) -> str:
    state = "live" if row["live"] else "gone"
    commit = f"{row['commit'][:ID_LENGTH]} {row['kind']:<8}"
    return safe(f"{commit} {row['created'][:19]} {state} {row['role']}: {row['text']}")


def _version_line(row: dict[str, Any]) -> str:
    commit = f"{row['number']} {row['commit'][:ID_LENGTH]} {row['kind']}"
    return safe(f"{commit}: {row['text']}")


def _tag_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="the new tag; without it, list all")
    parser.add_argument("at", nargs="?", help=f"the commit to tag: {REVISION} (default: HEAD)")
    parser.add_argument("--delete", action="store_true", help="delete this tag")


def _note_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "id", nargs="?", help="the commit or message, by id or HEAD~N; without it, list all notes"
    )
    parser.add_argument("text", nargs="?", help="the note; without it, standard input")
    parser.add_argument("--list", action="store_true", help="list its notes")


def _blame_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", help="a text, or a message's id or HEAD~N")
    parser.add_argument(
        "-n", "--limit", type=count, default=20, help="the maximum number of results"
    )


def _versions_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help=MESSAGE)


OPTIONS: dict[str, AddOptions] = {
    "tag": _tag_options,
    "note": _note_options,
    "blame": _blame_options,
    "versions": _versions_options,
}

configure = add_command_options(OPTIONS)
VERBS: dict[str, Verb] = {
    "tag": tag,
    "note": note,
    "blame": blame,
    "versions": versions,
}
