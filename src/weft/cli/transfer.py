"""`weft import`: files, folders and globs into a store. `weft export`: a thread into a file.

A folder is searched for session files and other conversations, with all its subfolders. Files that
are not conversations are skipped, each with a reason, and a file that fails never stops the others.

An import can be repeated. A file in a folder that has the same size and time as at its last import
is not read again; one that has grown updates its thread. The store remembers a file as a link from
the hash of its path, size and time to a commit of the thread, so deleting the thread deletes the
link.

The exit code is 0 if nothing failed. It is 1 if a file could not be read, or if a file that was
named on the command line is not a conversation. Skipped files are not failures.
"""

import argparse
import gzip
import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from glob import glob, has_magic
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from weft.errors import ConfigError, Damaged, StoreError, ThreadError, WeftError
from weft.ids import object_id
from weft.model import loss_json, loss_lines
from weft.store import Store, open_store, write_private
from weft.thread import (
    ARCHIVE,
    EXPORT_FORMATS,
    IMPORT_FORMATS,
    Imported,
    archive_bytes,
    export_bytes,
    import_bytes,
    open_existing,
    read_origin,
    threads,
)

from .common import (
    add_command_options,
    existing_store,
    existing_thread,
    print_json,
    safe,
    writable_store,
)
from .console import print_error
from .terminal import ProgressBar, index_with_progress, plural

REMARKS_SHOWN = 10
STDIN = "-"
SUFFIXES = (".jsonl", ".json", ".jsonl.gz", ".json.gz")
"""The files that are looked for in a folder."""

CLIENT_FOLDERS = (
    ("Claude Code", "CLAUDE_CONFIG_DIR", "~/.claude", "projects"),
    ("Codex", "CODEX_HOME", "~/.codex", "sessions"),
)
"""Where clients keep their sessions: the variable of their folder, its default, the subfolder."""

ImportState = Literal["imported", "unchanged", "skipped", "failed"]


class ImportSource(Struct, frozen=True):
    """A file to import; `is_named`: the command line names the file itself, not only its folder."""

    name: str
    is_named: bool = True


class Outcome(Struct, frozen=True):
    """What happened to one file."""

    file: str
    state: ImportState
    imports: tuple[Imported, ...] = ()
    reason: str = ""

    def to_rows(self) -> list[dict[str, Any]]:
        """As JSON: one row for each thread of the file, or one with the reason."""
        body = {"file": self.file, "state": self.state}
        if not self.imports:
            return [{**body, **({"reason": self.reason} if self.reason else {})}]
        return [{**imported.to_dict(), **body} for imported in self.imports]


def _import_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="a file, a folder with all its subfolders, a quoted glob, or - for standard input",
    )
    parser.add_argument(
        "--format", choices=IMPORT_FORMATS, help="the format, if it is not detected"
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="also read files that are unchanged since their import",
    )
    parser.epilog = (
        "Exit code: 0 if nothing failed, 1 if a file could not be read or a file that was named is "
        "not a conversation. Files in folders that are not conversations are skipped."
    )


def import_files(args: argparse.Namespace) -> int:
    """Import everything; the exit code says whether any file failed."""
    sources, failures = find_sources(args.paths)
    is_many = any(not source.is_named for source in sources) or len(sources) + len(failures) > 1
    if args.thread is not None and any(not source.is_named for source in sources):
        raise ConfigError(
            "--thread cannot be used with a folder: each of its sessions becomes a thread"
        )
    if not is_many and failures:
        raise ConfigError(f"{failures[0].file}: {failures[0].reason}")
    outcomes = list(failures)
    if sources:
        with opened_store(writable_store(args), keeps_empty=False) as store:
            settings = ImportSettings(args.thread, args.format, args.force)
            results = import_sources(store, sources, settings, raises_errors=not is_many)
            for outcome in results:
                outcomes.append(outcome)
                if not args.json and outcome.state == "imported":
                    _print_imported(outcome, is_brief=not _is_named(outcome, sources))
    if args.json:
        print_json([row for outcome in outcomes for row in outcome.to_rows()])
    for outcome in outcomes if not args.json else ():
        if outcome.state in ("skipped", "failed"):
            print_error(f"weft: {outcome.state} {outcome.file}: {outcome.reason}")
    if is_many and not args.json:
        print(describe_outcomes(outcomes))
    return int(any(outcome.state == "failed" for outcome in outcomes))


def _is_named(outcome: Outcome, sources: Sequence[ImportSource]) -> bool:
    return ImportSource(outcome.file) in sources


def _print_imported(outcome: Outcome, *, is_brief: bool) -> None:
    """Print the result for one file; a file of a folder gets one line for each thread."""
    for imported in outcome.imports:
        lines = list(describe_import(imported))
        print(safe("\n".join(lines[:1] if is_brief else lines)), flush=True)


