"""Which thread a stateless request belongs to, and writing it there.

A client sends its whole conversation with every request. Some also name their session; that name
is heard first. Inside it, or without one among all threads of the caller, the longest known
prefix says where the conversation stood, and only what is new behind it is committed. A request
that left the known road in the middle becomes a branch; one that shares nothing is a new thread
(a sub-agent, a title request), which keeps the session's name with a number. A list that the client
has shortened by a summary is neither: it becomes a compaction of the thread that it shortens.

A request that nobody has answered yet begins a conversation. Many begin alike ("hello"), so
without a session's name it gets a thread of its own; only the very same request, sent again soon
and not answered yet, is taken for a retry.

Two answers may be on their way from one place. Each request remembers the commit it ended in; an
answer whose branch has moved on meanwhile gets a branch of its own, so no turn is ever filed
behind words that it did not answer.

With every answer goes an imprint of the body that really left for it. It is taken on the recorder's
own line after the request is filed, so that neither the upstream nor the caller waits for it.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from typing import TypeVar
from uuid import uuid4

from msgspec import Struct, structs

from weft.codec import restore_answers
from weft.history import read_branches
from weft.model import Message, Origin, Request, Response, Tool
from weft.store import Store
from weft.thread import Bodies, Imprint, Letter, Prefix, Thread, find_prefix, take_imprint
from weft.thread import open as open_thread

from .auth import Caller, owns
from .folded import Folded, find_folded, find_summary
from .hints import is_aside
from .resume import Before

THREADS_OF_SESSION = 1000
THREADS_SEARCHED = 500
REMEMBERED = 10_000
RETRY_SECONDS = 60.0

ANSWER = "answer"
"""The member of a commit's metadata that holds the id its answer went out with."""

Offered = dict[str, tuple[Tool, ...]]
"""The tools that hold at a commit; a branch may have moved on since, also by another's hand."""

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class Ticket(Struct, frozen=True):
    """Where a request was filed: the answer goes behind `head`."""

    scope: str
    thread: str
    branch: str
    head: str | None


class Recorder:
    """Files requests and answers, one at a time, off the event loop.

    Both return only when what they wrote is durable.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._line = ThreadPoolExecutor(1, thread_name_prefix="weft-recorder")
        self._answers: dict[tuple[str, str], Ticket] = {}
        self._offered: Offered = {}
        self._bodies = Bodies()

    async def begin(self, caller: Caller, hint: str | None, request: Request) -> Ticket:
        """File what is new in a request."""
        return await self._run(lambda: self._begin(caller, hint, request))

    async def restore(
        self, caller: Caller, hint: str | None, request: Request, maker: Origin
    ) -> Request:
        """The request with all that this model itself said in it, also what its client never saw
        or could not hand back: thinking, signatures."""
        return await self._run(lambda: restore_request(self.store, caller, hint, request, maker))

    def keep_sent(self, ticket: Ticket, body: bytes, protocol: str, model: str) -> Future[Imprint]:
        """Take the imprint of what leaves for the upstream, while that thinks about it."""
        letter = Letter(body, protocol, model, ticket.head)
        return self._line.submit(take_imprint, self.store, ticket.thread, letter, self._bodies)

    async def finish(self, ticket: Ticket, response: Response, sent: Future[Imprint]) -> Ticket:
        """File the answer behind its request, and with it what was sent."""
        return await self._run(lambda: self._finish(ticket, response, sent.result()))

    async def before(self, caller: Caller, id: str) -> Before | None:
        """The conversation up to the answer of that id; None where none of ours has it."""
        return await self._run(lambda: self._before(caller, id))

    def _begin(self, caller: Caller, hint: str | None, request: Request) -> Ticket:
        ticket = file_request(self.store, caller, hint, request, self._offered)
        if ticket.head is not None:
            _remember(self._offered, ticket.head, request.tools)
        return ticket

    def _finish(self, ticket: Ticket, response: Response, sent: Imprint) -> Ticket:
        filed = file_answer(self.store, ticket, response, sent)
        tools = None if ticket.head is None else self._offered.get(ticket.head)
        if tools is not None and filed.head is not None:
            _remember(self._offered, filed.head, tools)
        if response.id is not None:
            _remember(self._answers, (filed.scope, response.id), filed)
        return filed

    def _before(self, caller: Caller, id: str) -> Before | None:
        ticket = self._answers.get((caller.scope, id)) or find_answer(self.store, caller, id)
        if ticket is None:
            return None
        thread = open_thread(self.store, ticket.thread, branch=ticket.branch)
        compiled = thread.compile(ticket.head)
        return Before(compiled.messages, compiled.tools)

    async def _run(self, job: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._line, job)

    def close(self) -> None:
        """Wait for what is being written."""
        self._line.shutdown()


def scope_of(caller: Caller, hint: str | None) -> str:
    """Where the caller's conversations are looked for: in one session, or among all."""
    return caller.scope if hint is None else f"{caller.scope}/{hint}"


def restore_request(
    store: Store, caller: Caller, hint: str | None, request: Request, maker: Origin
) -> Request:
    """The request with this maker's own answers in it as they were stored.

    Thinking belongs to the model that thought it; another one, even of the same vendor, would be
    confused by it or refuse it.
    """
    if _begins(request):
        return request
    known = find_prefix(store, scope_of(caller, hint), request.messages)
    if known is None:
        return request
    stored = open_thread(store, known.thread).compile(known.commit.hex()).messages
    return restore_answers(request, stored, maker)


