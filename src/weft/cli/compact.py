"""`weft compact`: old turns folded into a summary, by a budget, by turns to keep, or by ranges.

With `--model` a model writes the summary: the offline one, one of the environment's upstreams, or
one that `--upstream` or a config names. How far it is goes to stderr.
"""

import argparse
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import orjson
from msgspec import to_builtins

from weft.compact import (
    FALLBACK,
    PROGRESS,
    CompactResult,
    Importance,
    Replacement,
    Scorer,
    SummaryBatch,
    SystemMessage,
    read_importance,
    validate_compact_input,
)
from weft.errors import ConfigError, Refused
from weft.thread import SUMMARY_SECONDS, Asker, Thread

from .common import (
    add_options,
    count,
    find_model_route,
    print_json,
    print_rows,
    run_on_thread,
    safe,
)
from .console import complain
from .describe import ID_LENGTH, PREVIEW_WIDTH
from .terminal import read_screen, shorten

FOLDS = {
    "--model": "model",
    "--budget": "budget",
    "--keep": "keep",
    "--summary": "summary",
    "--from": "from_",
    "--to": "to",
    "--replacements": "replacements",
}
"""The flags that say what `compact` folds, and where their values are."""

RANGES = ("--from", "--to")
TURNS = ("--model", "--budget", "--keep")
OWN_WORDS = ("--summary", "--from", "--to", "--replacements")
ASKING = {
    "--prompt": "prompt",
    "--upstream": "upstream",
    "--config": "config",
    "--verbatim": "verbatim",
    "--scoring": "scoring",
    "--timeout": "timeout",
    "--fallback": "fallback",
}
"""The flags that say how a model is asked, and where their values are."""


def configure(parser: argparse.ArgumentParser) -> None:
    add_options(parser)
    parser.add_argument("--budget", type=count, help="the maximum size of the thread in tokens")
    parser.add_argument(
        "--keep",
        type=count,
        help="the number of recent turns to keep verbatim; the last one always stays",
    )
    parser.add_argument(
        "--summary",
        help="your own summary of what is folded: all but the last --keep turns (1), or a range",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="let this model write the summary (weft-offline needs no key)",
    )
    parser.add_argument(
        "--prompt", metavar="TEXT", help="the summary prompt for that model: a text, or @FILE"
    )
    parser.add_argument(
        "--retain",
        metavar="TEXT",
        action="append",
        default=[],
        help="refuse a compaction that would lose this text; may be repeated",
    )
    parser.add_argument(
        "--upstream", metavar="NAME=PROTOCOL:URL", action="append", help="where the model is served"
    )
    parser.add_argument("--config", metavar="FILE", help="a TOML file with upstreams and models")
    parser.add_argument(
        "--verbatim",
        type=count,
        metavar="TOKENS",
        help="keep the most important folded messages verbatim, up to this many tokens",
    )
    parser.add_argument(
        "--scoring", metavar="FILE", help="a TOML file with the weights for --verbatim"
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        metavar="SECONDS",
        help=f"the time limit of one summary request ({SUMMARY_SECONDS:g})",
    )
    parser.add_argument(
        "--fallback",
        action=argparse.BooleanOptionalAction,
        help="fold without a model if the model writes no summary (default with --budget)",
    )
    parser.add_argument(
        "--from",
        dest="from_",
        metavar="CHECKPOINT",
        help="the range begins after this checkpoint",
    )
    parser.add_argument("--to", metavar="CHECKPOINT", help="the range ends with this checkpoint")
    parser.add_argument("--replacements", metavar="FILE", help="a JSON file with several ranges")
    parser.add_argument(
        "--strip",
        choices=("all", "after"),
        default="all",
        help="which kept messages lose reminders and thinking: all of them (the default), or only "
        "those after the first range begins",
    )
    parser.add_argument(
        "--list",
        action="store_true",
        help="list the current summaries and change nothing",
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
    """Each summary that holds: the commit that made it, what it stands for, how it begins."""
    given = [flag for flag, name in FOLDS.items() if getattr(args, name) is not None]
    if given:
        raise ConfigError(f"--list changes nothing: leave out {given[0]}")
    print_rows(args, thread.batches(), _line)


def _line(told: SummaryBatch) -> str:
    screen = read_screen(sys.stdout, os.environ)
    commit = (told.commit or "")[:ID_LENGTH]
    words = shorten(told.words, PREVIEW_WIDTH)
    return screen.safe(f"{commit:<{ID_LENGTH}} {told}: {words}")


def compact(thread: Thread, args: argparse.Namespace) -> None:
    replacements = _replacements(args)
    if not args.json:
        thread.listen(_tell)
    # Flags of any mode may be given; `Thread.compact` refuses those that do not go together.
    options: dict[str, Any] = {
        "replacements": replacements,
        "budget": args.budget,
        "keep": args.keep,
        "summary": args.summary if replacements is None else None,
        "model": None if args.model is None else _asker(args),
        "prompt": _prompt(args.prompt),
        "retain": args.retain,
        "verbatim": args.verbatim or 0,
        "scorer": _scorer(args.scoring),
        "force": args.force,
        "strip": args.strip,
        "preview": args.preview,
        "fallback": args.fallback,
        "timeout": args.timeout or SUMMARY_SECONDS,
    }
    result = thread.compact(**options)
    if args.json:
        print_json(_result_json(result))
    else:
        print(safe(str(result)))


def _asker(args: argparse.Namespace) -> Asker | str:
    """Who answers for the model, by flags, a config and the environment."""
    from weft.catalog import load_catalog
    from weft.client import ModelClient

    catalog = load_catalog(args.config)
    try:
        route = find_model_route(args, catalog)
    except (ConfigError, Refused):
        if not args.preview:
            raise
        return args.model  # a preview asks nobody, so nobody needs to be there
    return ModelClient(route.provider, route.model, catalog)


def _scorer(path: str | None) -> Scorer:
    """The weights in a file, over the preset."""
    if path is None:
        return Importance()
    try:
        return read_importance(tomllib.loads(Path(path).read_text()))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path!r} is not TOML: {error}") from None


