"""`undo` and `redo`: reverse operations on branches and tags with the operation log."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct, structs

from weft.errors import ThreadError
from weft.history import REDO, TAG, UNDO, is_switch, plan_redo, plan_undo, read_operations
from weft.store import Operation

from .handle import Handle
from .info import CommitInfo

REF_OPERATIONS = {
    "branch": "branch {ref!r}",
    "delete": "delete branch {ref!r}",
    "switch": "switch to {ref!r}",
    "reset": "reset {ref!r}",
    "clear": "clear {ref!r}",
    "tag": "tag {ref!r}",
    "untag": "delete tag {ref!r}",
}
"""How operations on branches and tags are described."""

TURN_VERBS = ("append", "note")
"""The operations that a turn can end with: an answer, or a report of token usage."""

BATCH = "batch"


class Undone(Struct, frozen=True):
    """What `undo` undid, or `redo` restored.

    `verb` and `ref` are the operation's, `commit` is the commit that it added or named, and `head`
    is the head of the handle's branch afterwards. `steps` is the number of operations. For a batch,
    `verb` is `batch` and `commit` is its first commit. For a whole turn, `verb` is `turn` and
    `commit` is the user message that began it.
    """

    verb: str
    ref: str
    commit: CommitInfo | None
    head: CommitInfo | None
    steps: int = 1

    def __str__(self) -> str:
        if self.verb in REF_OPERATIONS or self.commit is None:
            return REF_OPERATIONS.get(self.verb, self.verb + " {ref!r}").format(ref=self.ref)
        return f"{self.title} {self.commit.id[:12]} {self.commit.message or ''}".rstrip()

    @property
    def title(self) -> str:
        """A short title: the verb, or the size of the batch."""
        if self.verb == BATCH:
            return f"batch of {self.steps} operations from"
        return self.verb

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON."""
        return {
            "verb": self.verb,
            "ref": self.ref,
            "commit": None if self.commit is None else self.commit.id,
            "head": None if self.head is None else self.head.id,
            "steps": self.steps,
        }


def undo(handle: Handle, *, turn: bool = False) -> Undone:
    """Undo the last step on the handle's branch that is still in effect, or the last turn.

    A step is one operation, or all operations of a batch.
    """
    with handle.changing_refs():
        return _undo_turn(handle) if turn else _undo_step(handle)


def redo(handle: Handle, *, turn: bool = False) -> Undone:
    """Redo the step that was undone last, unless the branch has changed since."""
    with handle.changing_refs():
        return _redo_turn(handle) if turn else _redo_step(handle)


def _undo_step(handle: Handle) -> Undone:
    with handle.as_one_step():  # so that one redo restores all of it
        undone = _reverse_step(handle, UNDO, _plan_undo)
    if not undone:
        raise _nothing_to_undo(handle)
    return _describe_step(handle, undone[::-1])


def _redo_step(handle: Handle) -> Undone:
    with handle.as_one_step():
        redone = _reverse_step(handle, REDO, _plan_redo)
    if not redone:
        raise _nothing_to_redo(handle)
    if len(redone) == 1:
        return _describe(handle, next(iter(_plan_undo(handle)), redone[0]))
    # The undo that was logged last reversed the first operation of the batch.
    first = redone[0]
    restored = structs.replace(first, old=first.new, new=first.old)
    return _describe_step(handle, [restored, *redone[1:]])


def _reverse_step(
    handle: Handle, verb: str, plan: Callable[[Handle], list[Operation]]
) -> list[Operation]:
    """Reverse all operations of one step; returns them, newest first."""
    reversed_operations: list[Operation] = []
    while operations := plan(handle):
        if reversed_operations and operations[0].batch != reversed_operations[0].batch:
            break
        for operation in operations:
            _reverse(handle, verb, operation)
        reversed_operations += operations
        if operations[-1].batch is None or not is_switch(operations[-1]):
            break  # after a switch, the rest of a batch is planned on the other branch
    return reversed_operations


