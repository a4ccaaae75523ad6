"""Exchanges written into threads: a request's new messages, then the answer or the failed attempt.

Every function runs inside one transaction of the store and may be run twice: an exchange has an
id, and what was recorded under it is found again instead of being written a second time. So a
journal can be replayed whatever became of the first try.

The messages of a request land as one write. A request that leaves the known line in the middle
begins a branch, and the thread's HEAD follows the client there. A changed system prompt or changed
tools are one `setup` commit on the same branch. Two answers to one request are two branches.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from uuid import uuid4

from msgspec import Struct, structs

from weft.history import (
    TAG,
    Append,
    AttemptBody,
    AttemptReason,
    Draft,
    Point,
    Row,
    Series,
    Setup,
    View,
    decode_attempt,
    encode_attempt,
    encode_series,
    has_content,
    match_key,
    plan_rewrite,
    read_branches,
    show_rows,
    tools_digest,
    trace,
)
from weft.ids import Id
from weft.model import (
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
)
from weft.store import Landing, Store
from weft.thread import Bodies, SentBodyDelta, SentRequest, encode_sent_body, sent_body_entries

from .client_compaction import find_compacted_thread, find_summary
from .identity import (
    Continuation,
    Incoming,
    context_key,
    exchange_key,
    find_continuation,
    find_session,
    hint_key,
    read_incoming,
    reply_key,
    response_key,
    token_key,
    tokens_of,
    unsure_key,
)
from .restore import find_answers
from .resume import StoredConversation

ANSWER = "answer"
"""The member of a commit's metadata that holds the id its answer went out with."""


class RequestRecord(Struct, frozen=True, tag="request"):
    """A request as it is recorded.

    `is_aside` is one that asks for a title beside the session. `named` is the answer that it names
    by its id (`previous_response_id`) instead of repeating the conversation.
    """

    exchange: str
    created: float
    scope: str
    hint: str | None
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    is_retry: bool = False
    is_aside: bool = False
    named: Continuation | None = None


