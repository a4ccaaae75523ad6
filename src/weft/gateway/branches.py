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
from weft.history import TAG, Series, View, decode_appended
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
    to the first one that is written. If none is, the client asks for another answer, with other
    system text or tools.
    """
    created = series.commits[-1].created
    if branch:
        store.land(thread.name, series.landing("append", branch, parent))
        follow_client(store, thread, branch, created)
        return branch
    left = store.read_ref(thread.name, thread.head)
    if left is not None:
        turn = count_turns(before)
        if all(commit.kind == "setup" for commit in series.commits):
            name = _answer_name(store, thread.name, turn)
        else:
            name = _free_name(store, thread.name, f"before-edit-of-turn-{turn}")
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
    name of its own. If the client is elsewhere by now, or has gone on from that other answer, this
    one does. So does an answer that `is_late`: the client has repeated the request, and uses the
    answer to the newer one.
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
    name = _answer_name(store, thread.name, count_turns([row.message for row in rows]))
    left = store.read_ref(thread.name, thread.head)
    if left is None or is_late or not _is_current(store, thread.name, left, parent, branch):
        store.land(thread.name, series.landing("append", name, None))
        return name
    _name_line(store, thread, name, left, series.commits[-1].created)
    store.land(thread.name, series.landing("append", thread.head, left))
    return thread.head


def _is_current(store: Store, thread: str, head: Id, request: Id, branch: str) -> bool:
    """Whether the client still waits at this request: HEAD is at most one answer behind it.

    Without a branch the line had gone on when the client asked, so it went back to ask again.
    """
    depths = store.read_depths(thread, head, [request, head])
    if request not in depths:
        return False
    depth = depths[request]
    if not branch or depths[head] == depth + 1:
        return True
    (step,) = store.walk(thread, head, after=depth, until=depth + 1)
    is_append = step.commit.kind == "append"
    return not (is_append and decode_appended(step).role == "assistant")


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


def _answer_name(store: Store, thread: str, turn: int) -> str:
    return _free_number(store, thread, lambda number: f"answer-{number}-of-turn-{turn}")


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
