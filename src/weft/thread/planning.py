"""What every compaction asks of its plan, whoever wrote the summary."""

from collections.abc import Sequence

from weft.compact import STEPS, CompactResult
from weft.errors import CompactRefused
from weft.history import Row, show_rows, shows

from .handle import Handle

REASON_MOST = 300


def check_retained(before: Sequence[Row], after: Sequence[Row], retain: Sequence[str]) -> None:
    """Refuse a plan that loses a text which the thread has now and which must stay."""
    said, left = (_read(rows) for rows in (before, after))
    for text in retain:
        if not text or text not in said:
            raise CompactRefused(f"{text!r} is not in the thread", field="retain")
        if text not in left:
            raise CompactRefused(f"{text!r} would be lost; say it in the summary", field="retain")


def _read(rows: Sequence[Row]) -> str:
    return "\n".join(row.message.text for row in show_rows(rows))


def with_hidden(rows: Sequence[Row], kept: Sequence[Row]) -> tuple[Row, ...]:
    """The kept lines with the hidden ones behind the lines they stood behind, if those stayed."""
    behind: dict[bytes | None, list[Row]] = {}
    anchor: bytes | None = None
    for row in rows:
        if shows(row):
            anchor = row.id
        else:
            behind.setdefault(anchor, []).append(row)
    woven: list[Row] = list(behind.get(None, ()))
    for row in kept:
        woven.append(row)
        if row.id is not None:
            woven.extend(behind.get(row.id, ()))
    return tuple(woven)


def count_rows(handle: Handle, rows: Sequence[Row]) -> int:
    """The tokens of the lines that a model is shown."""
    return sum(handle.count(row.message) for row in show_rows(rows))


def write_note(result: CompactResult) -> str:
    """What the log says of a compaction, and why where it was not done as it was asked for."""
    note = f"compact {result.tokens_before} to {result.tokens_after} tokens"
    if result.thinned:
        results = "1 unread result" if len(result.thinned) == 1 else "unread results"
        note += f", {results} shortened"
    if result.failures and result.method is not None:
        note += f", by {STEPS[result.method]}: {result.reason}"
    return note


def short_reason(error: Exception) -> str:
    """Why something failed, in one line of a bounded length: an upstream may say anything."""
    line = " ".join(str(error).split())
    return line if len(line) <= REASON_MOST else line[: REASON_MOST - 3] + "..."
