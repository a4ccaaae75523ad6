"""The commands that move branches or rewrite history.

- `weft branch`, `switch`, `merge`, `undo`, `redo`
- `weft reset`, `rebase`, `cherry-pick`, `revert`, `restore`: with `--preview` each shows what it
  would change and cost, and changes nothing.
"""

import argparse
from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins

from weft.errors import MergeConflict
from weft.history import CHOICES, AnyConflict, ResultConflict, Row, SetupConflict
from weft.model import Message
from weft.thread import (
    REF_OPERATIONS,
    SQUASH,
    CommitInfo,
    MergePreview,
    Preview,
    Strategy,
    Thread,
    Undone,
)

from .common import (
    MESSAGE,
    REVISION,
    AddOptions,
    Verb,
    add_command_options,
    create_or_delete,
    print_done,
    print_info,
    print_json,
    run_on_thread,
    safe,
)
from .describe import ID_LENGTH, summarise


def reset(thread: Thread, args: argparse.Namespace) -> None:
    print_change(args, thread, thread.reset(args.at, preview=bool(args.preview)))


def rebase(thread: Thread, args: argparse.Namespace) -> None:
    strategy = read_strategy(args.strategy, args.answer)
    print_change(args, thread, thread.rebase(args.onto, strategy, preview=bool(args.preview)))


def cherry_pick(thread: Thread, args: argparse.Namespace) -> None:
    strategy = read_strategy(args.strategy, args.answer)
    print_change(args, thread, thread.cherry_pick(args.id, strategy, preview=bool(args.preview)))


def revert(thread: Thread, args: argparse.Namespace) -> None:
    strategy = read_strategy(args.strategy, args.answer)
    print_change(args, thread, thread.revert(args.id, strategy, preview=bool(args.preview)))


def restore(thread: Thread, args: argparse.Namespace) -> None:
    print_change(args, thread, thread.restore(args.id, args.version, preview=bool(args.preview)))


def print_change(args: argparse.Namespace, thread: Thread, result: CommitInfo | Preview) -> None:
    """Print the new commit, or the preview."""
    if isinstance(result, CommitInfo):
        print_info(args, thread, result)
    elif args.json:
        print_json(preview_json(result))
    else:
        print(safe(str(result)))


def preview_json(preview: Preview) -> dict[str, Any]:
    """A preview as JSON."""
    return {
        "verb": preview.verb,
        "tokens": preview.diff.tokens,
        "tokens_before": preview.tokens_before,
        "tokens_after": preview.tokens_after,
        "cache_lost": preview.cache_lost,
        "stripped": list(preview.stripped),
        "setup_changes": list(preview.setup_changes),
        "conflicts": [conflict_json(conflict) for conflict in preview.conflicts],
        "messages": [{"role": m.role, "content": m.text} for m in preview.messages],
    }


def conflict_json(conflict: AnyConflict) -> dict[str, Any]:
    """A conflict as JSON, with both sides: texts of a message or a result, parts of a setup."""
    if isinstance(conflict, ResultConflict):
        results = {"ours": conflict.ours, "theirs": conflict.theirs}
        texts = {side: Message("tool", (result,)).text for side, result in results.items()}
        return {"id": conflict.id, "kind": conflict.kind, **texts}
    values = {"ours": conflict.ours, "theirs": conflict.theirs}
    sides = {
        side: value.message.text if isinstance(value, Row) else to_builtins(value)
        for side, value in values.items()
    }
    parts = {"parts": list(conflict.parts)} if isinstance(conflict, SetupConflict) else {}
    return {"id": conflict.id, "kind": conflict.kind, **parts, **sides}


NO_STRATEGY = "(default: list them and change nothing)"


def add_strategy(parser: argparse.ArgumentParser, sides: str) -> None:
    """Add the options that resolve conflicts; `sides` says what ours and theirs are."""
    parser.add_argument(
        "--strategy",
        choices=CHOICES,
        help=f"how to resolve all conflicts {NO_STRATEGY}: {sides}; concat is both",
    )
    add_answers(parser)


def add_answers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--answer",
        metavar="ID=CHOICE",
        action="append",
        default=[],
        type=_parse_answer,
        help="how to resolve the conflict with this id (--preview --json lists them): ours, "
        "theirs, concat, or a text (repeatable)",
    )


def _parse_answer(text: str) -> tuple[str, str]:
    """The id and the choice in `ID=CHOICE`."""
    id, equals, choice = text.partition("=")
    if not id or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not ID=CHOICE")
    return id, choice


