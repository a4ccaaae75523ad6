"""Plans undo and redo from the operation log.

Undo is itself an operation: it moves a ref back and is logged like any other. The log alone says
what the next undo reverses, so no pointer is stored. If the log is read from its end, every undo
cancels the newest earlier operation on the same ref that is still in effect, and every redo cancels
an undo. The operations of a batch (`t.batch()`) are one step. An undo may also reverse an operation
in part: if it moves the ref back, but not to where the ref was before the operation, the rest of
the operation is still in effect.

Undo belongs to a branch: operations on other branches are not undone. Some operations do not change
the commit of the caller's current branch: a switch, or the creation or deletion of another branch
or of a tag. For these the log has `from_branch`, the caller's current branch before the operation.
A caller can undo them only if it owns them (`is_own`, see `Handle.owns_operation`).
docs/adr/0026-undo-per-branch.md has the reasons.
"""

from collections.abc import Callable, Collection, Iterable, Iterator

from msgspec import structs

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
    return operation.from_branch is not None and operation.old == operation.new


def plan_undo(
    operations: Iterable[Operation],
    branch: str,
    is_own: Callable[[Operation], bool],
    protected: Collection[str] = (),
) -> list[Operation]:
    """The operations that an undo on this branch reverses, newest first; empty if none is left.

    There are several if they were made in one batch. A switch ends the list: its undo changes the
    current branch, so the rest of the batch needs a new plan for that branch.

    `is_own` says which operations with `from_branch` the caller owns. `protected` refs are not
    changed. An operation that does not belong to this branch blocks its ref: older operations on
    that ref are not undone, because that would overwrite the newer one.
    """
    plan = _Plan()
    blocked_refs = set(protected)
    switches = _Switches(branch, is_own)
    for operation in _in_effect(operations):
        ref = operation.ref
        if is_switch(operation):
            if switches.is_next_to_undo(operation):
                plan.add(operation)
        elif ref not in blocked_refs and _belongs_to(operation, branch, is_own):
            plan.add(operation)
        else:
            blocked_refs.add(ref)
        if plan.is_complete:
            break
    return plan.operations


def undoable_moves(operations: Iterable[Operation], branch: str) -> Iterator[Operation]:
    """The operations in effect that moved the branch, newest first, back to its creation."""
    for operation in _in_effect(operations):
        if operation.ref != branch or is_switch(operation):
            continue
        if operation.from_branch is not None:
            return
        yield operation


def plan_redo(
    operations: Iterable[Operation], branch: str, is_own: Callable[[Operation], bool]
) -> list[Operation]:
    """The undos that a redo on this branch reverses, newest first.

    Empty if something else was done on this branch since, if the newest undo cannot be redone
    because its ref was moved since, or if none is left. There are several if one undo reversed a
    batch; a switch ends the list, as in `plan_undo`.
    """
    plan = _Plan()
    undos_to_skip = 0  # one for each newer redo that belongs to this branch
    blocked_refs: set[str] = set()
    switches = _Switches(branch, is_own)
    for operation in operations:
        if is_switch(operation):
            if switches.is_next_to_redo(operation):
                plan.add(operation)
        elif not _belongs_to(operation, branch, is_own):
            if not _is_own_reversal(operation, branch, is_own):
                blocked_refs.add(operation.ref)
        elif operation.verb == REDO:
            undos_to_skip += 1
        elif operation.verb != UNDO:
            break
        elif undos_to_skip > 0:
            undos_to_skip -= 1
        elif operation.ref in blocked_refs:
            break  # undos are redone in order, so the older ones cannot be redone either
        else:
            plan.add(operation)
        if plan.is_complete:
            break
    return plan.operations


def _in_effect(operations: Iterable[Operation]) -> Iterator[Operation]:
    """The operations that were not undone, newest first, and all switches.

    `new` of an operation that was undone in part is where the undo moved the ref.
    """
    undos: dict[str, list[Operation]] = {}  # by ref: undos of older operations, the oldest last
    undos_to_skip: dict[str, int] = {}  # by ref: one for each newer redo
    for operation in operations:
        ref = operation.ref
        if is_switch(operation):
            yield operation
        elif operation.verb == REDO:
            undos_to_skip[ref] = undos_to_skip.get(ref, 0) + 1
        elif operation.verb != UNDO:
            rest = _rest_in_effect(operation, undos.get(ref, []))
            if rest is not None:
                yield rest
        elif undos_to_skip.get(ref, 0) > 0:
            undos_to_skip[ref] -= 1
        else:
            undos.setdefault(ref, []).append(operation)


