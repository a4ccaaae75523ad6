"""What Weft adds to a request from the store before the request is translated.

**The private state of earlier answers.** An answer may have parts that its client never saw:
thinking, signatures, encrypted thinking. The model needs them back, and nobody else may get them
(ADR 27).

**Conversations that a client continues by the id of an answer,** without sending them again. With
OpenAI's `previous_response_id` and Anthropic's `thread`, a client sends only its new messages. The
upstream that gave out the id has the earlier ones. If the answer came from Weft, or the request now
goes to another upstream, Weft adds them from the store. So a client can even change the model in
between.

https://platform.openai.com/docs/guides/conversation-state
"""

from collections.abc import Container, Iterable, Mapping, Sequence, Set

from msgspec import Struct, structs

from weft.codec import Codec, is_plain
from weft.errors import Refused
from weft.history import (
    decode_appended,
    echo_length,
    is_echo,
    is_same_input,
    pair_calls,
    read_branches,
)
from weft.ids import Id
from weft.model import (
    SYSTEM_ROLES,
    Block,
    JsonObject,
    Message,
    Origin,
    Redacted,
    Request,
    Thinking,
    Tool,
    ToolCall,
    is_system,
)
from weft.store import Step, Store

from .identity import (
    NEW_MESSAGES,
    Continuation,
    EchoedAnswers,
    Incoming,
    TraceCache,
    context_key,
    echo_at,
    find_token_links,
    has_equal_call_names,
    is_equal_echo,
    read_appended,
    reply_key,
    token_key,
    tokens_of,
    twin_key,
)

LOOK_ALIKES_READ = 16
"""How many other threads of a session are compared with a request. A session with more of them
counts as having a look-alike."""

FIRST_COMMITS = 16
"""Among how many commits the first message of a thread is looked for."""

SETUPS_SKIPPED = 2
"""How many commits may change system text or tools between an answer and the next message."""


class ProvenAnswers(Struct, frozen=True):
    """The stored answers that a request echoes, by message range, and the ids of their commits."""

    messages: Mapping[tuple[int, int], Message] = {}
    commits: Set[Id] = frozenset()


def find_answers(
    store: Store,
    incoming: Incoming,
    continuation: Continuation | None,
    origin: Origin,
    *,
    session: Sequence[str] = (),
    traces: TraceCache | None = None,
) -> ProvenAnswers:
    """The stored answers that the request echoes, if the request proves them.

    There are three proofs:

    - The request has a token of the answer.
    - The client names its session (`session` has its threads), the thread has the same messages
      before and after the answer, and no other answer there fits.
    - System text, tools and all messages up to the answer are equal, and no other answer follows
      an equal conversation.

    `traces` has the answers that an earlier, shorter request echoed; these are not looked up again.
    It is None while records wait in the journal: the store is then incomplete, so the third proof
    is not used.
    """
    if continuation is None or not incoming.answered_length:
        return ProvenAnswers()
    echoed = None
    if traces is not None:
        echoed = _still_proven(store, incoming, continuation.thread, origin, session, traces)
    start = 0 if echoed is None else echoed.length
    proof = _prove_echoes(store, incoming, continuation, session, traces is not None, start)
    spans = _echo_spans(incoming, proof.commits, start)
    steps = store.read_commits(continuation.thread, list(dict.fromkeys(spans.values())))
    messages = {
        step.commit.id: decode_appended(step) for step in steps if step.commit.kind == "append"
    }
    answers = {
        span: with_private_state(incoming.messages[span[0] : span[1]], messages[commit])
        for span, commit in spans.items()
        if commit in messages
        and messages[commit].origin == origin
        and not is_plain(messages[commit])
    }
    restored = {spans[span] for span in answers}
    if traces is None or echoed is None:
        return ProvenAnswers(answers, restored)
    ids = [
        id
        for step in steps
        if step.commit.id in restored
        for id in (step.commit.id, *step.commit.entries)
    ]
    length = _looked_up_length(incoming, spans, start)
    stable_length = min(proof.by_context, default=length)
    echoed = echoed.extended(length, stable_length, ids, answers)
    traces.put_answers(incoming, echoed)
    return ProvenAnswers(echoed.answers, frozenset(echoed.ids))


