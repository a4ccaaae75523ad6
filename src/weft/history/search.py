"""Search over everything that was ever in context, live or not.

Full text is filled behind the writing: `index_behind` takes up what came since, before a search,
on close, and every so many commits. A query without a single word in it (a sign, a bracket) is
looked for as it stands.
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
    """Take up commits that full text has not seen, all or some pages; the result is how many."""
    taken = 0
    while (pages is None or taken < pages * PAGE) and (waiting := store.unindexed(PAGE)):
        store.index((item.key, commit_text(item.contents)) for item in waiting)
        taken += len(waiting)
    return taken


def search_commits(store: Store, thread: str, query: str, limit: int) -> list[Step]:
    """The commits that brought text with every word of the query, best first."""
    index_behind(store)
    words = [word for word in query.split() if WORD.search(word)]
    if words:
        return store.search(thread, words, limit)
    every = read_every_commit(store, thread)
    return [step for step in every if query in commit_text(step.contents)][:limit]


def read_every_commit(store: Store, thread: str) -> Iterator[Step]:
    """Every commit that a branch leads to, or that the log of operations still names."""
    seen: set[Id] = set()
    logged = (head for line in read_operations(store, thread) for head in (line.new, line.old))
    for head in chain(store.refs(thread).values(), logged):
        waiting = [] if head is None else [head]
        while waiting:
            start = waiting.pop()
            if start in seen:
                continue
            for step in reversed(store.walk(thread, start)):
                if step.commit.id in seen:
                    break
                seen.add(step.commit.id)
                waiting += step.commit.parents[1:]
                yield step


def commit_text(contents: tuple[bytes, ...]) -> str:
    """What full text finds a commit by."""
    return "\n".join(spoken for spoken in map(_spoken, contents) if spoken)


def _spoken(content: bytes) -> str:
    """All the words of an entry: what is read, what is thought, what is asked of a tool.

    An entry that does not read has none: one damaged row must not hide all others.
    """
    try:
        message = decode_entry(content)
    except Damaged:
        return ""
    return message_words(message)


def message_words(message: Message) -> str:
    """All the words of a message: what is read, what is thought, what is asked of a tool."""
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
