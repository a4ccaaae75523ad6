"""Recognises that a client has compacted a conversation itself.

A client whose context is full asks a model for a summary and continues with a shorter list of
messages. No protocol marks this, and the list begins differently from the thread. But each client
begins its summaries with the same words. By these words Weft recognises that the request continues
a conversation of its session, and records the list as a compaction of that thread.

Normally the client is on the thread's current branch. Weft chooses another branch only if both
hold:

- The list shares no message with the current branch. (Clients keep their newest turns unchanged.)
- The summary was not written on a side branch (`branches.py`).

Then it chooses the branch that shares most messages with the list, or whose last answer is the
summary, or the newest one.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from weft.history import decode_appended, match_key, read_branches
from weft.model import Message, Opaque, Text, is_system
from weft.store import Store
from weft.thread import VENDOR_SUMMARIES, Thread, open as open_thread

from .branches import is_summary_branch
from .codex_compaction import OPENING

OPENINGS = (
    ("user", "Claude Code", "This session is being continued from a previous conversation"),
    ("user", "Codex", "Another language model started to solve this problem"),
    ("assistant", "Codex", OPENING),
)
"""Role, client and first words of summaries."""

BRANCHES_TRIED = 16
"""How many of the newest branches are compared with a list."""

_INNER = re.compile(r"<summary>(.*)</summary>", re.DOTALL)


class Rank(NamedTuple):
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
) -> tuple[Rank, Thread]:
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
            for role, client, opening in OPENINGS:
                if message.role == role and text.startswith(opening):
                    return client
    return None


def _rank(thread: Thread, messages: Sequence[Message], summary: SummaryMessage) -> Rank:
    stored = thread.compile().messages
    keys = {match_key(message) for message in stored if not is_system(message)}
    shared = sum(match_key(message) in keys for message in messages)
    updated = "" if thread.head is None else thread.head.created.isoformat()
    is_quoted = bool(stored) and _quotes(messages[summary.index], stored[-1])
    return Rank(shared, is_quoted, updated)


def _quotes(summary: Message, answer: Message) -> bool:
    """Whether the summary is the text of this answer."""
    if answer.role != "assistant":
        return False
    if any(isinstance(block, Opaque) and block in summary.blocks for block in answer.blocks):
        return True
    inner = _INNER.search(answer.text)
    text = (inner[1] if inner else answer.text).strip()
    whole_words = rf"(?<!\w){re.escape(text)}(?!\w)"
    return bool(text) and re.search(whole_words, summary.text) is not None


def _compacted_length(thread: Thread, messages: Sequence[Message], summary: SummaryMessage) -> int:
    """How many messages of the list are the compacted thread: up to its last known answer."""
    keys = {match_key(message) for message in thread.compile().messages}
    for index in range(len(messages) - 1, summary.index, -1):
        if messages[index].role == "assistant" and match_key(messages[index]) in keys:
            return index + 1
    return summary.index + 1
