"""Batches: the parts of a thread's summary, each with what it covers.

A batch says how many messages it covers, the times of the first and the last of them, and its
depth: 0 summarises messages, 1 summarises summaries, and so on. One `user` message after the
leading system messages lists all batches in order. If there are many, it lists the first and the
last ones and says how many are between. If there are too many, those between are merged into one of
the next depth. So the first batch of a thread never becomes a copy of a copy.

The text of a summary is data. It is between a heading and an end line that say so, and nothing
inside it can imitate these lines, a system reminder or the control tokens of a chat template.

Batches are stored in the metadata of the commit that wrote the summary. The messages that they
cover are in the commits before it: `search` and `recall` find them, and `revert` brings them
back.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from msgspec import Struct, ValidationError, convert, to_builtins

from weft.checked import check_fields
from weft.errors import ConfigError
from weft.history import Row
from weft.lazy import lazy_pattern
from weft.model import JsonObject, Message, Text

from .source import BULLET

MINUTES = "%Y-%m-%d %H:%M"
"""The format of times in a summary."""

METADATA_KEY = "batches"
"""The member of a commit's metadata that has the batches."""

HEADING = "[Summary of earlier messages"
NOT_A_REQUEST = "This is a record and not a request"
SHORT_MARK = "a record, not a request"
RECORD_ONLY = f"{NOT_A_REQUEST}; the originals are kept: recall finds what it leaves out."
END = "[End of the summary]"
"""The parts that mark a summary: the start of its heading, the statement that it is a record (a
shorter one in an extract, which may be small), and its last line."""

_IMITATION = lazy_pattern(
    r"\[(?=\s*(?:End of the summary|Summary of earlier messages)\b)", re.IGNORECASE
)
_CONTROL = lazy_pattern(r"<(?=\|)|<(?=/?(?:system-reminder|system|checkpoint:)\b)", re.IGNORECASE)
"""What `as_data` makes harmless: the frame of a summary, and tags and tokens that control a
model."""

SECRET = "[secret]"
_SECRET = lazy_pattern(
    r"\b(?:sk-(?:ant-|proj-|or-)?[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{30,}"
    r"|github_pat_[A-Za-z0-9_]{30,}|AKIA[0-9A-Z]{16}|AIza[A-Za-z0-9_-]{35}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}|glpat-[A-Za-z0-9_-]{20,}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
)
"""Keys of well-known services. A summary is copied, exported and read by other models; the original
stays in the history, where `recall` finds it."""

OMITTED_LINE = "[... {} earlier {} left out here; they can be looked up ...]"


class Batch(Struct, frozen=True, omit_defaults=True):
    """A part of a summary, and what it covers; times are seconds since 1970, `None` if unknown."""

    text: str
    count: int = 0
    depth: int = 0
    start: float | None = None
    end: float | None = None
    model: str | None = None


class SummaryBatch(Struct, frozen=True):
    """A current batch and the commit that made it; reverting that commit brings back what it
    covers."""

    batch: Batch
    commit: str | None

    @property
    def text(self) -> str:
        return self.batch.text

    @property
    def words(self) -> str:
        """Its text on one line, without headings and speakers."""
        return on_one_line(self.batch.text)

    def to_dict(self) -> JsonObject:
        """The batch as JSON."""
        batch = self.batch
        return {
            "commit": self.commit,
            "count": batch.count,
            "depth": batch.depth,
            "start": None if batch.start is None else _to_datetime(batch.start).isoformat(),
            "end": None if batch.end is None else _to_datetime(batch.end).isoformat(),
            "model": batch.model,
            "text": batch.text,
        }

    def __str__(self) -> str:
        by = f", by {self.batch.model}" if self.batch.model else ""
        return describe(self.batch) + by


class Clip(Struct, frozen=True):
    """How many batches a summary shows: the first `first` and the last `last` ones.

    Of the batches between these, it shows only their number. If there are more than `most` batches
    (`first` + `last` + `spare`), those between are summarised again as one. A `spare` of 0 counts
    as 1.
    """

    first: int = 2
    last: int = 2
    spare: int = 2

    def __post_init__(self) -> None:
        check_fields(self)
        if min(self.first, self.last) < 1 or self.spare < 0:
            raise ConfigError(f"a clip keeps a batch at both ends, not {self.first}, {self.last}")

    @property
    def most(self) -> int:
        """The largest number of batches.

        At least one in the middle is allowed. Otherwise a single middle batch would be summarised
        again at every compaction, although this does not reduce the number.
        """
        return self.first + self.last + max(1, self.spare)


