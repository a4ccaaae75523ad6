"""Writes exchanges into threads: a request's new messages, then the answer or the failed attempt.

Every `record_*` function runs in one transaction and may be called twice for the same record: each
exchange has an id, and what was recorded under it is found instead of being written again. So a
journal can be replayed even if a part of it was recorded before.

- The new messages of a request are written together.
- The branch that the client continues becomes the current one (`branches.py`).
- Changed system text or tools are one `setup` commit on the same branch.
"""

import re
import time
from collections.abc import Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from itertools import dropwhile, takewhile
from typing import TypeVar
from uuid import uuid4

from msgspec import Struct, field, structs

from weft.errors import Damaged, StoreError
from weft.history import (
    STOP_REASON,
    Append,
    AttemptBody,
    AttemptReason,
    Draft,
    MatchPoint,
    Row,
    Series,
    Setup,
    View,
    add_times,
    decode_appended,
    decode_attempt,
    encode_attempt,
    encode_series,
    find_folder,
    has_content,
    has_results_without_ids,
    match_key,
    match_points,
    pair_calls,
    plan_rewrite,
    read_branches,
    tools_digest,
    visible_rows,
)
from weft.ids import Id
from weft.model import (
    SYSTEM_ROLES,
    ApiError,
    Audio,
    File,
    Image,
    Message,
    Origin,
    Refusal,
    Text,
    Tool,
    ToolCall,
    Usage,
    is_system,
    rename_results,
)
from weft.store import Link, Store, ThreadRecord
from weft.thread import (
    SentBodyCache,
    SentBodyDelta,
    SentRequest,
    child_key,
    echo_key,
    encode_sent_body,
    find_session,
    sent_body_entries,
    session_key,
    write_echo,
)

from .branches import (
    branches_at,
    find_compacted_thread,
    find_summary,
    first_free,
    is_summary_branch,
    land_answer,
    land_request,
    land_summary_request,
    return_to_request,
    switch_head,
)
from .hints import TITLE_KINDS, Family, find_main_thread, join_family, set_title
from .identity import (
    BEFORE_FIRST,
    Continuation,
    Incoming,
    TraceCache,
    ambiguous_key,
    context_key,
    echo_at,
    edited_key,
    exchange_key,
    find_continuation,
    prefer_head,
    read_incoming,
    reply_key,
    response_key,
    token_key,
    tokens_of,
    twin_key,
)
from .restore import ProvenAnswers, StoredConversation, find_answers

Key = TypeVar("Key")
Value = TypeVar("Value")

ANSWER = "answer"
"""The metadata key for the id under which the client got the answer."""

COMMITS_AFTER_ANSWER = 16
"""How many commits before a new tool result may follow the answer that made the call."""


class RequestRecord(Struct, frozen=True, tag="request"):
    """A request to record.

    `is_side_question` marks a request that is not part of the conversation, such as one for a
    title, and `kind` says what it asks. `is_summary_request` marks a request for a summary of the
    conversation. `continuation` is the answer that the request names by its id
    (`previous_response_id`), if it does. `parent` is the session that a subagent belongs to.
    """

    # Two members are encoded under older names, because records with them may be in a journal.

    exchange: str
    created: float
    scope: str
    hint: str | None
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    is_retry: bool = False
    is_side_question: bool = field(default=False, name="is_aside")
    continuation: Continuation | None = field(default=None, name="named")
    is_summary_request: bool = False
    kind: str | None = None
    parent: str | None = None


class RequestLocation(Struct, frozen=True):
    """Where a request was recorded: its answer follows commit `head` on `branch`.

    - `is_hinted`: the client names its session.
    - `chain`, `system`, `tools`: the digests of the conversation at that commit.
    - `is_edited`: the conversation was edited in Weft, so it differs from the client's version. It
      is encoded under an older name, because records with it may be in a journal.
    - `is_first`: this exchange wrote the request. Other exchanges with the same request came later.
    """

    exchange: str
    scope: str
    is_hinted: bool
    thread: str
    branch: str
    head: str
    chain: bytes | None
    system: bytes
    tools: bytes
    is_edited: bool = field(default=False, name="shows_edits")
    is_first: bool = False

    @property
    def point(self) -> MatchPoint:
        return MatchPoint(self.chain, self.system)


class SentBody(Struct, frozen=True):
    """The body that was sent to the upstream."""

    body: bytes
    protocol: str
    model: str


class AnswerRecord(Struct, frozen=True, tag="answer"):
    """A whole answer to record. Without a location, it follows the request of its exchange."""

    exchange: str
    created: float
    message: Message
    id: str | None = None
    usage: Usage | None = None
    location: RequestLocation | None = field(default=None, name="ticket")
    sent: SentBody | None = None
    stop: str | None = None
    first_token: float | None = None
    seconds: float | None = None


class FailureRecord(Struct, frozen=True, tag="failure"):
    """An exchange without a whole answer: the part that arrived, and why there is no more."""

    exchange: str
    created: float
    error: ApiError
    message: Message | None = None
    location: RequestLocation | None = field(default=None, name="ticket")


Record = RequestRecord | AnswerRecord | FailureRecord


class UnknownExchange(Exception):
    """An answer or a failure whose request was never recorded."""


