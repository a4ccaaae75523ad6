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
from typing import Any, TypeVar, cast
from uuid import uuid4

import orjson
from msgspec import Struct

from weft.model import Message, Request, Response, Tool
from weft.store import Store
from weft.thread import Thread, find_prefix
from weft.thread import open as open_thread

from .auth import Caller
from .resume import Before

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_SESSION = re.compile(r"session_([0-9a-f-]{8,})")

NAME_LIMIT = 80
THREADS_OF_SESSION = 1000
THREADS_SEARCHED = 500
REMEMBERED = 10_000

ANSWER = "answer"
"""The member of a commit's metadata that holds the id its answer went out with."""

T = TypeVar("T")
V = TypeVar("V")


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
        self._answers: dict[str, Ticket] = {}
        self._setups: dict[str, tuple[Tool, ...]] = {}

    async def begin(self, caller: Caller, hint: str | None, request: Request) -> Ticket:
        """File what is new in a request."""
        return await self._run(lambda: self._begin(caller, hint, request))

    async def finish(self, ticket: Ticket, response: Response) -> Ticket:
        """File the answer behind its request."""
        return await self._run(lambda: self._finish(ticket, response))

    async def before(self, caller: Caller, id: str) -> Before | None:
        """The conversation up to the answer of that id; None where none of ours has it."""
        return await self._run(lambda: self._before(caller, id))

    def _begin(self, caller: Caller, hint: str | None, request: Request) -> Ticket:
        ticket = file_request(self.store, caller, hint, request, self._setups.get)
        _remember(self._setups, ticket.thread, request.tools)
        return ticket

    def _finish(self, ticket: Ticket, response: Response) -> Ticket:
        filed = file_answer(self.store, ticket, response)
        if response.id is not None:
            _remember(self._answers, response.id, filed)
        return filed

    def _before(self, caller: Caller, id: str) -> Before | None:
        ticket = self._answers.get(id) or find_answer(self.store, id)
        record = None if ticket is None else self.store.read_thread(ticket.thread)
        if ticket is None or record is None or not _owns(caller, record.scope):
            return None
        thread = open_thread(self.store, ticket.thread, branch=ticket.branch)
        compiled = thread.compile(ticket.head)
        return Before(compiled.messages, compiled.tools)

    async def _run(self, job: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._line, job)

    def close(self) -> None:
        """Wait for what is being written."""
        self._line.shutdown()


def file_request(
    store: Store,
    caller: Caller,
    hint: str | None,
    request: Request,
    offered: Callable[[str], tuple[Tool, ...] | None] = lambda _: None,
) -> Ticket:
    """Commit the messages that no thread of this scope has yet, and the tools where they changed.

    `offered` is what is known of a thread's tools without compiling it.
    """
    scope = caller.scope if hint is None else f"{caller.scope}/{hint}"
    known = find_prefix(store, scope, request.messages)
    if known is None:
        thread = open_thread(store, _free_name(store, hint), scope=scope)
        return _append(thread, request.messages, tools=request.tools or None)
    thread = open_thread(store, known.thread, branch=known.branch, scope=scope)
    commit = known.commit.hex()
    new = request.messages[known.length :]
    if not new:
        return Ticket(thread.name, thread.current, commit)
    thread = _stand_on(store, thread, commit)
    tools = offered(thread.name)
    known_tools = thread.compile().tools if tools is None else tools
    return _append(thread, new, tools=None if request.tools == known_tools else request.tools)


def file_answer(store: Store, ticket: Ticket, response: Response) -> Ticket:
    """Commit the answer behind the request, on a branch of its own if the request's moved on."""
    thread = open_thread(store, ticket.thread, branch=ticket.branch)
    if ticket.head is not None:
        thread = _stand_on(store, thread, ticket.head)
    metadata = None if response.id is None else {ANSWER: response.id}
    info = thread.commit_message(response.message, usage=response.usage, metadata=metadata)
    return Ticket(thread.name, thread.current, info.id)


def find_answer(store: Store, id: str) -> Ticket | None:
    """The answer of that id among those that a branch ends in; newest threads first."""
    for record in reversed(store.threads()[-THREADS_SEARCHED:]):
        for branch in store.refs(record.name):
            head = open_thread(store, record.name, branch=branch).head
            if head is not None and head.metadata.get(ANSWER) == id:
                return Ticket(record.name, branch, head.id)
    return None


def _owns(caller: Caller, scope: str | None) -> bool:
    return scope is not None and scope.partition("/")[0] == caller.scope


def _remember(known: dict[str, V], key: str, value: V) -> None:
    """Keep the newest; a store that grows for years is no reason for memory to."""
    known.pop(key, None)
    known[key] = value
    if len(known) > REMEMBERED:
        del known[next(iter(known))]


def _append(
    thread: Thread, messages: Sequence[Message], *, tools: tuple[Tool, ...] | None
) -> Ticket:
    """Commit the messages together, behind the tools where these are given."""
    head: str | None = None
    with thread.batch():
        if tools is not None:
            thread.setup(tools)
        for message in messages:
            head = thread.commit_message(message).id
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