class Ticket(Struct, frozen=True):
    """Where a request was recorded: its answer goes behind commit `head` of `branch`.

    `is_hinted` is whether the client names its session. `chain`, `system` and `tools` are what the
    conversation is at that commit.
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

    @property
    def point(self) -> Point:
        return Point(self.chain, self.system)


class SentBody(Struct, frozen=True):
    """The body that left for the upstream."""

    body: bytes
    protocol: str
    model: str


class AnswerRecord(Struct, frozen=True, tag="answer"):
    """A whole answer as it is recorded; without a ticket, behind the request of its exchange."""

    exchange: str
    created: float
    message: Message
    id: str | None = None
    usage: Usage | None = None
    ticket: Ticket | None = None
    sent: SentBody | None = None


class FailureRecord(Struct, frozen=True, tag="failure"):
    """An exchange without a whole answer: what came of it, and why there is no more."""

    exchange: str
    created: float
    error: ApiError
    message: Message | None = None
    ticket: Ticket | None = None


Record = RequestRecord | AnswerRecord | FailureRecord


class UnknownExchange(Exception):
    """An answer or a failure whose request was never recorded."""


class DigestCache:
    """The system digest and the tools digest that hold at a commit, for the newest commits.

    They can always be read from the store; remembering them saves compiling a thread per request.
    """

    def __init__(self, limit: int = 10_000) -> None:
        self._known: dict[tuple[str, Id], tuple[bytes, bytes]] = {}
        self._limit = limit

    def get(self, thread: str, commit: Id) -> tuple[bytes, bytes] | None:
        return self._known.get((thread, commit))

    def put(self, thread: str, commit: Id, system: bytes, tools: bytes) -> None:
        self._known.pop((thread, commit), None)
        self._known[thread, commit] = (system, tools)
        if len(self._known) > self._limit:
            del self._known[next(iter(self._known))]


class RecordingContext(Struct, frozen=True):
    """What recording needs beside the store: memory of the recent past, and a setting."""

    digests: DigestCache
    bodies: Bodies
    volatile: tuple[re.Pattern[str], ...] = ()


class Recorded(Struct, frozen=True):
    """A recorded request: its ticket, and the stored answers that it echoes, by where they are."""

    ticket: Ticket
    answers: Mapping[tuple[int, int], Message]


def record_request(
    store: Store, record: RequestRecord, context: RecordingContext, maker: Origin | None = None
) -> Recorded:
    """Commit what is new in a request.

    With `maker`, also find the answers of that model which may be put back into the request.
    """
    tools = tools_digest(record.tools)
    incoming = read_incoming(
        record.scope,
        record.hint,
        record.messages,
        tools,
        volatile=context.volatile,
        is_retry=record.is_retry,
    )
    with store.transaction():
        known = _recorded(store, record, incoming)
        if known is not None:
            return Recorded(known, {})
        session = [] if record.hint is None else find_session(store, record.scope, record.hint)
        place = find_continuation(store, incoming, session, record.named)
        answers = {} if maker is None else find_answers(store, incoming, place, maker)
        ticket = _record_compaction(store, record, incoming, session, place, context) or _record_at(
            store, record, incoming, session, place, context
        )
        _link_request(store, record, incoming, ticket, session, place, context)
        context.digests.put(ticket.thread, bytes.fromhex(ticket.head), ticket.system, ticket.tools)
        return Recorded(ticket, answers)


def read_answers(
    store: Store, record: RequestRecord, context: RecordingContext, maker: Origin
) -> Mapping[tuple[int, int], Message]:
    """The answers that may be put back, without recording anything."""
    incoming = read_incoming(
        record.scope,
        record.hint,
        record.messages,
        tools_digest(record.tools),
        volatile=context.volatile,
    )
    session = [] if record.hint is None else find_session(store, record.scope, record.hint)
    place = find_continuation(store, incoming, session, record.named)
    return find_answers(store, incoming, place, maker, is_complete=False)


def record_answer(
    store: Store,
    record: AnswerRecord,
    context: RecordingContext,
    imprint: SentBodyDelta | None = None,
) -> Ticket:
    """Commit an answer behind its request; the ticket says where it is now.

    `imprint` is that of the body that was sent, where it has been taken already.
    """
    with store.transaction():
        key = exchange_key("answer", record.exchange)
        ticket = _present_ticket(store, record, context)
        done = store.newest_link(key, deleted=True)
        if done is not None:
            return structs.replace(ticket, thread=done.thread, head=done.commit.hex())
        metadata = None if record.id is None else {ANSWER: record.id}
        if imprint is None and record.sent is not None:
            imprint = imprint_sent(store, ticket, record.sent, context)
        riders = () if imprint is None else sent_body_entries(imprint)
        draft = Draft(
            "append", Append(), (record.message, *riders), None, metadata, usage=record.usage
        )
        head = bytes.fromhex(ticket.head)
        series = encode_series(
            [draft], head, scope=ticket.scope, chain=ticket.chain, created=record.created
        )
        known = _answered_equally(store, ticket, series) if record.ticket is None else None
        if known is None:
            branch = _land_series(store, ticket.thread, ticket.branch, head, series)
            answer = series.commits[-1].id
        else:
            branch, answer = ticket.branch, known
        point = Point(series.chain, ticket.system)
        links = [(token_key(ticket.scope, t), answer) for t in tokens_of(record.message)]
        links += [
            (key, answer),
            (reply_key(ticket.thread, head), answer),
            (context_key("answer", point, ticket.tools), answer),
        ]
        if not ticket.is_hinted:
            links.append((context_key("tip", point, ticket.tools), answer))
        if record.id is not None:
            links.append((response_key(ticket.scope, record.id), answer))
        store.add_links(ticket.thread, links)
        failed = [
            (context_key(kind, ticket.point, ticket.tools), head) for kind in ("failed", "partial")
        ]
        store.drop_links(ticket.thread, failed)
        context.digests.put(ticket.thread, answer, ticket.system, ticket.tools)
        return structs.replace(ticket, branch=branch, head=answer.hex(), chain=series.chain)


def _answered_equally(store: Store, ticket: Ticket, series: Series) -> Id | None:
    """The same answer to this request, where a later request has brought it already."""
    if series.chain is None:
        return None
    matches = store.match_within([ticket.thread], [series.chain])
    steps = store.read_commits(ticket.thread, [match.commit for match in matches])
    head = bytes.fromhex(ticket.head)
    return next((step.commit.id for step in steps if step.commit.parents == (head,)), None)


def record_failure(store: Store, record: FailureRecord, context: RecordingContext) -> Ticket:
    """Keep a partial or failed attempt beside its request; it joins no branch."""
    with store.transaction():
        key = exchange_key("failure", record.exchange)
        ticket = _present_ticket(store, record, context)
        if store.newest_link(key, deleted=True) is not None:
            return ticket
        head = bytes.fromhex(ticket.head)
        attempt = encode_attempt(head, _attempt_body(record), record.created)
        store.add_attempt(ticket.thread, attempt)
        links = [(key, head)]
        if not ticket.is_hinted:
            links.append((context_key(attempt.state, ticket.point, ticket.tools), head))
        store.add_links(ticket.thread, links)
        return ticket


def _attempt_body(record: FailureRecord) -> AttemptBody:
    error, message = record.error, record.message
    reason = AttemptReason(error.message, error.type, error.status, error.param, error.kind)
    origin = None if message is None else message.origin
    model = None if origin is None else origin.model
    kept = message if message is not None and has_content(message) else None
    return AttemptBody(reason, kept, model)


def read_before(store: Store, scope: str, id: str) -> StoredConversation | None:
    """The conversation up to the caller's answer of this id.

    Where one of its requests was filed with a conversation that another one equalled, earlier
    answers may be the other one's: what only their client may have is left out.
    """
    found = find_response(store, scope, id)
    if found is None:
        return None
    thread, commit = found[0], bytes.fromhex(found[1])
    steps = list(store.walk(thread, commit))
    view = View().extend(steps)
    messages = [row.message for row in show_rows(view.rows)]
    if store.find_links([unsure_key(step.commit.id) for step in steps]):
        shared = map(_without_private, messages[:-1])
        messages = [*(message for message in shared if message.blocks), *messages[-1:]]
    tools = () if view.setup is None else view.setup.tools
    return StoredConversation(tuple(messages), tools, (thread, commit))


def _without_private(message: Message) -> Message:
    """An answer as a client of another protocol would echo it: text and calls."""
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


def _recorded(store: Store, record: RequestRecord, incoming: Incoming) -> Ticket | None:
    """The ticket of an exchange whose request has been recorded already."""
    link = store.newest_link(exchange_key("request", record.exchange), deleted=True)
    if link is None:
        return None
    return _ticket(store, record, incoming, link.thread, link.commit)


def _ticket(
    store: Store, record: RequestRecord, incoming: Incoming, thread: str, commit: Id
) -> Ticket:
    branches = store.branches_at(thread, commit)
    (step,) = store.read_commits(thread, [commit])
    return Ticket(
        record.exchange,
        record.scope,
        record.hint is not None,
        thread,
        branches[0] if branches else "",
        commit.hex(),
        step.commit.chain,
        incoming.last.system,
        incoming.tools,
    )


def _present_ticket(
    store: Store, record: AnswerRecord | FailureRecord, context: RecordingContext
) -> Ticket:
    """The ticket of a request, read again where its thread was renamed or deleted meanwhile: what
    it was answered belongs to it even then."""
    ticket = record.ticket
    if ticket is not None and store.read_thread(ticket.thread) is not None:
        return ticket
    return _ticket_of(store, record.exchange, context)


def _ticket_of(store: Store, exchange: str, context: RecordingContext) -> Ticket:
    """The ticket of a request that was replayed: the answer's record was written before it."""
    link = store.newest_link(exchange_key("request", exchange), deleted=True)
    if link is None:
        raise UnknownExchange(exchange)
    (step,) = store.read_commits(link.thread, [link.commit])
    system, tools = _context_at(store, link.thread, link.commit, context)
    record = store.read_thread(link.thread)
    branches = store.branches_at(link.thread, link.commit)
    scope = "" if record is None or record.scope is None else record.scope
    hinted = store.newest_link(exchange_key("hinted", exchange), deleted=True) is not None
    return Ticket(
        exchange,
        scope,
        hinted,
        link.thread,
        branches[0] if branches else "",
        link.commit.hex(),
        step.commit.chain,
        system,
        tools,
    )


