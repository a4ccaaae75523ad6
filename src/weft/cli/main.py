"""`weft`: finds the command, runs it, and turns every error into one clear line.

Commands must start fast. This module and what it imports need only the standard library, and a
command's module is imported when the command is called. Each has `configure(parser)` and
`run(args) -> int`.
"""

import argparse
import gc
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NoReturn

from weft.printable import clean_text, escape_json

from .console import clean_output, encode_output, open_closed_streams

COMMANDS: dict[str, tuple[str, str]] = {
    "translate": ("weft.cli.translate", "translate requests, answers and streams between vendors"),
    "serve": ("weft.cli.serve", "run the gateway and the page"),
    "run": ("weft.cli.run", "run a program whose model calls go through the gateway"),
    "resume": ("weft.cli.resume", "continue a recorded session in its client, from any commit"),
    "chat": ("weft.cli.chat", "chat with a model in the terminal"),
    "models": ("weft.cli.models", "list the known models, with prices and limits"),
    "threads": ("weft.cli.inspect", "list the threads of a store"),
    "commit": ("weft.cli.record", "append a message to a thread"),
    "log": ("weft.cli.inspect", "list the commits of the branch, newest first"),
    "show": ("weft.cli.inspect", "show one commit and the messages it added"),
    "compile": ("weft.cli.inspect", "print the messages that a model would get"),
    "diff": ("weft.cli.inspect", "show what changed between two commits or branches"),
    "search": ("weft.cli.inspect", "find messages, notes, tags and titles by their words"),
    "recall": ("weft.cli.inspect", "print original messages in full, by id or by words"),
    "stats": ("weft.cli.inspect", "show the messages, tokens and cost of a thread"),
    "edit": ("weft.cli.record", "change the text of a message"),
    "pin": ("weft.cli.record", "keep a message through every compaction"),
    "skip": ("weft.cli.record", "hide a message from models"),
    "branch": ("weft.cli.history", "list the branches, or create one"),
    "switch": ("weft.cli.history", "switch to another branch"),
    "merge": ("weft.cli.history", "merge a branch into the current one"),
    "compact": ("weft.cli.compact", "replace old turns with a summary"),
    "undo": ("weft.cli.history", "undo the last operation on this branch"),
    "redo": ("weft.cli.history", "redo what was last undone on this branch"),
    "revert": ("weft.cli.history", "undo one commit and keep what came after"),
    "restore": ("weft.cli.history", "restore an earlier version of a message"),
    "reset": ("weft.cli.history", "move the branch to another commit"),
    "clear": ("weft.cli.maintenance", "empty the branch; undo restores it"),
    "rebase": ("weft.cli.history", "replay the branch's own commits on another commit"),
    "cherry-pick": ("weft.cli.history", "copy one commit of another branch to this one"),
    "tag": ("weft.cli.record", "list the tags, or tag a commit"),
    "note": ("weft.cli.record", "add a note to a commit or message; models never see it"),
    "blame": ("weft.cli.record", "find the commit that added a text"),
    "versions": ("weft.cli.record", "list every version of a message"),
    "rename": ("weft.cli.maintenance", "give a thread another name"),
    "delete": ("weft.cli.maintenance", "delete a thread; `weft undelete` can restore it"),
    "undelete": ("weft.cli.maintenance", "restore a deleted thread"),
    "import": ("weft.cli.transfer", "import session files, folders of them, or an archive"),
    "export": ("weft.cli.transfer", "write a thread as a session, body, document or archive"),
    "fsck": ("weft.cli.maintenance", "verify every hash, parent and branch of a store"),
    "gc": ("weft.cli.maintenance", "remove old data that no branch or tag refers to"),
    "forget": ("weft.cli.maintenance", "erase a text from the whole store"),
    "keys": ("weft.cli.keys", "make or hash a key for a client of the gateway"),
}

DEFAULT_STORE = "~/.local/share/weft/weft.db"
DEFAULT_THREAD = "default"

LONG_RUNNING = ("chat", "resume", "run", "serve")
"""The commands that run until a person or a program ends them."""

READ_ONLY_MODULE = "weft.cli.inspect"
"""The module of commands that only read."""

GC_THRESHOLD = 100_000
"""So many new objects before garbage is collected that a short command never collects any."""

DEFAULT_WIDTH = 80

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
MAX_ARGUMENT_SHOWN = 80
"""How many characters of a wrong argument an error shows."""

HELP_EPILOG = f"""Threads are in the store that --store or WEFT_STORE names (default:
{DEFAULT_STORE}). -t/--thread or WEFT_THREAD names the thread. Without them
it is the thread that has the given id, or the current folder's thread that was active
last.

`weft COMMAND --help` shows the options of a command.

Exit codes:
  0    success
  {EXIT_FAILED}    failure; the reason is on standard error
  {EXIT_USAGE}    wrong arguments
  {EXIT_INTERRUPTED}  stopped with Ctrl-C
`weft run` and `weft resume` return the exit code of the program that they start."""


class Formatter(argparse.HelpFormatter):
    """Help as wide as the terminal.

    `argparse` makes a formatter for each option and asks `shutil` for the width. That imports three
    compression libraries, which a command has no other need for.
    """

    def __init__(self, prog: str) -> None:
        try:
            width = int(os.environ.get("COLUMNS") or os.get_terminal_size().columns)
        except (OSError, ValueError):
            width = DEFAULT_WIDTH
        super().__init__(prog, width=width - 2)


