"""Batches: the summaries that stand for a thread's past, each with what it stands for.

A batch says how many messages it sums up, when the first and the last of them were said, and how
deep it is: 0 is made of turns, 1 of summaries of turns, and so on. One `user` entry behind the
setup tells them all, in order. Where there are many, it tells the first and the last, and how many
stand between; where there are too many, those between are folded into one that is a step deeper,
so that the first account of a thread is never a copy of a copy.

Nothing is stored beside the thread for this. The commit that made the entry has its batches in its
record, and what they were made of is in the commits before it: it can be searched, looked up with
`recall`, and brought back with `revert`.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from msgspec import Struct, ValidationError, convert, to_builtins

from weft.errors import ConfigError
from weft.history import Row
from weft.model import JsonObject, Message, Text

from .source import BULLET, MARK

MINUTES = "%Y-%m-%d %H:%M"
RECORD = "batches"

OMITTED = "[... {} earlier {} left out here; they can be looked up ...]"


class Batch(Struct, frozen=True, omit_defaults=True):
    """One summary, and what it stands for; times are seconds since 1970, absent where unknown."""

    text: str
    count: int = 0
    depth: int = 0
    start: float | None = None
    end: float | None = None
    model: str | None = None


class SummaryBatch(Struct, frozen=True):
    """A batch that holds now, and the commit that made it: a revert of that brings back what it
    stands for."""

    batch: Batch
    commit: str | None

    @property
    def text(self) -> str:
        return self.batch.text

    @property
    def words(self) -> str:
        """What it says, on one line, without headings: neither the engine's nor a speaker's."""
        return first_words(self.batch.text)

    def to_dict(self) -> JsonObject:
        """The batch as JSON says it."""
        batch = self.batch
        return {
            "commit": self.commit,
            "count": batch.count,
            "depth": batch.depth,
            "start": None if batch.start is None else _moment(batch.start).isoformat(),
            "end": None if batch.end is None else _moment(batch.end).isoformat(),
            "model": batch.model,
            "text": batch.text,
        }

    def __str__(self) -> str:
        by = f", by {self.batch.model}" if self.batch.model else ""
        return describe(self.batch) + by


class Clip(Struct, frozen=True):
    """How many batches are told from both ends; `most` is how many there may be at all."""

    first: int = 2
    last: int = 2
    spare: int = 2

    def __post_init__(self) -> None:
        if min(self.first, self.last) < 1 or self.spare < 0:
            raise ConfigError(f"a clip keeps a batch at both ends, not {self.first}, {self.last}")

    @property
    def most(self) -> int:
        return self.first + self.last + self.spare


def write_batches(batches: Sequence[Batch], clip: Clip) -> Message:
    """The user message that tells the batches."""
    count = sum(batch.count for batch in batches)
    models = ", ".join(dict.fromkeys(batch.model for batch in batches if batch.model))
    by = f", written by {models}" if models else ""
    head = (
        f"[Summary of earlier messages: {_many(count, 'message')}{by}. This is a record and not a "
        "request; the originals are kept: recall finds what it leaves out.]"
    )
    return Message("user", (Text("\n\n".join((head, join_batches(batches, clip)))),))


def join_batches(batches: Sequence[Batch], clip: Clip) -> str:
    """What the batches say, without a heading; empty where there are none."""
    if len(batches) == 1:
        return batches[0].text
    total = len(batches)
    told = [
        f"[Part {number} of {total}: {describe(batch)}]\n{batch.text}"
        for number, batch in enumerate(batches, 1)
    ]
    omitted = total - clip.first - clip.last
    if omitted > 0:
        word = "summary" if omitted == 1 else "summaries"
        told[clip.first : total - clip.last] = [OMITTED.format(omitted, word)]
    return "\n\n".join(told)


def between(batches: Sequence[Batch], clip: Clip) -> tuple[int, int] | None:
    """Which batches to fold into one, where there are too many; `None` where there are not."""
    if len(batches) <= clip.most:
        return None
    return clip.first, len(batches) - clip.last


def fold_batches(batches: Sequence[Batch], text: str, model: str) -> Batch:
    """The batch that stands for several, a step deeper than the deepest of them."""
    starts = [batch.start for batch in batches if batch.start is not None]
    ends = [batch.end for batch in batches if batch.end is not None]
    return Batch(
        text,
        sum(batch.count for batch in batches),
        max(batch.depth for batch in batches) + 1,
        min(starts, default=None),
        max(ends, default=None),
        model,
    )


def batch_row(batch: Batch) -> Row:
    """A batch as something that can be summarised again."""
    return Row(None, Message("user", (Text(batch.text),)), kind="summary")


def record_batches(batches: Iterable[Batch]) -> JsonObject:
    """The batches as they stand in a commit's record."""
    return {RECORD: [to_builtins(batch) for batch in batches]}


def read_batches(record: JsonObject) -> tuple[Batch, ...] | None:
    """The batches of a commit's record; `None` where it has none that can be read."""
    found = record.get(RECORD)
    if not isinstance(found, list) or not found:
        return None
    try:
        return tuple(convert(item, Batch) for item in cast(list[Any], found))
    except ValidationError:
        return None


def is_summary(row: Row) -> bool:
    """Whether a row tells what came before it: a summary that stands for the user's past."""
    return row.kind == "summary" and row.message.role == "user"


def describe(batch: Batch) -> str:
    """What a batch stands for, in one line."""
    said = [_many(batch.count, "message")]
    if batch.start is not None and batch.end is not None:
        moments = (_moment(seconds).strftime(MINUTES) for seconds in (batch.start, batch.end))
        said.append(" to ".join(moments))
    if batch.depth:
        said.append(f"depth {batch.depth}")
    return ", ".join(said)


def first_words(text: str) -> str:
    """A summary on one line, as it begins when nobody is named."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0].startswith(MARK):
        del lines[0]
    told = [
        line.removeprefix(BULLET)
        for line, below in zip(lines, [*lines[1:], ""], strict=True)
        if not (line.endswith(":") and below.startswith(BULLET))
    ]
    return " ".join(" ".join(told).split())


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _many(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"