def _plan_undo(handle: Handle) -> list[Operation]:
    """The operations that the next undo reverses; empty if there are none."""
    log = read_operations(handle.store, handle.name)
    record = handle.store.read_thread(handle.name)
    # The thread's current branch must not be deleted, even if this handle is on another one.
    protected = [record.head] if record is not None and record.head != handle.branch else []
    return plan_undo(log, handle.branch, handle.owns_operation, protected)


def _plan_redo(handle: Handle) -> list[Operation]:
    """The undo operations that the next redo reverses; empty if there are none."""
    log = read_operations(handle.store, handle.name)
    return plan_redo(log, handle.branch, handle.owns_operation)


def _undo_once(handle: Handle) -> Undone:
    """Undo a single operation, even one of a batch."""
    operations = _plan_undo(handle)
    if not operations:
        raise _nothing_to_undo(handle)
    _reverse(handle, UNDO, operations[0])
    return _describe(handle, operations[0])


def _redo_once(handle: Handle) -> Undone:
    operations = _plan_redo(handle)
    if not operations:
        raise _nothing_to_redo(handle)
    _reverse(handle, REDO, operations[0])
    return _describe(handle, next(iter(_plan_undo(handle)), operations[0]))


def _nothing_to_undo(handle: Handle) -> ThreadError:
    return ThreadError(f"there is nothing to undo on branch {handle.branch!r}")


def _nothing_to_redo(handle: Handle) -> ThreadError:
    return ThreadError(f"there is nothing to redo on branch {handle.branch!r}")


def _undo_turn(handle: Handle) -> Undone:
    """Undo until the last message of the user is undone.

    If the last operation is not part of a turn (a pin, an edit, a compaction), only that is undone.
    If there is no user message, the caller's transaction rolls everything back.
    """
    branch, steps = handle.branch, 0
    while True:
        try:
            undone = _undo_once(handle)
        except ThreadError:
            raise ThreadError(f"there is no turn to undo on branch {branch!r}") from None
        steps += 1
        if steps == 1 and undone.verb not in TURN_VERBS:
            return undone
        if undone.verb == "append" and _is_user_message(undone.commit):
            return Undone("turn", branch, undone.commit, undone.head, steps)


def _redo_turn(handle: Handle) -> Undone:
    """Redo one operation, and those after it up to the next message of the user."""
    first = undone = _redo_once(handle)
    steps = 1
    while True:
        next_undo = next(iter(_plan_redo(handle)), None)
        if next_undo is None or is_switch(next_undo):
            break
        if next_undo.old is not None and _is_user_message(handle.info(next_undo.old)):
            break
        undone = _redo_once(handle)
        steps += 1
    return Undone("turn", handle.branch, first.commit, undone.head, steps)


def _is_user_message(commit: CommitInfo | None) -> bool:
    """Whether a commit appends a message of the user, not a tool result."""
    if commit is None or commit.kind != "append":
        return False
    return bool(commit.messages) and commit.messages[0].role == "user"


def _reverse(handle: Handle, verb: str, operation: Operation) -> None:
    """Move a ref, or the handle, back to where it was before this operation."""
    if is_switch(operation):
        assert operation.from_branch is not None
        head = handle.store.read_ref(handle.name, operation.from_branch)
        handle.log_operation(verb, operation.from_branch, head, head, operation.ref)
        handle.branch = operation.from_branch
    else:
        handle.move_ref(verb, operation.ref, operation.new, operation.old)


def _describe(handle: Handle, operation: Operation) -> Undone:
    commit = operation.new or operation.old
    head = handle.head()
    return Undone(
        operation.verb,
        operation.ref.removeprefix(TAG),
        None if commit is None else handle.info(commit),
        None if head is None else handle.info(head),
    )


def _describe_step(handle: Handle, operations: list[Operation]) -> Undone:
    """Describe a step by its oldest operation, the first in this list."""
    first = _describe(handle, operations[0])
    if len(operations) == 1:
        return first
    return Undone(BATCH, first.ref, first.commit, first.head, len(operations))
