"""Which branch of a thread an exchange is written to.

The thread's HEAD is the branch that the client uses. A branch moves forward if a request continues
it. If a client goes back and continues differently, HEAD's branch continues from there, and the
abandoned commits become a branch with a name that says why:

- `before-edit-of-turn-7`: the client went back and wrote its seventh message differently, or
  returned to a conversation that it had left.
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
"""The prefix of the names of side branches, which contain requests for a summary."""


def branches_at(store: Store, thread: str, commit: Id) -> list[str]:
    """The branches that end in this commit, oldest first."""
    return [name for name in store.branches_at(thread, commit) if not name.startswith(TAG)]


def is_summary_branch(branch: str) -> bool:
    """Whether a branch contains a client's request for a summary instead of a conversation."""
    return branch.startswith(SUMMARY_BRANCH)


def land_request(
    store: Store,
    thread: ThreadRecord,
    branch: str,
    parent: Id | None,
    series: Series,
    history: Sequence[Message],
) -> str:
    """Write a request's commits after `parent`, and move HEAD there; returns the branch.

    `branch` ends in `parent`, or is empty if no branch does. `history` are the client's messages up
    to and including the first new one. If the request has no new message, the client asks for
    another answer, with other system text or tools.
    """
    created = series.commits[-1].created
    if branch:
        store.land(thread.name, series.landing("append", branch, parent))
        follow_client(store, thread, branch, created)
        return branch
    abandoned_head = store.read_ref(thread.name, thread.head)
    if abandoned_head is not None:
        turn = count_turns(history)
        if all(commit.kind == "setup" for commit in series.commits):
            name = _answer_name(store, thread.name, turn)
        else:
            name = _free_name(store, thread.name, f"before-edit-of-turn-{turn}")
        _create_branch(store, thread, name, abandoned_head, created)
    store.land(thread.name, series.landing("append", thread.head, abandoned_head))
    return thread.head


def return_to_request(
    store: Store,
    thread: ThreadRecord,
    request: Id,
    history: Sequence[Message],
    created: float,
) -> None:
    """Move HEAD's branch to a request that the client asks again, unless HEAD contains it.

    The client went back to a conversation that it had left. The commits that were on HEAD's branch
    get a new branch.
    """
    head = store.read_ref(thread.name, thread.head)
    if head is None or request in store.read_depths(thread.name, head, [request]):
        return
    name = _free_name(store, thread.name, f"before-edit-of-turn-{count_turns(history)}")
    _create_branch(store, thread, name, head, created)
    store.land(thread.name, Landing("reset", thread.head, head, request, created))


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

    If the request was answered before, there are two answers after it. If the client still waits
    for this one, it goes to HEAD's branch, and the commits that were there get a new branch.
    Otherwise this answer gets a new branch: the client went elsewhere, continued from the other
    answer, or repeated the request (`is_late`) and uses the answer to its newer request.
    """
    if branch:
        with suppress(RefMoved):  # the branch went on, or is gone; nothing is written then
            store.land(thread.name, series.landing("append", branch, parent))
            return branch
    branches = branches_at(store, thread.name, parent)
    if branches:
        store.land(thread.name, series.landing("append", branches[0], parent))
        return branches[0]
    rows = View().extend(store.walk(thread.name, parent)).rows
    name = _answer_name(store, thread.name, count_turns([row.message for row in rows]))
    abandoned_head = store.read_ref(thread.name, thread.head)
    if (
        abandoned_head is None
        or is_late
        or not _is_current(store, thread.name, abandoned_head, parent, branch)
    ):
        store.land(thread.name, series.landing("append", name, None))
        return name
    _create_branch(store, thread, name, abandoned_head, series.commits[-1].created)
    store.land(thread.name, series.landing("append", thread.head, abandoned_head))
    return thread.head


def _is_current(store: Store, thread: str, head: Id, request: Id, branch: str) -> bool:
    """Whether the client still waits for an answer to this request.

    It does not if HEAD is elsewhere, or if the client has continued from another answer. If no
    branch ended in the request (`branch` is empty), the client went back to ask it again.
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


def _create_branch(store: Store, thread: ThreadRecord, name: str, head: Id, created: float) -> None:
    store.land(thread.name, Landing("branch", name, None, head, created, was=thread.head))


def _answer_name(store: Store, thread: str, turn: int) -> str:
    return _free_number(store, thread, lambda number: f"answer-{number}-of-turn-{turn}")


def _free_name(store: Store, thread: str, name: str) -> str:
    if store.read_ref(thread, name) is None:
        return name
    return _free_number(store, thread, lambda number: f"{name}-{number + 1}")


def _free_number(store: Store, thread: str, make_name: Callable[[int], str]) -> str:
    return first_free(make_name, lambda name: store.read_ref(thread, name) is not None)


def first_free(make_name: Callable[[int], str], is_taken: Callable[[str], bool]) -> str:
    """The name with the first free number, found by bisection: numbers are used in order from 1."""
    low, high = 0, 1
    while is_taken(make_name(high)):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if is_taken(make_name(middle)):
            low = middle
        else:
            high = middle
    return make_name(high)
