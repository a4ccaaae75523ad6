"""`weft import` and `weft export`."""

import argparse
import gzip
import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from weft.errors import ConfigError, ThreadError
from weft.model import loss_json, loss_lines
from weft.store import Store, open_store
from weft.thread import (
    ARCHIVE,
    EXPORT_FORMATS,
    IMPORT_FORMATS,
    Imported,
    archive_bytes,
    export_bytes,
    import_bytes,
    read_origin,
    threads,
)

from .common import (
    add_options,
    existing_store,
    existing_thread,
    print_json,
    safe,
    writable_store,
)
from .console import print_error
from .terminal import ProgressBar

REMARKS_SHOWN = 10
STDIN = "-"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the parser's command."""
    add_options(parser)
    OPTIONS[parser.get_default("command")](parser)


def run(args: argparse.Namespace) -> int:
    return VERBS[args.command](args)


def import_files(args: argparse.Namespace) -> int:
    """Import every file into the store; stops at the first one that cannot be imported."""
    contents = [(name, _read(name)) for name in args.files]
    imports: list[Imported] = []
    with _opened(writable_store(args)) as store:
        for name, data in contents:
            bar = ProgressBar(f"importing {Path(name).name}")
            try:
                imports += import_bytes(
                    store,
                    data,
                    thread=args.thread,
                    name=None if name == STDIN else Path(name).stem,
                    format=args.format,
                    progress=bar,
                )
            except ThreadError as error:
                raise ThreadError(f"{name}: {error}") from None
            finally:
                bar.close()
    if args.json:
        print_json([imported.to_dict() for imported in imports])
        return 0
    for imported in imports:
        print(safe("\n".join(describe_import(imported))))
    return 0


def export_thread(args: argparse.Namespace) -> int:
    """Write a thread, or an archive of several, to a file or to standard output."""
    path = existing_store(args)
    if args.all and args.format not in (None, ARCHIVE):
        raise ConfigError("--all only works with --format archive")
    names = [record.name for record in threads(path)]
    if not args.all:
        names = [existing_thread(args, path)]
    losses = ()
    with _opened(path) as store:
        format = args.format or (ARCHIVE if args.all else read_origin(store, names[0])) or ARCHIVE
        if format == ARCHIVE:
            data = archive_bytes(store, names)
        else:
            data, losses = export_bytes(
                store, names[0], format, branch=args.branch, model=args.model
            )
    _write(args.output, data)
    for line in loss_lines(losses) if not args.json else ():
        print_error(line)
    if args.json and args.output is not None:
        rows = [loss_json(loss) for loss in losses]
        print_json({"threads": names, "format": format, "bytes": len(data), "losses": rows})
    elif args.output is not None:
        what = repr(names[0]) if len(names) == 1 else f"{len(names)} threads"
        size = Path(args.output).stat().st_size
        print(safe(f"wrote {what} as {format} to {args.output!r} ({size:,} bytes)"))
    return 0


def describe_import(imported: Imported) -> Iterator[str]:
    """The result of an import, line by line."""
    state = f"{imported.new} new commits" if imported.new else "nothing new"
    yield f"{imported.thread}: {imported.messages} messages ({imported.format}), {state}"
    for name, head in imported.branches.items():
        yield f"  {name} {head[:12]}"
    for old, new in imported.renamed.items():
        yield f"  {old} has changes that the file lacks: this import is on {new}"
    for name in imported.behind:
        yield f"  {name}: the thread already has all of this file, and nothing was moved"
    if imported.kept:
        total = sum(imported.kept.values())
        kinds = ", ".join(f"{count} {kind}" for kind, count in imported.kept.items())
        yield f"  kept aside: {total} lines ({kinds})"
    for remark in imported.remarks[:REMARKS_SHOWN]:
        yield f"  {remark.what}: line {remark.line + 1}: {remark.why}"
    if len(imported.remarks) > REMARKS_SHOWN:
        yield f"  and {len(imported.remarks) - REMARKS_SHOWN} more (--json has all)"


@contextmanager
def _opened(path: str) -> Generator[Store]:
    store = open_store(path)
    try:
        yield store
    finally:
        store.close()


def _read(name: str) -> bytes:
    return sys.stdin.buffer.read() if name == STDIN else Path(name).read_bytes()


def _write(name: str | None, data: bytes) -> None:
    """Write to standard output, or to a file that only its owner may read."""
    if name is None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    if name.endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    with open(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)


def _import_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="a file, or - for standard input")
    parser.add_argument(
        "--format", choices=IMPORT_FORMATS, help="the format, if it is not detected"
    )


def _export_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        choices=EXPORT_FORMATS,
        help="the output format (default: the format it was imported from, or archive)",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="the output file; .gz is compressed")
    parser.add_argument("--branch", help="the branch to write (default: the current one)")
    parser.add_argument("--model", help="the model name to write into a vendor's body")
    parser.add_argument("--all", action="store_true", help="an archive of every thread")


OPTIONS: dict[str, Callable[[argparse.ArgumentParser], None]] = {
    "import": _import_options,
    "export": _export_options,
}
VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "import": import_files,
    "export": export_thread,
}