def _looked_up_length(incoming: Incoming, spans: Iterable[tuple[int, int]], first: int) -> int:
    """The number of leading messages whose answers need not be looked up again.

    An unproven answer near the end may still be proven later, by the messages after it. `spans` are
    the message ranges of the proven answers.
    """
    proven = {index for span in spans for index in range(*span)}
    length = len(incoming.messages)
    for index in range(max(first, length - NEW_MESSAGES), length):
        if incoming.messages[index].role == "assistant" and index not in proven:
            return index
    return length


def _still_proven(
    store: Store,
    incoming: Incoming,
    thread: str,
    origin: Origin,
    session: Sequence[str],
    traces: TraceCache,
) -> EchoedAnswers:
    """The cached answers that the first messages of a request echo, if they are still proven.

    Their proof ends if another answer gets one of their tokens or contexts, or if a text in them
    is forgotten. A request with another system text or other tools may belong to another
    conversation with the same session name.
    """
    link = store.newest_link(twin_key(thread), deleted=True)
    twin = None if link is None else link.commit
    empty = EchoedAnswers(
        0, thread, incoming.hint, origin, twin, incoming.setup, session=tuple(session)
    )
    echoed = traces.answers(incoming)
    if echoed is None or echoed.proof != empty.proof:
        return empty
    if (echoed.setup, echoed.session) != (empty.setup, empty.session):
        if _has_look_alike(store, incoming, thread, session):
            return empty
        echoed = structs.replace(echoed.with_setup(empty.setup), session=empty.session)
    maintenance = store.maintenance()
    if echoed.ids and maintenance.has_tombstones() and maintenance.tombstones(echoed.ids):
        return empty
    length = echoed.length
    while length and incoming.messages[length - 1].role == "assistant":
        length -= 1  # the echo of an answer may continue in the next message
    return echoed.shortened(length)


def with_private_state(echo: Sequence[Message], answer: Message) -> Message:
    """The answer as the client echoes it, with the private state of the stored one.

    An unchanged echo becomes the stored answer. If the client rewrote or redacted something, its
    text and arguments stay as it sent them.
    """
    if is_equal_echo(answer, echo):
        return answer
    echoed = [block for message in echo for block in message.blocks]
    calls = pair_calls(answer, echo)
    blocks: list[Block] = []
    for block in echoed:
        stored = calls.get(block.id) if isinstance(block, ToolCall) else None
        if isinstance(block, ToolCall) and stored is not None and stored.name == block.name:
            block = structs.replace(block, id=stored.id, ext=stored.ext)
        blocks.append(block)
    private = [b for b in answer.blocks if isinstance(b, Thinking | Redacted)]
    return structs.replace(answer, blocks=(*private, *blocks))


class EchoProof(Struct, frozen=True):
    """The commits of proven answers, by the index of the message that echoes each one.

    The proof of those in `by_context` depends on the system text and the tools.
    """

    commits: Mapping[int, Id]
    by_context: Set[int]


def _prove_echoes(
    store: Store,
    incoming: Incoming,
    continuation: Continuation,
    session: Sequence[str],
    is_complete: bool,
    first: int,
) -> EchoProof:
    """The proven answers that the messages from `first` on echo.

    `is_complete` says whether the store has all records: none of them waits in the journal.
    """
    proven = _prove_by_token(store, incoming, continuation.thread, first)
    by_context = {}
    if is_complete:
        by_context = _prove_by_context(store, incoming, continuation.thread, proven, first)
    proven |= by_context
    if continuation.thread in session:
        proven |= _prove_by_session(store, incoming, continuation, session, proven, first)
    return EchoProof(proven, set(by_context))


def _echo_spans(
    incoming: Incoming, proven: Mapping[int, Id], first: int
) -> dict[tuple[int, int], Id]:
    """The commits of proven answers, by the range of messages that echo each one.

    Only the messages from `first` on are read.
    """
    spans: dict[tuple[int, int], Id] = {}
    start: int | None = None
    for index, message in enumerate(incoming.messages[first:], start=first):
        if message.role != "assistant":
            start = None
            continue
        start = index if start is None else start
        commit = proven.get(index)
        if commit is None or proven.get(index + 1) == commit:
            continue  # an echo may be several messages; its last one ends it
        spans[start, index + 1] = commit
        start = None
    return spans


