"""Which stored answers a request echoes, and what of them is put back before it is translated.

An answer holds what its client may never have seen: thinking, signatures, sealed reasoning. The
model wants it back; nobody else may get it (ADR 27).
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
    place: Continuation | None,
    maker: Origin,
    *,
    is_complete: bool = True,
) -> dict[tuple[int, int], Message]:
    """The stored answers that the request echoes, where it is proven that they are its own.

    An answer holds what its client may never have seen: thinking, signatures, sealed reasoning.
    It is given back only where the request echoes a token of it, or where everything that it was
    made from is equal and no other answer was made from the same. While records wait in the
    journal the store is not complete, so equality proves nothing then.
    """
    if place is None or not incoming.answered:
        return {}
    spans = _echo_spans(store, incoming, place, is_complete)
    steps = store.read_commits(place.thread, list(dict.fromkeys(spans.values())))
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
    """The answer as the client echoes it, with what only the model's own protocol can carry.

    Where the client shows it unchanged, that is the stored answer. Where it rewrote or redacted
    something, its own text and arguments stay.
    """
    if is_equal_echo(answer, echo):
        return answer
    shown = [block for message in echo for block in message.blocks]
    calls = {block.id: block for block in answer.blocks if isinstance(block, ToolCall)}
    kept: list[Block] = []
    for block in shown:
        stored = calls.get(block.id) if isinstance(block, ToolCall) else None
        if isinstance(block, ToolCall) and stored is not None and stored.name == block.name:
            block = structs.replace(block, ext=stored.ext)
        kept.append(block)
    private = [b for b in answer.blocks if isinstance(b, Thinking | Redacted)]
    return structs.replace(answer, blocks=(*private, *kept))


def _echo_spans(
    store: Store, incoming: Incoming, place: Continuation, is_complete: bool
) -> dict[tuple[int, int], Id]:
    """The proven answers by where their echoes begin and end."""
    proven = _by_token(store, incoming, place.thread)
    keys = {
        context_key("answer", incoming.points[number], incoming.tools): number
        for number, message in enumerate(incoming.messages)
        if message.role == "assistant" and number not in proven
    }
    for link in store.only_links(list(keys)) if is_complete else ():
        if link.thread == place.thread:
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
            continue  # an answer may come back as several messages; its last one ends the echo
        spans[start, number + 1] = commit
        start = None
    return spans


def _by_token(store: Store, incoming: Incoming, thread: str) -> dict[int, Id]:
    found: dict[int, Id] = {}
    for number, links in find_token_links(store, incoming, None).items():
        commits = {link.commit for link in links if link.thread == thread}
        if len(commits) == 1 and all(link.thread == thread for link in links):
            commit = commits.pop()
            answer = read_answer(store, thread, commit)
            if answer is not None and names_equal(answer, echo_at(incoming.messages, number)):
                found[number] = commit
    return found
