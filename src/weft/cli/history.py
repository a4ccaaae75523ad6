"""`weft branch`, `switch`, `merge`, `undo`, `redo`."""

import argparse
from typing import Any

from weft.history import CHOICES
from weft.thread import REF_OPERATIONS, SQUASH, MergePreview, Thread, Undone

from .common import (
    REVISION,
    AddOptions,
    Verb,
    add_command_options,
    at_commit,
    print_done,
    print_info,
    print_json,
    run_on_thread,
    safe,
)
from .describe import ID_LENGTH, summarise
from .reshape import add_answers, preview_json, read_strategy


def run(args: argparse.Namespace) -> int:
    return run_on_thread(args, VERBS[args.command])


def branch(thread: Thread, args: argparse.Namespace) -> None:
    if args.name is None:
        _list_branches(thread, args)
    elif args.delete:
        info = thread.delete_branch(args.name)
        print_done(args, info, f"deleted branch {args.name!r}, which was {at_commit(info)}")
    else:
        info = thread.branch(args.name, args.at)
        print_done(args, info, f"branch {args.name!r} {at_commit(info)}")


def switch(thread: Thread, args: argparse.Namespace) -> None:
    print_done(args, thread.switch(args.name), f"now on {args.name!r}")


def merge(thread: Thread, args: argparse.Namespace) -> None:
    is_squash = args.strategy == SQUASH
    resolve = read_strategy(args.settle if is_squash else args.strategy, args.answer)
    result = thread.merge(
        args.branch,
        args.strategy if is_squash else resolve,
        preview=bool(args.preview),
        text=args.text,
        settle=resolve if is_squash else args.settle,
    )
    if isinstance(result, MergePreview) and args.json:
        print_json(_preview_json(result))
    elif isinstance(result, MergePreview):
        print(safe(str(result)))
    else:
        print_info(args, thread, result)


def undo(thread: Thread, args: argparse.Namespace) -> None:
    _print_undone(args, thread, thread.undo(turn=args.turn), "undid")


def redo(thread: Thread, args: argparse.Namespace) -> None:
    _print_undone(args, thread, thread.redo(turn=args.turn), "redid")


def _print_undone(args: argparse.Namespace, thread: Thread, undone: Undone, verb: str) -> None:
    """Print what was undone or redone; as JSON, the head, with it under `undid` or `redid`."""
    if args.json:
        head = {"id": None} if undone.head is None else undone.head.to_dict()
        print_json({**head, verb: undone.to_dict()})
        return
    line = str(undone)
    if undone.commit is not None and undone.verb not in REF_OPERATIONS:
        _, text = summarise(thread, undone.commit)
        line = f"{undone.title} {undone.commit.id[:ID_LENGTH]} {text}".rstrip()
    print(safe(f"{verb}: {line}"))


def _list_branches(thread: Thread, args: argparse.Namespace) -> None:
    heads = thread.branches()
    if args.json:
        print_json({"current": thread.current, "branches": heads})
        return
    for name, head in heads.items():
        print(safe(f"{'*' if name == thread.current else ' '} {name} {head[:ID_LENGTH]}"))


def _preview_json(preview: MergePreview) -> dict[str, Any]:
    return {
        **preview_json(preview),
        "branch": preview.branch,
        "fast_forward": preview.fast_forward,
        "kept_whole": preview.kept_whole,
        "left_setup": list(preview.left_setup),
    }


def _branch_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="the new branch; without it, list all")
    parser.add_argument("--at", help=f"where it begins: {REVISION}")
    parser.add_argument("--delete", action="store_true", help="delete this branch")


def _switch_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the branch to switch to")


def _merge_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("branch", help="the branch to merge")
    parser.add_argument(
        "--strategy",
        choices=(*CHOICES, "squash"),
        help="how to resolve conflicts; squash adds the branch's result as one message",
    )
    parser.add_argument("--text", help="the message that a squash adds")
    parser.add_argument(
        "--settle", choices=CHOICES, help="how a squash resolves messages that both sides changed"
    )
    add_answers(parser)
    parser.add_argument("--preview", action="store_true", help="show what it would do")


def _turn_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--turn", action="store_true", help="the user's last message and everything after it"
    )


OPTIONS: dict[str, AddOptions] = {
    "branch": _branch_options,
    "switch": _switch_options,
    "merge": _merge_options,
    "undo": _turn_options,
    "redo": _turn_options,
}

configure = add_command_options(OPTIONS)
VERBS: dict[str, Verb] = {
    "branch": branch,
    "switch": switch,
    "merge": merge,
    "undo": undo,
    "redo": redo,
}