def describe_outcomes(outcomes: Sequence[Outcome]) -> str:
    """`imported 3 files, 2 unchanged, 1 skipped`."""
    counts = {
        state: sum(outcome.state == state for outcome in outcomes)
        for state in ("imported", "unchanged", "skipped", "failed")
    }
    imported = f"imported {plural(counts.pop('imported'), 'file')}"
    return ", ".join([imported, *(f"{n:,} {state}" for state, n in counts.items() if n)])


def find_sources(paths: Iterable[str]) -> tuple[list[ImportSource], list[Outcome]]:
    """The files that paths name, each once, and the paths that name none."""
    sources: dict[str, ImportSource] = {}
    failures: list[Outcome] = []
    for path in paths:
        if path == STDIN:
            sources.setdefault(path, ImportSource(path))
            continue
        expanded = path if os.path.lexists(path) else os.path.expanduser(path)
        if os.path.isdir(expanded):
            entries = list(files_below(expanded))
            reason = "there is no file with a conversation in this folder"
        elif os.path.lexists(expanded) or not has_magic(expanded):
            sources[expanded] = ImportSource(expanded)
            continue
        else:
            entries = [
                file
                for entry in sorted(glob(expanded, recursive=True))
                for file in (files_below(entry) if os.path.isdir(entry) else [entry])
            ]
            reason = "no file matches"
        for entry in entries:
            sources.setdefault(entry, ImportSource(entry, is_named=False))
        if not entries:
            failures.append(Outcome(path, "failed", reason=reason))
    return list(sources.values()), failures


def files_below(folder: str) -> Iterator[str]:
    """The files of a folder and its subfolders that may be conversations, in order."""
    for path, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            if name.endswith(SUFFIXES):
                yield os.path.join(path, name)


class ImportSettings(Struct, frozen=True):
    """How files are imported; `force` reads unchanged files again."""

    thread: str | None = None
    format: str | None = None
    force: bool = False


def import_sources(
    store: Store,
    sources: Sequence[ImportSource],
    settings: ImportSettings = ImportSettings(),  # noqa: B008
    *,
    raises_errors: bool = False,
) -> Iterator[Outcome]:
    """Import the files one by one, with a progress bar on a terminal.

    With `raises_errors`, the error of a file is raised. Otherwise its outcome reports the error,
    and the other files are imported.
    """
    for number, source in enumerate(sources):
        name = "standard input" if source.name == STDIN else Path(source.name).name
        place = f"{number + 1}/{len(sources)} " if len(sources) > 1 else ""
        bar = ProgressBar(f"importing {place}{name}")
        bar(0, 1)
        try:
            outcome = _import_source(store, source, settings, bar)
        except (WeftError, OSError) as error:
            if raises_errors and isinstance(error, ThreadError | Damaged):
                kind = Damaged if isinstance(error, Damaged) else ThreadError
                raise kind(f"{source.name}: {error}") from None
            if raises_errors or _is_store_failure(error):
                raise
            is_other_file = isinstance(error, ThreadError) and not source.is_named
            reason = _describe_error(error)
            outcome = Outcome(source.name, "skipped" if is_other_file else "failed", reason=reason)
        finally:
            bar.close()
        yield outcome
    index_with_progress(store)


def _import_source(
    store: Store,
    source: ImportSource,
    settings: ImportSettings,
    progress: Callable[[int, int], None],
) -> Outcome:
    """Import one file, unless it is unchanged since its last import."""
    key = None if source.name == STDIN else _file_key(source.name)
    reads_anyway = source.is_named or settings.force
    if key is not None and not reads_anyway and store.newest_link(key, deleted=True) is not None:
        return Outcome(source.name, "unchanged")
    data = sys.stdin.buffer.read() if key is None else Path(source.name).read_bytes()
    imports = import_bytes(
        store,
        data,
        thread=settings.thread,
        name=None if key is None else Path(source.name).stem,
        format=settings.format,
        progress=progress,
    )
    if key is not None:
        _link_file(store, key, imports)
    is_new = any(imported.new for imported in imports) or source.is_named
    return Outcome(source.name, "imported" if is_new else "unchanged", tuple(imports))


def _file_key(name: str) -> bytes:
    """The hash of a file's path, size and modification time."""
    status = os.stat(name)
    state = f"{os.path.realpath(name)}\0{status.st_size}\0{status.st_mtime_ns}"
    return object_id("import-file", state.encode("utf-8", "surrogateescape"))


def _link_file(store: Store, key: bytes, imports: Sequence[Imported]) -> None:
    """Remember that this file was imported in this state.

    The import itself is done: if the store fails here, the file is only read again next time.
    """
    with suppress(StoreError):
        for imported in imports:
            head = next(iter(imported.branches.values()), None)
            if head is not None:
                store.add_links(imported.thread, [(key, bytes.fromhex(head))])


