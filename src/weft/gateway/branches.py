"""Which branch of a thread an exchange is written to.

The thread's current branch is the one that the client uses. A branch moves forward if a request
continues it. If a client goes back and continues differently, the current branch moves to the
commit from which it continues. The abandoned commits become a branch with a name that says why:

- `before-edit-of-turn-7`: the client went back and wrote its seventh message differently, or
  returned to a conversation that it had left.
- `answer-1-of-turn-7`: the seventh message was answered again.

A client that compacts its conversation first asks for a summary of it. That request and its answer
are a side branch, `compaction-1`. A side branch never becomes the current branch.

The client then continues with a shorter list of messages, which begins with its summary. No
protocol marks this, and the list begins differently from the thread. But each client begins its
summaries with the same words. By these words Weft recognises that the request continues a
conversation of its session, and records the list as a compaction of that thread.

Normally the client is on the thread's current branch. Weft chooses another branch for the
compaction only if both hold:

- The list shares no message with the current branch. (Clients keep their newest turns unchanged.)
- The summary was not written on a side branch.

Then it chooses the branch that shares most messages with the list, or whose last answer is the
summary, or the newest one.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec import Struct

from weft.errors import RefMoved
from weft.history import (
    TAG,
    Series,
    View,
    decode_appended,
    match_key,
    read_branches,
    without_client_text,
)
from weft.ids import Id
from weft.model import Message, Opaque, Text, is_system
from weft.store import Landing, Store, ThreadRecord
from weft.thread import VENDOR_SUMMARIES, Thread, open as open_thread

from .codex_compaction import OPENING

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
    """Write a request's commits after `parent`, on what becomes the current branch; returns it.

    `branch` ends in `parent`, or is empty if no branch does. `history` are the client's messages up
    to and including the first new one. If the request has no new message, the client asks for
    another answer, with other system text or tools.
    """
    created = series.commits[-1].created
    if branch:
        store.land(thread.name, series.landing("append", branch, parent))
        switch_head(store, thread, branch, created)
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
    """Move the current branch to a request that the client repeats, unless the branch contains it.

    The client went back to a conversation that it had left. The commits that were on the
    current branch get a new branch.
    """
    head = store.read_ref(thread.name, thread.head)
    if head is None or request in store.read_depths(thread.name, head, [request]):
        return
    name = _free_name(store, thread.name, f"before-edit-of-turn-{count_turns(history)}")
    _create_branch(store, thread, name, head, created)
    store.land(thread.name, Landing("reset", thread.head, head, request, created))


def land_summary_request(store: Store, thread: str, series: Series) -> str:
    """Write a request for a summary to a side branch; returns its name."""
    name = _first_free_branch(store, thread, lambda number: f"{SUMMARY_BRANCH}{number}")
    store.land(thread, series.landing("append", name, None))
    return name


def land_answer(
    store: Store,
    thread: ThreadRecord,
    branch: str,
    parent: Id,
    series: Series,
    *,
    is_newest_attempt: bool = True,
) -> str:
    """Write an answer after its request; returns the branch.

    If the request was answered before, there are two answers after it. If the client still waits
    for this one, it goes to the current branch, and the commits that were there get a new branch.
    Otherwise this answer gets a new branch. `is_newest_attempt` says that the client did not repeat
    the request later.
    """
    if branch:
        with suppress(RefMoved):  # the branch has other commits, or is gone; nothing is written
            store.land(thread.name, series.landing("append", branch, parent))
            return branch
    branches = branches_at(store, thread.name, parent)
    if branches:
        store.land(thread.name, series.landing("append", branches[0], parent))
        return branches[0]
    rows = View().extend(store.walk(thread.name, parent)).rows
    name = _answer_name(store, thread.name, count_turns([row.message for row in rows]))
    abandoned_head = store.read_ref(thread.name, thread.head)
    if abandoned_head is None or not _is_awaited(
        store, thread.name, abandoned_head, parent, branch, is_newest_attempt
    ):
        store.land(thread.name, series.landing("append", name, None))
        return name
    _create_branch(store, thread, name, abandoned_head, series.commits[-1].created)
    store.land(thread.name, series.landing("append", thread.head, abandoned_head))
    return thread.head


def _is_awaited(
    store: Store, thread: str, head: Id, request: Id, branch: str, is_newest_attempt: bool
) -> bool:
    """Whether the client still waits for this answer to a request that was answered before.

    It does not wait in these cases:

    - It repeated the request later, and uses the answer to its newest attempt.
    - The current branch does not contain the request: the client went back to an earlier message.
    - The client has continued from another answer. But if no branch ended in the request (`branch`
      is empty), the client went back to ask it again.
    """
    if not is_newest_attempt:
        return False
    depths = store.read_depths(thread, head, [request, head])
    if request not in depths:
        return False
    depth = depths[request]
    if not branch or depths[head] == depth + 1:
        return True
    (step,) = store.walk(thread, head, after=depth, until=depth + 1)
    is_answer = step.commit.kind == "append" and decode_appended(step).role == "assistant"
    return not is_answer


def switch_head(store: Store, thread: ThreadRecord, branch: str, created: float) -> None:
    """Make this branch, which the client uses, the thread's current branch."""
    if thread.head != branch:
        head = store.read_ref(thread.name, branch)
        store.land(
            thread.name, Landing("switch", branch, head, head, created, from_branch=thread.head)
        )


def count_turns(messages: Sequence[Message]) -> int:
    """How many messages a person typed, at least 1."""
    return max(
        1,
        sum(message.role == "user" and bool(without_client_text(message)) for message in messages),
    )


