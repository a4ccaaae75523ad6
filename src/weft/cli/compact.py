"""`weft compact`: replace old turns with a summary, by a budget, by turns to keep, or by ranges.

Without a flag, the budget is half of the current tokens.

With `--model` a model writes the summary: the offline model, or one of an upstream from the
environment, `--upstream` or a config file. Progress is printed on stderr.
"""

import argparse
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from weft import exact_json
from weft.compact import (
    FALLBACK,
    PROGRESS,
    STEPS,
    CompactResult,
    Importance,
    MessageChange,
    Replacement,
    Scorer,
    SummaryBatch,
    SystemMessage,
    read_importance,
    validate_compact_input,
)
from weft.errors import BudgetExceeded, ConfigError, Refused, ThreadError
from weft.history import Row, visible_rows
from weft.thread import SUMMARY_SECONDS, Asker, Thread

from .common import (
    add_options,
    find_model_route,
    print_json,
    print_rows,
    run_on_thread,
    safe,
    whole_number,
)
from .console import print_error
from .describe import ID_LENGTH, PREVIEW_WIDTH
from .main import RawFormatter
from .terminal import plural, read_screen, shorten

if TYPE_CHECKING:
    from weft.client import CompactionSettings

MODE_FLAGS = {
    "--model": "model",
    "--budget": "budget",
    "--keep": "keep",
    "--summary": "summary",
    "--from": "from_",
    "--to": "to",
    "--replacements": "replacements",
    "--first": "first",
    "--last": "last",
}
"""The flags that choose what is compacted, and the names of their values."""

RANGE_FLAGS = ("--from", "--to")
TURN_FLAGS = ("--model", "--budget", "--keep")
SUMMARY_FLAGS = ("--summary", "--from", "--to", "--replacements")
MODEL_FLAGS = {
    "--prompt": "prompt",
    "--upstream": "upstream",
    "--config": "config",
    "--verbatim": "verbatim",
    "--scoring": "scoring",
    "--timeout": "timeout",
    "--retries": "retries",
    "--fallback": "fallback",
}
"""The flags that need `--model`, and the names of their values."""


