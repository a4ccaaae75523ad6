"""A side trip comes home as one message, and nothing that it did to shared lines vanishes.

The branch's own lines stay on it: its last answer, or words that are given, stand for them. What
it did to lines that both sides have comes along as in a merge (edits, priorities, results of calls
that were open) and is a conflict where our side did otherwise. Two things a trip does for itself
alone stay there, and the preview says so: lines that it folded to make room are whole here, and the
tools and parameters that it worked with are its own.
"""

from collections.abc import Sequence

from weft.errors import ThreadError
from weft.history import (
    Choose,
    Merged,
    Row,
    State,
    merge_states,
    open_answers,
    setup_changes,
    shows,
)
from weft.model import JsonObject, Message, Text

from .sides import Brought, Sides


def squash(sides: Sides, choose: Choose | None, text: str | None) -> Brought:
    """What the side trip came to, as one message behind our lines."""
    base, ours, theirs = sides.states()
    shared = _shared(base.rows, ours.rows, theirs.rows)
    merged = merge_states(base, ours, State(shared, base.setup), choose)
    added, changed = sides.added(), _changed(ours.rows, merged)
    if not (added or changed or merged.conflicts):
        raise ThreadError(f"{sides.branch} has no messages of its own to bring home")
    words = text if text is not None or not added else _result(sides.branch, added)
    said = () if words is None else (Message("assistant", (Text(words),)),)
    rows = (*merged.rows, *(Row(None, message, kind="summary") for message in said))
    folded = _folded(base.rows, theirs.rows)
    return Brought(
        state=State(rows, merged.setup),
        note=f"squash {len(added)} messages of {sides.branch} into {sides.handle.branch}",
        record={"squashed": {**_record(sides, added), "changed": changed, "folded": folded}},
        conflicts=merged.conflicts,
        kept_whole=folded,
        left_setup=setup_changes(base.setup, theirs.setup),
    )


def _shared(base: Sequence[Row], ours: Sequence[Row], theirs: Sequence[Row]) -> list[Row]:
    """The lines that both sides have, as theirs has them; what they folded, as it was.

    A result for a call that both have belongs to these: without it the call would stay open here.
    """
    present = {row.id: row for row in theirs}
    known = {row.id for row in base}
    both = {row.id for row in ours} - known
    return [
        *(present.get(row.id, row) for row in base),
        *(row for row in open_answers(base, theirs) if row.id not in both),
        *(row for row in theirs if row.id in both),  # said again on one side, by a pick
    ]


def _changed(ours: Sequence[Row], merged: Merged) -> list[str]:
    """The ids of the lines that are not as we had them."""
    before = {row.id: row for row in ours}
    rows = [row for row in merged.rows if before.get(row.id) != row]
    return [row.id.hex() for row in rows if row.id is not None]


def _result(branch: str, rows: Sequence[Row]) -> str:
    """What the side trip came to: the last words of an assistant."""
    for row in reversed(rows):
        spoken = [block.text for block in row.message.blocks if isinstance(block, Text)]
        if row.message.role == "assistant" and any(part.strip() for part in spoken):
            return "\n".join(spoken)
    raise ThreadError(f"{branch} ends with no answer; give the words to bring home")


def _folded(base: Sequence[Row], theirs: Sequence[Row]) -> int:
    """How many of the shared lines that show the trip had folded."""
    present = {row.id for row in theirs}
    return sum(shows(row) and row.id not in present for row in base)


def _record(sides: Sides, added: Sequence[Row]) -> JsonObject:
    """Where the message came from, for whoever looks it up later."""
    ids = [row.id.hex() for row in added if row.id is not None]
    return {
        "branch": sides.branch,
        "head": sides.theirs.hex(),
        "base": None if sides.base is None else sides.base.hex(),
        "messages": len(added),
        "tokens": sum(sides.handle.count(row.message) for row in added),
        "first": ids[0] if ids else None,
        "last": ids[-1] if ids else None,
    }
