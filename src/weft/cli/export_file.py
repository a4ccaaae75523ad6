"""`weft export`."""

import argparse
import gzip
import os
import sys
from collections.abc import Callable
from pathlib import Path

from weft.errors import ConfigError
from weft.model import loss_json, loss_lines
from weft.thread import (
    ARCHIVE,
    EXPORT_FORMATS,
    archive_bytes,
    existing,
    export_bytes,
    read_origin,
    threads,
)

from .common import add_options, existing_store, existing_thread, print_json, safe
from .console import print_error


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_options(parser)
    _export_options(parser)


def run(args: argparse.Namespace) -> int:
    """Write a thread, or an archive of several, to a file or to standard output."""
    path = existing_store(args)
    if args.all and args.format not in (None, ARCHIVE):
        raise ConfigError("--all only works with --format archive")
    names = [record.name for record in threads(path)]
    if not args.all:
        names = [existing_thread(args, path)]
    losses = ()
    with existing(path) as store:
        format = args.format or (ARCHIVE if args.all else read_origin(store, names[0])) or ARCHIVE
        if format == ARCHIVE:
            data = archive_bytes(store, names)
        else:
            data, losses = export_bytes(
                store,
                names[0],
                format,
                branch=args.branch,
                model=args.model,
                render=_renderer() if format == "html" else None,
                folder=os.getcwd(),
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


def _export_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        choices=EXPORT_FORMATS,
        help="the output format (default: the format it was imported from, or archive)",
    )
    for document in ("html", "markdown"):
        parser.add_argument(
            f"--{document}",
            action="store_const",
            const=document,
            dest="format",
            help=f"the whole thread for people to read, as --format {document}",
        )
    parser.add_argument("-o", "--output", metavar="FILE", help="the output file; .gz is compressed")
    parser.add_argument("--branch", help="the branch to write (default: the current one)")
    parser.add_argument("--model", help="the model name to write into a vendor's body")
    parser.add_argument("--all", action="store_true", help="an archive of every thread")


def _renderer() -> Callable[[str], str] | None:
    """The page's Markdown, if its libraries are installed; else texts are shown as they are."""
    try:
        from weft.gateway.render import render
    except ImportError:
        return None
    return render
