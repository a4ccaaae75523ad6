"""The running turn: the work on the person's last message, while calls or results are open.

A model that is in the middle of a loop of tools continues from its own thinking. Vendors demand
that this thinking comes back unchanged until the turn has ended. So a compaction changes nothing in
the running turn that it keeps, and does not make its thinking stale.
"""

from collections.abc import Sequence

from weft.model import Text, ToolCall, is_system

from .client_text import split_parts
from .objects import Row


def running_turn(rows: Sequence[Row]) -> int | None:
    """The number of the first row after the person's last message; `None` if no loop of tools is
    running, because the last message is an answer without calls or a message of the person."""
    last = next((n for n in range(len(rows) - 1, -1, -1) if not is_system(rows[n].message)), None)
    if last is None or is_typed(rows[last]):
        return None
    message = rows[last].message
    is_answer = message.role == "assistant"
    if is_answer and not any(isinstance(block, ToolCall) for block in message.blocks):
        return None
    typed = (n for n in range(last, -1, -1) if is_typed(rows[n]))
    return next(typed, -1) + 1


def is_typed(row: Row) -> bool:
    """Whether a row has text that the user typed, and that no client added."""
    return (
        row.message.role == "user"
        and row.kind != "summary"
        and any(
            part.is_typed
            for block in row.message.blocks
            if isinstance(block, Text) and block.text.strip()
            for part in split_parts(block.text)
        )
    )