def _rest_in_effect(operation: Operation, undos: list[Operation]) -> Operation | None:
    """The operation without the part that was undone, or None; removes its undos from the list."""
    while undos:
        undo = undos.pop()
        is_partial = undo.old == operation.new and undo.new != operation.old
        if not is_partial:
            return None
        operation = structs.replace(operation, new=undo.new)
    return operation


class _Plan:
    """The operations of one step: a single one, or all operations of one batch."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.is_complete = False

    def add(self, operation: Operation) -> None:
        """Add an operation, or complete the step if the operation is not part of it."""
        if self.operations and operation.batch != self.operations[0].batch:
            self.is_complete = True
            return
        self.operations.append(operation)
        self.is_complete = operation.batch is None or is_switch(operation)


def _belongs_to(operation: Operation, branch: str, is_own: Callable[[Operation], bool]) -> bool:
    """Whether an operation moved the branch, or the caller did it while it was on the branch."""
    if operation.from_branch is None:
        return operation.ref == branch
    return operation.from_branch == branch and is_own(operation)


def _is_own_reversal(
    operation: Operation, branch: str, is_own: Callable[[Operation], bool]
) -> bool:
    """Whether the caller, on another branch, undid or redid the creation or deletion of this one.

    Such an operation does not block a redo on the branch: the branch exists, so it was restored to
    the commit that it pointed to before.
    """
    is_reversal = operation.verb in (UNDO, REDO) and operation.from_branch is not None
    return is_reversal and operation.ref == branch and is_own(operation)


class _Switches:
    """Finds the caller's last switch that an undo, or a redo, would reverse.

    Each switch of the log must be checked once, newest first. The undo of a switch is a switch in
    the other direction, so the two are matched by the branches between which they switch.
    """

    def __init__(self, branch: str, is_own: Callable[[Operation], bool]) -> None:
        self._branch = branch
        self._is_own = is_own
        self._to_skip: dict[tuple[str, str], int] = {}  # by (from, to): how many older switches
        self._is_found = False  # if true, older switches do not matter

    def is_next_to_undo(self, operation: Operation) -> bool:
        """Whether the next undo reverses this switch.

        It is the caller's last switch that was not undone, and it led to the branch.
        """
        if self._is_found or not self._is_own(operation):
            return False
        switch, reverse = _switch_directions(operation)
        if operation.verb == UNDO:
            self._skip(reverse, 1)
        elif operation.verb == REDO or self._to_skip.get(switch, 0) > 0:
            # A redo takes back an older undo. A switch that was undone uses up that undo.
            self._skip(switch, -1)
        else:
            self._is_found = True
            return operation.ref == self._branch
        return False

    def is_next_to_redo(self, operation: Operation) -> bool:
        """Whether the next redo reverses this undo of a switch.

        It is the caller's last undo of a switch that was not redone, the caller has not switched
        since, and it led to the branch.
        """
        if self._is_found or not self._is_own(operation):
            return False
        switch, reverse = _switch_directions(operation)
        if operation.verb == REDO:
            self._skip(reverse, 1)
            return False
        if operation.verb == UNDO and self._to_skip.get(switch, 0) > 0:
            self._skip(switch, -1)
            return False
        self._is_found = True
        return operation.verb == UNDO and operation.ref == self._branch

    def _skip(self, switch: tuple[str, str], change: int) -> None:
        self._to_skip[switch] = self._to_skip.get(switch, 0) + change


def _switch_directions(switch: Operation) -> tuple[tuple[str, str], tuple[str, str]]:
    """A switch as (from, to), and the switch back."""
    assert switch.from_branch is not None
    return (switch.from_branch, switch.ref), (switch.ref, switch.from_branch)