def _prove_by_token(store: Store, incoming: Incoming, thread: str, first: int) -> dict[int, Id]:
    """The answers of this thread whose tokens are in the request, and in no other answer."""
    proven: dict[int, Id] = {}
    for index, links in find_token_links(store, incoming, None, first):
        answers = {(link.thread, link.commit) for link in links}
        if len(answers) > 1 or links[0].thread != thread:
            continue
        commit = links[0].commit
        answer = read_appended(store, thread, commit)
        echo = echo_at(incoming.messages, index)
        if answer is not None and has_equal_call_names(answer, echo):
            proven[index] = commit
    return proven


def _prove_by_context(
    store: Store, incoming: Incoming, thread: str, proven: Container[int], first: int
) -> dict[int, Id]:
    """The other answers that follow an equal conversation, if no other answer does.

    Equal are the system text, the tools and all messages up to the answer.
    """
    keys = {
        context_key("answer", incoming.points[index], incoming.tools): index
        for index, message in enumerate(incoming.messages[first:], start=first)
        if message.role == "assistant" and index not in proven
    }
    links = store.only_links(list(keys))
    return {keys[link.key]: link.commit for link in links if link.thread == thread}


def _prove_by_session(
    store: Store,
    incoming: Incoming,
    continuation: Continuation,
    session: Sequence[str],
    proven: Mapping[int, Id],
    first: int,
) -> dict[int, Id]:
    """The other answers of a session's thread, found by the chained keys of the messages.

    Servers that number their calls (`call_0`) write no tokens, and a client may have changed its
    system text or tools since. If the client rewrote an answer, only the message after it has the
    chain of the client's version; so the answer is also looked for before that message.
    """
    messages, thread = incoming.messages, continuation.thread
    ends = _unproven_ends(messages, proven, first)
    if not ends or _has_look_alike(store, incoming, thread, session):
        return {}
    answer_chains = {incoming.points[end].chain: end for end in ends}
    next_chains: dict[bytes | None, int] = {}
    for end in ends:
        next_input = _next_input(messages, end)
        if next_input is not None:
            next_chains[incoming.points[next_input].chain] = end
    chains = [chain for chain in {**answer_chains, **next_chains} if chain is not None]
    matches = store.match_within([thread], chains)
    equal_answers = [
        (answer_chains[match.chain], match.commit)
        for match in matches
        if match.chain in answer_chains
    ]
    next_commits = {
        match.commit: next_chains[match.chain] for match in matches if match.chain in next_chains
    }
    rewritten_answers = [
        (next_commits[node.id], parent)
        for node in store.read_nodes(thread, list(next_commits))
        for parent in node.parents[:1]
    ]
    if continuation.echo is not None:
        answer, _, echo_end = continuation.echo
        if echo_end - 1 in ends:
            rewritten_answers.append((echo_end - 1, answer))
    equal_steps = _read_answers(store, thread, equal_answers)
    rewritten_steps = _read_answers(store, thread, rewritten_answers)
    # If a request has two equal answers, the next message does not prove which one this client got.
    rewritten_steps += _read_siblings(store, thread, rewritten_steps)
    candidates = {
        **_echo_candidates(incoming, proven, rewritten_steps),
        **_echo_candidates(incoming, proven, equal_steps),
    }
    return {index: min(commits) for index, commits in candidates.items() if len(commits) == 1}


def _unproven_ends(messages: Sequence[Message], proven: Container[int], first: int) -> list[int]:
    """The index of the last message of each echo that is not proven, from `first` on."""
    return [
        index
        for index, message in enumerate(messages[first:], start=first)
        if message.role == "assistant"
        and index not in proven
        and (index + 1 == len(messages) or messages[index + 1].role != "assistant")
    ]


def _has_look_alike(store: Store, incoming: Incoming, thread: str, session: Sequence[str]) -> bool:
    """Whether another thread of the session starts with the same message and the same answer.

    A client may give all its conversations one session name. If two of them start alike, the name
    does not tell which one an answer belongs to, whatever system text, tools and reminders the
    client sends with them.
    """
    others = [name for name in session if name != thread]
    if not others:
        return False
    if len(others) > LOOK_ALIKES_READ:
        return True
    messages = [each for each in incoming.messages if each.role not in SYSTEM_ROLES]
    return bool(messages) and any(_begins_like(store, name, messages) for name in others)