def write_batches(batches: Sequence[Batch], clip: Clip, verbatim: str = "") -> Message:
    """The user message that lists the batches, and then what is kept verbatim beside them."""
    count = sum(batch.count for batch in batches)
    models = ", ".join(dict.fromkeys(batch.model for batch in batches if batch.model))
    by = f", written by {models}" if models else ""
    parts = filter(None, (join_batches(batches, clip), verbatim))
    return mark_summary("\n\n".join(parts), f": {plural(count, 'message')}{by}")


def mark_summary(text: str, details: str = "") -> Message:
    """The user message of a summary: its text as data, between a heading and an end line."""
    head = f"{HEADING}{details}. {RECORD_ONLY}]"
    return Message("user", (Text("\n\n".join((head, as_data(text), END))),))


def as_data(text: str) -> str:
    """The text without secrets, and without what could pass for the heading or the end of a
    summary, a system reminder or a control token."""
    return _CONTROL.sub("(", _IMITATION.sub("(", _SECRET.sub(SECRET, text)))


def body_as_data(text: str) -> str:
    """A marked summary whose text between the heading and the end line is data."""
    heading, _, body = text.partition("\n\n")
    return "\n\n".join((heading, as_data(body.removesuffix(END).rstrip()), END))


def unmarked(text: str) -> str:
    """The text of a summary without its heading and end line, if it has them."""
    body = text.strip()
    first = body.partition("\n")[0]
    is_marked = body.startswith(HEADING) and (NOT_A_REQUEST in first or SHORT_MARK in first)
    if is_marked and "\n\n" in body:
        body = body.partition("\n\n")[2]
    return body.removesuffix(END).rstrip()


def join_batches(batches: Sequence[Batch], clip: Clip) -> str:
    """The text of all batches, without a heading; empty if there are none."""
    if len(batches) == 1:
        return batches[0].text
    total = len(batches)
    parts = [
        f"[Part {number} of {total}: {describe(batch)}]\n{batch.text}"
        for number, batch in enumerate(batches, 1)
    ]
    omitted = total - clip.first - clip.last
    if omitted > 0:
        word = "summary" if omitted == 1 else "summaries"
        parts[clip.first : total - clip.last] = [OMITTED_LINE.format(omitted, word)]
    return "\n\n".join(parts)


def span_to_merge(batches: Sequence[Batch], clip: Clip) -> tuple[int, int] | None:
    """The start and the end of the batches to merge into one; `None` if there are not too many."""
    if len(batches) <= clip.most:
        return None
    return clip.first, len(batches) - clip.last


def merge_batches(batches: Sequence[Batch], text: str, model: str) -> Batch:
    """The batch that replaces several, one level deeper than the deepest of them."""
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
    """A batch as a row, to be summarised again."""
    return Row(None, Message("user", (Text(batch.text),)), kind="summary")


def record_batches(batches: Iterable[Batch]) -> JsonObject:
    """The batches as members of a commit's metadata."""
    return {METADATA_KEY: [to_builtins(batch) for batch in batches]}


def read_batches(record: JsonObject) -> tuple[Batch, ...] | None:
    """The batches in a commit's metadata; `None` if there are none or they cannot be read."""
    items = record.get(METADATA_KEY)
    if not isinstance(items, list) or not items:
        return None
    try:
        return tuple(convert(item, Batch) for item in cast(list[Any], items))
    except ValidationError:
        return None


def is_summary(row: Row) -> bool:
    """Whether a row is a summary of old turns (not the result of a squashed branch)."""
    return row.kind == "summary" and row.message.role == "user"


def describe(batch: Batch) -> str:
    """What a batch covers, in one line."""
    # A summary by a client comes without the messages that it replaced.
    parts = [plural(batch.count, "message") if batch.count else "an earlier summary"]
    if batch.start is not None and batch.end is not None:
        times = (_to_datetime(seconds).strftime(MINUTES) for seconds in (batch.start, batch.end))
        parts.append(" to ".join(times))
    if batch.depth:
        parts.append(f"depth {batch.depth}")
    return ", ".join(parts)


def on_one_line(text: str) -> str:
    """A summary on one line, without its heading and speakers."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0].startswith(HEADING):
        del lines[0]
    parts = [
        line.removeprefix(BULLET)
        for line, next_line in zip(lines, [*lines[1:], ""], strict=True)
        if not (line.endswith(":") and next_line.startswith(BULLET))
    ]
    return " ".join(" ".join(parts).split())


def _to_datetime(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def plural(number: int, word: str) -> str:
    """`1 message`, `2 messages`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"
