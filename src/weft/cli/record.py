"""The commands on single messages and commits.

- `weft commit`, `edit`, `pin`, `skip`: append or change one message.
- `weft tag`, `note`: label commits and messages.
- `weft blame`, `versions`: find the origin of a text.
"""

import argparse
from typing import Any

from weft.errors import ConfigError
from weft.model import JsonObject
from weft.store import open_store
from weft.thread import CommitInfo, Content, DialogueContent, Thread

from .common import (
    ID_LENGTH,
    MESSAGE,
    REVISION,
    AddOptions,
    Verb,
    add_command_options,
    create_or_delete,
    open_for_writing,
    print_empty,
    print_info,
    print_json,
    print_rows,
    read_text,
    run_on_thread,
    safe,
    thread_to_write,
    whole_number,
    writable_store,
)

ROLES = ("user", "assistant", "system", "developer", "tool")
TYPES = ("instruction", "dialogue", "reasoning", "artifact", "output", "session")
TEXT_FIELD = {"artifact": "content", "session": "summary"}
"""Where these content types have their text; the others have it in `text`."""


def run(args: argparse.Namespace) -> int:
    if args.command == "commit":
        return commit(args)
    return run_on_thread(args, VERBS[args.command])


def commit(args: argparse.Namespace) -> int:
    """Append one message; creates the store and the thread if they do not exist."""
    text = _read_message(args)
    if not args.force:
        _check_message(args.role, text)
    path = writable_store(args)
    store = open_store(path)
    try:
        name = thread_to_write(args, store)
    finally:
        store.close()
    with open_for_writing(path, name, checkpoints=args.checkpoints) as thread:
        if args.call_id is not None:
            info = thread.tool_result(args.call_id, text, message=args.note)
        else:
            content = _make_content(args, text)
            info = thread.commit(content, args.note)
        print_info(args, thread, info)
    return 0


def _make_content(args: argparse.Namespace, text: str) -> Content | JsonObject:
    """A message with any role, or for other content types their JSON form, which has no role."""
    if args.type == "dialogue":
        return DialogueContent(args.role, text, args.name)
    name_member = {} if args.name is None else {"name": args.name}
    return {"content_type": args.type, TEXT_FIELD.get(args.type, "text"): text, **name_member}


def _read_message(args: argparse.Namespace) -> str:
    """The text, from an argument, `-m` or standard input."""
    if args.message is None:
        return read_text(args.text)
    if args.text is not None:
        raise ConfigError("there are two texts; leave out -m (--note writes a note)")
    return "\n\n".join(args.message)


def _check_message(role: str, text: str) -> None:
    """Raise `ConfigError` for a likely mistake; the library accepts any role and any text."""
    if not text.strip():
        raise ConfigError("the text is empty (--force commits it anyway)")
    if role not in ROLES:
        roles = ", ".join(ROLES)
        raise ConfigError(f"unknown role {role!r}: use {roles} (--force commits it anyway)")


def edit(thread: Thread, args: argparse.Namespace) -> None:
    print_info(args, thread, thread.edit(args.id, _read_message(args), message=args.note))


def pin(thread: Thread, args: argparse.Namespace) -> None:
    info = thread.annotate(args.id, "normal") if args.off else thread.pin(args.id)
    print_info(args, thread, info)


def skip(thread: Thread, args: argparse.Namespace) -> None:
    info = thread.annotate(args.id, "normal") if args.off else thread.skip(args.id)
    print_info(args, thread, info)


def tag(thread: Thread, args: argparse.Namespace) -> None:
    if args.name is None:
        _list_tags(thread, args)
    else:
        create_or_delete(args, "tag", thread.tag, thread.untag)


def note(thread: Thread, args: argparse.Namespace) -> None:
    if args.id is None or args.list:
        rows = [_note_json(info) for info in thread.notes(args.id)]
        print_rows(args, rows, _note_line, "there are no notes: `weft note ID TEXT` adds one")
    else:
        print_info(args, thread, thread.note(args.id, read_text(args.text)))