def _record_at(
    store: Store,
    record: RequestRecord,
    incoming: Incoming,
    session: Sequence[str],
    place: Continuation | None,
    context: RecordingContext,
) -> Ticket:
    """Append what is new behind the place, or begin a thread."""
    if place is None:
        name, branch = _new_line(store, record, session)
        drafts: list[Draft] = []
        if record.tools:
            drafts.append(Draft("setup", Setup(record.tools)))
        drafts += [_append(message) for message in record.messages]
        return _land_request(store, record, incoming, name, branch, None, drafts, None)
    branches = [name for name in store.branches_at(place.thread, place.commit) if _is_branch(name)]
    branch = branches[0] if branches else ""
    drafts = _setup_drafts(store, record, incoming, place, context)
    drafts += _new_messages(store, record, place)
    if place.length and not drafts:
        return _ticket(store, record, incoming, place.thread, place.commit)
    if place.length:
        # What follows is found by the client's own spelling of what is before it.
        chain = incoming.points[place.length - 1].chain
    else:
        (step,) = store.read_commits(place.thread, [place.commit])
        chain = step.commit.chain
    return _land_request(store, record, incoming, place.thread, branch, place.commit, drafts, chain)


def _new_messages(store: Store, record: RequestRecord, place: Continuation) -> list[Draft]:
    """The messages behind the place; the echo of a partial answer is that answer as it came."""
    messages = list(record.messages[place.length :])
    if messages and messages[0].role == "assistant":
        partial = _partial_answer(store, place, messages[0])
        if partial is not None:
            messages[0] = partial
    return [_append(message) for message in messages]


