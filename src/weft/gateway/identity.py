"""Which conversation a stateless request belongs to (ADR 27).

A client sends its whole conversation with every request and rarely says which one it is. Two
mistakes are possible. Joining two conversations that only look alike shows one person's data to
another. Splitting one conversation in two is only inconvenient. So a request continues a
conversation only on proof:

- A *token* is a text in an answer that only its conversation contains: the id of a tool call or of
  an item, a signature, encrypted thinking. A request that echoes it continues that conversation.
  Counters such as `call_0`, and ids that occur in two conversations, are not tokens. Neither is
  text that the client wrote itself: its examples may be the same in every conversation.
- A *hint* is the name of a session that the client sends. It says where to look, but a matching
  answer is needed too.
- Without either, system text, tools and messages must equal those of a conversation up to its
  *tip*, its last answer. A tip is used once: the next equal request gets the next equal tip.

The store keeps these facts as links from hashes to commits. Every look-up is by key, so its cost
does not depend on how much is stored.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from operator import itemgetter
from typing import Any, cast
from uuid import uuid4

from msgspec import Struct, structs

from weft.history import (
    FirstTurn,
    MatchPoint,
    MatchTrace,
    Row,
    View,
    align_trimmed,
    align_turns,
    chain_message,
    count_equal_messages,
    decode_appended,
    echo_length,
    empty_chain,
    find_edit,
    is_echo,
    match_points,
    read_branches,
    visible_rows,
)
from weft.ids import Id, object_id
from weft.model import (
    Audio,
    Block,
    Ext,
    File,
    Image,
    Inline,
    Message,
    Opaque,
    Origin,
    Redacted,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    is_system,
)
from weft.store import Link, Match, Step, Store
from weft.thread import common_prefix_length, find_imported

from .branches import branches_at

ANCHORS_TRIED = 16
"""How many answers with a token of the request are compared with the request."""

IMPORTED_BRANCHES = 16
"""How many branches of an imported thread are compared with a request turn by turn."""

ALIGNED_THREADS = 4
"""How many of the oldest threads of a session are compared with a request turn by turn."""

LAST_CHAINS = 3
NEWEST_CHAINS = 12
"""How many of a request's last chains are looked up first, and next, before all others."""

FIRST_TOKENS = 8
TOKENS_READ = 256
"""How many tokens of a request are looked up first, and at most, starting at its end."""

NEW_MESSAGES = 16
"""How many messages a request may add to an earlier one for its trace to be found by messages. With
more new messages, the trace is found by the session only."""

REPLACED_MESSAGES = 4
"""A new trace replaces an earlier one if at most this many of the earlier one's last messages
changed. Clients move cache marks there, or remove reminders."""

DIFFERENT_MESSAGES = 64
"""How many of a request's last messages may come after the first difference of two bodies."""

SESSIONS = 10_000
"""For how many sessions the newest trace is remembered."""

MESSAGE_BYTES = 500
TRACE_BYTES = 3000
"""Estimated memory overhead of a message, and of a trace, in bytes."""

LONG_NUMBER = 16
VARIED_DIGITS = 6
"""An id of digits looks random if it has this many digits, and this many different ones."""

LONGEST_WORDS = 3
"""In a random text, the words have at most this many letters on average."""

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_ID_RUN = re.compile(r"[A-Za-z0-9]{8,}")
_ENCRYPTED_LENGTH = 16
_TIMED_ID = re.compile(r"t([0-9a-f]{12})[0-9a-f]{32}")
"""Ids of older records, which may be in a journal, do not begin with a time."""

_ID_MEMBERS = ("id", "encrypted_content", "thoughtSignature", "signature")


class Incoming(Struct, frozen=True):
    """The facts that identify the conversation of a request.

    `points` has the chain and the system digest after each message, `tokens` the tokens of each
    message, `tools` the digest of the tools. `is_retry` says whether the client marks the request
    as a retry.
    """

    scope: str
    hint: str | None
    messages: tuple[Message, ...]
    points: tuple[MatchPoint, ...]
    tokens: tuple[tuple[str, ...], ...]
    tools: bytes
    is_retry: bool = False

    @property
    def last_point(self) -> MatchPoint:
        """The point after the last message."""
        return self.points[-1] if self.points else MatchPoint(None)

    @property
    def setup(self) -> tuple[bytes, bytes]:
        """The digests of the leading system messages and of the tools."""
        system_count = _count_leading_system(self.messages)
        return self.points[system_count - 1].system if system_count else b"", self.tools

    @property
    def answered_length(self) -> int:
        """The number of messages up to the last answer; 0 if there is none."""
        for number in range(len(self.messages), 0, -1):
            if self.messages[number - 1].role == "assistant":
                return number
        return 0