def _begins_like(store: Store, thread: str, messages: Sequence[Message]) -> bool:
    """Whether a thread may start with the same message and answer as a request."""
    branches = read_branches(store, thread)
    record = store.read_thread(thread)
    head = None if record is None else branches.get(record.head)
    if head is None:
        return False
    steps = store.walk(thread, head, until=FIRST_COMMITS)
    appended = [decode_appended(step) for step in steps if step.commit.kind == "append"]
    stored = [message for message in appended if not is_system(message)]
    if stored and not is_same_input(stored[:1], messages[:1]):
        return False
    if len(branches) > 1 or not stored:
        return True  # the first message may have several answers
    first = next((n for n, each in enumerate(messages) if each.role == "assistant"), 0)
    answer = next((each for each in stored if each.role == "assistant"), None)
    if answer is None:
        return len(steps) >= FIRST_COMMITS  # it may be in a later commit
    return is_echo(answer, messages[first : first + echo_length(messages, first)])


def _echo_candidates(
    incoming: Incoming, proven: Container[int], steps: Sequence[tuple[int, Step]]
) -> dict[int, set[Id]]:
    """For each message that is not proven, the answers that it may echo."""
    candidates: dict[int, set[Id]] = {}
    for index, step in steps:
        echo = echo_at(incoming.messages, index)
        if index not in proven and is_echo(decode_appended(step), echo):
            candidates.setdefault(index, set()).add(step.commit.id)
    return candidates


def _next_input(messages: Sequence[Message], index: int) -> int | None:
    """The index of the next message that is not a system message; None if there is none."""
    following = range(index + 1, len(messages))
    return next((n for n in following if not is_system(messages[n])), None)


def _read_answers(
    store: Store, thread: str, candidates: Sequence[tuple[int, Id]]
) -> list[tuple[int, Step]]:
    """The answers at these commits, each with the index of the message that may echo it.

    If a commit only changed system text or tools, the answer before it is read.
    """
    answers: list[tuple[int, Step]] = []
    for _ in range(SETUPS_SKIPPED + 1):
        commits = list(dict.fromkeys(commit for _, commit in candidates))
        steps = {step.commit.id: step for step in store.read_commits(thread, commits)}
        indexed_steps = [(index, steps[commit]) for index, commit in candidates if commit in steps]
        answers += [(index, step) for index, step in indexed_steps if _is_answer(step)]
        candidates = [
            (index, parent)
            for index, step in indexed_steps
            if step.commit.kind == "setup"
            for parent in step.commit.parents[:1]
        ]
        if not candidates:
            break
    return answers


def _read_siblings(
    store: Store, thread: str, answers: Sequence[tuple[int, Step]]
) -> list[tuple[int, Step]]:
    """All answers to the same requests."""
    index_of_key: dict[bytes, int] = {}
    for index, step in answers:
        index_of_key |= {reply_key(thread, parent): index for parent in step.commit.parents[:1]}
    links = store.find_links(list(index_of_key)) if index_of_key else []
    siblings = [(index_of_key[link.key], link.commit) for link in links if link.thread == thread]
    return _read_answers(store, thread, siblings)


def _is_answer(step: Step) -> bool:
    return step.commit.kind == "append" and decode_appended(step).role == "assistant"


class UnstoredAnswer(Struct, frozen=True):
    """An answer that is not in the store, and the session that it belongs to."""

    hint: str | None
    message: Message