class DigestCache:
    """A cache of the system and tools digests at recent commits.

    Without it, every request would compile its thread to compute them. For commits that this
    process recorded, the cache also knows whether they show edits, and which exchange asked last.
    """

    def __init__(self, limit: int = 10_000) -> None:
        self._digests: dict[tuple[str, Id], tuple[bytes, bytes]] = {}
        self._is_edited: dict[Id, bool] = {}
        self._newest: dict[tuple[str, str], str] = {}
        self._limit = limit

    def get(self, thread: str, commit: Id) -> tuple[bytes, bytes] | None:
        return self._digests.get((thread, commit))

    def put(self, thread: str, commit: Id, system: bytes, tools: bytes) -> None:
        put_newest(self._digests, (thread, commit), (system, tools), self._limit)

    def put_location(self, location: RequestLocation) -> None:
        """Keep the digests of a recorded request or answer."""
        commit = bytes.fromhex(location.head)
        self.put(location.thread, commit, location.system, location.tools)
        put_newest(self._is_edited, commit, location.is_edited, self._limit)

    def put_request(self, location: RequestLocation) -> None:
        """Keep which exchange asked last at this commit."""
        key = location.thread, location.head
        put_newest(self._newest, key, location.exchange, self._limit)

    def is_asked_again(self, location: RequestLocation) -> bool:
        """Whether a newer exchange made the same request."""
        newest = self._newest.get((location.thread, location.head))
        return newest is not None and newest != location.exchange

    def is_edited(self, commit: Id) -> bool | None:
        """Whether a commit shows edits; `None` if that is not known here."""
        return self._is_edited.get(commit)


def put_newest(cache: dict[Key, Value], key: Key, value: Value, limit: int) -> None:
    """Add an item as the newest one; the oldest is removed if there are more than `limit`."""
    cache.pop(key, None)
    cache[key] = value
    if len(cache) > limit:
        del cache[next(iter(cache))]


class SystemRows(Struct, frozen=True):
    """The rows with system messages at a commit, and the first other row.

    The other row shows where the leading system messages end. `depth` is the depth of the commit.
    """

    commit: Id
    depth: int
    rows: tuple[Row, ...]


class SystemRowCache:
    """The system rows at recent commits of threads.

    A client may change its system text in every request. Then only the commits since the last
    request are read, and not the whole thread.
    """

    def __init__(self, threads: int = 1000, commits: int = 8) -> None:
        self._threads: dict[str, list[SystemRows]] = {}
        self._max_threads = threads
        self._max_commits = commits

    def read(self, store: Store, thread: str, commit: Id) -> list[Row]:
        """The rows with system messages at this commit, and the first other row."""
        cached = self._threads.pop(thread, [])
        view = self._extend(store, thread, commit, cached) or _view(store, thread, commit)
        rows = view.rows
        first = _first_other(rows)
        later = [row for row in rows[first + 1 :] if row.message.role in SYSTEM_ROLES]
        rows = [*rows[: first + 1], *later]
        newest = [each for each in cached if each.commit != commit][1 - self._max_commits :]
        self._threads[thread] = [*newest, SystemRows(commit, view.depth, tuple(rows))]
        if len(self._threads) > self._max_threads:
            del self._threads[next(iter(self._threads))]
        return rows

    def _extend(
        self, store: Store, thread: str, commit: Id, cached: Sequence[SystemRows]
    ) -> View | None:
        """A view of a commit with only these rows; None if a later commit changes other rows."""
        ids = [each.commit for each in cached]
        depths = store.read_depths(thread, commit, ids) if ids else {}
        nearest = max(
            (each for each in cached if each.commit in depths),
            key=lambda each: each.depth,
            default=None,
        )
        if nearest is None:
            return None
        view = View.of_rows(nearest.rows, nearest.commit, nearest.depth)
        try:
            view = view.extend(store.walk(thread, commit, after=nearest.depth))
        except Damaged:  # a commit since then changes one of the other rows
            return None
        first = _first_other(nearest.rows)
        has_first = all(view.find(row.id) for row in nearest.rows[first : first + 1] if row.id)
        return view if has_first else None


def _first_other(rows: Sequence[Row]) -> int:
    """The position of the first row without a system message."""
    roles = [row.message.role for row in rows]
    return next((n for n, role in enumerate(roles) if role not in SYSTEM_ROLES), len(rows))


class RecordingContext(Struct, frozen=True):
    """What recording needs besides the store: caches, and patterns of system blocks to ignore."""

    digests: DigestCache
    bodies: SentBodyCache
    volatile: tuple[re.Pattern[str], ...] = ()
    traces: TraceCache = field(default_factory=TraceCache)
    system_rows: SystemRowCache = field(default_factory=SystemRowCache)


class Recorded(Struct, frozen=True):
    """A recorded request: its location, and the stored answers that it echoes, by message range.

    If the conversation was edited in Weft, `edited_messages` is the edited version, which is sent
    instead. `echoed_commits` are the commits of the answers.
    """

    location: RequestLocation
    answers: Mapping[tuple[int, int], Message]
    edited_messages: tuple[Message, ...] | None = None
    echoed_commits: Set[Id] = frozenset()


def record_request(
    store: Store,
    record: RequestRecord,
    context: RecordingContext,
    origin: Origin | None = None,
    *,
    body: bytes | None = None,
    is_new: bool = False,
    is_nested: bool = False,
) -> Recorded:
    """Find the conversation of a request, and commit its new messages.

    With `origin`, also find the answers of that model that may be restored in the request. The
    conversation is looked up once for both. `body` is the client's body, if the messages were
    decoded from it and from nothing else. `is_new` says that nothing of the exchange has been
    recorded before. `is_nested` says that the caller has opened the transaction and rolls it back
    if this fails.
    """
    tools = tools_digest(record.tools)
    incoming = read_incoming(
        record.scope,
        record.hint,
        record.messages,
        tools,
        volatile=context.volatile,
        is_retry=record.is_retry,
        traces=context.traces,
        body=body,
    )
    with _transaction(store, is_nested):
        earlier_location = None if is_new else _find_recorded(store, record, incoming)
        if earlier_location is not None:
            return Recorded(earlier_location, {})
        session = [] if record.hint is None else find_session(store, record.scope, record.hint)
        continuation = find_continuation(store, incoming, session, record.continuation)
        if continuation is not None and not record.is_summary_request:
            continuation = prefer_head(store, incoming, continuation)
        answers = ProvenAnswers()
        if origin is not None:
            answers = find_answers(
                store, incoming, continuation, origin, session=session, traces=context.traces
            )
        location = _record_compaction(
            store, record, incoming, session, continuation, context
        ) or _record_messages(store, record, incoming, session, continuation, context)
        _link_request(store, record, incoming, location, session, continuation, context)
        context.digests.put_location(location)
        context.digests.put_request(location)
        edited_messages = None
        if location.is_edited:
            edited_messages = read_conversation(store, location, record.messages, answers.commits)
        return Recorded(location, answers.messages, edited_messages, answers.commits)


