"""Full-text search over everything that was ever in context, live or not.

The index is filled lazily: `index_behind` adds new commits before a search, on close, and after a
certain number of commits. A query without words (only punctuation) is searched as a substring.
"""

import re
from collections.abc import Iterator
from itertools import chain

from weft.errors import Damaged
from weft.ids import Id
from weft.model import Message
from weft.store import Step, Store

from .objects import decode_entry
from .oplog import read_operations

PAGE = 500
WORD = re.compile(r"\w", re.UNICODE)


def index_behind(store: Store, pages: int | None = None) -> int:
    """Index all new commits, or at most this many pages of them; returns how many."""
    indexed = 0
    while (pages is None or indexed < pages * PAGE) and (commits := store.unindexed(PAGE)):
        store.index((item.key, commit_text(item.contents)) for item in commits)
        indexed += len(commits)
    return indexed


def search_commits(store: Store, thread: str, query: str, limit: int) -> list[Step]:
    """The commits whose text has every word of the query, best first."""
    index_behind(store)
    words = _words(query)
    if words:
        return store.search(thread, words, limit)
    steps = read_every_commit(store, thread)
    return [step for step in steps if query in commit_text(step.contents)][:limit]


def threads_with(store: Store, query: str) -> set[str] | None:
    """The threads in which a search finds something; `None` if only reading them all would tell."""
    words = _words(query)
    if not words:
        return None
    index_behind(store)
    return set(store.threads_with(words))


def _words(query: str) -> list[str]:
    return [word for word in query.split() if WORD.search(word)]


def read_every_commit(store: Store, thread: str) -> Iterator[Step]:
    """Every commit that a branch or the operation log reaches."""
    visited: set[Id] = set()
    logged = (
        head
        for operation in read_operations(store, thread)
        for head in (operation.new, operation.old)
    )
    for head in chain(store.refs(thread).values(), logged):
        waiting = [] if head is None else [head]
        while waiting:
            tip = waiting.pop()
            if tip in visited:
                continue
            for step in reversed(store.walk(thread, tip)):
                if step.commit.id in visited:
                    break
                visited.add(step.commit.id)
                waiting += step.commit.parents[1:]
                yield step


def commit_text(contents: tuple[bytes, ...]) -> str:
    """The text by which full-text search finds a commit."""
    return "\n".join(text for text in map(_entry_text, contents) if text)


def _entry_text(content: bytes) -> str:
    """The searchable text of an entry; empty if it is damaged, so that others are still found."""
    try:
        message = decode_entry(content)
    except Damaged:
        return ""
    return message_words(message)


def message_words(message: Message) -> str:
    """The searchable text of a message: text, thinking, and the names and arguments of calls."""
    words = [message.text]
    for block in message.blocks:
        match block.__struct_config__.tag:
            case "thinking":
                words.append(getattr(block, "text", ""))
            case "call":
                words += [getattr(block, "name", ""), getattr(block, "arguments", "")]
            case _:
                pass
    return "\n".join(word for word in words if word)