def _partial_answer(store: Store, place: Continuation, echo: Message) -> Message | None:
    for record in reversed(store.attempts(place.thread, [place.commit])):
        message = decode_attempt(record).message
        if message is not None and match_key(message) == match_key(echo):
            return message
    return None


def _append(message: Message) -> Draft:
    return Draft("append", Append(), (message,))


def _land_request(
    store: Store,
    record: RequestRecord,
    incoming: Incoming,
    thread: str,
    branch: str,
    parent: Id | None,
    drafts: Sequence[Draft],
    chain: bytes | None,
) -> Ticket:
    series = encode_series(drafts, parent, scope=record.scope, chain=chain, created=record.created)
    landed = _land_series(store, thread, branch, parent, series)
    return Ticket(
        record.exchange,
        record.scope,
        record.hint is not None,
        thread,
        landed,
        series.commits[-1].id.hex(),
        series.chain,
        incoming.last.system,
        incoming.tools,
    )


def _land_series(store: Store, thread: str, branch: str, parent: Id | None, series: Series) -> str:
    """Land commits on the branch if it still ends in `parent`, else on a new one; HEAD follows."""
    if parent is None:
        name = branch
        old = None
    elif branch and store.read_ref(thread, branch) == parent:
        name, old = branch, parent
    else:
        others = [other for other in store.branches_at(thread, parent) if _is_branch(other)]
        name, old = (others[0], parent) if others else (_free_branch(store, thread), None)
    store.land(thread, series.landing("append", name, old))
    _follow_client(store, thread, name, series.commits[-1].created)
    return name