def read_incoming(
    scope: str,
    hint: str | None,
    messages: tuple[Message, ...],
    tools: bytes,
    *,
    volatile: Sequence[re.Pattern[str]] = (),
    is_retry: bool = False,
    traces: "TraceCache | None" = None,
    body: bytes | None = None,
) -> Incoming:
    """The identity facts of a request; `volatile` are patterns of system blocks to ignore.

    With `traces`, the facts of an earlier, shorter request are reused. `body` is the body that the
    messages were decoded from.
    """
    if traces is None:
        points = tuple(match_points(scope, messages, volatile))
        tokens = _tokens_by_message(messages)
        return Incoming(scope, hint, messages, points, tokens, tools, is_retry)
    earlier = traces.get(scope, hint, messages)
    system_count = _count_leading_system(messages)
    if earlier is not None and _count_leading_system(earlier.trace.messages) == system_count:
        length = _shared_length(messages, body, earlier, system_count)
        traced = _extend_trace(scope, messages, volatile, body, earlier, system_count, length)
        is_replaced = length >= len(earlier.trace.messages) - REPLACED_MESSAGES
        traces.put(scope, hint, traced, earlier if is_replaced else None)
    else:
        points = tuple(match_points(scope, messages, volatile))
        tokens, message_bytes = _tokens_by_message(messages), _memory_bytes(messages)
        traced = TracedRequest(MatchTrace(messages, points), tokens, message_bytes, body)
        traces.put(scope, hint, traced, None)
    messages, points = traced.trace.messages, traced.trace.points
    return Incoming(scope, hint, messages, points, traced.tokens, tools, is_retry)


def _extend_trace(
    scope: str,
    messages: tuple[Message, ...],
    volatile: Sequence[re.Pattern[str]],
    body: bytes | None,
    earlier: "TracedRequest",
    system_count: int,
    length: int,
) -> "TracedRequest":
    """The traced request whose first `length` messages an earlier request has too.

    The first `system_count` of them, the leading system messages, may differ.
    """
    earlier_messages, new_messages = earlier.trace.messages, messages[length:]
    # Equal messages become the same objects: they are compared faster, and kept once.
    messages = messages[:system_count] + earlier_messages[system_count:length] + new_messages
    points = tuple(match_points(scope, messages, volatile, earlier.trace))
    removed_bytes = _memory_bytes(earlier_messages[length:])
    return TracedRequest(
        MatchTrace(messages, points),
        earlier.tokens[:length] + _tokens_by_message(new_messages),
        earlier.message_bytes - removed_bytes + _memory_bytes(new_messages),
        body,
        None if earlier.answers is None else earlier.answers.shortened(length),
    )


def _count_leading_system(messages: Sequence[Message]) -> int:
    """How many system messages a request begins with."""
    return sum(1 for _ in takewhile(is_system, messages))


def _shared_length(
    messages: tuple[Message, ...], body: bytes | None, earlier: "TracedRequest", system_count: int
) -> int:
    """How many leading messages of a request equal those of an earlier request.

    Both begin with `system_count` system messages, which may differ: some clients put text there
    that changes in every request. Most of the other messages are in the common prefix of both
    bodies, so they need not be compared. How many is estimated with `_least_bytes`, a lower bound
    for the size of a message. If that prefix is short, because the changing text comes first, all
    messages are compared.
    """
    earlier_messages = earlier.trace.messages
    # Messages that were decoded once (`bodies`) are the same objects, and quick to compare.
    is_shared_object = system_count < min(len(messages), len(earlier_messages)) and (
        messages[system_count] is earlier_messages[system_count]
    )
    is_shorter = len(messages) < len(earlier_messages)
    if is_shared_object or is_shorter or body is None or earlier.body is None:
        return system_count + count_equal_messages(messages, earlier_messages, system_count)
    different_bytes = len(earlier.body) - common_prefix_length(body, earlier.body)
    count = len(earlier_messages)
    minimum = max(system_count, count - DIFFERENT_MESSAGES)
    while count > minimum and different_bytes > 0:
        count -= 1
        different_bytes -= _least_bytes(earlier_messages[count])
    if count <= minimum or any(
        messages[index] != earlier_messages[index] for index in (system_count, count - 1)
    ):
        return system_count + count_equal_messages(messages, earlier_messages, system_count)
    return count + count_equal_messages(messages, earlier_messages, count)


def _least_bytes(message: Message) -> int:
    """A lower bound for the size of a message in its body, in bytes.

    Arguments and results may be JSON objects in the body, and be decoded to a longer text.
    """
    minimum = 0
    for block in message.blocks:
        match block:
            case Text(text=text):
                minimum += len(text)
            case ToolCall(arguments=text):
                minimum += len(text) // 8
            case ToolResult():
                minimum += sum([len(text) for text in _texts(block)]) // 8
            case _:
                pass
    return minimum


def _tokens_by_message(messages: Sequence[Message]) -> tuple[tuple[str, ...], ...]:
    """The tokens of each message; only answers have any."""
    return tuple(
        [tuple(tokens_of(message)) if message.role == "assistant" else () for message in messages]
    )


def _memory_bytes(messages: Sequence[Message]) -> int:
    """About how many bytes of memory these messages need."""
    return sum([MESSAGE_BYTES + _text_length(message) for message in messages])


def _text_length(message: Message) -> int:
    """How many characters of text, arguments and data a message has."""
    return sum([len(text) for block in message.blocks for text in _texts(block)])


def _texts(block: Block) -> Iterator[str]:
    match block:
        case Text(text=text) | Thinking(text=text) | ToolCall(arguments=text):
            yield text
        case ToolResult(content=content):
            for part in content:
                yield from _texts(part)
        case Image(source=Inline(data=data)) | File(source=Inline(data=data)):
            yield data
        case Audio(source=Inline(data=data)):
            yield data
        case _:
            yield ""