def _create_branch(store: Store, thread: ThreadRecord, name: str, head: Id, created: float) -> None:
    store.land(thread.name, Landing("branch", name, None, head, created, from_branch=thread.head))


def _answer_name(store: Store, thread: str, turn: int) -> str:
    return _first_free_branch(store, thread, lambda number: f"answer-{number}-of-turn-{turn}")


def _free_name(store: Store, thread: str, name: str) -> str:
    if store.read_ref(thread, name) is None:
        return name
    return _first_free_branch(store, thread, lambda number: f"{name}-{number + 1}")


def _first_free_branch(store: Store, thread: str, make_name: Callable[[int], str]) -> str:
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


SUMMARY_OPENINGS = (
    ("user", "Claude Code", "This session is being continued from a previous conversation"),
    ("user", "Codex", "Another language model started to solve this problem"),
    ("assistant", "Codex", OPENING),
)
"""Role, client and first words of summaries."""

BRANCHES_TRIED = 16
"""How many of the newest branches are compared with a list."""

_SUMMARY_ELEMENT = re.compile(r"<summary>(.*)</summary>", re.DOTALL)


class BranchRank(NamedTuple):
    """How well a branch matches a list.

    `shared` is the number of common messages, `is_quoted` says whether the branch's last answer is
    the summary, and `updated` is the time of its last commit.
    """

    shared: int
    is_quoted: bool
    updated: str


class SummaryMessage(Struct, frozen=True):
    """The message with a summary: its index in the list, and the client that wrote it."""

    index: int
    client: str


class ClientCompaction(Struct, frozen=True):
    """The branch that a list continues.

    The first `length` messages are the compacted thread, the following ones are new.
    """

    thread: Thread
    summary: SummaryMessage
    length: int


def find_summary(messages: Sequence[Message], start: int = 0) -> SummaryMessage | None:
    """The last summary in a list, at index `start` or later; None if there is none."""
    for index in range(len(messages) - 1, start - 1, -1):
        client = _client_of(messages[index])
        if client is not None:
            return SummaryMessage(index, client)
    return None


def find_compacted_thread(
    store: Store, threads: Sequence[str], messages: Sequence[Message], summary: SummaryMessage
) -> ClientCompaction | None:
    """The branch of a session's threads that the list continues; None if there are no threads.

    The session's first thread is preferred. A later thread, which may belong to a subagent, is
    chosen only if the first one has nothing in common with the list.
    """
    first_thread: Thread | None = None
    for name in threads:
        rank, thread = _best_branch(store, name, messages, summary)
        first_thread = first_thread or thread
        if rank.shared or rank.is_quoted:
            return ClientCompaction(thread, summary, _compacted_length(thread, messages, summary))
    return (
        None if first_thread is None else ClientCompaction(first_thread, summary, summary.index + 1)
    )


def _best_branch(
    store: Store, name: str, messages: Sequence[Message], summary: SummaryMessage
) -> tuple[BranchRank, Thread]:
    """The branch of a thread that matches the list best, and its rank."""
    current = open_thread(store, name)
    rank = _rank(current, messages, summary)
    branches = read_branches(store, name)
    summary_heads = [head for branch, head in branches.items() if is_summary_branch(branch)]
    is_on_summary_branch = any(
        step.commit.kind == "append" and _quotes(messages[summary.index], decode_appended(step))
        for step in store.read_commits(name, summary_heads[-BRANCHES_TRIED:])
    )
    other_branches = [b for b in branches if b != current.current and not is_summary_branch(b)]
    if rank.shared or is_on_summary_branch or not other_branches:
        return rank._replace(is_quoted=rank.is_quoted or is_on_summary_branch), current
    threads = [
        current,
        *(open_thread(store, name, branch=b) for b in other_branches[-BRANCHES_TRIED:]),
    ]
    ranked = [(_rank(thread, messages, summary), thread) for thread in threads]
    return max(ranked, key=lambda pair: pair[0])


def _client_of(message: Message) -> str | None:
    """The client that wrote this summary; None if the message is not a summary."""
    for block in message.blocks:
        if isinstance(block, Opaque) and block.raw.get("type") in VENDOR_SUMMARIES:
            return "the client"
        if isinstance(block, Text):
            text = block.text.lstrip()
            for role, client, opening in SUMMARY_OPENINGS:
                if message.role == role and text.startswith(opening):
                    return client
    return None


def _rank(thread: Thread, messages: Sequence[Message], summary: SummaryMessage) -> BranchRank:
    stored = thread.compile().messages
    keys = {match_key(message) for message in stored if not is_system(message)}
    shared = sum(match_key(message) in keys for message in messages)
    updated = "" if thread.head is None else thread.head.created.isoformat()
    is_quoted = bool(stored) and _quotes(messages[summary.index], stored[-1])
    return BranchRank(shared, is_quoted, updated)


def _quotes(summary: Message, answer: Message) -> bool:
    """Whether the summary is the text of this answer."""
    if answer.role != "assistant":
        return False
    if any(isinstance(block, Opaque) and block in summary.blocks for block in answer.blocks):
        return True
    element = _SUMMARY_ELEMENT.search(answer.text)
    text = (element[1] if element else answer.text).strip()
    whole_words = rf"(?<!\w){re.escape(text)}(?!\w)"
    return bool(text) and re.search(whole_words, summary.text) is not None


def _compacted_length(thread: Thread, messages: Sequence[Message], summary: SummaryMessage) -> int:
    """How many messages of the list are the compacted thread: up to its last known answer."""
    keys = {match_key(message) for message in thread.compile().messages}
    for index in range(len(messages) - 1, summary.index, -1):
        if messages[index].role == "assistant" and match_key(messages[index]) in keys:
            return index + 1
    return summary.index + 1
