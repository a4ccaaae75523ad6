"""`undo` and `redo`: reverse operations on branches and tags with the operation log."""

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct, structs

from weft.errors import ThreadError
from weft.history import (
    REDO,
    TAG,
    UNDO,
    is_switch,
    plan_redo,
    plan_undo,
    read_operations,
    undoable_moves,
    without_client_text,
)
from weft.ids import Id
from weft.model import Message, Text, ToolResult, is_system
from weft.store import Operation, Step

from .handle import NEARBY, Handle
from .info import CommitInfo, read_info

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
    is the head of the handle's branch afterwards. `steps` is the number of operations, including
    one that was undone in part. For a batch, `verb` is `batch` and `commit` is its first commit.
    For a turn, `verb` is `turn` and `commit` is the user message that began it.
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
    first = redone[0]
    if len(redone) == 1:
        restored = next(iter(_plan_undo(handle)), first)
        if first.from_branch is None and (restored.ref, restored.new) != (first.ref, first.old):
            # The turn is older than the branch, so no operation on the branch wrote it.
            return _describe_turn(handle, first.new, 1)
        return _describe(handle, restored)
    # The undo that was logged last reversed the first operation of the batch.
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


def _nothing_to_undo(handle: Handle) -> ThreadError:
    return ThreadError(f"there is nothing to undo on branch {handle.branch!r}")


def _nothing_to_redo(handle: Handle) -> ThreadError:
    return ThreadError(f"there is nothing to redo on branch {handle.branch!r}")


def _undo_turn(handle: Handle) -> Undone:
    """Return to the state before the last question on the branch.

    If the last operation is not part of a turn (a pin, an edit, a compaction), only that is undone.
    """
    other = _last_operation_outside_turns(handle)
    if other is not None:
        _reverse(handle, UNDO, other)
        return _describe(handle, other)
    head = handle.head()
    question = None if head is None else _find_question(handle, head)
    if head is None or question is None:
        raise ThreadError(f"there is no turn to undo on branch {handle.branch!r}")
    operations, target = _plan_turn(handle, question)
    with handle.as_one_step():  # so that one redo restores all of it
        for operation in operations:
            _reverse(handle, UNDO, operation)
            head = operation.old
        if head != target:  # the next operation brought more than this turn
            handle.move_ref(UNDO, handle.branch, head, target)
    steps = len(operations) + (head != target)
    return Undone("turn", handle.branch, _info(handle, question), _head_info(handle), steps)


def _redo_turn(handle: Handle) -> Undone:
    """Redo one step, and the steps that follow it, up to the next question or a switch."""
    old_head = handle.head()
    redone = _reverse_step(handle, REDO, _plan_redo)
    if not redone:
        raise _nothing_to_redo(handle)
    while undos := _plan_redo(handle):
        if is_switch(undos[0]) or _brings_question(handle, undos):
            break
        redone += _reverse_step(handle, REDO, _plan_redo)
    return _describe_turn(handle, old_head, len(redone))


def _last_operation_outside_turns(handle: Handle) -> Operation | None:
    """The last operation on the branch, if it is not one that a turn can end with.

    A switch, or a new branch or tag, is the last operation only if the branch has not been moved
    since. Otherwise the second undo of a turn would delete a branch that is older than the first.
    """
    plan = _plan_undo(handle)
    if plan and (is_switch(plan[0]) or plan[0].ref != handle.branch):
        log = read_operations(handle.store, handle.name)
        moves = (line.seq for line in log if line.ref == handle.branch and not is_switch(line))
        if plan[0].seq > next(moves, 0):
            return plan[0]
    last = next(_undoable_moves(handle), None)
    return None if last is None or last.verb in TURN_VERBS else last


def _plan_turn(handle: Handle, question: Step) -> tuple[list[Operation], Id | None]:
    """The operations to undo, newest first, and the commit before the turn.

    If the branch never ended in that commit, the first operation that is not returned must be
    undone in part: it brought the commit and a part of the turn.
    """
    operations: list[Operation] = []
    moves = _undoable_moves(handle)
    after_question = _Descendants(handle, question.commit.id)
    for move in moves:
        if not after_question.contain(move.old):
            break
        operations.append(move)
    else:  # the question was asked before the branch was created
        return operations, _parent_of(question)
    target = _commit_before_turn(handle, question, move)
    after_target = _Descendants(handle, target)
    # A client that edits an earlier question moves the branch in one operation from its last answer
    # to the edited question. To return to the state before both, undo what came before the edit,
    # too. The replaced messages stay on a branch of their own.
    while after_target.contain(move.old):
        operations.append(move)
        if move.old == target:
            break
        move = next(moves, None)
        if move is None:
            break
    return operations, target