def read_answers(
    store: Store, record: RequestRecord, context: RecordingContext, origin: Origin
) -> Mapping[tuple[int, int], Message]:
    """The answers that may be restored, without recording anything."""
    incoming = read_incoming(
        record.scope,
        record.hint,
        record.messages,
        tools_digest(record.tools),
        volatile=context.volatile,
    )
    session = [] if record.hint is None else find_session(store, record.scope, record.hint)
    continuation = find_continuation(store, incoming, session, record.continuation)
    return find_answers(store, incoming, continuation, origin, session=session).messages


def record_answer(
    store: Store,
    record: AnswerRecord,
    context: RecordingContext,
    sent_delta: SentBodyDelta | None = None,
    *,
    is_new: bool = False,
    is_nested: bool = False,
) -> RequestLocation:
    """Commit an answer after its request; returns the location after it.

    `sent_delta` is the delta of the sent body, if it has been computed already.
    """
    with _transaction(store, is_nested):
        location, thread = _current_location(store, record, context)
        link = None
        if not is_new:
            link = store.newest_link(exchange_key("answer", record.exchange), deleted=True)
        if link is not None:
            return structs.replace(location, thread=link.thread, head=link.commit.hex())
        location, thread, parent = _find_answer_parent(store, record, location, thread, context)
        if sent_delta is None and record.sent is not None:
            sent_delta = encode_sent(store, location, record.sent, context)
        series = _encode_answer(record, location, parent, sent_delta)
        branch, answer = location.branch, None
        if record.location is None:
            answer = _find_equal_answer(store, location, series)
        request = bytes.fromhex(location.head)
        earlier_answer = store.newest_link(reply_key(location.thread, request))
        if answer is None:
            is_newest = _is_newest_attempt(location, earlier_answer, context)
            branch = land_answer(store, thread, branch, parent, series, is_newest_attempt=is_newest)
            answer = series.commits[-1].id
            context.bodies.add_commits(location.thread, series, sent_delta)
        answered = structs.replace(location, branch=branch, head=answer.hex(), chain=series.chain)
        _link_answer(store, record, location, answered, earlier_answer)
        context.digests.put_location(answered)
        if thread.kind in TITLE_KINDS:
            set_title(store, thread, record.message.text)
        return answered


def _find_answer_parent(
    store: Store,
    record: AnswerRecord,
    location: RequestLocation,
    thread: ThreadRecord,
    context: RecordingContext,
) -> tuple[RequestLocation, ThreadRecord, Id]:
    """The commit that an answer follows, with the location of its request and the thread.

    That is the last commit of the request. If a compaction or an edit was made while the upstream
    worked, the answer follows it instead.
    """
    head = bytes.fromhex(location.head)
    parent = _head_after_edits(store, location.thread, location.branch, head)
    if parent is None and not store.read_nodes(location.thread, [head]):
        location, thread = _locate_by_exchange(store, record, context)
        parent = _head_after_edits(store, location.thread, location.branch, head)
    if parent is None or parent == head:
        return location, thread, head
    return structs.replace(location, is_edited=True), thread, parent


def _encode_answer(
    record: AnswerRecord, location: RequestLocation, parent: Id, sent_delta: SentBodyDelta | None
) -> Series:
    """The commit of an answer, with the body that was sent for it."""
    metadata = {} if record.id is None else {ANSWER: record.id}
    if record.stop is not None:
        metadata[STOP_REASON] = record.stop
    entries = () if sent_delta is None else sent_body_entries(sent_delta)
    draft = Draft(
        "append",
        Append(),
        (record.message, *entries),
        None,
        metadata or None,
        usage=add_times(record.usage, record.first_token, record.seconds),
    )
    return encode_series(
        [draft], parent, scope=location.scope, chain=location.chain, created=record.created
    )


def _is_newest_attempt(
    location: RequestLocation, earlier_answer: Link | None, context: RecordingContext
) -> bool:
    """Whether no later exchange made the same request.

    A later exchange of this process is in the cache. One of another process is known by its answer:
    it came before the answer to the exchange that wrote the request.
    """
    if context.digests.is_asked_again(location):
        return False
    return not location.is_first or earlier_answer is None