class EchoedAnswers(Struct, frozen=True):
    """The stored answers that the first `length` messages of a request echo, by message range.

    The proof holds for one thread, session and model:

    - `twin`: the newest answer that had made a proof in the thread invalid (`twin_key`) when the
      answers were looked up.
    - `setup`: the digests of the leading system messages and of the tools. If they change, only the
      answers within the first `stable_length` messages are still proven.
    - `session`: the threads of the session.
    - `ids`: the ids of the answers' commits and entries.
    - `size`: the estimated memory of the answers, in bytes.
    """

    length: int
    thread: str
    hint: str | None
    origin: Origin
    twin: Id | None
    setup: tuple[bytes, bytes]
    stable_length: int = 0
    session: tuple[str, ...] = ()
    ids: tuple[Id, ...] = ()
    answers: dict[tuple[int, int], Message] = {}
    size: int = 0

    @property
    def proof(self) -> tuple[object, ...]:
        """What every proof depends on besides the messages."""
        return self.thread, self.hint, self.origin, self.twin

    def extended(
        self,
        length: int,
        stable_length: int,
        ids: Sequence[Id],
        answers: Mapping[tuple[int, int], Message],
    ) -> "EchoedAnswers":
        """Add the answers that the next messages echo, up to message `length`.

        `stable_length` is the number of messages before the first added answer whose proof depends
        on the setup.
        """
        if self.stable_length < self.length:  # an earlier answer depends on the setup already
            stable_length = self.stable_length
        return structs.replace(
            self,
            length=length,
            stable_length=min(length, stable_length),
            ids=(*self.ids, *ids),
            answers={**self.answers, **answers},
            size=self.size + _memory_bytes(list(answers.values())),
        )

    def shortened(self, length: int) -> "EchoedAnswers":
        """The answers that the first `length` messages echo."""
        last = next(reversed(self.answers), (0, 0))
        if length >= self.length and last[1] <= length:
            return self
        answers = {span: answer for span, answer in self.answers.items() if span[1] <= length}
        return structs.replace(
            self,
            length=min(length, self.length),
            stable_length=min(length, self.stable_length),
            answers=answers,
        )

    def with_setup(self, setup: tuple[bytes, bytes]) -> "EchoedAnswers":
        """The answers that are also proven with this setup."""
        if setup == self.setup:
            return self
        return structs.replace(self.shortened(self.stable_length), setup=setup)


class TracedRequest(Struct, frozen=True):
    """A request's trace, the tokens of each message, the memory of its messages, and its body.

    `answers` are the stored answers that its first messages echo, if an earlier request with the
    same messages has looked them up.
    """

    trace: MatchTrace
    tokens: tuple[tuple[str, ...], ...]
    message_bytes: int
    body: bytes | None
    answers: EchoedAnswers | None = None

    @property
    def size(self) -> int:
        """About how many bytes of memory it needs."""
        body_bytes = 0 if self.body is None else len(self.body)
        answer_bytes = 0 if self.answers is None else self.answers.size
        return TRACE_BYTES + self.message_bytes + body_bytes + answer_bytes


TraceKey = tuple[object, ...]


class TraceCache:
    """The traces of the newest requests, so that a growing conversation is not hashed again.

    A conversation is found by the last two messages of its previous request, and their position; or
    by its session. Another conversation may have the same key, so a trace is reused only as far as
    the messages are equal.
    """

    def __init__(self, limit: int = 48 * 1024 * 1024) -> None:
        self._traces: dict[TraceKey, TracedRequest] = {}
        self._sessions: dict[tuple[str, str], TraceKey] = {}
        self._limit = limit
        self._size = 0

    def get(
        self, scope: str, hint: str | None, messages: Sequence[Message]
    ) -> TracedRequest | None:
        """The trace that these messages probably extend."""
        for length in range(len(messages), max(0, len(messages) - NEW_MESSAGES), -1):
            traced = self._traces.get(_trace_key(scope, messages, length))
            if traced is not None:
                return traced
        key = None if hint is None else self._sessions.get((scope, hint))
        return None if key is None else self._traces.get(key)

    def put(
        self, scope: str, hint: str | None, traced: TracedRequest, extended: TracedRequest | None
    ) -> None:
        """Keep a trace; it replaces the one that it extends."""
        if extended is not None:
            self._remove(_trace_key(scope, extended.trace.messages, len(extended.trace.messages)))
        key = _trace_key(scope, traced.trace.messages, len(traced.trace.messages))
        self._remove(key)
        self._traces[key] = traced
        self._size += traced.size
        while self._size > self._limit:
            self._remove(next(iter(self._traces)))
        if hint is not None:
            self._sessions.pop((scope, hint), None)
            self._sessions[scope, hint] = key
            if len(self._sessions) > SESSIONS:
                del self._sessions[next(iter(self._sessions))]

    def answers(self, incoming: Incoming) -> EchoedAnswers | None:
        """The stored answers that the first messages of a request echo, if they are cached."""
        traced = self._find_exact(incoming)
        return None if traced is None else traced.answers

    def put_answers(self, incoming: Incoming, answers: EchoedAnswers) -> None:
        """Keep the answers that a request echoes; requests that extend it use them again."""
        traced = self._find_exact(incoming)
        if traced is None:
            return
        with_answers = structs.replace(traced, answers=answers)
        key = _trace_key(incoming.scope, incoming.messages, len(incoming.messages))
        self._traces[key] = with_answers
        self._size += with_answers.size - traced.size

    def _find_exact(self, incoming: Incoming) -> TracedRequest | None:
        """The trace of exactly this request."""
        messages = incoming.messages
        traced = self._traces.get(_trace_key(incoming.scope, messages, len(messages)))
        return traced if traced is not None and traced.trace.messages is messages else None

    def _remove(self, key: TraceKey) -> None:
        removed = self._traces.pop(key, None)
        self._size -= 0 if removed is None else removed.size