def _prompt(given: str | None) -> str | None:
    """The text, or what the file behind an `@` says."""
    if given is None or not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{given[1:]!r} is not text: {error}") from None


def _seconds(text: str) -> float:
    """A number of seconds above 0."""
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, not {text}")
    return seconds


def _tell(event: SystemMessage) -> None:
    """How far a compaction is, and what failed on the way, in one line each."""
    if event.subtype == PROGRESS:
        complain(f"{event.data['content']} ...")
    elif event.subtype == FALLBACK:
        complain(event.data["content"])


def _replacements(args: argparse.Namespace) -> tuple[Replacement, ...] | None:
    """The ranges from a file in the tool's own form, or the one between two checkpoints; `None`
    where old turns are to be folded."""
    _check_flags(args)
    if args.replacements is not None:
        try:
            return validate_compact_input(orjson.loads(Path(args.replacements).read_bytes()))
        except orjson.JSONDecodeError as error:
            raise ConfigError(f"{args.replacements!r} is not JSON: {error}") from None
    if args.from_ is None and args.to is None:
        return None
    return (Replacement(summary=args.summary, from_=args.from_, to=args.to),)


def _check_flags(args: argparse.Namespace) -> None:
    """Refuse flags that say nothing, or of which one would be ignored."""
    given = [flag for flag, name in FOLDS.items() if getattr(args, name) is not None]
    if not given:
        raise ConfigError("compact needs --model, --budget, --keep, --summary or --replacements")
    for flag, name in ASKING.items():
        if getattr(args, name) is not None and "--model" not in given:
            raise ConfigError(f"{flag} only works with --model")
    words = [flag for flag in given if flag in OWN_WORDS]
    if "--model" in given and words:
        raise ConfigError(f"--model writes the summary itself: leave out {words[0]}")
    ranges = [flag for flag in given if flag in RANGES]
    if "--replacements" in given and len(given) > 1:
        raise ConfigError(f"--replacements has its own ranges: leave out {_other(given)}")
    if ranges and "--summary" not in given:
        raise ConfigError(f"{ranges[0]} needs --summary, the text that replaces the range")
    turns = [flag for flag in given if flag in TURNS]
    if ranges and turns:
        raise ConfigError(f"{turns[0]} folds old turns and {ranges[0]} a range: give one of them")


def _other(given: list[str]) -> str:
    return ", ".join(flag for flag in given if flag != "--replacements")


def _result_json(result: CompactResult) -> dict[str, Any]:
    return {
        "commit": result.commit,
        "preview": result.preview,
        "tokens_before": result.tokens_before,
        "tokens_after": result.tokens_after,
        "cache_lost": result.cache_lost,
        "messages": result.messages,
        "pins_kept": list(result.pins_kept),
        "model": result.model,
        "requests": result.requests,
        "dropped": list(result.dropped),
        "names_added": result.names_added,
        "names_left": result.names_left,
        "method": result.method,
        "failures": [{"step": f.step, "reason": f.reason} for f in result.failures],
        "thinned": [to_builtins(thinned) for thinned in result.thinned],
        "cost": result.cost,
        "line": str(result),
    }