def _link_answer(
    store: Store,
    record: AnswerRecord,
    request: RequestLocation,
    answer: RequestLocation,
    earlier_answer: Link | None,
) -> None:
    """Write the links by which later requests find this answer.

    `earlier_answer` is another answer to the same request.
    """
    request_commit, answer_commit = bytes.fromhex(request.head), bytes.fromhex(answer.head)
    # A request that repeats one of these keys proves that its client got this answer.
    proofs = [token_key(answer.scope, token) for token in tokens_of(record.message)]
    proofs.append(context_key("answer", answer.point, answer.tools))
    keys = list(proofs)
    # A key that two answers have (twins) proves neither of them.
    twins = [*store.only_links(proofs), earlier_answer]
    keys += [
        twin_key(twin.thread) for twin in twins if twin is not None and twin.commit != answer_commit
    ]
    keys += [exchange_key("answer", record.exchange), reply_key(answer.thread, request_commit)]
    if answer.is_edited:
        keys.append(edited_key(answer_commit))
    if not answer.is_hinted:
        keys.append(context_key("tip", answer.point, answer.tools))
    if record.id is not None:
        keys.append(response_key(answer.scope, record.id))
    store.add_links(answer.thread, [(key, answer_commit) for key in keys])
    if not request.is_hinted:
        failure_keys = [
            context_key(kind, request.point, request.tools) for kind in ("failed", "partial")
        ]
        store.drop_links(request.thread, [(key, request_commit) for key in failure_keys])


def _transaction(store: Store, is_nested: bool) -> AbstractContextManager[None]:
    return nullcontext() if is_nested else store.transaction()


def _find_equal_answer(store: Store, location: RequestLocation, series: Series) -> Id | None:
    """The commit of the same answer, if a later request with its echo was recorded first."""
    if series.chain is None:
        return None
    matches = store.match_within([location.thread], [series.chain])
    steps = store.read_commits(location.thread, [match.commit for match in matches])
    head = bytes.fromhex(location.head)
    return next((step.commit.id for step in steps if step.commit.parents == (head,)), None)


def record_failure(
    store: Store, record: FailureRecord, context: RecordingContext, *, is_nested: bool = False
) -> RequestLocation:
    """Record a failed attempt at its request; it is on no branch."""
    with _transaction(store, is_nested):
        key = exchange_key("failure", record.exchange)
        location, _ = _current_location(store, record, context)
        if store.newest_link(key, deleted=True) is not None:
            return location
        head = bytes.fromhex(location.head)
        if not store.read_nodes(location.thread, [head]):
            location, _ = _locate_by_exchange(store, record, context)
        attempt = encode_attempt(head, _attempt_body(record), record.created)
        store.add_attempt(location.thread, attempt)
        links = [(key, head)]
        if not location.is_hinted:
            links.append((context_key(attempt.state, location.point, location.tools), head))
        store.add_links(location.thread, links)
        return location


def _attempt_body(record: FailureRecord) -> AttemptBody:
    error, message = record.error, record.message
    reason = AttemptReason(error.message, error.type, error.status, error.param, error.kind)
    origin = None if message is None else message.origin
    model = None if origin is None else origin.model
    content = message if message is not None and has_content(message) else None
    return AttemptBody(reason, content, model)


def read_until_answer(store: Store, scope: str, id: str) -> StoredConversation | None:
    """The conversation up to the caller's answer with this id.

    If one of its requests could have belonged to another, equal conversation, earlier answers may
    belong to it too. Then their private state (thinking, signatures) is removed.
    """
    response = find_response(store, scope, id)
    if response is None:
        return None
    thread, commit = response[0], bytes.fromhex(response[1])
    view, messages = _read_without_foreign_state(store, thread, commit)
    tools = () if view.setup is None else view.setup.tools
    return StoredConversation(messages, tools, (thread, commit))


def read_conversation(
    store: Store, location: RequestLocation, echoes: Sequence[Message], echoed_commits: Set[Id]
) -> tuple[Message, ...]:
    """The conversation up to a request as the thread shows it.

    `echoes` are the messages that the client sent. An answer keeps its private state if `echoes`
    contain one of its tokens, or if its commit is in `echoed_commits`.
    """
    tokens = {t for m in echoes if m.role == "assistant" for t in tokens_of(m)}
    return _read_without_foreign_state(
        store, location.thread, bytes.fromhex(location.head), tokens, echoed_commits
    )[1]


def _read_without_foreign_state(
    store: Store,
    thread: str,
    commit: Id,
    tokens: Set[str] = frozenset(),
    echoed_commits: Set[Id] = frozenset(),
) -> tuple[View, tuple[Message, ...]]:
    """A conversation up to a commit, without the private state of other conversations.

    If one of its requests could have belonged to another conversation, private state is removed,
    except from the last message, from answers that contain one of `tokens`, and from the answers of
    `echoed_commits`.
    """
    steps = list(store.walk(thread, commit))
    view = View().extend(steps)
    rows = visible_rows(view.rows)
    messages = [row.message for row in rows]
    if store.find_links([ambiguous_key(step.commit.id) for step in steps]):
        cleaned = [
            row.message
            if row.id in echoed_commits or not tokens.isdisjoint(tokens_of(row.message))
            else _without_private_state(row.message)
            for row in rows[:-1]
        ]
        messages = [*(message for message in cleaned if message.blocks), *messages[-1:]]
    return view, tuple(messages)


def _without_private_state(message: Message) -> Message:
    """The answer without its private state: only text, media and calls stay."""
    if message.role != "assistant":
        return message
    blocks = [
        structs.replace(block, ext=None)
        for block in message.blocks
        if isinstance(block, (Text, Refusal, ToolCall, Image, Audio, File))
    ]
    return structs.replace(message, blocks=tuple(blocks), ext=None)


def find_response(store: Store, scope: str, id: str) -> tuple[str, str] | None:
    """The thread and commit of the caller's answer with this id."""
    link = store.newest_link(response_key(scope, id))
    return None if link is None else (link.thread, link.commit.hex())


def forget_response(store: Store, scope: str, id: str) -> bool:
    """Forget the id of the caller's answer; false if it is not known."""
    key = response_key(scope, id)
    with store.transaction():
        links = store.find_links([key])
        for link in links:
            store.drop_links(link.thread, [(key, link.commit)])
    return bool(links)


