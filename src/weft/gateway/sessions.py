"""Which thread a stateless request belongs to, and writing it there.

A client sends its whole conversation with every request. Some also name their session; that name
is heard first. Inside it, or without one among all threads of the caller, the longest known
prefix says where the conversation stood, and only what is new behind it is committed. A request
that left the known road in the middle becomes a branch; one that shares nothing is a new thread
(a sub-agent, a title request), which keeps the session's name with a number.

Two answers may be on their way from one place. Each request remembers the commit it ended in; an
answer whose branch has moved on meanwhile gets a branch of its own, so no turn is ever filed
behind words that it did not answer.
"""

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, cast
from uuid import uuid4

import orjson
from msgspec import Struct

from weft.model import Message, Request, Response, Usage
from weft.store import Store
from weft.thread import Thread, find_prefix
from weft.thread import open as open_thread

from .auth import Caller

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_SESSION = re.compile(r"session_([0-9a-f-]{8,})")

NAME_LIMIT = 80
THREADS_OF_SESSION = 1000


class Ticket(Struct, frozen=True):
    """Where a request was filed: the answer goes behind `head`."""

    thread: str
    branch: str
    head: str | None


def read_hint(headers: Mapping[str, str], request: Request) -> str | None:
    """The session that the client itself names, as a thread's name; None where it names none."""
    for prefix, read in HINTS:
        if found := read(headers, request):
            name = _UNSAFE.sub("-", found).strip("-.")[:NAME_LIMIT]
            if name:
                return prefix + name
    return None


def _header(name: str) -> Callable[[Mapping[str, str], Request], str | None]:
    return lambda headers, _: headers.get(name)


def _cache_key(_: Mapping[str, str], request: Request) -> str | None:
    return request.params.prompt_cache_key


def _user_session(_: Mapping[str, str], request: Request) -> str | None:
    """Claude Code's `metadata.user_id` holds its session; a plain user's id names no session."""
    user = request.params.user or (request.params.metadata or {}).get("user_id")
    if not isinstance(user, str):
        return None
    if match := _SESSION.search(user):
        return match[1]
    try:
        session = cast(dict[str, Any], orjson.loads(user)).get("session_id")
    except (orjson.JSONDecodeError, AttributeError):
        return None
    return session if isinstance(session, str) else None


HINTS: tuple[tuple[str, Callable[[Mapping[str, str], Request], str | None]], ...] = (
    ("", _header("x-weft-thread")),
    ("claude-", _header("x-claude-code-session-id")),
    ("codex-", _header("session_id")),
    ("codex-", _header("session-id")),
    ("session-", _header("x-session-id")),
    ("session-", _header("x-session-affinity")),
    ("cache-", _cache_key),
    ("claude-", _user_session),
)
"""How clients name their sessions, the surest first, with what a thread's name then begins with."""


class Recorder:
    """Files requests and answers, one at a time, off the event loop.

    Both return only when what they wrote is durable.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._line = ThreadPoolExecutor(1, thread_name_prefix="weft-recorder")

    async def begin(self, caller: Caller, hint: str | None, request: Request) -> Ticket:
        """File what is new in a request."""
        return await self._run(lambda: file_request(self.store, caller, hint, request))

    async def finish(self, ticket: Ticket, response: Response) -> Ticket:
        """File the answer behind its request."""
        return await self._run(lambda: file_answer(self.store, ticket, response))

    async def _run(self, job: Callable[[], Ticket]) -> Ticket:
        return await asyncio.get_running_loop().run_in_executor(self._line, job)

    def close(self) -> None:
        """Wait for what is being written."""
        self._line.shutdown()


def file_request(store: Store, caller: Caller, hint: str | None, request: Request) -> Ticket:
    """Commit the messages that no thread of this scope has yet."""
    scope = caller.scope if hint is None else f"{caller.scope}/{hint}"
    known = find_prefix(store, scope, request.messages)
    if known is None:
        thread = open_thread(store, _free_name(store, hint), scope=scope)
        return _append(thread, request.messages)
    thread = open_thread(store, known.thread, branch=known.branch, scope=scope)
    commit = known.commit.hex()
    new = request.messages[known.length :]
    if not new:
        return Ticket(thread.name, thread.current, commit)
    return _append(_stand_on(store, thread, commit), new)


def file_answer(store: Store, ticket: Ticket, response: Response) -> Ticket:
    """Commit the answer behind the request, on a branch of its own if the request's moved on."""
    thread = open_thread(store, ticket.thread, branch=ticket.branch)
    if ticket.head is not None:
        thread = _stand_on(store, thread, ticket.head)
    return _append(thread, (response.message,), usage=response.usage)


def _append(thread: Thread, messages: Sequence[Message], *, usage: Usage | None = None) -> Ticket:
    """Commit the messages together; the branch did not exist before a new thread's first."""
    head: str | None = None
    with thread.batch():
        for message in messages:
            head = thread.commit_message(message, usage=usage).id
    return Ticket(thread.name, thread.current, head)


def _stand_on(store: Store, thread: Thread, commit: str) -> Thread:
    """A handle whose branch ends in this commit: the branch itself, or a new one from there."""
    head = thread.head
    if head is None or head.id == commit:
        return thread
    name = _free_branch(store, thread.name)
    thread.branch(name, commit)
    return open_thread(store, thread.name, branch=name)


def _free_branch(store: Store, thread: str) -> str:
    taken = store.refs(thread)
    return next(name for number in count(2) if (name := f"branch-{number}") not in taken)


def _free_name(store: Store, hint: str | None) -> str:
    """The session's name, numbered where it is taken; without a session, when it began."""
    if hint is None:
        return f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid4().hex[:6]}"
    names = (hint, *(f"{hint}.{number}" for number in range(2, THREADS_OF_SESSION)))
    return next((n for n in names if store.read_thread(n) is None), f"{hint}.{uuid4().hex}")