def _follow_client(store: Store, thread: str, branch: str, created: float) -> None:
    record = store.read_thread(thread)
    if record is None or record.head == branch:
        return
    head = store.read_ref(thread, branch)
    store.land(thread, Landing("switch", branch, head, head, created, was=record.head))


def _is_branch(name: str) -> bool:
    return not name.startswith(TAG)


def _new_line(store: Store, record: RequestRecord, session: Sequence[str]) -> tuple[str, str]:
    """The thread and branch for a conversation that continues none.

    A session whose first request failed and was given up is begun again in its own thread.
    """
    if session and not record.is_aside and _was_given_up(store, session[0]):
        return session[0], _free_branch(store, session[0])
    name = _free_name(store, record)
    store.ensure_thread(name, created=record.created, scope=record.scope)
    return name, "main"


def _was_given_up(store: Store, thread: str) -> bool:
    """Whether nobody ever answered in a thread, and the last try failed."""
    heads = list(read_branches(store, thread).values())
    if len(heads) != 1 or not store.attempts(thread, heads):
        return False
    rows = _view(store, thread, heads[0]).rows
    return all(row.message.role != "assistant" for row in rows)


def _free_name(store: Store, record: RequestRecord) -> str:
    """The session's name, numbered where it is taken; without a session, when it began."""
    if record.hint is None:
        moment = time.strftime("%Y%m%d-%H%M%S", time.localtime(record.created))
        return f"{moment}-{uuid4().hex[:8]}"
    if not record.is_aside and store.read_thread(record.hint) is None:
        return record.hint
    return _first_free(
        lambda number: f"{record.hint}.{number}",
        lambda name: store.read_thread(name) is not None,
    )


def _free_branch(store: Store, thread: str) -> str:
    return _first_free(
        lambda number: f"branch-{number}",
        lambda name: store.read_ref(thread, name) is not None,
    )


def _first_free(name: Callable[[int], str], is_taken: Callable[[str], bool]) -> str:
    """The first numbered name that is free, found by halving: numbers are taken in order."""
    low, high = 1, 2
    while is_taken(name(high)):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if is_taken(name(middle)):
            low = middle
        else:
            high = middle
    return name(high)


def _setup_drafts(
    store: Store,
    record: RequestRecord,
    incoming: Incoming,
    place: Continuation,
    context: RecordingContext,
) -> list[Draft]:
    """The commit that brings system text and tools up to date, where they changed."""
    if not place.length:
        return []
    system, tools = _context_at(store, place.thread, place.commit, context)
    now = incoming.points[place.length - 1].system
    if system == now and tools == incoming.tools:
        return []
    setup = None if tools == incoming.tools else Setup(record.tools)
    if system == now:
        return [] if setup is None else [Draft("setup", setup)]
    rows = _view(store, place.thread, place.commit).rows
    planned = plan_rewrite(rows, _with_system(rows, record.messages[: place.length]))
    if not planned.op.touches_rows:
        return [] if setup is None else [Draft("setup", setup)]
    return [Draft("setup", structs.replace(planned.op, setup=setup), planned.messages)]


def _with_system(rows: Sequence[Row], messages: Sequence[Message]) -> list[Row]:
    """The rows with the request's leading system run, and its inline system messages by number."""
    leading = list(takewhile(is_system, messages))
    old = list(takewhile(lambda row: is_system(row.message), rows))
    begun = [
        structs.replace(old[number], message=message) if number < len(old) else Row(None, message)
        for number, message in enumerate(leading)
    ]
    inline = iter([message for message in messages[len(leading) :] if is_system(message)])
    rest: list[Row] = []
    for row in rows[len(old) :]:
        newer = next(inline, None) if is_system(row.message) else None
        rest.append(row if newer is None else structs.replace(row, message=newer))
    return [*begun, *rest]


