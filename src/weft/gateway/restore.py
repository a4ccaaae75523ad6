"""Restores the private parts of earlier answers before a request is translated.

An answer may have parts that its client never saw: thinking, signatures, encrypted reasoning. The
model needs them back, and nobody else may get them (ADR 27).
"""

from collections.abc import Sequence

from msgspec import structs

from weft.codec import is_plain
from weft.history import decode_appended
from weft.ids import Id
from weft.model import Block, Message, Origin, Redacted, Thinking, ToolCall
from weft.store import Store

from .identity import (
    Continuation,
    Incoming,
    context_key,
    echo_at,
    find_token_links,
    is_equal_echo,
    names_equal,
    read_answer,
)


def find_answers(
    store: Store,
    incoming: Incoming,
    continuation: Continuation | None,
    maker: Origin,
    *,
    is_complete: bool = True,
) -> dict[tuple[int, int], Message]:
    """The stored answers that the request echoes, by message range, if they are proven its own.

    The proof is a token of the answer in the request. Without one, the whole conversation up to the
    answer must be equal, and no other answer may follow an equal conversation. While records wait
    in the journal the store is not complete (`is_complete`), so equality proves nothing.
    """
    if continuation is None or not incoming.answered:
        return {}
    spans = _echo_spans(store, incoming, continuation, is_complete)
    steps = store.read_commits(continuation.thread, list(dict.fromkeys(spans.values())))
    messages = {
        step.commit.id: decode_appended(step) for step in steps if step.commit.kind == "append"
    }
    return {
        span: with_private_parts(incoming.messages[span[0] : span[1]], messages[commit])
        for span, commit in spans.items()
        if commit in messages
        and messages[commit].origin == maker
        and not is_plain(messages[commit])
    }


def with_private_parts(echo: Sequence[Message], answer: Message) -> Message:
    """The answer as the client echoes it, with the private parts of the stored one.

    An unchanged echo becomes the stored answer. If the client rewrote or redacted something, its
    text and arguments stay as it sent them.
    """
    if is_equal_echo(answer, echo):
        return answer
    echoed = [block for message in echo for block in message.blocks]
    calls = {block.id: block for block in answer.blocks if isinstance(block, ToolCall)}
    blocks: list[Block] = []
    for block in echoed:
        stored = calls.get(block.id) if isinstance(block, ToolCall) else None
        if isinstance(block, ToolCall) and stored is not None and stored.name == block.name:
            block = structs.replace(block, ext=stored.ext)
        blocks.append(block)
    private = [b for b in answer.blocks if isinstance(b, Thinking | Redacted)]
    return structs.replace(answer, blocks=(*private, *blocks))


def _echo_spans(
    store: Store, incoming: Incoming, continuation: Continuation, is_complete: bool
) -> dict[tuple[int, int], Id]:
    """The commits of proven answers, by the range of messages that echo each one."""
    proven = _by_token(store, incoming, continuation.thread)
    keys = {
        context_key("answer", incoming.points[number], incoming.tools): number
        for number, message in enumerate(incoming.messages)
        if message.role == "assistant" and number not in proven
    }
    for link in store.only_links(list(keys)) if is_complete else ():
        if link.thread == continuation.thread:
            proven[keys[link.key]] = link.commit
    spans: dict[tuple[int, int], Id] = {}
    start: int | None = None
    for number, message in enumerate(incoming.messages):
        if message.role != "assistant":
            start = None
            continue
        start = number if start is None else start
        commit = proven.get(number)
        if commit is None or proven.get(number + 1) == commit:
            continue  # an echo may be several messages; its last one ends it
        spans[start, number + 1] = commit
        start = None
    return spans


def _by_token(store: Store, incoming: Incoming, thread: str) -> dict[int, Id]:
    proven: dict[int, Id] = {}
    for number, links in find_token_links(store, incoming, None):
        commits = {link.commit for link in links if link.thread == thread}
        if len(commits) == 1 and all(link.thread == thread for link in links):
            commit = commits.pop()
            answer = read_answer(store, thread, commit)
            if answer is not None and names_equal(answer, echo_at(incoming.messages, number)):
                proven[number] = commit
    return proven
