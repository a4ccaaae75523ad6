"""Sessions of clients: which thread a session of Claude Code or Codex is recorded in.

A session is one thread, however it reaches Weft: as an imported file, as traffic through the
gateway, or as a file that Weft exported and the client resumed. So a session has one name
everywhere, its client's prefix and its id (`claude-<uuid>`, `codex-<uuid>`), and the store links
that name to its threads.

- `weft import` puts a file into the thread of its session. If there is none, the new thread is
  named after the id in the file and linked to the session.
- The gateway names a new thread after its session and finds it again by the same link.
- An export has the id of the session, or a new one if the thread is no session of this client.
  `export_bytes` links the new id to the thread. Code that writes a file under another id must do
  the same: `link_session(store, thread, session_name("claude-code", id))`. Then the import of that
  file, and the client's traffic under that id, continue the same thread.

Links belong to a caller of the gateway. Files belong to the person who runs Weft, which is the
caller of a gateway without keys (`LOCAL_SCOPE`). Callers with keys never reach imported threads.
"""

from collections.abc import Sequence
from hashlib import sha256
from uuid import UUID

from weft.errors import ThreadError
from weft.ids import object_id
from weft.lazy import lazy_pattern
from weft.store import Store

LOCAL_SCOPE = "local"
"""The scope of the threads of a gateway without keys."""

PREFIXES = {"claude-code": "claude-", "codex": "codex-"}
"""What the names of a client's sessions begin with, by file format."""

MAX_NAME = 80
"""The most characters of an id in a thread's name."""

_UUID = lazy_pattern(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UNSAFE = lazy_pattern(r"[^A-Za-z0-9._-]+")


def session_name(format: str, id: str) -> str | None:
    """The name of the session with this id; `None` if the format has no sessions.

    >>> session_name("claude-code", "6c2214d7-0d70-4f0b-9b2c-1f9c0f6f5a10")
    'claude-6c2214d7-0d70-4f0b-9b2c-1f9c0f6f5a10'
    """
    prefix = PREFIXES.get(format)
    return None if prefix is None else prefix + safe_name(id)


def safe_name(id: str) -> str:
    """An id as a part of a thread's name; different ids give different names.

    If characters of the id are replaced or cut off, a digest is appended: `user/1` and `user 1` are
    two sessions.
    """
    safe = _UNSAFE.sub("-", id).strip("-.")[:MAX_NAME]
    if safe == id:
        return safe
    digest = sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{safe}-{digest}" if safe else digest


def session_id(format: str, thread: str) -> str:
    """The session id of a thread whose messages were not imported from this format.

    The gateway's threads are named after their session. Other threads have an id derived from
    their name.
    """
    own_id = thread.removeprefix(PREFIXES[format])
    if own_id != thread and _UUID.fullmatch(own_id):
        return own_id
    return str(UUID(bytes=object_id("session", thread.encode())[:16], version=4))


def session_key(scope: str, name: str) -> bytes:
    """The key of the links to all threads of a session."""
    return object_id("link-hint", f"{scope}\0{name}".encode())


def import_key(scope: str, name: str) -> bytes:
    """The key of the links to the threads of a session that have imported messages."""
    return object_id("link-import", f"{scope}\0{name}".encode())


def child_key(scope: str, parent: str) -> bytes:
    """The key of the links to the subagents of a session."""
    return object_id("link-child", f"{scope}\0{parent}".encode())


def find_session(store: Store, scope: str, name: str) -> list[str]:
    """The threads of a session, the oldest first."""
    return _linked_threads(store, session_key(scope, name))


def find_imported(store: Store, scope: str, name: str) -> list[str]:
    """The threads of a session that have imported messages, the oldest first."""
    return _linked_threads(store, import_key(scope, name))


def find_local_thread(store: Store, name: str) -> str | None:
    """The thread of a session of the person who runs Weft.

    A session may have several threads, because its side questions are threads too. The thread with
    the session's name is the conversation, or else the oldest one.
    """
    threads: Sequence[str] = find_session(store, LOCAL_SCOPE, name)
    return name if name in threads else next(iter(threads), None)


def link_session(store: Store, thread: str, name: str, scope: str = LOCAL_SCOPE) -> None:
    """Link a session to a thread, so that its files and its traffic continue this thread.

    Use it for a file that is written under a new session id, or for a session that begins in a
    thread without messages. `scope` is the caller of the gateway that the session belongs to.
    Raises `ThreadError` if the thread has no commit.
    """
    record = store.read_thread(thread)
    head = None if record is None else store.read_ref(thread, record.head)
    if head is None:
        raise ThreadError(f"thread {thread!r} has no messages, so it cannot continue a session")
    keys = [session_key(scope, name), import_key(scope, name)]
    store.add_links(thread, [(key, head) for key in keys])


def link_parent(store: Store, thread: str, session: str, parent: str | None) -> None:
    """Set the parent of an imported thread, or make it the parent of its imported subagents.

    `parent` is the session that the file names as its parent, if it is the file of a subagent.
    """
    if parent is None:
        children = _linked_threads(store, child_key(LOCAL_SCOPE, session))
    else:
        record = store.read_thread(thread)
        head = None if record is None else store.read_ref(thread, record.head)
        if head is not None:
            store.add_links(thread, [(child_key(LOCAL_SCOPE, parent), head)])
        children = [thread]
    owner = find_local_thread(store, parent or session)
    for child in children if owner is not None else ():
        record = store.read_thread(child)
        if record is not None and record.parent is None and child != owner:
            store.describe_thread(child, parent=owner, kind="agent")


def _linked_threads(store: Store, key: bytes) -> list[str]:
    links = store.find_links([key])
    return list(dict.fromkeys(link.thread for link in reversed(links)))
