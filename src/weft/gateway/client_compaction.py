"""How clients say that they have compacted a conversation themselves.

A client that runs out of room asks for a summary and goes on with a shorter list, which begins
otherwise than what the thread holds. No protocol has a word for it, but each client has words of
its own. By these a request is known to go on with a conversation of its session, and the list it
brings becomes a compaction of that thread.

Of a session's branches that one is meant which says most of the list again (a client keeps its
newest turns word for word), else the one that ends in the words of the summary, else the newest.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from weft.history import match_key, read_branches
from weft.model import Message, Opaque, Text, is_system
from weft.store import Store
from weft.thread import Thread, open as open_thread

from .codex_compaction import OPENING

OPENINGS = (
    ("user", "Claude Code", "This session is being continued from a previous conversation"),
    ("user", "Codex", "Another language model started to solve this problem"),
    ("assistant", "Codex", OPENING),
)
"""In which role who begins a summary with which words."""

ITEMS = frozenset({"compaction", "compaction_summary"})
"""Vendors' own blocks that stand for what was folded."""

_INNER = re.compile(r"<summary>(.*)</summary>", re.DOTALL)


class Rank(NamedTuple):
    """How many messages of a list a branch says, whether it ends in the summary's words, and when
    it last moved."""

    again: int
    quoted: bool
    moved: str


class Summary(Struct, frozen=True):
    """The message that stands for what was folded: its place in a list, and whose it is."""

    place: int
    by: str


class ClientCompaction(Struct, frozen=True):
    """Where a shortened list goes on: `length` messages of it are what the compaction left."""

    thread: Thread
    summary: Summary
    length: int


def find_summary(messages: Sequence[Message], known: int = 0) -> Summary | None:
    """The last summary in a list behind what is `known` of it, if there is one."""
    for place in range(len(messages) - 1, known - 1, -1):
        by = _whose(messages[place])
        if by is not None:
            return Summary(place, by)
    return None


def find_compacted_thread(
    store: Store, threads: Sequence[str], messages: Sequence[Message], summary: Summary
) -> ClientCompaction | None:
    """The branch of a session's threads that such a list shortens; None where it has none.

    The session's first thread is asked first: a sub-agent's is meant only where that one shows
    no trace of the list.
    """
    first: Thread | None = None
    for name in threads:
        rank, thread = _nearest(store, name, messages, summary)
        first = first or thread
        if rank.again or rank.quoted:
            return ClientCompaction(thread, summary, _kept(thread, messages, summary))
    return None if first is None else ClientCompaction(first, summary, summary.place + 1)


def _nearest(
    store: Store, name: str, messages: Sequence[Message], summary: Summary
) -> tuple[Rank, Thread]:
    """The branch of a thread that has most of the list, and how much that is."""
    branches = [open_thread(store, name, branch=b) for b in read_branches(store, name)]
    ranked = [(_rank(thread, messages, summary), thread) for thread in branches]
    return max(ranked, key=lambda found: found[0])


def _whose(message: Message) -> str | None:
    for block in message.blocks:
        if isinstance(block, Opaque) and block.raw.get("type") in ITEMS:
            return "the client"
        if isinstance(block, Text):
            said = block.text.lstrip()
            for role, by, words in OPENINGS:
                if message.role == role and said.startswith(words):
                    return by
    return None


def _rank(thread: Thread, messages: Sequence[Message], summary: Summary) -> Rank:
    said = thread.compile().messages
    keys = {match_key(message) for message in said if not is_system(message)}
    again = sum(match_key(message) in keys for message in messages)
    head = thread.head
    moved = "" if head is None else head.created.isoformat()
    quoted = bool(said) and _quotes(messages[summary.place], said[-1])
    return Rank(again, quoted, moved)


def _quotes(summary: Message, answer: Message) -> bool:
    """Whether the summary is what this answer said."""
    if answer.role != "assistant":
        return False
    if any(isinstance(block, Opaque) and block in summary.blocks for block in answer.blocks):
        return True
    inner = _INNER.search(answer.text)
    words = (inner[1] if inner else answer.text).strip()
    whole = rf"(?<!\w){re.escape(words)}(?!\w)"
    return bool(words) and re.search(whole, summary.text) is not None


def _kept(thread: Thread, messages: Sequence[Message], summary: Summary) -> int:
    """How far the list is what the compaction left: up to the last answer that is not new."""
    keys = {match_key(message) for message in thread.compile().messages}
    for place in range(len(messages) - 1, summary.place, -1):
        if messages[place].role == "assistant" and match_key(messages[place]) in keys:
            return place + 1
    return summary.place + 1