def _find_recorded(
    store: Store, record: RequestRecord, incoming: Incoming
) -> RequestLocation | None:
    """The location of a request that has been recorded before."""
    link = store.newest_link(exchange_key("request", record.exchange), deleted=True)
    if link is None:
        return None
    return _read_location(store, record, incoming, link.thread, link.commit)


def _read_location(
    store: Store, record: RequestRecord, incoming: Incoming, thread: str, commit: Id
) -> RequestLocation:
    branches = branches_at(store, thread, commit)
    (step,) = store.read_commits(thread, [commit])
    return RequestLocation(
        exchange=record.exchange,
        scope=record.scope,
        is_hinted=record.hint is not None,
        thread=thread,
        branch=branches[0] if branches else "",
        head=commit.hex(),
        chain=step.commit.chain,
        system=incoming.last_point.system,
        tools=incoming.tools,
    )


def _current_location(
    store: Store, record: AnswerRecord | FailureRecord, context: RecordingContext
) -> tuple[RequestLocation, ThreadRecord]:
    """The location of a request, and its thread.

    If the thread was renamed or deleted since, the location is looked up again. Another thread may
    have the old name now, so callers check that the request's commit is in the thread.
    """
    if record.location is not None:
        thread = store.read_thread(record.location.thread)
        if thread is not None:
            return record.location, thread
    return _locate_by_exchange(store, record, context)


def _locate_by_exchange(
    store: Store, record: AnswerRecord | FailureRecord, context: RecordingContext
) -> tuple[RequestLocation, ThreadRecord]:
    """The location of a request whose thread has another name now, and that thread."""
    location = _location_of_exchange(store, record.exchange, context)
    return location, _read_thread(store, location.thread)


def _location_of_exchange(
    store: Store, exchange: str, context: RecordingContext
) -> RequestLocation:
    """The location of a request, found by the id of its exchange."""
    link = store.newest_link(exchange_key("request", exchange), deleted=True)
    if link is None:
        raise UnknownExchange(exchange)
    (step,) = store.read_commits(link.thread, [link.commit])
    system, tools = _digests_at(store, link.thread, link.commit, context)
    record = store.read_thread(link.thread)
    branches = branches_at(store, link.thread, link.commit)
    scope = "" if record is None or record.scope is None else record.scope
    is_hinted = store.newest_link(exchange_key("hinted", exchange), deleted=True) is not None
    return RequestLocation(
        exchange=exchange,
        scope=scope,
        is_hinted=is_hinted,
        thread=link.thread,
        branch=branches[0] if branches else "",
        head=link.commit.hex(),
        chain=step.commit.chain,
        system=system,
        tools=tools,
    )


def _record_messages(
    store: Store,
    record: RequestRecord,
    incoming: Incoming,
    session: Sequence[str],
    continuation: Continuation | None,
    context: RecordingContext,
) -> RequestLocation:
    """Append the new messages to the conversation that the request continues, or start a thread."""
    if continuation is None:
        return _start_conversation(store, record, incoming, session, context)
    thread = _read_thread(store, continuation.thread)
    if thread.scope is None:  # it was imported, and is the caller's now
        store.ensure_thread(thread.name, created=record.created, scope=record.scope)
    if continuation.commit == BEFORE_FIRST:
        commits = RequestCommits(thread, "", None, _first_drafts(record))
        return _land_request(store, record, incoming, commits, context)
    echo = continuation.echo
    branches = branches_at(store, thread.name, continuation.commit)
    branch = thread.head if thread.head in branches else next(iter(branches), "")
    edited_head = None
    if not branches:
        # The client does not know about a compaction, an edit or a pin that was made after its last
        # answer. They stay in force, so the request continues after them.
        edited_head = _head_after_edits(store, thread.name, thread.head, continuation.commit)
    if edited_head is not None:
        branch = thread.head
        continuation = structs.replace(continuation, commit=edited_head)
    is_edited = edited_head is not None or _is_edited(store, continuation.commit, context)
    if is_edited:
        drafts = _edited_setup_drafts(store, record, continuation, context)
    else:
        drafts = _setup_drafts(store, record, incoming, continuation, context)
        commit = _message_before_setups(store, continuation) if drafts and not branch else None
        if commit is not None:
            continuation = structs.replace(continuation, commit=commit)
            drafts = _setup_drafts(store, record, incoming, continuation, context)
    drafts += _with_echo(_new_messages(store, record, continuation), record, echo)
    if continuation.length and not drafts:  # the same request again
        if branch and not is_summary_branch(branch):
            switch_head(store, thread, branch, record.created)
        elif not branch and not record.is_summary_request:
            return_to_request(store, thread, continuation.commit, record.messages, record.created)
        location = _read_location(store, record, incoming, continuation.thread, continuation.commit)
        return structs.replace(location, is_edited=is_edited)
    if continuation.length:
        # Later requests are matched by the client's own version of the earlier messages.
        chain = incoming.points[continuation.length - 1].chain
    else:
        (step,) = store.read_commits(continuation.thread, [continuation.commit])
        chain = step.commit.chain
    commits = RequestCommits(
        thread, branch, continuation.commit, drafts, chain, continuation.length
    )
    location = _land_request(store, record, incoming, commits, context)
    if echo is not None:
        store.add_links(thread.name, [(echo_key(echo[0]), bytes.fromhex(location.head))])
    return structs.replace(location, is_edited=is_edited) if is_edited else location


def _start_conversation(
    store: Store,
    record: RequestRecord,
    incoming: Incoming,
    session: Sequence[str],
    context: RecordingContext,
) -> RequestLocation:
    """Write the first request of a conversation."""
    drafts = _first_drafts(record)
    prepared = _find_prepared(store, record, session)
    if prepared is not None:
        thread, setup_commit = prepared
        commits = RequestCommits(thread, thread.head, setup_commit, drafts)
    else:
        commits = RequestCommits(_new_conversation(store, record, session), "", None, drafts)
    return _land_request(store, record, incoming, commits, context)