def blame(thread: Thread, args: argparse.Namespace) -> None:
    rows = [row.to_dict() for row in thread.blame(args.text, args.limit)]
    empty = f"no message contains {args.text!r}" if args.limit else ""
    print_rows(args, rows, _blame_line, empty)


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
    if not tags:
        print_empty("the thread has no tags: `weft tag NAME` adds one")


def _note_json(info: CommitInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "about": info.metadata["about"],
        "text": info.message,
        "created": info.created.isoformat(),
    }


def _note_line(row: dict[str, Any]) -> str:
    return safe(f"{row['about'][:ID_LENGTH]} {row['text']}")


def _blame_line(row: dict[str, Any]) -> str:
    state = "live" if row["live"] else "gone"
    commit = f"{row['commit'][:ID_LENGTH]} {row['kind']:<8}"
    return safe(f"{commit} {row['created'][:19]} {state} {row['role']}: {row['text']}")


def _version_line(row: dict[str, Any]) -> str:
    commit = f"{row['number']} {row['commit'][:ID_LENGTH]} {row['kind']}"
    return safe(f"{commit}: {row['text']}")


def _add_text_options(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "-m",
        "--message",
        metavar="TEXT",
        action="append",
        help=f"{what}; if repeated, each one is a paragraph",
    )
    parser.add_argument("--note", help="a note for the commit, shown by `weft log`")


def _commit_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", nargs="?", help="the text; without it, standard input")
    parser.add_argument(
        "--role", default="user", help=f"the role: {', '.join(ROLES)} (default: user)"
    )
    parser.add_argument(
        "--type",
        default="dialogue",
        choices=TYPES,
        help="the content type of the text (default: dialogue)",
    )
    parser.add_argument("--name", help="the speaker's name")
    parser.add_argument(
        "--call-id", help="with the role tool: the id of the tool call that this text answers"
    )
    _add_text_options(parser, "the text")
    parser.add_argument(
        "--checkpoints",
        action="store_true",
        help="turn checkpoints on for this thread: each user message ends with a marker, which "
        "`weft compact --from` and `--to` take",
    )
    parser.add_argument("--force", action="store_true", help="accept any role and an empty text")


def _edit_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help=MESSAGE)
    parser.add_argument("text", nargs="?", help="the new text; without it, standard input")
    _add_text_options(parser, "the new text")


def _pin_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help=MESSAGE)
    parser.add_argument("--off", action="store_true", help="unpin it")


def _skip_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help=MESSAGE)
    parser.add_argument("--off", action="store_true", help="include it again")


def _tag_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="the new tag; without it, list all")
    parser.add_argument(
        "at", nargs="?", metavar="COMMIT", help=f"the commit to tag: {REVISION} (default: HEAD)"
    )
    parser.add_argument("--delete", action="store_true", help="delete the tag NAME")


def _note_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "id", nargs="?", help="the commit or message, by id or HEAD~N; without it, list all notes"
    )
    parser.add_argument("text", nargs="?", help="the note; without it, standard input")
    parser.add_argument(
        "--list", action="store_true", help="list the notes of this commit or message"
    )


def _blame_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", help="a part of a message's text, or the message's id or HEAD~N")
    parser.add_argument(
        "-n",
        "--limit",
        type=whole_number,
        default=20,
        metavar="N",
        help="the maximum number of results (default: 20)",
    )


def _versions_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help=MESSAGE)


OPTIONS: dict[str, AddOptions] = {
    "commit": _commit_options,
    "edit": _edit_options,
    "pin": _pin_options,
    "skip": _skip_options,
    "tag": _tag_options,
    "note": _note_options,
    "blame": _blame_options,
    "versions": _versions_options,
}
VERBS: dict[str, Verb] = {
    "edit": edit,
    "pin": pin,
    "skip": skip,
    "tag": tag,
    "note": note,
    "blame": blame,
    "versions": versions,
}

configure = add_command_options(OPTIONS)