def _context_at(
    store: Store, thread: str, commit: Id, context: RecordingContext
) -> tuple[bytes, bytes]:
    """The digests of system text and tools that hold at a commit."""
    known = context.digests.get(thread, commit)
    if known is not None:
        return known
    view = _view(store, thread, commit)
    points = trace("", [row.message for row in show_rows(view.rows)], context.volatile)
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
    place: Continuation | None,
    context: RecordingContext,
) -> Ticket | None:
    """Commit a client's own compaction and what is new behind it, where the request brings one."""
    threads = list(session) or ([place.thread] if place is not None and place.is_token else [])
    summary = find_summary(record.messages) if threads else None
    if summary is None or _knows(store, incoming, threads, summary.place):
        return None
    folded = find_compacted_thread(store, threads, record.messages, summary)
    if folded is None:
        return None
    thread = folded.thread
    note = f"{summary.by} compacted"
    commit = bytes.fromhex(
        thread.adopt(record.messages[: folded.length], summary=summary.place, message=note).id
    )
    rest = [_append(message) for message in record.messages[folded.length :]]
    if tools_digest(thread.compile().tools) != incoming.tools:
        rest.insert(0, Draft("setup", Setup(record.tools)))
    context.digests.put(
        thread.name, commit, incoming.points[folded.length - 1].system, incoming.tools
    )
    if not rest:
        _follow_client(store, thread.name, thread.current, record.created)
        return _ticket(store, record, incoming, thread.name, commit)
    chain = incoming.points[folded.length - 1].chain
    return _land_request(store, record, incoming, thread.name, thread.current, commit, rest, chain)


def _knows(store: Store, incoming: Incoming, threads: Sequence[str], number: int) -> bool:
    """Whether one of these threads has the request's messages up to this one, or further."""
    chains = [point.chain for point in incoming.points[number:] if point.chain is not None]
    return bool(store.match_within(list(threads), chains))


def _link_request(
    store: Store,
    record: RequestRecord,
    incoming: Incoming,
    ticket: Ticket,
    session: Sequence[str],
    place: Continuation | None,
    context: RecordingContext,
) -> None:
    head = bytes.fromhex(ticket.head)
    links = [
        (exchange_key("request", record.exchange), head),
        (context_key("request", ticket.point, ticket.tools), head),
    ]
    if record.hint is None:
        links.append((context_key("asked", ticket.point, ticket.tools), head))
    else:
        links.append((exchange_key("hinted", record.exchange), head))
        if ticket.thread not in session:
            links.append((hint_key(record.scope, record.hint), head))
    if place is not None and place.length and not place.is_token:
        point, tools = incoming.points[place.length - 1], incoming.tools
        if not store.only_links([context_key("answer", point, tools)]):
            links.append((unsure_key(head), head))
    store.add_links(ticket.thread, links)
    if place is not None and record.hint is None and place.commit != head:
        _use_tip(store, place, context)


def _use_tip(store: Store, place: Continuation, context: RecordingContext) -> None:
    """The conversation has gone on: no other request may continue it from here by equality."""
    system, tools = _context_at(store, place.thread, place.commit, context)
    (step,) = store.read_commits(place.thread, [place.commit])
    key = context_key("tip", Point(step.commit.chain, system), tools)
    store.drop_links(place.thread, [(key, place.commit)])


def imprint_sent(
    store: Store, ticket: Ticket, sent: SentBody, context: RecordingContext
) -> SentBodyDelta:
    """How the body that left can be made again from what is stored."""
    letter = SentRequest(sent.body, sent.protocol, sent.model, ticket.head)
    return encode_sent_body(store, ticket.thread, letter, context.bodies)
