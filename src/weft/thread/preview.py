"""`Preview`: the effect of a change, before it is made.

A preview is computed from the same plan that would be written, so the two cannot differ. Nothing is
written and no hook runs.
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

from .handle import Handle, Plan
from .info import CommitInfo


class Preview(Struct, frozen=True, kw_only=True):
    """A change that was not made; `rows` are the rows afterwards, including hidden ones.

    - `stripped`: messages whose thinking is sent now and could not be sent afterwards.
    - `prefix_tokens`: the tokens at the start that do not change, so a prompt cache still has them.
    - `setup`: the setup afterwards; `setup_changes` names the parts that would change.
    - `conflicts`: unresolved conflicts. `rows` and `setup` then show our side.
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
    """The preview of a change that results in this state."""
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


def land_or_preview(handle: Handle, verb: str, plan: Plan, preview: bool) -> CommitInfo | Preview:
    """Commit a plan, or preview it."""
    if preview:
        return preview_state(handle, verb, handle.simulate(plan))
    return handle.land(verb, plan)


def lost_thinking(view: View, rows: Sequence[Row]) -> tuple[str, ...]:
    """The ids of messages whose thinking is sent now and would not be sent with these rows."""
    stale = view.stale_signatures()
    sent = {r.id for r in show_rows(view.rows) if is_signed(r.message) and r.id not in stale}
    stale_after = view.stale_signatures(rows) if sent else frozenset[bytes]()
    return tuple(
        row.id.hex()
        for row in show_rows(rows)
        if row.id in sent
        and row.id is not None
        and (row.id in stale_after or not is_signed(row.message))
    )


def kept_prefix_tokens(handle: Handle, before: Sequence[Row], after: Sequence[Row]) -> int:
    """The tokens of the messages at the start that are the same before and after."""
    tokens = 0
    for old, new in zip(show_rows(before), show_rows(after), strict=False):
        if old.message is not new.message and old.message != new.message:
            break
        tokens += handle.count(old.message)
    return tokens
