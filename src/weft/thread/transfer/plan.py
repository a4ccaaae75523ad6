"""The plan of an import: the steps that a file is parsed into, before anything is stored.

A reader parses a file into an `ImportPlan`, and `commit.py` turns the plan into commits. Steps
refer to each other by keys from the file (a uuid, a line number). So a reader needs no store, and
the same bytes always give the same plan.

Lines that are not messages are stored too. Each step has the lines it was parsed from and the other
lines right before them. Together, the steps of a plan have every line exactly once, with its
number, so an export can write the same file byte by byte.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from weft.history import Priority, Setup
from weft.model import JsonObject, Message
from weft.thread.info import Progress, Remark
from weft.thread.sessions import session_name
from weft.thread.source_lines import SourceLine

PROGRESS_EVERY = 50
PHASES = 3  # reading, planning, writing: each counts as a third of the progress


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
    """Call `progress` for every fiftieth item of a phase."""
    if progress is not None and done % PROGRESS_EVERY == 0:
        progress(phase * total + done, PHASES * total)