def _commit_before_turn(handle: Handle, question: Step, operation: Operation) -> Id | None:
    """The commit before the question and what the same operation wrote directly before it.

    That is setup, system messages, and messages of the user: clients send these together with a
    question.
    """
    parent = _parent_of(question)
    while parent is not None and not _Descendants(handle, parent).contain(operation.old):
        (step,) = handle.store.read_commits(handle.name, [parent])
        message = _appended_message(handle, step)
        is_prelude = message is not None and (is_system(message) or _is_from_user(message))
        if step.commit.kind != "setup" and not is_prelude:
            break
        parent = _parent_of(step)
    return parent


class _Descendants:
    """Tells which commits have a commit in their history, along first parents.

    Every history has the empty one, `None`.
    """

    def __init__(self, handle: Handle, commit: Id | None) -> None:
        self._handle = handle
        self._commit = commit
        self._known = {commit}

    def contain(self, head: Id | None) -> bool:
        """Whether the history of `head` has the commit; `head` itself counts."""
        if self._commit is None or head in self._known:
            return True
        if head is None:
            return False
        store, thread = self._handle.store, self._handle.name
        depths = store.read_depths(thread, head, [head, self._commit])
        if self._commit not in depths:
            return False
        distance = depths[head] - depths[self._commit]
        self._known.update(node.id for node in store.walk_nodes(thread, head, distance))
        return True


def _brings_question(handle: Handle, undos: list[Operation]) -> bool:
    """Whether the redo of these undos adds a question to the branch."""
    heads = [undo.old for undo in undos if undo.ref == handle.branch]
    new_head = heads[-1] if heads else None
    question = None if new_head is None else _find_question(handle, new_head)
    if question is None:
        return False
    return not _Descendants(handle, question.commit.id).contain(handle.head())


def _find_question(handle: Handle, head: Id) -> Step | None:
    """The last commit that begins a turn."""
    for limit in (*NEARBY, None):
        steps = handle.store.walk(handle.name, head, limit=limit)
        for step in reversed(steps):
            message = _appended_message(handle, step)
            if message is not None and _begins_turn(message):
                return step
        if limit is None or len(steps) < limit:
            return None
    return None


def _begins_turn(message: Message) -> bool:
    """Whether this is a message of the user that has more than text of the client."""
    if not _is_from_user(message):
        return False
    is_text = all(isinstance(block, Text) for block in message.blocks)
    return not is_text or not message.text.strip() or bool(without_client_text(message))


def _is_from_user(message: Message) -> bool:
    """Whether it is a message of the user, not a tool result.

    Text beside a result does not begin a turn: without the message, its call has no result.
    """
    has_result = any(isinstance(block, ToolResult) for block in message.blocks)
    return message.role == "user" and not has_result


def _appended_message(handle: Handle, step: Step) -> Message | None:
    messages = _info(handle, step).messages if step.commit.kind == "append" else ()
    return messages[0] if messages else None


def _parent_of(step: Step) -> Id | None:
    return step.commit.parents[0] if step.commit.parents else None


def _undoable_moves(handle: Handle) -> Iterator[Operation]:
    return undoable_moves(read_operations(handle.store, handle.name), handle.branch)


def _info(handle: Handle, step: Step) -> CommitInfo:
    return read_info(step, handle.count)


def _head_info(handle: Handle) -> CommitInfo | None:
    head = handle.head()
    return None if head is None else handle.info(head)


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
    return Undone(
        operation.verb,
        operation.ref.removeprefix(TAG),
        None if commit is None else handle.info(commit),
        _head_info(handle),
    )


def _describe_turn(handle: Handle, old_head: Id | None, steps: int) -> Undone:
    """Describe a turn that was redone by its question, or by its last commit if it has none."""
    head = _head_info(handle)
    question = None if head is None else _find_question(handle, bytes.fromhex(head.id))
    if question is None or _Descendants(handle, question.commit.id).contain(old_head):
        return Undone("turn", handle.branch, head, head, steps)
    return Undone("turn", handle.branch, _info(handle, question), head, steps)


def _describe_step(handle: Handle, operations: list[Operation]) -> Undone:
    """Describe a step by its oldest operation, the first in this list."""
    first = _describe(handle, operations[0])
    if len(operations) == 1:
        return first
    return Undone(BATCH, first.ref, first.commit, first.head, len(operations))
