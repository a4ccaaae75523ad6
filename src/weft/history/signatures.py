"""Signed thinking is only valid after the rows that it was signed after.

A vendor signs thinking for the conversation that led to it. Once a row before it is edited, hidden,
folded or moved, the signature belongs to a conversation that no longer exists, and must not be
sent. The stored row stays as it is: if the old rows come back (a revert, an undo), the thinking may
be sent again.

So for each row with signed thinking one number is kept: the fingerprint of all rows that showed
before it when it was appended. Threads without thinking pay nothing for this.
"""

from collections.abc import Iterable, Sequence

from weft.ids import Id
from weft.model import Message, Redacted, Text, Thinking

from .objects import Row, encode_entry

START = 0
UNKNOWN = (0, -1)


class SignatureIndex:
    """For each row with signed thinking, the fingerprint of the rows before it.

    Only rows that were appended along the chain itself count, because a compile from scratch reads
    no other branch and must know exactly as much.
    """

    __slots__ = ("_fingerprints", "_hashes")

    def __init__(self, base: "SignatureIndex | None" = None, depth: int = 0) -> None:
        """Empty, or what `base` knew at this depth of its chain."""
        known: dict[Id, tuple[int, int]] = {} if base is None else base._fingerprints
        self._fingerprints = {slot: at for slot, at in known.items() if at[0] <= depth}
        self._hashes: dict[Id, tuple[Message, int]] = {} if base is None else base._hashes

    def bind(self, slot: Id, depth: int, fingerprint: int) -> None:
        """Remember the fingerprint of the rows that a row was appended after."""
        self._fingerprints[slot] = (depth, fingerprint)

    def fingerprint(self, rows: Iterable[Row], start: int = START) -> int:
        """The fingerprint after these rows, all of which must be ones that show."""
        for row in rows:
            start = hash((start, self._hash(row)))
        return start

    def stale_signatures(self, rows: Sequence[Row]) -> frozenset[Id]:
        """The slots among these rows whose signed thinking follows other rows now."""
        stale: set[Id] = set()
        done, fingerprint = 0, START
        for position in [n for n, row in enumerate(rows) if is_signed(row.message)]:
            fingerprint = self.fingerprint(rows[done:position], fingerprint)
            done = position
            slot = rows[position].id
            if slot is not None and self._fingerprints.get(slot, UNKNOWN)[1] != fingerprint:
                stale.add(slot)
        return frozenset(stale)

    def _hash(self, row: Row) -> int:
        known = None if row.id is None else self._hashes.get(row.id)
        if known is not None and known[0] is row.message:
            return known[1]
        value = hash(encode_entry(row.message)[0])
        if row.id is not None:
            self._hashes[row.id] = (row.message, value)
        return value


def is_signed(message: Message) -> bool:
    """Whether a message has thinking with a vendor's signature."""
    for block in message.blocks:  # runs for every compiled row: a generator would be slower
        kind = type(block)
        if kind is Text:
            continue
        if kind is Redacted or (isinstance(block, Thinking) and block.signature is not None):
            return True
    return False
