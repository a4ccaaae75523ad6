"""Plans undo and redo from the operation log.

Undo is itself an operation: it moves a ref back and is logged like any other. The log alone says
what the next undo reverses, so no pointer is stored. If the log is read from its end, every undo
cancels the newest earlier operation on the same ref that is still in effect, and every redo cancels
an undo. The operations of a batch are one step.

Undo belongs to a branch: operations on other branches are not undone. Some operations do not move
the caller's current branch: a switch, or the creation or deletion of a branch or tag. For these the
log has `was`, the branch that the caller was on before, and only the same caller can undo them.
docs/adr/0026-undo-per-branch.md has the reasons.
"""

from collections.abc import Callable, Collection, Iterable, Iterator

from weft.store import Operation, Store

UNDO, REDO = "undo", "redo"


def read_operations(store: Store, thread: str) -> Iterator[Operation]:
    """The whole log, newest first, a page at a time."""
    before: int | None = None
    while page := store.operations(thread, before=before):
        yield from page
        before = page[-1].seq


def is_switch(operation: Operation) -> bool:
    """Whether it changed the current branch and moved no ref."""
    return operation.was is not None and operation.old == operation.new


def plan_undo(
    operations: Iterable[Operation],
    branch: str,
    is_own: Callable[[Operation], bool],
    protected: Collection[str] = (),
) -> list[Operation]:
    """The operations that an undo on this branch reverses, newest first; empty if none is left.

    There are several if they were made in one batch. A switch ends the list: its undo changes the
    current branch, so the rest of the batch needs a new plan for that branch.

    `is_own` says which operations with `was` are the caller's; `protected` refs are not changed. If
    somebody else has moved a ref since, the caller's earlier operations on it can no longer be
    undone.
    """
    plan = _Plan()
    cancelled: dict[str, int] = {}  # by ref: how many of the older operations to skip
    blocked_refs = set(protected)
    switches = _Switches(branch, is_own)
    for operation in operations:
        ref = operation.ref
        if is_switch(operation):
            if switches.check_undo(operation):
                plan.add(operation)
        elif operation.verb == UNDO:
            cancelled[ref] = cancelled.get(ref, 0) + 1
        elif operation.verb == REDO:  # the older undo that it reverses cancels nothing
            cancelled[ref] = cancelled.get(ref, 0) - 1
        elif cancelled.get(ref, 0) > 0:
            cancelled[ref] -= 1
        elif ref not in blocked_refs and _belongs_to(operation, branch, is_own):
            plan.add(operation)
        else:
            blocked_refs.add(ref)
        if plan.is_complete:
            break
    return plan.operations


def plan_redo(
    operations: Iterable[Operation], branch: str, is_own: Callable[[Operation], bool]
) -> list[Operation]:
    """The undos that a redo on this branch reverses, newest first.

    Empty if something else was done on this branch since, or if none is left. There are several if
    one undo reversed a batch; a switch ends the list, as in `plan_undo`.
    """
    plan = _Plan()
    redone = 0  # how many older undos to skip; only those of this branch are counted
    moved_by_others: set[str] = set()
    switches = _Switches(branch, is_own)
    for operation in operations:
        if is_switch(operation):
            if switches.check_redo(operation):
                plan.add(operation)
        elif not _belongs_to(operation, branch, is_own):
            if not _is_own_reversal(operation, branch, is_own):
                moved_by_others.add(operation.ref)
        elif operation.verb == REDO:
            redone += 1
        elif operation.verb != UNDO:
            break
        elif redone > 0:
            redone -= 1
        elif operation.ref in moved_by_others:
            break
        else:
            plan.add(operation)
        if plan.is_complete:
            break
    return plan.operations


class _Plan:
    """The operations of one step: a single one, or all operations of one batch."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.is_complete = False

    def add(self, operation: Operation) -> None:
        """Add an operation if it belongs to the step."""
        if self.operations and operation.batch != self.operations[0].batch:
            self.is_complete = True
            return
        self.operations.append(operation)
        self.is_complete = operation.batch is None or is_switch(operation)


def _belongs_to(operation: Operation, branch: str, is_own: Callable[[Operation], bool]) -> bool:
    """Whether an operation belongs to the branch, or was done from it by the caller."""
    if operation.was is None:
        return operation.ref == branch
    return operation.was == branch and is_own(operation)


def _is_own_reversal(
    operation: Operation, branch: str, is_own: Callable[[Operation], bool]
) -> bool:
    """Whether the caller undid or redid the creation or deletion of this branch, from another one.

    This does not prevent a redo on the branch: the branch exists, so it was restored to the commit
    that it pointed to before.
    """
    is_reversal = operation.verb in (UNDO, REDO) and operation.was is not None
    return is_reversal and operation.ref == branch and is_own(operation)


class _Switches:
    """Finds the caller's last switch that an undo, or a redo, would reverse.

    Each switch of the log must be checked once, newest first. The undo of a switch is a switch in
    the other direction, so the two are matched by the branches between which they switch.
    """

    def __init__(self, branch: str, is_own: Callable[[Operation], bool]) -> None:
        self._branch = branch
        self._is_own = is_own
        self._cancelled: dict[tuple[str, str | None], int] = {}
        self._has_last_switch = False

    def check_undo(self, operation: Operation) -> bool:
        """Whether this is the caller's last switch that was not undone, and led to the branch."""
        if self._has_last_switch or not self._is_own(operation):
            return False
        direction, reverse = (operation.ref, operation.was), (operation.was or "", operation.ref)
        if operation.verb == UNDO:
            self._cancelled[reverse] = self._cancelled.get(reverse, 0) + 1
        elif operation.verb == REDO or self._cancelled.get(direction, 0) > 0:
            self._cancelled[direction] = self._cancelled.get(direction, 0) - 1
        else:
            self._has_last_switch = True
            return operation.ref == self._branch
        return False

    def check_redo(self, operation: Operation) -> bool:
        """Whether this is the caller's last undo of a switch that was not redone."""
        if self._has_last_switch or not self._is_own(operation):
            return False
        direction, reverse = (operation.ref, operation.was), (operation.was or "", operation.ref)
        if operation.verb == REDO:
            self._cancelled[reverse] = self._cancelled.get(reverse, 0) + 1
            return False
        if operation.verb == UNDO and self._cancelled.get(direction, 0) > 0:
            self._cancelled[direction] -= 1
            return False
        self._has_last_switch = True
        return operation.verb == UNDO and operation.ref == self._branch
