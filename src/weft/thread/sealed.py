"""Lines as a vendor takes them: without thinking that was signed behind another beginning."""

from collections.abc import Sequence, Set

from msgspec import structs

from weft.history import Row
from weft.ids import Id
from weft.model import Loss, Redacted, Thinking

WHY = "what was said before it has changed since it was signed"


def without_unbound(
    rows: Sequence[Row], unbound: Set[Id]
) -> tuple[tuple[Row, ...], tuple[Loss, ...]]:
    """The lines that may be sent, and the thinking that stays behind.

    A line that was nothing but such thinking stays behind whole.
    """
    if not unbound:
        return tuple(rows), ()
    kept: list[Row] = []
    losses: list[Loss] = []
    for row in rows:
        if row.id not in unbound:
            kept.append(row)
            continue
        message = row.message
        left = tuple(b for b in message.blocks if not isinstance(b, Thinking | Redacted))
        losses.append(Loss(f"messages[{len(kept)}]", "its thinking", WHY))
        if left:
            kept.append(structs.replace(row, message=structs.replace(message, blocks=left)))
    return tuple(kept), tuple(losses)