def _is_store_failure(error: BaseException) -> bool:
    """Whether the store itself failed, so that no other file can be imported either."""
    return isinstance(error, StoreError) and not isinstance(error, Damaged)


def _describe_error(error: BaseException) -> str:
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return str(error)


def describe_import(imported: Imported) -> Iterator[str]:
    """The result of an import, line by line."""
    state = plural(imported.new, "new commit") if imported.new else "nothing new"
    messages = plural(imported.messages, "message")
    yield f"{imported.thread}: {messages} ({imported.format}), {state}"
    for name, head in imported.branches.items():
        yield f"  {name} {head[:12]}"
    for old, new in imported.renamed.items():
        yield f"  {old} has changes that the file lacks: this import is on {new}"
    for name in imported.behind:
        yield f"  {name}: the thread already has all of this file, and nothing was moved"
    if imported.kept:
        total = sum(imported.kept.values())
        kinds = ", ".join(f"{count} {kind}" for kind, count in imported.kept.items())
        yield f"  kept aside: {plural(total, 'line')} ({kinds})"
    for remark in imported.remarks[:REMARKS_SHOWN]:
        yield f"  {remark.what}: line {remark.line + 1}: {remark.why}"
    if len(imported.remarks) > REMARKS_SHOWN:
        yield f"  and {len(imported.remarks) - REMARKS_SHOWN} more (--json has all)"


@contextmanager
def opened_store(path: str, *, keeps_empty: bool = True) -> Generator[Store]:
    """The open store at an address; it is closed at the end.

    Without `keeps_empty`, a new store file is removed again if no thread was added to it.
    """
    file = Path(path.removeprefix("sqlite://"))
    is_new = "://" not in str(file) and not file.exists()
    store = open_store(path)
    is_unused = False
    try:
        yield store
    finally:
        if is_new and not keeps_empty:
            is_unused = not store.threads() and not store.threads(deleted=True)
        store.close()
        if is_unused:
            file.unlink(missing_ok=True)


class ClientSessions(Struct, frozen=True):
    """The session files of one client on this machine."""

    client: str
    folder: str
    files: tuple[str, ...]
    size: int


def import_client_sessions(store_address: str, sessions: Sequence[ClientSessions]) -> str:
    """Import the sessions of clients, and describe the result in one line."""
    sources = [ImportSource(file, is_named=False) for client in sessions for file in client.files]
    with opened_store(store_address) as store:
        return describe_outcomes(list(import_sources(store, sources)))


def find_client_sessions(environ: Mapping[str, str]) -> list[ClientSessions]:
    """The sessions of the clients that are installed here; nothing is read but the folders."""
    sessions: list[ClientSessions] = []
    for client, variable, default, name in CLIENT_FOLDERS:
        home = environ.get(variable) or os.path.expanduser(default)
        folder = os.path.join(home, name)
        files = tuple(file for file in files_below(folder) if file.endswith(".jsonl"))
        if files:
            size = sum(os.path.getsize(file) for file in files if os.path.exists(file))
            sessions.append(ClientSessions(client, folder, files, size))
    return sessions


def export_file(args: argparse.Namespace) -> int:
    """Write a thread, or an archive of several, to a file or to standard output."""
    path = existing_store(args)
    if args.all and args.format not in (None, ARCHIVE):
        raise ConfigError("--all only works with --format archive")
    names = [record.name for record in threads(path)]
    if not args.all:
        names = [existing_thread(args, path)]
    losses = ()
    with open_existing(path) as store:
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
                render=_find_renderer() if format == "html" else None,
                folder=os.getcwd(),
            )
    _write_output(args.output, data)
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


def _write_output(name: str | None, data: bytes) -> None:
    """Write to standard output, or to a file that only its owner may read."""
    if name is None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    if name.endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    write_private(Path(name), data)


def _export_options(parser: argparse.ArgumentParser) -> None:
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument(
        "--format",
        choices=EXPORT_FORMATS,
        help="the output format (default: the format it was imported from, or archive)",
    )
    for document in ("html", "markdown"):
        formats.add_argument(
            f"--{document}",
            action="store_const",
            const=document,
            dest="format",
            help=f"the whole thread for people to read, as --format {document}",
        )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="the output file (default: standard output); a name that ends in .gz is compressed",
    )
    parser.add_argument("--branch", help="the branch to write (default: the current one)")
    parser.add_argument("--model", help="the model name to write into a vendor's body")
    parser.add_argument("--all", action="store_true", help="an archive of every thread")


def _find_renderer() -> Callable[[str], str] | None:
    """The page's Markdown renderer; `None`, for plain text, if its libraries are not installed."""
    try:
        from weft.gateway.render import render
    except ImportError:
        return None
    return render


def run(args: argparse.Namespace) -> int:
    return VERBS[args.command](args)


configure = add_command_options({"import": _import_options, "export": _export_options})
VERBS = {"import": import_files, "export": export_file}