def file_request(
    store: Store, caller: Caller, hint: str | None, request: Request, offered: Offered
) -> Ticket:
    """Commit the messages that no thread of this scope has yet, and the tools where they changed.

    `offered` is what is known of a commit's tools without compiling it. All of it is one
    transaction: another process that files the same request waits, and then finds it there.
    """
    scope = scope_of(caller, hint)
    with store.transaction():
        known = find_prefix(store, scope, request.messages)
        if known is not None and hint is None and _begins(request):
            known = known if _is_retry(store, known, request) else None
        length = 0 if known is None else known.length
        if hint is not None and (folded := _folded(store, scope, hint, request, length)):
            return _adopt(folded, request, caller)
        if known is None:
            thread = open_thread(store, _free_name(store, hint, request), scope=scope)
            return _append(thread, request.messages, caller, request.tools or None)
        thread = open_thread(store, known.thread, branch=known.branch, scope=scope)
        commit = known.commit.hex()
        new = request.messages[known.length :]
        had = offered.get(commit)
        had = thread.compile(commit).tools if had is None else had
        tools = None if request.tools == had else request.tools
        if not new and tools is None:
            return Ticket(caller.scope, thread.name, thread.current, commit)
        return _append(_stand_on(store, thread, commit), new, caller, tools)


def _folded(store: Store, scope: str, hint: str, request: Request, known: int) -> Folded | None:
    """Where the request goes on, if it brings a summary that its session does not know yet."""
    summary = find_summary(request.messages, known)
    if summary is None:
        return None
    return find_folded(store, scope, hint, request.messages, summary)


def _adopt(folded: Folded, request: Request, caller: Caller) -> Ticket:
    """Commit a client's own compaction, and what is new behind it."""
    thread, place, end = folded.thread, folded.summary.place, folded.length
    tools = None if request.tools == thread.compile().tools else request.tools
    note = f"{folded.summary.by} compacted"
    fold = thread.adopt(request.messages[:end], summary=place, message=note)
    ticket = _append(thread, request.messages[end:], caller, tools)
    return ticket if ticket.head is not None else structs.replace(ticket, head=fold.id)


def _begins(request: Request) -> bool:
    return all(message.role != "assistant" for message in request.messages)


def _is_retry(store: Store, known: Prefix, request: Request) -> bool:
    """Whether this very request stands there, unanswered, since a moment ago."""
    if not known.is_head or known.length < len(request.messages):
        return False
    head = open_thread(store, known.thread, branch=known.branch).head
    return head is not None and time.time() - head.created.timestamp() < RETRY_SECONDS


def file_answer(
    store: Store, ticket: Ticket, response: Response, sent: Imprint | None = None
) -> Ticket:
    """Commit the answer behind the request, on a branch of its own if the request's moved on."""
    with store.transaction():
        thread = open_thread(store, ticket.thread, branch=ticket.branch)
        if ticket.head is not None:
            thread = _stand_on(store, thread, ticket.head)
        metadata = None if response.id is None else {ANSWER: response.id}
        info = thread.commit_message(
            response.message, usage=response.usage, metadata=metadata, sent=sent
        )
        return Ticket(ticket.scope, thread.name, thread.current, info.id)


def find_answer(store: Store, caller: Caller, id: str) -> Ticket | None:
    """The caller's answer of that id, among those that a branch ends in; newest threads first."""
    own = [record for record in store.threads() if owns(caller, record.scope)]
    for record in reversed(own[-THREADS_SEARCHED:]):
        for branch in read_branches(store, record.name):
            head = open_thread(store, record.name, branch=branch).head
            if head is not None and head.metadata.get(ANSWER) == id:
                return Ticket(caller.scope, record.name, branch, head.id)
    return None


def _remember(known: dict[K, V], key: K, value: V) -> None:
    """Keep the newest; a store that grows for years is no reason for memory to."""
    known.pop(key, None)
    known[key] = value
    if len(known) > REMEMBERED:
        del known[next(iter(known))]


def _append(
    thread: Thread, messages: Sequence[Message], caller: Caller, tools: tuple[Tool, ...] | None
) -> Ticket:
    """Commit the messages, behind the tools where these are given."""
    head: str | None = None
    if tools is not None:
        head = thread.setup(tools).id
    for message in messages:
        head = thread.commit_message(message).id
    return Ticket(caller.scope, thread.name, thread.current, head)


def _stand_on(store: Store, thread: Thread, commit: str) -> Thread:
    """A handle whose branch ends in this commit: the branch itself, or a new one from there."""
    head = thread.head
    if head is None or head.id == commit:
        return thread
    name = _free_branch(store, thread.name)
    thread.branch(name, commit)
    return open_thread(store, thread.name, branch=name)


def _free_branch(store: Store, thread: str) -> str:
    taken = read_branches(store, thread)
    return next(name for number in count(2) if (name := f"branch-{number}") not in taken)


def _free_name(store: Store, hint: str | None, request: Request) -> str:
    """The session's name, numbered where it is taken or not meant; without a session, when it
    began."""
    if hint is None:
        return f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid4().hex[:6]}"
    own = () if is_aside(request) else (hint,)
    names = (*own, *(f"{hint}.{number}" for number in range(2, THREADS_OF_SESSION)))
    return next((n for n in names if store.read_thread(n) is None), f"{hint}.{uuid4().hex}")
