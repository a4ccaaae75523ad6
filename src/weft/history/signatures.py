"""Thinking is bound to what was said before it: a signature never outlives its beginning.

A maker signs its thinking for the conversation that led to it. Once a line before it is edited,
hidden, folded or moved, the signature vouches for a conversation that is no longer there, and must
not be sent. The line itself stays as it is stored: should the old beginning come back (a revert,
an undo), the thinking may go out again.

So each line with signed thinking is remembered with one number, the fingerprint of all that showed
before it when it was appended. Threads without thinking pay nothing for this.
"""

from collections.abc import Iterable, Sequence

from weft.ids import Id
from weft.model import Message, Redacted, Thinking

from .objects import Row, encode_entry

START = 0
UNKNOWN = (0, -1)


class SignatureIndex:
    """What the thinking of the lines of one chain was signed behind.

    Only what was appended along the chain itself counts, so that a compile from scratch, which
    reads no other branch, knows exactly as much.
    """

    __slots__ = ("_behind", "_prints")

    def __init__(self, of: "SignatureIndex | None" = None, depth: int = 0) -> None:
        """Empty, or what the chain of another knew when it was `depth` commits deep."""
        known: dict[Id, tuple[int, int]] = {} if of is None else of._behind
        self._behind = {slot: bound for slot, bound in known.items() if bound[0] <= depth}
        self._prints: dict[Id, tuple[Message, int]] = {} if of is None else of._prints

    def bind(self, slot: Id, depth: int, behind: int) -> None:
        """Remember what a line was appended behind."""
        self._behind[slot] = (depth, behind)

    def trace(self, rows: Iterable[Row], start: int = START) -> int:
        """The fingerprint after these lines, which must be ones that show."""
        for row in rows:
            start = hash((start, self._print(row)))
        return start

    def stale_signatures(self, rows: Sequence[Row]) -> frozenset[Id]:
        """The lines among these whose signed thinking stands behind another beginning now."""
        found: set[Id] = set()
        done, trace = 0, START
        for place in [place for place, row in enumerate(rows) if is_signed(row.message)]:
            done, trace = place, self.trace(rows[done:place], trace)
            slot = rows[place].id
            if slot is not None and self._behind.get(slot, UNKNOWN)[1] != trace:
                found.add(slot)
        return frozenset(found)

    def _print(self, row: Row) -> int:
        known = None if row.id is None else self._prints.get(row.id)
        if known is not None and known[0] is row.message:
            return known[1]
        print = hash(encode_entry(row.message)[0])
        if row.id is not None:
            self._prints[row.id] = (row.message, print)
        return print


def is_signed(message: Message) -> bool:
    """Whether a message has thinking that its maker signed."""
    for block in message.blocks:  # asked of every line that is compiled: no generator
        if isinstance(block, Redacted) or (
            isinstance(block, Thinking) and block.signature is not None
        ):
            return True
    return False