def _first_drafts(record: RequestRecord) -> list[Draft]:
    """The commits of a request that follows no commit."""
    drafts = [Draft("setup", Setup(record.tools))] if record.tools else []
    return drafts + [_append(message) for message in record.messages]


def _message_before_setups(store: Store, continuation: Continuation) -> Id | None:
    """The commit of the last message, if the continuation is a commit that only changed the setup.

    A client with a clock in its system text may go back to the same message many times. Each new
    setup follows that message; otherwise each would follow the one before it.
    """
    commit = None
    (step,) = store.read_commits(continuation.thread, [continuation.commit])
    while step.commit.kind == "setup" and step.commit.parents:
        commit = step.commit.parents[0]
        (step,) = store.read_commits(continuation.thread, [commit])
    return commit


def _is_edited(store: Store, commit: Id, context: RecordingContext) -> bool:
    cached = context.digests.is_edited(commit)
    return bool(store.find_links([edited_key(commit)])) if cached is None else cached


def _head_after_edits(store: Store, thread: str, branch: str, base: Id) -> Id | None:
    """The head of a branch, if it has `base` and after it only edits, no messages; else None."""
    head = store.read_ref(thread, branch) if branch else None
    commit = head
    while commit is not None and commit != base:
        steps = store.read_commits(thread, [commit])
        if not steps or steps[0].commit.kind in ("append", "merge") or not steps[0].commit.parents:
            return None
        commit = steps[0].commit.parents[0]
    return head


def _edited_setup_drafts(
    store: Store, record: RequestRecord, continuation: Continuation, context: RecordingContext
) -> list[Draft]:
    """The commit that updates the leading system text and the tools of an edited conversation.

    Later system messages do not change, because they may be part of a summary.
    """
    view = _view(store, continuation.thread, continuation.commit)
    old_rows = list(takewhile(lambda row: is_system(row.message), view.rows))
    new_system = tuple(takewhile(is_system, record.messages))
    old_digest = match_points("", [row.message for row in old_rows], context.volatile)[-1:]
    new_digest = match_points("", new_system, context.volatile)[-1:]
    tools = () if view.setup is None else view.setup.tools
    setup = None if tools_digest(tools) == tools_digest(record.tools) else Setup(record.tools)
    if old_digest == new_digest:
        return [] if setup is None else [Draft("setup", setup)]
    rows = [
        structs.replace(old_rows[number], message=message)
        if number < len(old_rows)
        else Row(None, message)
        for number, message in enumerate(new_system)
    ]
    planned = plan_rewrite(view.rows, [*rows, *view.rows[len(old_rows) :]])
    return [Draft("setup", structs.replace(planned.op, setup=setup), planned.messages)]


def _new_messages(store: Store, record: RequestRecord, continuation: Continuation) -> list[Draft]:
    """The new messages. The echo of a partial answer is replaced by that answer as it arrived."""
    messages = list(record.messages[continuation.length :])
    if messages and messages[0].role == "assistant":
        partial = _partial_answer(store, continuation, messages[0])
        if partial is not None:
            messages[0] = partial
    if has_results_without_ids(messages):
        ids = _stored_call_ids(store, record, continuation)
        messages = [rename_results(message, ids) for message in messages]
    return [_append(message) for message in messages]


def _stored_call_ids(
    store: Store, record: RequestRecord, continuation: Continuation
) -> dict[str, str]:
    """The ids of the last stored answer's calls, by the ids that its echo in the request has.

    A client that sends no call ids gets other ids for the echo from its codec. Without the stored
    ones, the results would belong to no call of the thread.
    """
    messages, start = record.messages, continuation.length
    while start and messages[start - 1].role != "assistant":
        start -= 1
    if not start:
        return {}
    answer = _last_answer(store, continuation)
    if answer is None:
        return {}
    pairs = pair_calls(answer, echo_at(messages[: continuation.length], start - 1))
    return {id: call.id for id, call in pairs.items()}


def _last_answer(store: Store, continuation: Continuation) -> Message | None:
    """The last answer up to a commit; results, edits and changes of the setup may follow it."""
    commit: Id | None = continuation.commit
    for _ in range(COMMITS_AFTER_ANSWER):
        steps = store.read_commits(continuation.thread, [commit]) if commit is not None else []
        if not steps:
            break
        message = decode_appended(steps[0]) if steps[0].commit.kind == "append" else None
        if message is not None and message.role == "assistant":
            return message
        commit = next(iter(steps[0].commit.parents), None)
    return None


def _with_echo(
    drafts: list[Draft], record: RequestRecord, echo: tuple[Id, int, int] | None
) -> list[Draft]:
    """The drafts, the first with the client's version of the answer before it, if that differs.

    The answer stays as the model wrote it.
    """
    if echo is None or not drafts:
        return drafts
    answer, start, end = echo
    attachment = write_echo(answer, record.messages[start:end])
    first = structs.replace(drafts[0], messages=(*drafts[0].messages, attachment))
    return [first, *drafts[1:]]


def _partial_answer(store: Store, continuation: Continuation, echo: Message) -> Message | None:
    for record in reversed(store.attempts(continuation.thread, [continuation.commit])):
        message = decode_attempt(record).message
        if message is not None and match_key(message) == match_key(echo):
            return message
    return None


def _append(message: Message) -> Draft:
    return Draft("append", Append(), (message,))


