"""Files of other programs as lines, and the plan of an import that they are parsed into.

A reader parses a file into an `ImportPlan`, and `commit.py` turns the plan into commits. Steps
refer to each other by keys from the file (a uuid, a line number). So a reader needs no store, and
the same bytes always give the same plan.

Lines that are not messages are stored too. Each step has the lines it was parsed from and the other
lines right before them. Together, the steps of a plan have every line exactly once, with its
number, so an export can write the same file byte by byte.

A line of a JSON Lines file has its number, its line ending and its parsed value. If it is not
UTF-8, it is decoded as Latin-1 with a marker in front, so that writing it gives the same bytes.
Invalid lines (a half-written last line, a blank line, plain text) are kept and do not stop the
reader.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from msgspec import Struct, field

from weft import exact_json
from weft.history import Priority, Setup
from weft.model import JsonObject, Message
from weft.printable import encodable_json
from weft.thread.info import Progress, Remark
from weft.thread.sessions import session_name
from weft.thread.source_lines import SourceLine

LATIN_1_MARKER = "\0latin-1\0"
PROGRESS_INTERVAL = 50
"""Progress is reported once for this many items."""

PHASES = 3
"""Reading, planning and writing: each counts as a third of the progress."""


class Line(Struct, frozen=True):
    """One line; `value` is its JSON object, or `None` if it is not one."""

    number: int
    text: str
    value: JsonObject | None = None


def split_lines(data: bytes) -> Iterator[Line]:
    """Split a file into lines, with their line endings; `join_lines` reverses it."""
    for number, raw in enumerate(_split_bytes(data)):
        yield Line(number, _decode(raw), read_object(raw))


def join_lines(texts: Iterable[str]) -> bytes:
    """The bytes of a file from its lines."""
    return b"".join(_encode(text) for text in texts)


def read_object(raw: bytes) -> JsonObject | None:
    """The JSON object of a line; lone surrogates, which JSON allows, become U+FFFD."""
    try:
        value: Any = exact_json.loads(raw)
    except exact_json.JSONDecodeError:
        try:
            value = encodable_json(exact_json.loads_leniently(raw))
        except ValueError:
            return None
    return cast(JsonObject, value) if isinstance(value, dict) else None


def read_time(stamp: Any) -> float | None:
    """An ISO 8601 time as seconds since 1970, or `None` if it is not one."""
    if not isinstance(stamp, str):
        return None
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        return None


def line_time(line: Line) -> float | None:
    """The time in a line's `timestamp`, if it has one."""
    return None if line.value is None else read_time(line.value.get("timestamp"))


def last_time(lines: Sequence[Line]) -> float | None:
    """The time of the last line that has one."""
    times = (line_time(line) for line in reversed(lines))
    return next((time for time in times if time is not None), None)


def write_time(created: float) -> str:
    """Seconds since 1970 as an ISO 8601 time in UTC, with milliseconds, as clients write it."""
    moment = datetime.fromtimestamp(created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _split_bytes(data: bytes) -> list[bytes]:
    """Split at newlines only: a carriage return is part of the line."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _decode(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return LATIN_1_MARKER + raw.decode("latin-1")


def _encode(text: str) -> bytes:
    if text.startswith(LATIN_1_MARKER):
        return text.removeprefix(LATIN_1_MARKER).encode("latin-1")
    return text.encode()


class MessageStep(Struct, frozen=True, kw_only=True):
    """Appends one message after the step `parent`; a `parent` of `None` is the empty thread.

    `is_file`: `lines` is the whole file, including the messages before this one.
    """

    key: str
    parent: str | None
    message: Message
    kind: str = "dialogue"
    priority: Priority = "normal"
    note: str | None = None
    metadata: JsonObject | None = None
    generation_config: JsonObject | None = None
    usage: Any = None
    created: float | None = None
    lines: tuple[SourceLine, ...] = ()
    is_file: bool = False


class CompactionStep(Struct, frozen=True, kw_only=True):
    """A compaction made by another program. `rows` is its result: step keys and new messages."""

    key: str
    parent: str | None
    rows: tuple[str | Message, ...]
    note: str
    metadata: JsonObject | None = None
    created: float | None = None
    lines: tuple[SourceLine, ...] = ()


class SetupStep(Struct, frozen=True, kw_only=True):
    """Sets the tools and parameters from this step on."""

    key: str
    parent: str | None
    setup: Setup
    created: float | None = None
    lines: tuple[SourceLine, ...] = ()


class LinesStep(Struct, frozen=True, kw_only=True):
    """The lines at the end of a file, after its last message."""

    key: str
    parent: str | None
    lines: tuple[SourceLine, ...]
    created: float | None = None


Step = MessageStep | CompactionStep | SetupStep | LinesStep


class ImportPlan(Struct, frozen=True, kw_only=True):
    """A parsed file. `branches` has the key of each branch's last step; `main` is the first.

    `name` is the name in the file (a session id), and `parent` the session that a subagent's file
    belongs to. `other_lines` counts the lines that are not messages, by type.
    """

    format: str
    steps: tuple[Step, ...]
    branches: Mapping[str, str]
    name: str | None = None
    parent: str | None = None
    lines: int = 0
    other_lines: Mapping[str, int] = field(default_factory=dict[str, int])
    remarks: tuple[Remark, ...] = ()

    @property
    def session(self) -> str | None:
        """The session name, if this is a session file."""
        return None if self.name is None else session_name(self.format, self.name)


def report_progress(progress: Progress | None, phase: int, done: int, total: int) -> None:
    """Call `progress`, if there is one, for every fiftieth item of a phase."""
    if progress is not None and done % PROGRESS_INTERVAL == 0:
        progress(phase * total + done, PHASES * total)