class RawFormatter(Formatter, argparse.RawDescriptionHelpFormatter):
    """The same, but the lines of the description and the epilogue stay as they are."""


class Parser(argparse.ArgumentParser):
    """A parser that reports an error in one line, and refers to `--help`."""

    as_json = False

    def error(self, message: str) -> NoReturn:
        if self.as_json:
            self.exit(EXIT_USAGE, error_json("UsageError", message))
        self.exit(EXIT_USAGE, clean_text(f"{self.prog}: {message} (see {self.prog} --help)") + "\n")


def nonempty(text: str) -> str:
    """A text that is not empty; an empty name usually comes from an unset shell variable."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def add_store_option(parser: argparse.ArgumentParser) -> None:
    """Add `--store`."""
    parser.add_argument(
        "--store",
        type=nonempty,
        metavar="PATH",
        help=f"the store (default: WEFT_STORE, or {DEFAULT_STORE})",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    open_closed_streams()
    encode_output()
    with clean_output():
        return run_command(argv)


def run_command(argv: Sequence[str] | None) -> int:
    """Import the module of the command, parse its options, and run it."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = build_parser()
    parser.as_json = "--json" in arguments
    name = next((word for word in arguments if not word.startswith("-")), None)
    module = import_module(COMMANDS[name][0]) if name in COMMANDS else None
    if module is not None and name is not None:
        command = Parser(
            prog=f"weft {name}",
            description=COMMANDS[name][1],
            allow_abbrev=False,
            formatter_class=Formatter,
        )
        command.as_json = parser.as_json
        command.set_defaults(command=name)
        module.configure(command)
        arguments.remove(name)
        command.set_defaults(given=tuple(arguments))
        if name == "resume" and "--" in arguments:  # argparse finds no options after a positional
            end = arguments.index("--")
            command.set_defaults(arguments=arguments[end + 1 :])
            arguments = arguments[:end]
        return run_reporting_errors(module.run, command.parse_args(arguments))
    if "--version" in arguments:
        print(f"weft {read_version()}")
        return 0
    if name is not None:
        parser.error(f"no command {name!r}{suggest_command(name)}")
    parser.parse_args(arguments)
    parser.print_help()
    return EXIT_USAGE


def suggest_command(name: str) -> str:
    """A suggestion for a misspelled command."""
    from difflib import get_close_matches

    similar = get_close_matches(name, COMMANDS, n=1)
    return f": did you mean {similar[0]!r}?" if similar else ""


def build_parser() -> Parser:
    """The parser of `weft` itself: it knows the names of the commands, not their options."""
    lines = "\n".join(f"  {name:<12}{text}" for name, (_, text) in COMMANDS.items())
    parser = Parser(
        prog="weft",
        description="Version control, compaction and translation for LLM conversations.",
        epilog=f"commands:\n{lines}\n\n{HELP_EPILOG}",
        formatter_class=RawFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    parser.add_argument("command", nargs="?", choices=COMMANDS, metavar="COMMAND")
    return parser


def read_version() -> str:
    """The installed version."""
    from importlib.metadata import version

    return version("weft")


def run_reporting_errors(run: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    """Run a command; an error becomes one line on stderr, never a traceback."""
    from weft.errors import WeftError

    try:
        return run(args)
    except WeftError as error:
        return report_error(args, error, str(error))
    except UnicodeEncodeError as error:  # an argument, which Python decodes from any bytes
        return report_error(args, error, f"{error.object[:MAX_ARGUMENT_SHOWN]!r} is not UTF-8")
    except BrokenPipeError:
        sys.stderr.close()  # the reader of a pipe stopped early, which is not an error
        return 0
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except OSError as error:
        path = "" if error.filename is None else f"{error.filename!r}: "
        return report_error(args, error, path + (error.strerror or str(error)).lower())


def report_error(args: argparse.Namespace, error: Exception, message: str) -> int:
    """Report an error on stderr: one line of text, or one JSON object with `--json`."""
    if getattr(args, "json", False):
        sys.stderr.write(error_json(type(error).__name__, message))
    else:
        sys.stderr.write(clean_text(f"weft: {message}") + "\n")
    return EXIT_FAILED


def error_json(type: str, message: str) -> str:
    """An error as one line of JSON."""
    import json

    line = json.dumps({"error": {"type": type, "message": message}}, ensure_ascii=False)
    return escape_json(line) + "\n"


def entry() -> None:
    """The console script."""
    if not set(LONG_RUNNING) & set(sys.argv[1:2]):
        # A command that ends soon frees its memory by ending. Collecting garbage while modules are
        # imported and rows are read costs about a tenth of its time.
        gc.set_threshold(GC_THRESHOLD)
    code = main()
    if COMMANDS.get("".join(sys.argv[1:2]), ("",))[0] == READ_ONLY_MODULE:
        # The store is closed and nothing else is left to do. The interpreter would still take apart
        # all modules and values, which costs another tenth.
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):
            sys.exit(code)  # the interpreter reports it
        os._exit(code)
    sys.exit(code)