class RequestCommits(Struct, frozen=True):
    """The commits of a request that are to be written: `drafts`, after `parent` on `branch`.

    `branch` is empty if no branch ends in `parent`. `chain` is the chained key of the client's
    messages up to `parent`; the messages from index `start` on are new.
    """

    thread: ThreadRecord
    branch: str
    parent: Id | None
    drafts: Sequence[Draft]
    chain: bytes | None = None
    start: int = 0


def _land_request(
    store: Store,
    record: RequestRecord,
    incoming: Incoming,
    commits: RequestCommits,
    context: RecordingContext,
) -> RequestLocation:
    """Write the commits of a request; returns the location after them."""
    thread, parent, start = commits.thread, commits.parent, commits.start
    series = encode_series(
        commits.drafts, parent, scope=record.scope, chain=commits.chain, created=record.created
    )
    if parent is not None and record.is_summary_request:
        branch = land_summary_request(store, thread.name, series)
    else:
        new_indexes = range(start, len(record.messages))
        first_new = next((n for n in new_indexes if not is_system(record.messages[n])), start)
        history = record.messages[: first_new + 1]
        branch = land_request(store, thread, commits.branch, parent, series, history)
    context.bodies.add_commits(thread.name, series)
    return RequestLocation(
        exchange=record.exchange,
        scope=record.scope,
        is_hinted=record.hint is not None,
        thread=thread.name,
        branch=branch,
        head=series.commits[-1].id.hex(),
        chain=series.chain,
        system=incoming.last_point.system,
        tools=incoming.tools,
        is_first=True,
    )


def _read_thread(store: Store, name: str) -> ThreadRecord:
    record = store.read_thread(name)
    if record is None:
        raise StoreError(f"there is no thread {name!r}")
    return record


def _new_conversation(store: Store, record: RequestRecord, session: Sequence[str]) -> ThreadRecord:
    """The thread for a new conversation.

    If the session's only request so far failed, its thread is used again.
    """
    main = find_main_thread(store, session)
    if main is not None and not record.is_side_question and _is_abandoned(store, main):
        return _read_thread(store, main)
    name = _free_name(store, record)
    thread = store.ensure_thread(name, created=record.created, scope=record.scope)
    folder = find_folder(record.messages)
    if folder is not None:
        store.describe_thread(name, folder=folder)
    if record.hint is not None:
        family = Family(record.scope, record.hint, record.parent, record.kind)
        join_family(store, thread, family, session, main)
    return thread


def _find_prepared(
    store: Store, record: RequestRecord, session: Sequence[str]
) -> tuple[ThreadRecord, Id] | None:
    """The thread that was created for a session before its first message, and its only commit.

    None if there is no such thread.
    """
    main = None if record.is_side_question else find_main_thread(store, session)
    thread = None if main is None else store.read_thread(main)
    head = None if thread is None else store.read_ref(thread.name, thread.head)
    if thread is None or head is None:
        return None
    (step,) = store.read_commits(thread.name, [head])
    if step.commit.kind != "setup" or step.commit.parents:
        return None
    if thread.scope is None:
        store.ensure_thread(thread.name, created=record.created, scope=record.scope)
    return thread, head


def _is_abandoned(store: Store, thread: str) -> bool:
    """Whether a thread has no answer, and its last attempt failed."""
    record = store.read_thread(thread)
    head = None if record is None else store.read_ref(thread, record.head)
    if head is None or not store.attempts(thread, [head]):
        return False
    heads = list(read_branches(store, thread).values())
    if len(heads) != 1:
        return False
    rows = _view(store, thread, heads[0]).rows
    return all(row.message.role != "assistant" for row in rows)


def _free_name(store: Store, record: RequestRecord) -> str:
    """The session's name, with a number if it is taken; without a session, the current time."""
    if record.hint is None:
        moment = time.strftime("%Y%m%d-%H%M%S", time.localtime(record.created))
        return f"{moment}-{uuid4().hex[:8]}"
    if not record.is_side_question and store.read_thread(record.hint) is None:
        return record.hint
    return first_free(
        lambda number: f"{record.hint}.{number + 1}",
        lambda name: store.read_thread(name) is not None,
    )


def _setup_drafts(
    store: Store,
    record: RequestRecord,
    incoming: Incoming,
    continuation: Continuation,
    context: RecordingContext,
) -> list[Draft]:
    """The commit that updates system text and tools, if they changed."""
    if not continuation.length:
        return []
    system, tools = _digests_at(store, continuation.thread, continuation.commit, context)
    current = incoming.points[continuation.length - 1].system
    if system == current and tools == incoming.tools:
        return []
    setup = None if tools == incoming.tools else Setup(record.tools)
    if system == current:
        return [] if setup is None else [Draft("setup", setup)]
    rows = context.system_rows.read(store, continuation.thread, continuation.commit)
    messages = record.messages[: continuation.length]
    appended = [_append(message) for message in _new_last_system(rows, messages)]
    planned = plan_rewrite(rows, _with_system(rows, messages))
    if planned.op.touches_rows:
        op = structs.replace(planned.op, setup=setup)
        return [Draft("setup", op, planned.messages), *appended]
    return [*([] if setup is None else [Draft("setup", setup)]), *appended]


def _new_last_system(rows: Sequence[Row], messages: Sequence[Message]) -> Sequence[Message]:
    """The system messages at the end of these messages that have no row yet.

    A client may move its leading system messages there: Codex does so in a resumed session.
    """
    at_end = sum(1 for _ in takewhile(is_system, reversed(messages)))
    leading = sum(1 for _ in takewhile(is_system, messages))
    if not at_end or leading == len(messages):
        return ()
    later_rows = list(dropwhile(lambda row: is_system(row.message), rows))
    # No function is called for each message: a conversation may have thousands.
    later = sum([message.role in SYSTEM_ROLES for message in messages[leading:]])
    missing = later - sum([row.message.role in SYSTEM_ROLES for row in later_rows])
    return messages[len(messages) - min(max(missing, 0), at_end) :]