def read_strategy(strategy: str | None, answers: Sequence[tuple[str, str]]) -> Strategy:
    """A strategy that resolves conflicts by their `--answer`, and all others by `strategy`."""
    if not answers:
        return strategy

    def choose(conflict: AnyConflict) -> str:
        matching = {answer for id, answer in answers if conflict.id.startswith(id)}
        if len(matching) == 1:
            return matching.pop()
        if strategy is None or matching:
            raise MergeConflict(f"no answer for the conflict in {conflict.place}", (conflict,))
        return strategy

    return choose


def _reset_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("at", metavar="COMMIT", help=f"the new head of the branch: {REVISION}")


def _rebase_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("onto", help=f"the new base: {REVISION}")
    add_strategy(parser, "ours is the new base, theirs the replayed commit")


def _pick_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help=f"the commit to copy: {REVISION}")
    add_strategy(parser, "ours is this branch, theirs the copied commit")


def _revert_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help=f"the commit to undo: {REVISION}")
    add_strategy(parser, "ours is this branch as it is now, theirs as it was before that commit")


def _restore_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help=MESSAGE)
    parser.add_argument(
        "version",
        nargs="?",
        type=int,
        default=0,
        help="the number of the version, as `weft versions` lists it (default: 0, the original)",
    )


def run(args: argparse.Namespace) -> int:
    return run_on_thread(args, VERBS[args.command])


def branch(thread: Thread, args: argparse.Namespace) -> None:
    if args.name is None:
        _list_branches(thread, args)
    else:
        create_or_delete(args, "branch", thread.branch, thread.delete_branch)


def switch(thread: Thread, args: argparse.Namespace) -> None:
    print_done(args, thread.switch(args.name), f"now on {args.name!r}")


def merge(thread: Thread, args: argparse.Namespace) -> None:
    """Merge a branch. `--answer` resolves single conflicts; `--strategy`, or for a squash
    `--settle`, resolves the others."""
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
        print_json(_merge_preview_json(result))
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


def _merge_preview_json(preview: MergePreview) -> dict[str, Any]:
    return {
        **preview_json(preview),
        "branch": preview.branch,
        "fast_forward": preview.fast_forward,
        "kept_whole": preview.kept_whole,
        "left_setup": list(preview.left_setup),
    }


def _branch_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="the new branch; without it, list all"
    )
    parser.add_argument(
        "--at", metavar="COMMIT", help=f"the commit to start from: {REVISION} (default: HEAD)"
    )
    parser.add_argument("--delete", action="store_true", help="delete the branch NAME")


def _switch_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the branch to switch to")


def _merge_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("branch", help="the branch to merge")
    parser.add_argument(
        "--strategy",
        choices=(*CHOICES, "squash"),
        help=f"how to resolve all conflicts {NO_STRATEGY}: ours is this branch, theirs the merged "
        "one, concat is both; squash adds the branch as one message",
    )
    parser.add_argument("--text", help="with squash: the message to add")
    parser.add_argument(
        "--settle",
        choices=CHOICES,
        help="with --strategy squash: how to resolve conflicts in messages that both sides changed "
        f"{NO_STRATEGY}",
    )
    add_answers(parser)
    parser.add_argument("--preview", action="store_true", help="show what it would do")


TURN_HELP = {
    "undo": "undo the user's last question and everything after it, as one step",
    "redo": "redo everything up to the user's next question, as one step",
}


def _turn_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--turn",
        action="store_true",
        help=TURN_HELP[parser.get_default("command")],
    )


def _with_preview(add_options: AddOptions) -> AddOptions:
    """The options of a command, with `--preview`."""

    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--preview", action="store_true", help="show what it would do")
        add_options(parser)

    return add


OPTIONS: dict[str, AddOptions] = {
    "branch": _branch_options,
    "switch": _switch_options,
    "merge": _merge_options,
    "undo": _turn_options,
    "redo": _turn_options,
    "reset": _with_preview(_reset_options),
    "rebase": _with_preview(_rebase_options),
    "cherry-pick": _with_preview(_pick_options),
    "revert": _with_preview(_revert_options),
    "restore": _with_preview(_restore_options),
}
VERBS: dict[str, Verb] = {
    "branch": branch,
    "switch": switch,
    "merge": merge,
    "undo": undo,
    "redo": redo,
    "reset": reset,
    "rebase": rebase,
    "cherry-pick": cherry_pick,
    "revert": revert,
    "restore": restore,
}

configure = add_command_options(OPTIONS)
