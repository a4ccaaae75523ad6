"""What a verb would do: the lines it leaves, what they cost, and what a vendor's cache loses.

A preview is made from the very plan that would land, so the two cannot differ. Nothing is written,
no hook is asked.
"""

from collections.abc import Sequence

from msgspec import Struct

from weft.history import (
    AnyConflict,
    Diff,
    Row,
    Setup,
    State,
    View,
    diff_rows,
    is_signed,
    setup_changes,
    show_rows,
)
from weft.model import Message

from .handle import Handle


class Preview(Struct, frozen=True, kw_only=True):
    """A change that has not been made; `rows` are the lines afterwards, hidden ones included.

    `stripped` are the lines whose thinking could be sent before and cannot afterwards.
    `prefix_tokens` is the beginning of what is sent now that stays as it is, so that a prompt
    cache still knows it. `setup` is what would hold, `setup_changes` names its parts that would be
    others. Unsettled `conflicts` stand in `rows` and `setup` as our side has them.
    """

    verb: str
    rows: tuple[Row, ...]
    diff: Diff
    stripped: tuple[str, ...] = ()
    prefix_tokens: int = 0
    setup: Setup | None = None
    setup_changes: tuple[str, ...] = ()
    conflicts: tuple[AnyConflict, ...] = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(row.message for row in show_rows(self.rows))

    @property
    def tokens_before(self) -> int:
        return self.diff.tokens_before

    @property
    def tokens_after(self) -> int:
        return self.diff.tokens_after

    @property
    def cache_lost(self) -> int:
        """The tokens sent now that a prompt cache would have to read again."""
        return self.tokens_before - self.prefix_tokens

    def __str__(self) -> str:
        return "\n".join([str(self.diff), *self._costs()])

    def _costs(self) -> list[str]:
        lines = [f"conflict in {conflict.place}" for conflict in self.conflicts]
        if self.setup_changes:
            lines.append(f"{', '.join(self.setup_changes)} would change")
        if self.stripped:
            lines.append(f"thinking of {len(self.stripped)} messages would not be sent any more")
        if self.cache_lost:
            lines.append(f"{self.cache_lost:,} tokens of cached prefix would be lost")
        return lines


def preview_state(
    handle: Handle,
    verb: str,
    after: State | View,
    conflicts: tuple[AnyConflict, ...] = (),
) -> Preview:
    """The preview of a change that leaves these lines and this setup."""
    view, rows = handle.view(handle.head()), after.rows
    return Preview(
        verb=verb,
        rows=tuple(rows),
        diff=diff_rows(view.rows, rows, handle.count),
        stripped=lost_thinking(view, rows),
        prefix_tokens=kept_prefix_tokens(handle, view.rows, rows),
        setup=after.setup,
        setup_changes=setup_changes(view.setup, after.setup),
        conflicts=conflicts,
    )


def lost_thinking(view: View, rows: Sequence[Row]) -> tuple[str, ...]:
    """The lines whose thinking is sent now, and which stay without it."""
    stale_signatures = view.stale_signatures()
    sent = {
        r.id for r in show_rows(view.rows) if is_signed(r.message) and r.id not in stale_signatures
    }
    later = view.stale_signatures(rows) if sent else frozenset[bytes]()
    return tuple(
        row.id.hex()
        for row in show_rows(rows)
        if row.id is not None and row.id in sent and (row.id in later or not is_signed(row.message))
    )


def kept_prefix_tokens(handle: Handle, before: Sequence[Row], after: Sequence[Row]) -> int:
    """The tokens of the messages at the start that are sent the same before and after."""
    kept = 0
    for old, new in zip(show_rows(before), show_rows(after), strict=False):
        if old.message is not new.message and old.message != new.message:
            break
        kept += handle.count(old.message)
    return kept