def _with_system(rows: Sequence[Row], messages: Sequence[Message]) -> list[Row]:
    """The rows with the system messages of the request, the leading and the later ones."""
    leading = list(takewhile(is_system, messages))
    old_leading = list(takewhile(lambda row: is_system(row.message), rows))
    new_leading = [
        structs.replace(old_leading[number], message=message)
        if number < len(old_leading)
        else Row(None, message)
        for number, message in enumerate(leading)
    ]
    later = iter([each for each in messages[len(leading) :] if each.role in SYSTEM_ROLES])
    later_rows: list[Row] = []
    for row in rows[len(old_leading) :]:
        replacement = next(later, None) if is_system(row.message) else None
        later_rows.append(row if replacement is None else structs.replace(row, message=replacement))
    return [*new_leading, *later_rows]


def _digests_at(
    store: Store, thread: str, commit: Id, context: RecordingContext
) -> tuple[bytes, bytes]:
    """The digests of system text and tools at a commit."""
    digests = context.digests.get(thread, commit)
    if digests is not None:
        return digests
    view = _view(store, thread, commit)
    points = match_points("", [row.message for row in visible_rows(view.rows)], context.volatile)
    system = points[-1].system if points else b""
    tools = tools_digest(() if view.setup is None else view.setup.tools)
    context.digests.put(thread, commit, system, tools)
    return system, tools


def _view(store: Store, thread: str, commit: Id) -> View:
    return View().extend(store.walk(thread, commit))


def _record_compaction(
    store: Store,
    record: RequestRecord,
    incoming: Incoming,
    session: Sequence[str],
    continuation: Continuation | None,
    context: RecordingContext,
) -> RequestLocation | None:
    """Commit a compaction that the client made itself, and the new messages after it.

    None if the request has no new summary.
    """
    threads = list(session)
    known_length = 0 if continuation is None else continuation.length
    if continuation is not None and continuation.is_token:
        threads = threads or [continuation.thread]
        if not _has_messages(store, incoming, [continuation.thread], known_length - 1):
            # The token is in a turn that the client kept after its summary.
            known_length = 0
    summary = find_summary(record.messages, known_length) if threads else None
    if summary is None or _has_messages(store, incoming, threads, summary.index):
        return None
    compacted = find_compacted_thread(store, threads, record.messages, summary)
    if compacted is None:
        return None
    thread = compacted.thread
    note = f"{summary.client} compacted"
    commit = bytes.fromhex(
        thread.adopt(record.messages[: compacted.length], summary=summary.index, message=note).id
    )
    drafts = [_append(message) for message in record.messages[compacted.length :]]
    if tools_digest(thread.compile().tools) != incoming.tools:
        drafts.insert(0, Draft("setup", Setup(record.tools)))
    context.digests.put(
        thread.name, commit, incoming.points[compacted.length - 1].system, incoming.tools
    )
    if not drafts:
        switch_head(store, _read_thread(store, thread.name), thread.current, record.created)
        return _read_location(store, record, incoming, thread.name, commit)
    commits = RequestCommits(
        _read_thread(store, thread.name),
        thread.current,
        commit,
        drafts,
        incoming.points[compacted.length - 1].chain,
        compacted.length,
    )
    return _land_request(store, record, incoming, commits, context)


def _has_messages(store: Store, incoming: Incoming, threads: Sequence[str], number: int) -> bool:
    """Whether one of these threads has the request's messages up to this index, or more."""
    chains = [point.chain for point in incoming.points[number:] if point.chain is not None]
    return bool(store.match_within(list(threads), chains))


def _link_request(
    store: Store,
    record: RequestRecord,
    incoming: Incoming,
    location: RequestLocation,
    session: Sequence[str],
    continuation: Continuation | None,
    context: RecordingContext,
) -> None:
    """Write the links by which later requests and the answer find this request."""
    head = bytes.fromhex(location.head)
    links = [
        (exchange_key("request", record.exchange), head),
        (context_key("request", location.point, location.tools), head),
    ]
    if record.hint is None:
        links.append((context_key("asked", location.point, location.tools), head))
    else:
        links.append((exchange_key("hinted", record.exchange), head))
        if location.thread not in session:
            links.append((session_key(record.scope, record.hint), head))
            if record.parent is not None:
                links.append((child_key(record.scope, record.parent), head))
    if continuation is not None and continuation.length and not continuation.is_token:
        point, tools = incoming.points[continuation.length - 1], incoming.tools
        if not store.only_links([context_key("answer", point, tools)]):
            links.append((ambiguous_key(head), head))
    if location.is_edited:
        links.append((edited_key(head), head))
    store.add_links(location.thread, links)
    if (
        continuation is not None
        and record.hint is None
        and continuation.commit not in (head, BEFORE_FIRST)
    ):
        _mark_continued(store, continuation, context)


def _mark_continued(store: Store, continuation: Continuation, context: RecordingContext) -> None:
    """Mark the conversation as continued: no other equal request may continue it from here."""
    system, tools = _digests_at(store, continuation.thread, continuation.commit, context)
    (step,) = store.read_commits(continuation.thread, [continuation.commit])
    key = context_key("tip", MatchPoint(step.commit.chain, system), tools)
    store.drop_links(continuation.thread, [(key, continuation.commit)])


def encode_sent(
    store: Store, location: RequestLocation, sent: SentBody, context: RecordingContext
) -> SentBodyDelta:
    """The delta from which a sent body can be rebuilt with what is stored."""
    sent_request = SentRequest(sent.body, sent.protocol, sent.model, location.head)
    return encode_sent_body(store, location.thread, sent_request, context.bodies)
