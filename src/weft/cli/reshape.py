"""`weft reset`, `rebase`, `cherry-pick`, `revert`, `restore`: commands that rewrite history.

With `--preview` each shows what it would change and cost, and changes nothing.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import to_builtins

from weft.errors import MergeConflict
from weft.history import CHOICES, AnyConflict, ResultConflict, Row, SetupConflict
from weft.model import Message
from weft.thread import CommitInfo, Preview, Strategy, Thread

from .common import (
    MESSAGE,
    REVISION,
    Verb,
    add_options,
    print_info,
    print_json,
    run_on_thread,
    safe,
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the parser's command."""
    add_options(parser)
    parser.add_argument("--preview", action="store_true", help="show what it would do")
    OPTIONS[parser.get_default("command")](parser)


def run(args: argparse.Namespace) -> int:
    return run_on_thread(args, VERBS[args.command])


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


def add_strategy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--strategy", choices=CHOICES, help="how to resolve conflicts")
    add_answers(parser)


def add_answers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--answer",
        metavar="ID=ANSWER",
        action="append",
        default=[],
        type=_answer,
        help="resolve the conflict with this id (--preview --json lists them): ours, theirs, "
        "concat, or a text; may be repeated",
    )


def _answer(text: str) -> tuple[str, str]:
    id, equals, answer = text.partition("=")
    if not id or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not ID=ANSWER")
    return id, answer


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
    parser.add_argument("at", help=f"the new head of the branch: {REVISION}")


def _rebase_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("onto", help=f"the new base: {REVISION}")
    add_strategy(parser)


def _pick_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help=f"the commit to copy: {REVISION}")
    add_strategy(parser)


def _revert_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help=f"the commit to undo: {REVISION}")
    add_strategy(parser)


def _restore_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help=MESSAGE)
    parser.add_argument(
        "version", nargs="?", type=int, default=0, help="the version number; 0 is the first"
    )


OPTIONS: dict[str, Callable[[argparse.ArgumentParser], None]] = {
    "reset": _reset_options,
    "rebase": _rebase_options,
    "cherry-pick": _pick_options,
    "revert": _revert_options,
    "restore": _restore_options,
}
VERBS: dict[str, Verb] = {
    "reset": reset,
    "rebase": rebase,
    "cherry-pick": cherry_pick,
    "revert": revert,
    "restore": restore,
}