def _trace_key(scope: str, messages: Sequence[Message], length: int) -> TraceKey:
    """A key of the first `length` messages, made from the last two of them."""
    fingerprints = [_fingerprint(message) for message in messages[max(0, length - 2) : length]]
    return (scope, length, *fingerprints)


def _fingerprint(message: Message) -> TraceKey:
    """A cheap key of a message; another message may have the same one."""
    for block in message.blocks:
        match block:
            case Text(text=text) if text:
                return message.role, len(text), text[:100], text[-100:]
            case ToolCall(id=id) | ToolResult(call_id=id):
                return message.role, id
            case _:
                pass
    return (message.role,)


BEFORE_FIRST: Id = b""
"""The commit of a continuation if the client edited its first message and kept later ones. The
request then starts a second line of commits in the thread."""


class Continuation(Struct, frozen=True):
    """Where a request continues: its first `length` messages are the thread up to `commit`.

    `is_token` says whether a token proves it. `echo` is set if the client changed the newest
    answer: the commit of the answer, and the range of messages that echo it.
    """

    thread: str
    commit: Id
    length: int
    is_token: bool = False
    echo: tuple[Id, int, int] | None = None


def token_key(scope: str, token: str) -> bytes:
    """The key of the link to the message that contains this token."""
    return object_id("link-token", f"{scope}\0{token}".encode("utf-8", "surrogatepass"))


def response_key(scope: str, id: str) -> bytes:
    """The key of the link to the answer that the client got under this id."""
    return object_id("link-response", f"{scope}\0{id}".encode("utf-8", "surrogatepass"))