EPILOG = """Without a flag, the thread becomes half as large, or as small as what must stay allows.
Choose who writes the summary:
  no model        --budget, --keep, or --first and --last: lines copied from the messages
  a model         --model, with --budget, --keep, or --first and --last
  you             --summary, with --keep, --first and --last, or --from and --to
  you, in a file  --replacements: several ranges between checkpoints
--first and --last take ids of messages, --from and --to take checkpoints (`weft commit
--checkpoints` turns them on). A turn is a user message with everything up to the next one."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = RawFormatter
    parser.epilog = EPILOG
    add_options(parser)
    parser.add_argument(
        "--budget",
        type=whole_number,
        metavar="TOKENS",
        help="the maximum size of the compacted thread",
    )
    parser.add_argument(
        "--keep",
        type=whole_number,
        metavar="TURNS",
        help="how many recent turns stay; the last one always does",
    )
    parser.add_argument(
        "--summary",
        metavar="TEXT",
        help="your own summary of a range, or of all but the last --keep turns (default 1)",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="let this model write the summary (weft-offline needs no key)",
    )
    parser.add_argument(
        "--prompt", metavar="TEXT", help="the instructions for that model: a text, or @FILE"
    )
    parser.add_argument(
        "--retain",
        metavar="TEXT",
        action="append",
        default=[],
        help="a text that must not be lost: it is added to a model's summary; without a model, "
        "a compaction that would lose it is refused (repeatable)",
    )
    parser.add_argument(
        "--upstream",
        metavar="NAME=PROTOCOL:URL",
        action="append",
        help="an upstream that serves the model (repeatable)",
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="a weft.toml with upstreams, models and [compaction]; that table may name the model",
    )
    parser.add_argument(
        "--verbatim",
        type=whole_number,
        metavar="TOKENS",
        help="keep the most important old messages verbatim, up to this many tokens",
    )
    parser.add_argument(
        "--scoring",
        metavar="FILE",
        help="a TOML file with the weights that decide which messages --verbatim keeps "
        "(docs/guide/compaction.md lists them)",
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        metavar="SECONDS",
        help=f"the time limit of one summary request (default {SUMMARY_SECONDS:g})",
    )
    parser.add_argument(
        "--retries",
        type=whole_number,
        metavar="TIMES",
        help="how many times a failed summary request is repeated (default 3)",
    )
    parser.add_argument(
        "--fallback",
        action=argparse.BooleanOptionalAction,
        help="whether to compact without a model if it writes no summary (default: only with "
        "--budget)",
    )
    parser.add_argument(
        "--from",
        dest="from_",
        metavar="CHECKPOINT",
        help="with --summary: the range begins after this checkpoint",
    )
    parser.add_argument(
        "--to",
        metavar="CHECKPOINT",
        help="with --summary: the range ends with this checkpoint",
    )
    parser.add_argument(
        "--replacements",
        metavar="FILE",
        help='a JSON file: {"replacements": [{"from": ..., "to": ..., "summary": ...}, ...]}',
    )
    parser.add_argument("--first", metavar="ID", help="replace only a range: its first message")
    parser.add_argument("--last", metavar="ID", help="the last message of that range")
    parser.add_argument(
        "--strip",
        choices=("all", "after"),
        default="all",
        help="with --from, --to or --replacements: which of the kept messages lose reminders and "
        "thinking: all (the default), or only those after the start of the first range",
    )
    parser.add_argument(
        "--list",
        action="store_true",
        help="list the batches (parts) of the current summary and change nothing",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="commit a model's summary even if it does not shorten the thread",
    )
    parser.add_argument("--preview", action="store_true", help="show what it would do")


def run(args: argparse.Namespace) -> int:
    return run_on_thread(args, list_batches if args.list else compact)


def list_batches(thread: Thread, args: argparse.Namespace) -> None:
    """List the batches of the current summary: commit, what it replaces, first words."""
    flags = [flag for flag, name in MODE_FLAGS.items() if getattr(args, name) is not None]
    if flags:
        raise ConfigError(f"--list changes nothing: leave out {flags[0]}")
    empty = "there are no summaries: the branch was never compacted"
    print_rows(args, thread.batches(), _batch_line, empty)


def _batch_line(batch: SummaryBatch) -> str:
    screen = read_screen(sys.stdout, os.environ)
    commit = (batch.commit or "")[:ID_LENGTH]
    first_words = shorten(batch.words, PREVIEW_WIDTH)
    return screen.safe(f"{commit:<{ID_LENGTH}} {batch}: {first_words}")


def compact(thread: Thread, args: argparse.Namespace) -> None:
    """Compact the thread as the flags say, and print the result."""
    settings = _apply_config(thread, args)
    replacements = _read_replacements(args)
    if not args.json:
        thread.listen(_print_event)
    # All flags are passed on: `Thread.compact` refuses those that do not go together.
    options: dict[str, Any] = {
        "replacements": replacements,
        "budget": args.budget,
        "keep": args.keep,
        "first": args.first,
        "last": args.last,
        "summary": args.summary if replacements is None else None,
        "model": None if args.model is None else _make_client(args),
        "prompt": _read_prompt(args.prompt) or settings.prompt,
        "retain": args.retain,
        "verbatim": args.verbatim or 0,
        "scorer": _read_scorer(args.scoring),
        "force": args.force,
        "strip": args.strip,
        "preview": args.preview,
        "fallback": args.fallback,
        "timeout": args.timeout or settings.timeout or SUMMARY_SECONDS,
    }
    try:
        result = thread.compact(**options)
    except BudgetExceeded as error:
        raise ThreadError(_with_flags(str(error))) from None
    restore = None if result.commit is None else _restore_command(args, result.commit)
    if args.json:
        print_json(_result_json(result, restore))
        return
    print(safe(_with_flags(str(result))))
    if result.ranges:
        verb = "would be replaced" if result.preview else "replaced"
        writer = STEPS[result.method] if result.method else "an extract without a model"
        if args.summary or args.replacements:
            writer = "your own summary"
        elif result.model is not None and result.method in (None, "model"):
            writer = f"a summary by {result.model}"
        kept = plural(result.messages_kept, "message")
        print(safe(f"{plural(result.messages, 'message')} {verb} by {writer}, {kept} kept"))
    if result.commit is not None:
        commit = result.commit[:ID_LENGTH]
        print(safe(f"commit {commit}; `{restore}` brings the messages back"))
    _print_changes(result.changes)


def _with_flags(text: str) -> str:
    """A message of the library with the flags of this command: `--keep 1` for `keep=1`."""
    return re.sub(r"\b(keep|budget)=(\d+)", r"--\1 \2", text)


def _restore_command(args: argparse.Namespace, commit: str) -> str:
    """The command that takes a compaction back."""
    store = [] if args.store is None else ["--store", args.store]
    return shlex.join(["weft", "revert", *store, commit[:ID_LENGTH]])


def _apply_config(thread: Thread, args: argparse.Namespace) -> "CompactionSettings":
    """The `[compaction]` table of `--config`. Its model writes the summary, unless flags name
    another one or say what the summary is; flags come before the table."""
    from weft.client import SAME_MODEL, CompactionSettings, read_compaction

    settings = read_compaction(args.config)
    has_own_summary = any(getattr(args, MODE_FLAGS[flag]) is not None for flag in SUMMARY_FLAGS)
    if args.model is None and settings.model is not None and not has_own_summary:
        is_same = settings.model == SAME_MODEL
        args.model = _last_model(thread) if is_same else settings.model
    if args.model is None:
        return CompactionSettings()
    args.retries = settings.retries if args.retries is None else args.retries
    return settings


def _last_model(thread: Thread) -> str:
    """The model of the thread's last answer."""
    origins = (message.origin for message in reversed(thread.compile().messages))
    model = next((origin.model for origin in origins if origin and origin.model), None)
    if model is None:
        raise ConfigError(
            '[compaction] has model = "same", but no answer names its model: use --model'
        )
    return model