class UnstoredAnswers:
    """The newest answers that are not in the store: they are still in the journal, or lost.

    They are found by the chained key of their request, and by their tokens.
    """

    def __init__(self, limit: int = 1000) -> None:
        self._limit = limit
        self._answers: dict[tuple[str, bytes], list[UnstoredAnswer]] = {}

    def __bool__(self) -> bool:
        return bool(self._answers)

    def add(self, scope: str, hint: str | None, chain: bytes | None, message: Message) -> None:
        """Keep the answer to the request that ends with this chained key."""
        answer = UnstoredAnswer(hint, message)
        keys = [token_key(scope, token) for token in tokens_of(message)]
        for key in (*keys, *([] if chain is None else [chain])):
            self._answers.setdefault((scope, key), []).append(answer)
        while len(self._answers) > self._limit:
            del self._answers[next(iter(self._answers))]

    def clear(self) -> None:
        self._answers = {}  # another OS thread may be reading the old dict

    def find(self, incoming: Incoming, origin: Origin) -> dict[tuple[int, int], Message]:
        """The answers of this model that the request echoes, by message range."""
        restored: dict[tuple[int, int], Message] = {}
        start = 0
        while start < len(incoming.messages):
            end = start + echo_length(incoming.messages, start)
            answer = self._find(incoming, start, end) if end > start else None
            if answer is not None and answer.origin == origin and not is_plain(answer):
                echo = incoming.messages[start:end]
                restored[start, end] = with_private_state(echo, answer)
            start = max(end, start + 1)
        return restored

    def _find(self, incoming: Incoming, start: int, end: int) -> Message | None:
        """The only answer that these messages echo.

        In the session that the client names, the conversation before it must be the same, or the
        names of its calls. Without a session it needs a token, and equal visible content or an
        equal conversation before it.
        """
        echo, scope, hint = incoming.messages[start:end], incoming.scope, incoming.hint
        tokens = [token for each in incoming.tokens[start:end] for token in each]
        chain = incoming.points[start - 1].chain if start else None
        after_equal = [] if chain is None else self._answers.get((scope, chain), [])
        matching: list[Message] = []
        for key in [token_key(scope, token) for token in tokens]:
            for answer in self._answers.get((scope, key), ()):
                if hint is not None and answer.hint == hint:
                    is_match = has_equal_call_names(answer.message, echo)
                else:
                    is_match = is_equal_echo(answer.message, echo) or (
                        answer in after_equal and is_echo(answer.message, echo)
                    )
                if is_match:
                    matching.append(answer.message)
        if not matching and hint is not None:
            matching = [
                answer.message
                for answer in after_equal
                if answer.hint == hint and is_echo(answer.message, echo)
            ]
        distinct = {id(message) for message in matching}
        return matching[0] if len(distinct) == 1 else None


class StoredConversation(Struct, frozen=True):
    """A conversation up to one of its answers.

    `tools` are the tools of the last request. `stored` is the thread and the commit of the answer;
    None while the answer is only in the journal.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    stored: tuple[str, Id] | None = None


def read_previous_id(codec: Codec, body: JsonObject) -> str | None:
    """The id of the answer that this body continues, if it names one."""
    previous = codec.http.previous
    return None if previous is None else previous.read(body.get(previous.member))


def without_previous_id(codec: Codec, body: JsonObject) -> JsonObject:
    """The body without the member that names the earlier answer."""
    previous = codec.http.previous
    if previous is None or previous.member not in body:
        return body
    return {name: value for name, value in body.items() if name != previous.member}


def join_conversation(
    codec: Codec, conversation: StoredConversation, request: Request
) -> tuple[Request, Continuation | None]:
    """The request with the stored conversation before it, and where that conversation is stored."""
    previous = codec.http.previous
    keeps_setup = previous is not None and previous.keeps_setup
    system = _leading_system(request.messages)
    earlier_messages = conversation.messages
    if system or not keeps_setup:  # the system messages of the request replace the earlier ones
        earlier_messages = earlier_messages[len(_leading_system(earlier_messages)) :]
    tools = request.tools if request.tools or not keeps_setup else conversation.tools
    messages = (*system, *earlier_messages, *request.messages[len(system) :])
    joined = structs.replace(request, messages=messages, tools=tools)
    if conversation.stored is None:
        return joined, None
    return joined, Continuation(
        *conversation.stored, len(system) + len(earlier_messages), is_token=True
    )


def unknown_stored_id(path: str, id: str) -> Refused:
    """The error for an id of a vendor object that this gateway did not give to the caller.

    All callers share one account at the vendor, so the vendor cannot tell whose object it is.
    """
    return Refused(f"{id!r} is not known here", param=path, status=404, type="not_found_error")


def unknown_previous_id(codec: Codec, id: str) -> Refused:
    """The error for an unknown id of an earlier answer."""
    previous = codec.http.previous
    if previous is None:
        return Refused(f"no answer {id!r} is known here")
    message = previous.unknown.replace("{id}", id)
    return Refused(message, param=previous.member, code=previous.code)


def _leading_system(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    count = next((i for i, m in enumerate(messages) if not is_system(m)), len(messages))
    return messages[:count]