def exchange_key(kind: str, exchange: str) -> bytes:
    """The key of the links to the records of an exchange, so that nothing is recorded twice.

    If the id begins with a time, so does the key.
    """
    key = object_id("link-exchange", f"{kind}\0{exchange}".encode())
    timed = _TIMED_ID.fullmatch(exchange)
    return key if timed is None else bytes.fromhex(timed[1]) + key[len(timed[1]) // 2 :]


def new_exchange_id() -> str:
    """An id that no other exchange has.

    It begins with the time. In a large store, keys in order of time are written to few pages. Each
    random key is written to a page of its own, which is read before and written twice.
    """
    return f"t{int(time.time() * 1000):012x}{uuid4().hex}"


def reply_key(thread: str, request: Id) -> bytes:
    """The key of the links to the answers of a request, by its last commit."""
    return object_id("link-reply", thread.encode() + b"\0" + request)


def edited_key(commit: Id) -> bytes:
    """The key that marks a commit after edits that were made in Weft, unknown to the client."""
    return object_id("link-edited", commit)


def twin_key(thread: str) -> bytes:
    """The key of the links to answers elsewhere that repeat a token or context of this thread.

    From then on that token or context proves nothing.
    """
    return object_id("link-twin", thread.encode())


def ambiguous_key(commit: Id) -> bytes:
    """The key that marks a request that could continue several equal conversations."""
    return object_id("link-unsure", commit)


def context_key(kind: str, point: MatchPoint, tools: bytes) -> bytes:
    """The key of the link to a commit with this system text, these tools and messages.

    `kind` is `answer` or `request`. Conversations without a session name also have `tip` for an
    answer that nothing follows yet, `asked` for a request, and `failed` or `partial` for a request
    without a whole answer.
    """
    return object_id(f"link-{kind}", (point.chain or b"") + b"\0" + point.system + b"\0" + tools)


def find_continuation(
    store: Store,
    incoming: Incoming,
    session: Sequence[str],
    named_answer: Continuation | None = None,
) -> Continuation | None:
    """Where the request continues; `None` if nothing proves that it does.

    `session` has the threads of the session that the request names, and `named_answer` is the
    answer that it names by its id.
    """
    if named_answer is not None:
        return _continue_after(store, incoming, named_answer)
    continuation = _find_in_session(store, incoming, session) if session else None
    if continuation is not None and continuation.length >= incoming.answered_length:
        return continuation
    anchor = _find_anchor(store, incoming, session)
    if anchor is not None and (continuation is None or continuation.length < anchor.length):
        aligned = _align(store, incoming, anchor)
        if aligned.length < incoming.answered_length:
            # If the first message was edited, the current branch may have the edited one already.
            first: FirstTurn = "typed" if aligned.commit == BEFORE_FIRST else "ignored"
            by_turns = _align_head(store, incoming, anchor.thread, first)
            if by_turns is not None and by_turns.length > aligned.length:
                return structs.replace(by_turns, is_token=True)
        return aligned
    aligned = _find_by_turns(store, incoming, session)
    if aligned is not None and (continuation is None or continuation.length < aligned.length):
        return aligned
    if session or incoming.hint is not None:
        return continuation
    return _find_tip(store, incoming)


def prefer_head(store: Store, incoming: Incoming, continuation: Continuation) -> Continuation:
    """The same continuation, or the current branch's head if that is the request's last answer.

    An equal request may be elsewhere in the thread: it was undone, or the client left it after an
    answer with the same text. The client is on the current branch in both cases.
    """
    if not 0 < incoming.answered_length < continuation.length:
        return continuation
    record = store.read_thread(continuation.thread)
    head = None if record is None else store.read_ref(record.name, record.head)
    steps = [] if head is None else store.read_commits(continuation.thread, [head])
    chain = steps[0].commit.chain if steps else None
    if chain is None or chain != incoming.points[incoming.answered_length - 1].chain:
        return continuation
    return structs.replace(
        continuation, commit=steps[0].commit.id, length=incoming.answered_length, echo=None
    )


def _align(store: Store, incoming: Incoming, anchor: Continuation) -> Continuation:
    """Where a request continues if its client rewrote something up to the anchor."""
    continuation = _align_before(store, incoming, anchor)
    if continuation.commit != anchor.commit or continuation.echo is not None:
        return continuation
    answer = read_appended(store, anchor.thread, anchor.commit)
    start = _echo_start(incoming.messages, anchor.length - 1)
    if answer is None or is_equal_echo(answer, incoming.messages[start : continuation.length]):
        return continuation
    return structs.replace(continuation, echo=(anchor.commit, start, continuation.length))


def _align_before(store: Store, incoming: Incoming, anchor: Continuation) -> Continuation:
    """Where a request continues if its client rewrote something before the anchor."""
    if _is_unedited(store, incoming, anchor):
        return _continue_after(store, incoming, anchor)
    stored = [
        (step.commit.id, decode_appended(step))
        for step in store.walk(anchor.thread, anchor.commit)
        if step.commit.kind == "append"
    ]
    dialogue = [(commit, message) for commit, message in stored if not is_system(message)]
    edit = find_edit(dialogue, incoming.messages[: anchor.length])
    if edit is not None:
        commit, length = edit
        if commit is None:
            return Continuation(anchor.thread, BEFORE_FIRST, 0, is_token=True)
        return _skip_echoes(store, incoming, Continuation(anchor.thread, commit, length, True))
    return _continue_after(store, incoming, anchor)


def _align_head(
    store: Store, incoming: Incoming, thread: str, first: FirstTurn
) -> Continuation | None:
    """Where a request continues the current branch of a proven thread.

    Its client may have dropped old turns, or cleared results after the last call.
    """
    record = store.read_thread(thread)
    head = None if record is None else store.read_ref(thread, record.head)
    return None if head is None else _align_turns(store, incoming, thread, head, first)


def _dialogue_rows(steps: Sequence[Step]) -> list[Row]:
    """The rows of a conversation without system messages."""
    return [row for row in visible_rows(View().extend(steps).rows) if not is_system(row.message)]


def _find_by_turns(store: Store, incoming: Incoming, session: Sequence[str]) -> Continuation | None:
    """Where a request continues a conversation of its session with the same turns.

    Their chains are not equal if the client changes the text that it adds to messages, for example
    a date in the first one, or if it drops old turns. Imported messages have no chains: a session
    file has the client's version of them, without that text. So the turns are compared.
    """
    if incoming.hint is None or not session or not incoming.answered_length:
        return None
    imported = find_imported(store, incoming.scope, incoming.hint)
    best: Continuation | None = None
    for thread in dict.fromkeys([*imported, *session[:ALIGNED_THREADS]]):
        record = store.read_thread(thread)
        if record is None or thread not in session:
            continue
        is_imported = thread in imported
        refs = read_branches(store, thread)
        current = refs.pop(record.head, None)
        heads = [] if current is None else [current]
        if is_imported:
            heads += list(reversed(refs.values()))[: IMPORTED_BRANCHES - 1]
        for head in heads:
            # The same typed text proves less without a token, but an imported session has no text
            # that its client added.
            first: FirstTurn = "typed" if is_imported else "all"
            continuation = _align_turns(store, incoming, thread, head, first)
            if continuation and (best is None or continuation.length > best.length):
                best = continuation
    return best


def _align_turns(
    store: Store, incoming: Incoming, thread: str, head: Id, first: FirstTurn
) -> Continuation | None:
    """Where a request continues the conversation up to `head`, compared turn by turn.

    The client does not know about a compaction or an edit in Weft, so the messages are also
    compared as they were appended.
    """
    steps = store.walk(thread, head)
    aligned = _align_rows(store, incoming, thread, _dialogue_rows(steps), first, head)
    appended = [step for step in steps if step.commit.kind == "append"]
    if all(step.commit.kind in ("append", "setup") for step in steps):
        return aligned
    as_appended = _align_rows(store, incoming, thread, _dialogue_rows(appended), first)
    if as_appended and (aligned is None or as_appended.length > aligned.length):
        return as_appended
    return aligned


def _align_rows(
    store: Store,
    incoming: Incoming,
    thread: str,
    rows: Sequence[Row],
    first: FirstTurn,
    head: Id | None = None,
) -> Continuation | None:
    """Where a request continues these rows; after all of them, at `head` if there is one."""
    stored = [row.message for row in rows]
    shared, length = align_turns(stored, incoming.messages, first=first)
    trimmed = align_trimmed(stored, incoming.messages)
    if trimmed > length:
        shared, length = len(rows), trimmed
    if not length:
        return None
    while length < len(incoming.messages) and is_system(incoming.messages[length]):
        length += 1  # as for equal chains, which system messages do not change
    commit = head if head is not None and shared == len(rows) else rows[shared - 1].id
    if commit is None or not store.read_nodes(thread, [commit]):
        return None  # the message is a summary's, and has no commit of its own
    return Continuation(thread, commit, length)


def _is_unedited(store: Store, incoming: Incoming, anchor: Continuation) -> bool:
    """Whether the thread has the same messages before the anchor, as its chains prove.

    The echo at the anchor itself may differ: it is in no earlier request.
    """
    steps = store.read_commits(anchor.thread, [anchor.commit])
    if not steps:
        return False
    if steps[0].commit.chain == incoming.points[anchor.length - 1].chain:
        return True
    start = _echo_start(incoming.messages, anchor.length - 1)
    parents = store.read_commits(anchor.thread, steps[0].commit.parents[:1])
    if not start or not parents:
        return False
    chain = incoming.points[start - 1].chain
    return chain is not None and parents[0].commit.chain == chain


def _skip_echoes(store: Store, incoming: Incoming, continuation: Continuation) -> Continuation:
    """Advance past the stored answers that the request echoes next.

    The echo of the newest answer is in no earlier request, so the client may have rewritten it.
    What follows an answer was recorded as the client sent it.
    """
    messages = incoming.messages
    start = continuation.length
    while start < len(messages) and is_system(messages[start]):
        start += 1
    length = echo_length(messages, start)
    if not length:
        return continuation
    answers = [
        (link.commit, read_appended(store, continuation.thread, link.commit))
        for link in store.find_links([reply_key(continuation.thread, continuation.commit)])
        if link.thread == continuation.thread
    ]
    echoed = [
        (commit, end, is_equal_echo(answer, messages[start:end]))
        for commit, answer in answers
        for end in range(start + length, start, -1)
        if answer is not None and is_echo(answer, messages[start:end])
    ]
    if not echoed:
        return continuation
    # Of several answers, the one that the client did not rewrite.
    commit, end, is_equal = max(echoed, key=itemgetter(2))
    echo = None if is_equal else (commit, start, end)
    after = Continuation(continuation.thread, commit, end, continuation.is_token, echo)
    return _skip_echoes(store, incoming, after)


def _find_anchor(store: Store, incoming: Incoming, session: Sequence[str]) -> Continuation | None:
    """The last message of the request that echoes an answer of exactly one conversation.

    An id alone proves nothing: it may be in a log or a pasted transcript. Within the session that
    the client names, the calls must have the same names; their arguments may differ. Without a
    known session, the whole visible answer must be equal, or else the conversation before it: then
    the client rewrote only the answer. An answer of another session proves nothing.
    """
    tried = 0
    for index, links in find_token_links(store, incoming, TOKENS_READ):
        thread, commit = links[0].thread, links[0].commit
        if len({link.thread for link in links}) > 1 or (session and thread not in session):
            continue
        answer = read_appended(store, thread, commit)
        anchor = Continuation(thread, commit, index + 1, is_token=True)
        if answer is not None and _is_proven_echo(store, incoming, session, anchor, answer):
            return anchor
        tried += 1
        if tried == ANCHORS_TRIED:
            break
    return None


def _is_proven_echo(
    store: Store,
    incoming: Incoming,
    session: Sequence[str],
    anchor: Continuation,
    answer: Message,
) -> bool:
    """Whether the message before the anchor, which has a token of the answer, echoes it."""
    echo = echo_at(incoming.messages, anchor.length - 1)
    if session:
        return has_equal_call_names(answer, echo)
    if is_equal_echo(answer, echo):
        return True
    return is_echo(answer, echo) and _is_unedited(store, incoming, anchor)


def read_appended(store: Store, thread: str, commit: Id) -> Message | None:
    """The message that a commit appended; None if it appended none."""
    steps = store.read_commits(thread, [commit])
    return decode_appended(steps[0]) if steps and steps[0].commit.kind == "append" else None


def echo_at(messages: Sequence[Message], index: int) -> list[Message]:
    """The assistant messages around this one, which may all be echoes of one answer."""
    end = index + 1
    while end < len(messages) and messages[end].role == "assistant":
        end += 1
    return list(messages[_echo_start(messages, index) : end])


def _echo_start(messages: Sequence[Message], index: int) -> int:
    """The index of the first message of the run of assistant messages that ends here."""
    while index > 0 and messages[index - 1].role == "assistant":
        index -= 1
    return index


def has_equal_call_names(answer: Message, echo: Sequence[Message]) -> bool:
    """Whether calls with the same id have the same name in answer and echo."""
    names = {block.id: block.name for block in answer.blocks if isinstance(block, ToolCall)}
    calls = [block for m in echo for block in m.blocks if isinstance(block, ToolCall)]
    return all(names.get(call.id, call.name) == call.name for call in calls)


def is_equal_echo(answer: Message, echo: Sequence[Message]) -> bool:
    """Whether an echo has the same text and calls as the answer.

    The answer may be split over the messages of the echo, or be one of them.
    """
    start = empty_chain("")
    blocks = [block for message in echo for block in message.blocks]
    chains = {chain_message(start, Message("assistant", tuple(blocks)))}
    chains |= {chain_message(start, message) for message in echo}
    return chain_message(start, answer) in chains


def find_token_links(
    store: Store, incoming: Incoming, limit: int | None, start: int = 0
) -> Iterator[tuple[int, list[Link]]]:
    """The links of the tokens in a request, by the index of the message that contains them.

    The last message comes first, the one at `start` last. With `limit`, at most that many tokens
    are looked up, and few at first, because the newest answer nearly always matches. Without it,
    they are looked up together.
    """
    remaining = len(incoming.messages) * TOKENS_READ if limit is None else limit
    batch_size = remaining if limit is None else FIRST_TOKENS
    index_of_key: dict[bytes, int] = {}
    keys: list[bytes] = []
    for index in range(len(incoming.messages) - 1, start - 1, -1):
        if not incoming.tokens[index]:
            continue
        for token in incoming.tokens[index]:
            key = token_key(incoming.scope, token)
            if key not in index_of_key:
                index_of_key[key] = index
                keys.append(key)
                remaining -= 1
        if keys and (len(keys) >= batch_size or remaining <= 0):
            yield from _read_links(store, keys, index_of_key)
            keys, batch_size = [], TOKENS_READ
        if remaining <= 0:
            return
    if keys:
        yield from _read_links(store, keys, index_of_key)


def _read_links(
    store: Store, keys: list[bytes], index_of_key: Mapping[bytes, int]
) -> Iterator[tuple[int, list[Link]]]:
    """The links of these keys by message index, last message first."""
    links: dict[int, list[Link]] = {}
    for link in store.find_links(keys):
        links.setdefault(index_of_key[link.key], []).append(link)
    yield from sorted(links.items(), reverse=True)


def _continue_after(store: Store, incoming: Incoming, anchor: Continuation) -> Continuation:
    """Where a request continues: at its last message after the anchor that the thread has too.

    The chained keys start from the stored chain, so it does not matter what the client rewrote
    before the anchor. The request's own chains are looked up too: messages after a rewritten answer
    are indexed under the client's version of it.
    """
    steps = store.read_commits(anchor.thread, [anchor.commit])
    if not steps or steps[0].commit.chain is None:
        return anchor
    start = _end_of_echo(incoming.messages, anchor.length, steps[0])
    chain = steps[0].commit.chain
    lengths: dict[bytes, int] = {chain: start}
    for number in range(start, len(incoming.messages)):
        message = incoming.messages[number]
        if not is_system(message):
            chain = chain_message(chain, message)
        lengths[chain] = number + 1
    lengths |= _lengths(incoming, start, len(incoming.messages))
    matches = store.match_within([anchor.thread], list(lengths))
    longest = max(matches, key=lambda match: lengths[match.chain], default=None)
    if longest is None or longest.chain == steps[0].commit.chain:
        continuation = Continuation(anchor.thread, anchor.commit, start, is_token=True)
    else:
        continuation = Continuation(
            anchor.thread, longest.commit, lengths[longest.chain], is_token=True
        )
    return _skip_echoes(store, incoming, continuation)


def _end_of_echo(messages: Sequence[Message], length: int, answer: Step) -> int:
    """Where the echo of an answer ends: a client may send it as several messages."""
    if length == len(messages) or messages[length].role != "assistant":
        return length
    texts = {block.text for block in decode_appended(answer).blocks if isinstance(block, Text)}
    while length < len(messages) and messages[length].role == "assistant":
        blocks = messages[length].blocks
        if not all(isinstance(block, Text) and block.text in texts for block in blocks):
            break
        length += 1
    return length


def _find_in_session(
    store: Store, incoming: Incoming, session: Sequence[str]
) -> Continuation | None:
    """Where a request continues in the thread of its session that shares most messages with it.

    The shared messages must include an answer, or be the whole thread. A thread with equal system
    text and tools at that commit is preferred, then the one that shares most messages, then the
    newest.
    """
    longest = _longest_matches(store, incoming, session)
    equal_threads = {
        each.thread
        for each in longest
        # Whether the only candidate is equal matters only if it has no answer yet.
        if (len(longest) > 1 or not _has_answer(incoming, each.length))
        and _has_equal_setup(store, incoming, each)
    }
    candidates = [_skip_echoes(store, incoming, each) for each in longest]
    usable = [
        each
        for each in candidates
        if _may_continue(store, incoming, each, each.thread in equal_threads)
    ]
    return max(usable, key=lambda each: (each.thread in equal_threads, each.length), default=None)


def _longest_matches(
    store: Store, incoming: Incoming, session: Sequence[str]
) -> list[Continuation]:
    """For each thread of a session, the commit that shares most messages with a request.

    The newest exchange of the session is nearly always what matches. So the last chains of the
    request are looked up first, and earlier ones only if no thread has any of these.
    """
    count = len(incoming.points)
    first_counts = (LAST_CHAINS, NEWEST_CHAINS) if len(session) == 1 else (NEWEST_CHAINS,)
    lengths: dict[bytes, int] = {}
    matches: list[Match] = []
    stop = count
    for looked_up in (*first_counts, count):
        start = max(0, count - looked_up)
        if not matches and start < stop:
            lengths = _lengths(incoming, start, stop)
            matches = store.match_within(list(session), list(lengths))
            stop = start
    longest: dict[str, Match] = {}
    for match in matches:
        best = longest.get(match.thread)
        if best is None or lengths[match.chain] > lengths[best.chain]:
            longest[match.thread] = match
    return [
        Continuation(match.thread, match.commit, lengths[match.chain]) for match in longest.values()
    ]


def _has_equal_setup(store: Store, incoming: Incoming, continuation: Continuation) -> bool:
    """Whether the thread had the request's system text and tools at this commit."""
    point = incoming.points[continuation.length - 1]
    keys = [context_key(kind, point, incoming.tools) for kind in ("answer", "request")]
    return any(
        (link.thread, link.commit) == (continuation.thread, continuation.commit)
        for link in store.find_links(keys)
    )


def _has_answer(incoming: Incoming, length: int) -> bool:
    """Whether there is an answer among the first messages of a request."""
    return any(message.role == "assistant" for message in incoming.messages[:length])


def _may_continue(
    store: Store, incoming: Incoming, continuation: Continuation, has_equal_setup: bool
) -> bool:
    """Whether a request may continue here: after an answer, or after an unanswered request."""
    if _has_answer(incoming, continuation.length):
        return True
    if continuation.length == len(incoming.messages):  # the same request again
        return has_equal_setup or _has_failed(store, continuation)
    # The client adds messages, and has no answer yet.
    return bool(branches_at(store, continuation.thread, continuation.commit))


def _has_failed(store: Store, request: Continuation) -> bool:
    """Whether a request has failed, and has no answer. Its retry may have another system text."""
    if not store.attempts(request.thread, [request.commit]):
        return False
    return store.newest_link(reply_key(request.thread, request.commit)) is None


def _find_tip(store: Store, incoming: Incoming) -> Continuation | None:
    """A conversation that ends with the request's last answer, or with the same request."""
    length = incoming.answered_length
    if length:
        key = context_key("tip", incoming.points[length - 1], incoming.tools)
        link = store.newest_link(key)
        if link is not None:
            return Continuation(link.thread, link.commit, length)
    kinds = ["asked"] if length else []
    kinds += ["failed", "partial"] if incoming.is_retry else ["failed"]
    for kind in kinds:
        link = store.newest_link(context_key(kind, incoming.last_point, incoming.tools))
        if link is not None:
            return Continuation(link.thread, link.commit, len(incoming.messages))
    return None


def _lengths(incoming: Incoming, start: int, stop: int) -> dict[bytes, int]:
    """The number of messages after which the request has each chain.

    Only the chains of the messages from `start` to `stop` are read. System messages do not change
    the chain, so the last number counts.
    """
    return {
        point.chain: number
        for number, point in enumerate(incoming.points[start:stop], start=start + 1)
        if point.chain is not None
    }


def tokens_of(message: Message) -> Iterator[str]:
    """The texts in a message that no other conversation contains."""
    yield from _ext_tokens(message.ext)
    for block in message.blocks:
        yield from _block_tokens(block)


def _block_tokens(block: Block) -> Iterator[str]:
    match block:
        case ToolCall():
            if is_distinctive(block.id, block.name):
                yield block.id
        case ToolResult():
            if is_distinctive(block.call_id, block.name or ""):
                yield block.call_id
        case Thinking(signature=str(encrypted)) | Redacted(data=encrypted):
            if len(encrypted) >= _ENCRYPTED_LENGTH:
                yield encrypted
        case Opaque(raw=raw):
            yield from _member_tokens(raw)
        case _:
            pass
    yield from _ext_tokens(getattr(block, "ext", None))


def _ext_tokens(ext: Ext | None) -> Iterator[str]:
    for members in (ext or {}).values():
        yield from _member_tokens(members)


def _member_tokens(members: dict[str, Any]) -> Iterator[str]:
    """The ids, signatures and encrypted texts among these members."""
    item = members.get("item")  # where Responses keeps the members of a message item
    if isinstance(item, dict):
        yield from _member_tokens(cast(dict[str, Any], item))
    for name in _ID_MEMBERS:
        value = members.get(name)
        if not isinstance(value, str):
            continue
        if is_distinctive(value) if name == "id" else len(value) >= _ENCRYPTED_LENGTH:
            yield value


def is_distinctive(id: str, name: str = "") -> bool:
    """Whether an id looks random; a counter, or a name with a number, does not.

    `name` is the name of the tool: some servers build ids from it.
    """
    bare = id.replace("-", "")
    if name:
        bare = bare.replace(name.replace("-", ""), "")
    return any(_looks_random(run) for run in _ID_RUN.findall(bare))


def _looks_random(run: str) -> bool:
    """Whether a run of letters and digits looks random.

    About one random id in twelve has at most one digit, and a few have no letter. Read as a name,
    the first kind has many short words. The second kind is longer, and has more different digits,
    than a counter or a time in milliseconds.
    """
    digits = sum(character.isdigit() for character in run)
    if digits >= 2 and len(run) - digits >= 2:
        return True
    if digits >= len(run) - 1:
        return len(run) >= LONG_NUMBER and len(set(run)) >= VARIED_DIGITS
    return LONGEST_WORDS * len(_WORD.findall(run)) > len(run)
