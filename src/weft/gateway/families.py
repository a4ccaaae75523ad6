"""Threads that belong to another thread: subagents and side questions of clients.

A session's conversation is its *main* thread. Under the same session name, clients also ask side
questions: for a title, whether a message starts a new topic, whether the account may use the model.
Subagents have conversations of their own. All of these are children of the main thread:
`ThreadRecord.parent` names it, and `kind` says what the child is:

- `title`, `topic`, `check`: a side question (`hints.py`). A title becomes the title of the parent,
  unless the user has renamed the parent.
- `agent`: a subagent, which names the session of its parent.
- `child`: another conversation under the session's name.

A child may come before its parent. It joins the family when the main thread is created.
"""

from collections.abc import Sequence

from msgspec import Struct

from weft.store import Store, ThreadRecord
from weft.thread import PREFIXES, child_key, find_session

from .hints import read_title_answer

TITLE_KINDS = ("title", "topic")
SIDE_KINDS = (*TITLE_KINDS, "check")


class Family(Struct, frozen=True):
    """The session of a request, and the session of its parent."""

    scope: str
    hint: str
    parent: str | None = None
    kind: str | None = None


def find_main(store: Store, session: Sequence[str]) -> str | None:
    """The main thread among the threads of a session."""
    records = [store.read_thread(name) for name in session]
    return next(
        (r.name for r in records if r is not None and not r.parent and r.kind not in SIDE_KINDS),
        None,
    )


def join_family(
    store: Store, thread: ThreadRecord, family: Family, session: Sequence[str], main: str | None
) -> None:
    """Set the parent of a new thread, or make it the parent of children that came before it.

    `session` are the other threads of its session, `main` the main one of them.
    """
    if family.parent is not None and main is None:
        store.describe_thread(
            thread.name, parent=_find_parent(store, family), kind=family.kind or "agent"
        )
        return
    if family.kind is not None or main is not None:
        store.describe_thread(thread.name, parent=main, kind=family.kind or "child")
        return
    links = store.find_links([child_key(family.scope, family.hint)])
    for name in dict.fromkeys([*session, *(link.thread for link in links)]):
        child = store.read_thread(name)
        if child is not None and child.parent is None and name != thread.name:
            store.describe_thread(name, parent=thread.name)
            if child.title is not None and child.kind in TITLE_KINDS:
                store.describe_thread(thread.name, title=child.title)


def _find_parent(store: Store, family: Family) -> str | None:
    assert family.parent is not None

    return find_main(store, find_session(store, family.scope, family.parent))


def give_title(store: Store, child: ThreadRecord, answer: str) -> None:
    """Use the answer to a title request as the title of the parent, if the parent exists."""
    title = read_title_answer(answer)
    if title is None:
        return
    store.describe_thread(child.name, title=title)
    if child.parent is not None and not _is_renamed(child.parent, child.name):
        store.describe_thread(child.parent, title=title)


def _is_renamed(parent: str, child: str) -> bool:
    """Whether the user gave the parent another name than its session's.

    A child is named after its session, with a number.
    """
    session = child.rpartition(".")[0]
    return parent not in (session, *(session.removeprefix(each) for each in PREFIXES.values()))