def _make_client(args: argparse.Namespace) -> Asker | str:
    """The client of the model, from flags, a config file and the environment."""
    from weft.catalog import load_catalog
    from weft.client import summary_client

    catalog = load_catalog(args.config)
    try:
        route = find_model_route(args, catalog)
    except (ConfigError, Refused):
        if not args.preview:
            raise
        return args.model  # a preview asks no model, so it needs no upstream
    return summary_client(route, catalog, args.retries)


def _read_scorer(path: str | None) -> Scorer:
    """The scoring weights of a file; missing ones have their defaults."""
    if path is None:
        return Importance()
    try:
        return read_importance(tomllib.loads(Path(path).read_text()))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path!r} is not TOML: {error}") from None


def _read_prompt(value: str | None) -> str | None:
    """The text itself, or the content of `@FILE`."""
    if value is None or not value.startswith("@"):
        return value
    path = value[1:]
    try:
        return Path(path).read_text()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path!r} is not text: {error}") from None


def _seconds(text: str) -> float:
    """A number of seconds above 0."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, not {text!r}")
    return seconds


def _print_event(event: SystemMessage) -> None:
    """Print progress and failures of a compaction, one line each."""
    if event.subtype == PROGRESS:
        print_error(f"{event.data['content']} ...")
    elif event.subtype == FALLBACK:
        print_error(event.data["content"])


def _read_replacements(args: argparse.Namespace) -> tuple[Replacement, ...] | None:
    """The ranges of `--replacements` or of `--from` and `--to`; `None` to compact old turns."""
    _check_flags(args)
    if args.replacements is not None:
        try:
            return validate_compact_input(exact_json.loads(Path(args.replacements).read_bytes()))
        except exact_json.JSONDecodeError as error:
            raise ConfigError(f"{args.replacements!r} is not JSON: {error}") from None
    if args.from_ is None and args.to is None:
        return None
    return (Replacement(summary=args.summary, from_=args.from_, to=args.to),)


def _check_flags(args: argparse.Namespace) -> None:
    """Raise `ConfigError` for flags that contradict each other, or that would be ignored."""
    flags = [flag for flag, name in MODE_FLAGS.items() if getattr(args, name) is not None]
    for flag, name in MODEL_FLAGS.items():
        if getattr(args, name) is not None and "--model" not in flags:
            raise ConfigError(f"{flag} only works with --model")
    summary_flags = [flag for flag in flags if flag in SUMMARY_FLAGS]
    if "--model" in flags and summary_flags:
        raise ConfigError(f"--model writes the summary itself: leave out {summary_flags[0]}")
    ranges = [flag for flag in flags if flag in RANGE_FLAGS]
    if "--replacements" in flags and len(flags) > 1:
        raise ConfigError(f"--replacements has its own ranges: leave out {_list_others(flags)}")
    if ranges and "--summary" not in flags:
        raise ConfigError(f"{ranges[0]} needs --summary, the text that replaces the range")
    turns = [flag for flag in flags if flag in TURN_FLAGS]
    if ranges and turns:
        raise ConfigError(f"{turns[0]} compacts old turns and {ranges[0]} a range: use one of them")


def _list_others(flags: list[str]) -> str:
    return ", ".join(flag for flag in flags if flag != "--replacements")


def _result_json(result: CompactResult, restore: str | None) -> dict[str, Any]:
    return {
        "commit": result.commit,
        "preview": result.preview,
        "tokens_before": result.tokens_before,
        "tokens_after": result.tokens_after,
        "cache_lost": result.cache_lost,
        "messages": result.messages,
        "messages_kept": result.messages_kept,
        "budget": result.budget,
        "restore": restore,
        "works": result.works,
        "pins_kept": list(result.pins_kept),
        "model": result.model,
        "requests": result.requests,
        "dropped": list(result.dropped),
        "marked": list(result.marked),
        "names_added": result.names_added,
        "names_left": result.names_left,
        "method": result.method,
        "failures": [{"step": f.step, "reason": f.reason} for f in result.failures],
        "thinned": [to_builtins(thinned) for thinned in result.thinned],
        "cost": result.cost,
        "changes": [to_builtins(change) for change in result.changes],
        "after": [_row_json(row) for row in visible_rows(result.rows)] if result.preview else [],
        "line": _with_flags(str(result)),
    }


def _row_json(row: Row) -> dict[str, Any]:
    """A message that the model sees afterwards."""
    return {"role": row.message.role, "kind": row.kind, "text": row.message.text}


def _print_changes(changes: Sequence[MessageChange]) -> None:
    """A line for each message: what happens to it, its size, and why."""
    for change in changes:
        size = f"{change.tokens_before:,} → {change.tokens_after:,}"
        id = (change.id or "")[:ID_LENGTH]
        line = f"{change.action:8}{id:{ID_LENGTH + 2}}{change.role:11}{size:>16}  {change.reason}"
        print(safe(f"{line}: {change.preview}" if change.preview else line))
