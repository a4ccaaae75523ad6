"""Opens a thread as a new process sees it, without cached views."""

from weft.history import Row, View
from weft.thread import Thread, open as open_thread


def fresh(thread: Thread) -> Thread:
    """The same branch through a handle of its own."""
    return open_thread(thread.store, thread.name, branch=thread.current)


def all_rows(thread: Thread) -> list[Row]:
    """Every row of the branch, hidden ones too."""
    head = thread.store.read_ref(thread.name, thread.current)
    assert head is not None
    return list(View().extend(thread.store.walk(thread.name, head)).rows)
