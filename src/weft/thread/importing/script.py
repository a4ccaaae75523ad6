"""What a file of somebody else's comes to, before any of it is stored: steps, in order.

A reader turns a file into a `Script`; only `landing.py` knows how a script becomes commits. Steps
name each other by keys of the file's own (a uuid, a line's number), so that reading needs no
store and the same bytes always give the same script.

What a file holds beside messages is not thrown away. Each step carries the lines it was read
from, and those that came before it and are no message; together all steps of a script have every
line exactly once, with its number, so that the file can be written again byte by byte.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, field

from weft.history import Priority, Setup
from weft.model import JsonObject, Message
from weft.thread.source_lines import SourceLine

Progress = Callable[[int, int], None]
"""SummaryBatch, every so often, how far something is: of how many, how many."""

PROGRESS_EVERY = 50
PHASES = 3  # reading, planning, writing: a third of the way each


class Said(Struct, frozen=True, kw_only=True):
    """One message at the end of what `parent` means; a key of `None` is the empty beginning.

    `is_file`: its lines are the whole file, with what was said before it.
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


class Folded(Struct, frozen=True, kw_only=True):
    """A compaction that somebody else made: the list it left, as keys of steps and as messages."""

    key: str
    parent: str | None
    rows: tuple[str | Message, ...]
    note: str
    metadata: JsonObject | None = None
    created: float | None = None
    lines: tuple[SourceLine, ...] = ()


class Equipped(Struct, frozen=True, kw_only=True):
    """The tools and parameters that hold from here on."""

    key: str
    parent: str | None
    setup: Setup
    created: float | None = None
    lines: tuple[SourceLine, ...] = ()


class Aside(Struct, frozen=True, kw_only=True):
    """Lines that no message follows."""

    key: str
    parent: str | None
    lines: tuple[SourceLine, ...]
    created: float | None = None


Step = Said | Folded | Equipped | Aside


class Remark(Struct, frozen=True):
    """Something about a file that its owner should know: `what` was met, and on which line."""

    what: str
    line: int
    why: str


class Script(Struct, frozen=True, kw_only=True):
    """A whole file. `branches` names the step that each branch ends with; `main` is the first.

    `name` is what the file calls itself (a session's id), `kept` how many lines are no message.
    """

    format: str
    steps: tuple[Step, ...]
    branches: Mapping[str, str]
    name: str | None = None
    lines: int = 0
    kept: Mapping[str, int] = field(default_factory=dict[str, int])
    remarks: tuple[Remark, ...] = ()


def tell(progress: Progress | None, phase: int, done: int, total: int) -> None:
    """Tell how far an import is, now and then."""
    if progress is not None and done % PROGRESS_EVERY == 0:
        progress(phase * total + done, PHASES * total)
