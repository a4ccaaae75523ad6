"""`adopt`: a list that somebody else's compaction left goes on in the thread it came from.

A client that runs out of room folds its conversation itself and sends the shorter list from then
on. The thread takes that list over as one compaction, whose parent is all that was said: a revert
brings it back. What the list says again keeps its line, by what every client must echo.
"""

from collections.abc import Sequence

from weft.errors import WrongValue
from weft.history import Draft, Row, match_key, plan_rewrite, show_rows
from weft.ids import Id
from weft.model import JsonObject, Message

from .arguments import check_beside, check_count
from .handle import Handle
from .info import CommitInfo


def adopt(
    handle: Handle,
    messages: Sequence[Message],
    summary: int,
    *,
    note: str | None,
    metadata: JsonObject | None,
) -> CommitInfo:
    """Land the compaction that leaves these messages, of which one is the summary."""
    check_beside(message=note, metadata=metadata)
    check_count("summary", summary)
    if summary >= len(messages):
        raise WrongValue("summary", f"must be a place in the list: {summary} of {len(messages)}")

    def draft(head: Id | None) -> tuple[Draft, tuple[Id, ...]]:
        rows = handle.view(head).rows
        planned = plan_rewrite(rows, adopted_rows(rows, messages, summary))
        return Draft("compact", planned.op, planned.messages, note, metadata), ()

    return handle.land("compact", draft)


def adopted_rows(rows: Sequence[Row], messages: Sequence[Message], summary: int) -> list[Row]:
    """The lines of such a list: those that the thread has already, in their order, and new ones."""
    shown = show_rows(rows)
    found = _again([match_key(row.message) for row in shown], messages, summary)
    made: list[Row] = []
    for number, message in enumerate(messages):
        kind = "summary" if number == summary else "dialogue"
        at = found.get(number)
        made.append(Row(None, message, "normal", kind) if at is None else shown[at])
    return made


def _again(keys: Sequence[Id], messages: Sequence[Message], summary: int) -> dict[int, int]:
    """By its number in the list, the line that a message says again: of those that read alike the
    newest behind the summary, where a client keeps what was said last, and the oldest before it."""
    found: dict[int, int] = {}
    free = list(keys)
    for number in range(len(messages) - 1, summary, -1):
        key = match_key(messages[number])
        if key in free:
            at = len(free) - 1 - free[::-1].index(key)
            found[number] = at
            del free[at:]
    place = 0
    for number, message in enumerate(messages[:summary]):
        key = match_key(message)
        if key in free[place:]:
            found[number] = free.index(key, place)
            place = found[number] + 1
    return found
