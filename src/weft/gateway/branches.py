"""Which branch of a thread an exchange is written to.

The thread's HEAD is the branch that the client uses. A branch moves forward if a request continues
it. If a client goes back and continues differently, HEAD's branch continues from there, and the
abandoned commits become a branch with a name that says why:

- `before-edit-of-turn-7`: the client went back and wrote its seventh message differently.
- `answer-1-of-turn-7`: the seventh message was answered again.

A client that compacts its conversation first asks for a summary of it. That request and its answer
are a side branch, `compaction-1`. Side branches never move HEAD.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress

from weft.errors import RefMoved
from weft.history import TAG, Series, View
from weft.ids import Id
from weft.model import Message
from weft.store import Landing, Store, ThreadRecord
from weft.thread import typed_text

SUMMARY_BRANCH = "compaction-"
"""The prefix of the names of side branches, which hold requests for a summary."""


def branches_at(store: Store, thread: str, commit: Id) -> list[str]:
    """The branches that end in this commit, oldest first."""
    return [name for name in store.branches_at(thread, commit) if not name.startswith(TAG)]


def is_side_line(branch: str) -> bool:
    """Whether a branch holds a client's request for a summary, and not a conversation."""
    return branch.startswith(SUMMARY_BRANCH)


def land_request(
    store: Store,
    thread: ThreadRecord,
    branch: str,
    parent: Id | None,
    series: Series,
    before: Sequence[Message],
) -> str:
    """Write a request's commits after `parent`, and move HEAD there; returns the branch.

    `branch` ends in `parent`, or is empty if no branch does. `before` are the client's messages up
    to the first one that is written.
    """
    created = series.commits[-1].created
    if branch:
        store.land(thread.name, series.landing("append", branch, parent))
        follow_client(store, thread, branch, created)
        return branch
    left = store.read_ref(thread.name, thread.head)
    if left is not None:
        name = _free_name(store, thread.name, f"before-edit-of-turn-{count_turns(before)}")
        _name_line(store, thread, name, left, created)
    store.land(thread.name, series.landing("append", thread.head, left))
    return thread.head


def land_summary_request(store: Store, thread: str, series: Series) -> str:
    """Write a request for a summary to a side branch; returns its name."""
    name = _free_number(store, thread, lambda number: f"{SUMMARY_BRANCH}{number}")
    store.land(thread, series.landing("append", name, None))
    return name


def land_answer(
    store: Store,
    thread: ThreadRecord,
    branch: str,
    parent: Id,
    series: Series,
    *,
    is_late: bool = False,
) -> str:
    """Write an answer after its request; returns the branch.

    If the request has been answered before and the client is on that line, the other line gets a
    name of its own. If the client is elsewhere by now, this answer does. So does an answer that
    `is_late`: the client has repeated the request, and uses the answer to the newer one.
    """
    if branch:
        with suppress(RefMoved):  # the branch went on, or is gone; nothing is written then
            store.land(thread.name, series.landing("append", branch, parent))
            return branch
    ends = branches_at(store, thread.name, parent)
    if ends:
        store.land(thread.name, series.landing("append", ends[0], parent))
        return ends[0]
    rows = View().extend(store.walk(thread.name, parent)).rows
    turn = count_turns([row.message for row in rows])
    name = _free_number(store, thread.name, lambda number: f"answer-{number}-of-turn-{turn}")
    left = store.read_ref(thread.name, thread.head)
    if left is None or is_late or not store.read_depths(thread.name, left, [parent]):
        store.land(thread.name, series.landing("append", name, None))
        return name
    _name_line(store, thread, name, left, series.commits[-1].created)
    store.land(thread.name, series.landing("append", thread.head, left))
    return thread.head


def follow_client(store: Store, thread: ThreadRecord, branch: str, created: float) -> None:
    """Make the branch that the client uses the thread's HEAD."""
    if thread.head != branch:
        head = store.read_ref(thread.name, branch)
        store.land(thread.name, Landing("switch", branch, head, head, created, was=thread.head))


def count_turns(messages: Sequence[Message]) -> int:
    """How many messages a person typed, at least 1."""
    return max(1, sum(message.role == "user" and bool(typed_text(message)) for message in messages))


def _name_line(store: Store, thread: ThreadRecord, name: str, head: Id, created: float) -> None:
    store.land(thread.name, Landing("branch", name, None, head, created, was=thread.head))


def _free_name(store: Store, thread: str, name: str) -> str:
    if store.read_ref(thread, name) is None:
        return name
    return _free_number(store, thread, lambda number: f"{name}-{number + 1}")


def _free_number(store: Store, thread: str, name: Callable[[int], str]) -> str:
    return first_free(name, lambda taken: store.read_ref(thread, taken) is not None)


def first_free(name: Callable[[int], str], is_taken: Callable[[str], bool]) -> str:
    """The name with the first free number, found by bisection: numbers are used in order from 1."""
    low, high = 0, 1
    while is_taken(name(high)):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if is_taken(name(middle)):
            low = middle
        else:
            high = middle
    return name(high)
