"""Undo and redo, read off the log of operations.

Undo is itself an operation: it moves a ref back and is written down like any other. Which one to
take back next needs no pointer, only the log read from its end: every undo cancels the nearest
operation before it that still stands, and every redo cancels an undo.
"""

from collections.abc import Iterable, Iterator

from weft.store import Operation, Store

UNDO, REDO = "undo", "redo"


def read_operations(store: Store, thread: str) -> Iterator[Operation]:
    """The whole log, newest first, a page at a time."""
    before: int | None = None
    while page := store.operations(thread, before=before):
        yield from page
        before = page[-1].seq


def plan_undo(operations: Iterable[Operation]) -> Operation | None:
    """The operation to take back next; `None` where all are."""
    cancelled = 0
    for operation in operations:
        if operation.verb == UNDO:
            cancelled += 1
        elif operation.verb == REDO:
            cancelled -= 1
        elif cancelled == 0:
            return operation
        else:
            cancelled -= 1
    return None


def plan_redo(operations: Iterable[Operation]) -> Operation | None:
    """The undo to take back next; `None` where something else was done since, or none is left."""
    cancelled = 0
    for operation in operations:
        if operation.verb == REDO:
            cancelled += 1
        elif operation.verb != UNDO:
            return None
        elif cancelled == 0:
            return operation
        else:
            cancelled -= 1
    return None
