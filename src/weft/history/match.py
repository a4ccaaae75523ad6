"""Recognises a conversation that a client sends again, even if the client rewrote parts of it.

- Match keys find the thread that a request continues.
- `find_edit` and `align_turns` compare a request or a session file with what is stored. Clients
  change what they send back: they add default arguments to calls, shorten paths, trim and join
  texts, clear old tool results, move reminders. An answer is recognised by the ids of its calls,
  which every client must keep. An answer without calls is recognised by its visible content. In the
  first turn, where clients put their context, only what the person typed is compared.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, takewhile
from typing import Literal, NamedTuple

from msgspec import Struct, structs

from weft import exact_json
from weft.ids import Id, IdHasher, canonical, canonical_arguments, object_id
from weft.lazy import lazy_pattern
from weft.model import (
    SYSTEM_ROLES,
    Audio,
    Block,
    Checkpoint,
    File,
    FileRef,
    Image,
    Inline,
    Message,
    Opaque,
    Refusal,
    Reminder,
    Source,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    Url,
    checkpoint_text,
    is_system,
    reminder_text,
    side,
)
from weft.store import CommitRecord, Landing

from .client_text import is_codex_context, without_context
from .objects import Append, Draft, encode_commit

# Match keys: how a stateless request finds the thread that it continues.
#
# A client may change much of a conversation between turns: ids, vendor fields, thinking, cache
# marks, string or list content, and how blocks are grouped into messages. The key covers only what
# every client sends back: visible text, calls as name and canonical arguments, and results as text
# and media keys. Each part is hashed with its side (user or assistant).
#
# - Adjacent texts of a message are one part, because clients merge and split them, and drop blank
#   ones.
# - Whitespace in an answer is ignored, because clients trim it and join texts differently. In a
#   user's text only leading and trailing whitespace is ignored: other changes may be an edit.
# - Keys are chained. One key covers everything up to it, so the longest known prefix is the last
#   key that is stored.
# - System messages are left out, because clients rewrite them. A separate digest compares them.
# - The chain starts with the scope, so that one caller never matches another caller's thread.


Chain = bytes
"""The match key of a message and all messages before it."""

TEXT_TAG = b"text\0"
"""The start of a hashed part that is a text."""

TEXT_SLICE = 1 << 16
"""The characters of an answer from which whitespace is removed at once."""


class Series(Struct, frozen=True):
    """Encoded commits, each the parent of the next, and the chain after the last.

    They are written together as one operation of the log, so one `undo` reverts them.
    """

    commits: tuple[CommitRecord, ...]
    entries: tuple[tuple[Id, bytes], ...]  # the id and the encoded content of each new entry
    chain: Chain | None

    def landing(self, verb: str, ref: str, old: Id | None) -> Landing:
        """The write that moves `ref` from `old` to the last commit."""
        last = self.commits[-1]
        return Landing(verb, ref, old, last.id, last.created, self.entries, self.commits)


def encode_series(
    drafts: Sequence[Draft],
    parent: Id | None,
    *,
    scope: str,
    chain: Chain | None,
    created: float,
) -> Series:
    """The commits of these drafts on top of `parent`, whose match chain is `chain`.

    Only appends extend the chain: no other operation changes what clients send back.
    """
    commits: list[CommitRecord] = []
    entries: dict[Id, bytes] = {}
    tip = parent
    for draft in drafts:
        record, new_entries = encode_commit(draft, () if tip is None else (tip,), created=created)
        if isinstance(draft.op, Append) and not is_system(draft.messages[0]):
            chain = chain_message(chain or empty_chain(scope), draft.messages[0])
        commits.append(structs.replace(record, chain=chain))
        entries.update(new_entries)
        tip = record.id
    return Series(tuple(commits), tuple(entries.items()), chain)


def empty_chain(scope: str) -> Chain:
    """The chain of an empty conversation."""
    return object_id("scope", scope.encode())


def chain_message(chain: Chain, message: Message) -> Chain:
    """The chain after this message."""
    side_prefix = side(message.role).encode() + b"\0"
    for part in _parts(message.blocks, message.role == "assistant"):
        hasher = IdHasher("match")
        hasher.update(chain + side_prefix)
        hasher.update(part)
        chain = hasher.id()
    return chain


def chain_messages(scope: str, messages: Iterable[Message]) -> Iterator[Chain | None]:
    """The chain after each message.

    System messages do not change it; it is `None` before the first other message.
    """
    chain: Chain | None = None
    for message in messages:
        if not is_system(message):
            chain = chain_message(chain or empty_chain(scope), message)
        yield chain


class MatchPoint(Struct, frozen=True, gc=False):
    """The chain and the system digest after a message of a list."""

    chain: Chain | None
    system: bytes = b""


def match_points(
    scope: str,
    messages: Sequence[Message],
    volatile: Sequence[re.Pattern[str]] = (),
    earlier: "MatchTrace | None" = None,
) -> list[MatchPoint]:
    """The point after each message.

    System blocks that match a `volatile` pattern are not part of the digest: some clients put
    text there that changes in every request and has no meaning. `earlier` is the trace of an
    earlier list with the same scope and patterns: its equal messages are not hashed again.
    """
    messages = tuple(messages)
    points: list[MatchPoint] = []
    while len(points) < len(messages):
        reused = () if earlier is None else _reuse_points(messages, points, earlier, volatile)
        if reused:
            points += reused
            continue
        last, message = points[-1] if points else MatchPoint(None), messages[len(points)]
        if is_system(message):
            points.append(MatchPoint(last.chain, _add_system(last.system, message, volatile)))
        else:
            chain = chain_message(last.chain or empty_chain(scope), message)
            points.append(MatchPoint(chain, last.system))
    return points


def _reuse_points(
    messages: tuple[Message, ...],
    points: Sequence[MatchPoint],
    earlier: "MatchTrace",
    volatile: Sequence[re.Pattern[str]],
) -> Sequence[MatchPoint]:
    """The points of the messages after `points`, as far as `earlier` has the same messages."""
    number = len(points)
    if number >= len(earlier.messages):
        return ()
    if number and points[-1].chain != earlier.points[number - 1].chain:
        return ()  # with another chain before them, equal messages have other chains too
    length = count_equal_messages(messages, earlier.messages, number)
    reused = earlier.points[number : number + length]
    if length and number and points[-1].system != earlier.points[number - 1].system:
        equal_messages = messages[number : number + length]
        return _with_system(equal_messages, reused, points[-1].system, volatile)
    return reused


def _with_system(
    messages: Sequence[Message],
    points: Sequence[MatchPoint],
    system: bytes,
    volatile: Sequence[re.Pattern[str]],
) -> list[MatchPoint]:
    """The points of these messages if the system digest before them is `system`.

    Most clients have a changing text at the start, and no other system message. So the points are
    updated in runs between system messages, without a function call for each message.
    """
    updated: list[MatchPoint] = []
    system_numbers = [n for n, message in enumerate(messages) if message.role in SYSTEM_ROLES]
    # Without duplicates: 0 is in `system_numbers` if the first message is a system message.
    run_starts = dict.fromkeys([0, *system_numbers, len(points)])
    for start, stop in pairwise(run_starts):
        if start in system_numbers:
            system = _add_system(system, messages[start], volatile)
        updated += [MatchPoint(point.chain, system) for point in points[start:stop]]
    return updated


def count_equal_messages(
    messages: tuple[Message, ...], others: tuple[Message, ...], start: int = 0
) -> int:
    """How many messages from `start` on are equal in both tuples.

    Slices are compared as a whole, which is much faster than a loop over the messages.
    """
    stop = min(len(messages), len(others))
    end, size = start, 1
    while end < stop:
        limit = min(end + size, stop)
        if messages[end:limit] != others[end:limit]:
            break
        end = limit
        size *= 4
    while size > 1 and end < stop:  # the first difference is among the next `size` messages
        size //= 2
        limit = min(end + size, stop)
        if messages[end:limit] == others[end:limit]:
            end = limit
    return end - start


class MatchTrace(Struct, frozen=True):
    """A list of messages and the point after each."""

    messages: tuple[Message, ...]
    points: tuple[MatchPoint, ...]


def _add_system(digest: bytes, message: Message, volatile: Sequence[re.Pattern[str]]) -> bytes:
    """The system digest after one more system message."""
    for block in message.blocks:
        for part in _parts((block,), False):
            if not _is_volatile(part, volatile):
                digest = object_id("system", digest + part)
    return digest


def _is_volatile(part: bytes | bytearray, volatile: Sequence[re.Pattern[str]]) -> bool:
    """Whether a part is a text that matches one of the patterns."""
    if not part.startswith(TEXT_TAG):
        return False  # the rest of a media part may be bytes of a hash
    text = part.removeprefix(TEXT_TAG).decode("utf-8", "surrogatepass")
    return any(pattern.search(text) for pattern in volatile)


def tools_digest(tools: Sequence[Tool]) -> bytes:
    """A digest that is equal for tools with the same meaning in any protocol."""
    if not tools:
        return b""
    meaning = [(t.name, t.description, t.parameters, t.kind, t.namespace) for t in tools]
    return object_id("tools", exact_json.encode(meaning))


def match_key(message: Message) -> Id:
    """The match key of a single message."""
    return chain_message(b"", message)


def _parts(blocks: Sequence[Block], is_answer: bool) -> Iterator[bytes | bytearray]:
    """The hashed parts of a message: adjacent texts are one part."""
    texts: list[str] = []
    for block in blocks:
        text = _visible_text(block)
        if text is not None:
            texts.append(text)
            continue
        part = _part(block)
        if part is not None:
            yield from _text_part(texts, is_answer)
            texts = []
            yield part
    yield from _text_part(texts, is_answer)


def _text_part(texts: Sequence[str], is_answer: bool) -> Iterator[bytes | bytearray]:
    part = bytearray(TEXT_TAG)
    if is_answer:
        # In slices: the list of the words of a large text takes ten times as much memory as it.
        for text in texts:
            for start in range(0, len(text), TEXT_SLICE):
                words = text[start : start + TEXT_SLICE].split()
                part += "".join(words).encode("utf-8", "surrogatepass")
    else:
        part += "".join(texts).strip().encode("utf-8", "surrogatepass")
    if len(part) > len(TEXT_TAG):
        yield part


def _visible_text(block: Block) -> str | None:
    match block:
        case Text(text=text) | Refusal(text=text):
            return text
        case Reminder():
            return reminder_text(block)
        case Checkpoint():
            return checkpoint_text(block)
        case _:
            return None


def _part(block: Block) -> bytes | None:
    """The hashed part of a block other than text; `None` if clients may leave the block out."""
    match block:
        case ToolCall():
            return b"call\0" + f"{block.name}\0{canonical_arguments(block.arguments)}".encode()
        case ToolResult():
            return b"result\0" + b"\0".join(_parts(block.content, False))
        case Image(source=source) | File(source=source) | Audio(source=source):
            return b"media\0" + _media_key(source)
        case Opaque():
            return b"opaque\0" + canonical(block.raw)
        case _:
            return None


def _media_key(source: Source) -> bytes:
    """The URL, the file id, or a hash of the data."""
    match source:
        case Inline(data=data):
            return object_id("media", data.encode())
        case Url(url=url):
            return url.encode()
        case FileRef(id=id):
            return id.encode()


_REMINDER = lazy_pattern(r"<system-reminder>.*?</system-reminder>\s*", re.DOTALL)

MIN_SAME_TURNS = 2
"""A question and its answer: with fewer equal turns, two lists may be different conversations."""

FirstTurn = Literal["all", "typed", "ignored"]
"""How the first turn is compared, where clients put their context:

- `all`: every text must be equal, without the context of known clients
- `typed`: only what the person typed must be equal
- `ignored`: it is not compared
"""

StoredMessages = Sequence[tuple[Id, Message]]
"""The messages of a stored conversation, each with the commit that appended it."""


def is_echo(answer: Message, echo: Sequence[Message]) -> bool:
    """Whether these messages of a request are the client's copy of the answer.

    Clients rewrite the arguments of calls, so calls are compared by id and name. Calls of a client
    whose protocol has no call ids are compared by name, and the rest of the answer must be equal.
    """
    joined_echo = Message("assistant", tuple(block for message in echo for block in message.blocks))
    calls, echoed_calls = _calls(answer), _calls(joined_echo)
    if [call.name for call in calls] != [call.name for call in echoed_calls]:
        return False
    if calls and [call.id for call in calls] == [call.id for call in echoed_calls]:
        return True
    if calls and not any(map(_has_own_id, echoed_calls)):
        answer, joined_echo = _without_arguments(answer), _without_arguments(joined_echo)
    return match_key(answer) == match_key(joined_echo)


def _calls(message: Message) -> list[ToolCall]:
    return [block for block in message.blocks if isinstance(block, ToolCall)]


def pair_calls(answer: Message, echo: Sequence[Message]) -> dict[str, ToolCall]:
    """The answer's call for each call of its echo, by the id that the call has in the echo.

    Calls without ids of their own are paired in order.
    """
    calls = _calls(answer)
    by_id = {call.id: call for call in calls}
    echoed_calls = [call for message in echo for call in _calls(message)]
    names = [call.name for call in calls]
    in_order = calls if names == [call.name for call in echoed_calls] else []
    pairs = {
        echoed.id: call
        for echoed, call in zip(echoed_calls, in_order, strict=False)
        if not _has_own_id(echoed)
    }
    return pairs | {call.id: by_id[call.id] for call in echoed_calls if call.id in by_id}


def has_results_without_ids(messages: Sequence[Message]) -> bool:
    """Whether a tool result came without a call id, as in the REST form of Gemini."""
    return any(
        isinstance(block, ToolResult) and not _has_own_id(block)
        for message in messages
        for block in message.blocks
    )


def _has_own_id(block: ToolCall | ToolResult) -> bool:
    """Whether a call or result came with an id; a codec notes a missing one in `ext`."""
    members = (block.ext or {}).values()
    return not any("id" in each and not isinstance(each["id"], str) for each in members)


def _without_arguments(message: Message) -> Message:
    blocks = [
        structs.replace(block, arguments="{}") if isinstance(block, ToolCall) else block
        for block in message.blocks
    ]
    return structs.replace(message, blocks=tuple(blocks))


class TurnRange(NamedTuple):
    """A run of messages of one side (`user` or `assistant`): those from `start` up to `end`."""

    side: str
    start: int
    end: int


def echo_length(messages: Sequence[Message], start: int) -> int:
    """How many assistant messages follow each other from `start` on.

    They may be the echo of one answer, because clients may split an answer.
    """
    end = start
    while end < len(messages) and messages[end].role == "assistant":
        end += 1
    return end - start


def find_edit(stored: StoredMessages, messages: Sequence[Message]) -> tuple[Id | None, int] | None:
    """Where a request differs from the stored conversation because a user message was edited.

    `stored` ends with an answer, and `messages` end with its echo. Returns the commit before the
    edited turn and the number of messages before it; `None` if nothing was edited. For the first
    turn, that commit is `None`. Two differences are not edits: fewer turns than are stored, because
    the client dropped some, and another context in the first turn.
    """
    stored_turns = list(_turns([message for _, message in stored]))
    sent_turns = list(_turns(messages))
    if [turn.side for turn in stored_turns] != [turn.side for turn in sent_turns]:
        return None
    for number, (side_name, first, end) in enumerate(stored_turns):
        if side_name == "assistant":
            continue
        stored_input = [message for _, message in stored[first:end] if not is_system(message)]
        sent_input = _turn_messages(messages, sent_turns[number])
        if number == 0:
            if not _is_same_first_input(stored_input, sent_input):
                return None, 0
        elif not is_same_input(stored_input, sent_input):
            return stored[first - 1][0], sent_turns[number - 1].end
    return None


def align_turns(
    stored: Sequence[Message], messages: Sequence[Message], *, first: FirstTurn = "typed"
) -> tuple[int, int]:
    """How many messages at the start of each list belong to the same conversation.

    Messages are compared turn by turn, because clients group them differently. Both numbers are 0
    if no answer is the same.
    """
    matched = (0, 0)
    is_answered = False
    turns = zip(_turns(stored), _turns(messages), strict=False)
    for number, (stored_turn, sent_turn) in enumerate(turns):
        if number == 0 and stored_turn.side == sent_turn.side == "user":
            stored_input = _turn_messages(stored, stored_turn)
            sent_input = _turn_messages(messages, sent_turn)
            is_same = first == "ignored" or _is_same_first_input(stored_input, sent_input, first)
        else:
            is_same = _is_same_turn(stored, stored_turn, messages, sent_turn)
        if not is_same:
            break
        is_answered = is_answered or stored_turn.side == "assistant"
        matched = (stored_turn.end, sent_turn.end)
    return matched if is_answered else (0, 0)


def align_trimmed(stored: Sequence[Message], messages: Sequence[Message]) -> int:
    """How many messages repeat a stored conversation from which the client dropped turns.

    The repeated messages must end with the newest stored turns. Any turns before those must be the
    first stored ones. Otherwise the number is 0, also if nothing was dropped.
    """
    stored_turns, sent_turns = list(_turns(stored)), list(_turns(messages))
    if stored_turns and stored_turns[-1].side == "assistant":
        while sent_turns and sent_turns[-1].side != "assistant":  # the client's new input
            sent_turns.pop()
    if not MIN_SAME_TURNS <= len(sent_turns) < len(stored_turns):
        return 0
    same_at_start = _count_same(stored, stored_turns, messages, sent_turns)
    same_at_end = _count_same(stored, reversed(stored_turns), messages, reversed(sent_turns))
    last_different = len(sent_turns) - same_at_end - 1  # an index; -1 if no turn differs
    if 0 <= last_different <= same_at_start:
        stored_turn, sent_turn = stored_turns[-same_at_end - 1], sent_turns[last_different]
        # If the client dropped the results before it, this turn is the end of a stored input.
        if _is_end_of_input(stored, stored_turn, messages, sent_turn):
            same_at_end += 1
    if same_at_end < MIN_SAME_TURNS or same_at_start + same_at_end < len(sent_turns):
        return 0
    return sent_turns[-1].end


def _is_end_of_input(
    stored: Sequence[Message],
    stored_turn: TurnRange,
    messages: Sequence[Message],
    sent_turn: TurnRange,
) -> bool:
    """Whether a sent input is equal to the last messages of a stored input."""
    if stored_turn.side == "assistant" or stored_turn.side != sent_turn.side:
        return False
    sent = _turn_messages(messages, sent_turn)
    return is_same_input(_turn_messages(stored, stored_turn)[-len(sent) :], sent)


def _turn_messages(messages: Sequence[Message], turn: TurnRange) -> list[Message]:
    """The messages of a turn without system messages."""
    return [each for each in messages[turn.start : turn.end] if not is_system(each)]


def _count_same(
    stored: Sequence[Message],
    stored_turns: Iterable[TurnRange],
    messages: Sequence[Message],
    sent_turns: Iterable[TurnRange],
) -> int:
    """How many turns are the same in both lists, until the first difference."""
    pairs = zip(stored_turns, sent_turns, strict=False)
    same = takewhile(lambda pair: _is_same_turn(stored, pair[0], messages, pair[1]), pairs)
    return sum(1 for _ in same)


def _is_same_turn(
    stored: Sequence[Message],
    stored_turn: TurnRange,
    messages: Sequence[Message],
    sent_turn: TurnRange,
) -> bool:
    if stored_turn.side != sent_turn.side:
        return False
    stored_messages = _turn_messages(stored, stored_turn)
    sent = _turn_messages(messages, sent_turn)
    if stored_turn.side != "assistant":
        return is_same_input(stored_messages, sent)
    joined = Message("assistant", tuple(block for each in stored_messages for block in each.blocks))
    return is_echo(joined, sent)


def _turns(messages: Sequence[Message]) -> Iterator[TurnRange]:
    """The turns of a list. System messages are skipped."""
    start, end, current_side = 0, 0, ""
    for number, message in enumerate(messages):
        if is_system(message):
            continue
        if side(message.role) != current_side:
            if current_side:
                yield TurnRange(current_side, start, end)
            start, current_side = number, side(message.role)
        end = number + 1
    if current_side:
        yield TurnRange(current_side, start, end)


def is_same_input(stored: Sequence[Message], sent: Sequence[Message]) -> bool:
    """Whether two runs of user and tool messages are the same input.

    Tool results are compared by their call ids only: clients shorten and clear old results.
    """
    return list(_input_parts(stored)) == list(_input_parts(sent))


def _is_same_first_input(
    stored: Sequence[Message], sent: Sequence[Message], first: FirstTurn = "typed"
) -> bool:
    """Whether two first turns have the same typed text, and the same parts other than text.

    The context of known clients is left out. Other clients put theirs into a text of its own before
    the typed one. So in the mode `typed`, it is enough if the last texts are equal.
    """
    stored_parts, stored_texts = _first_input(stored)
    sent_parts, sent_texts = _first_input(sent)
    is_same_text = "".join(stored_texts) == "".join(sent_texts)  # clients group texts differently
    if first == "typed" and not is_same_text:
        is_same_text = stored_texts[-1:] == sent_texts[-1:]
    return is_same_text and stored_parts == sent_parts


def _first_input(messages: Sequence[Message]) -> tuple[list[object], list[str]]:
    """The parts of a first turn: those other than text, and its texts without context."""
    blocks = [block for message in messages for block in message.blocks]
    parts = _input_parts(
        [Message("user", tuple(block for block in blocks if _own_text(block) is None))]
    )
    texts = ("".join(without_context(_own_text(block) or "").split()) for block in blocks)
    return list(parts), [text for text in texts if text]


def _input_parts(messages: Sequence[Message]) -> Iterator[object]:
    """Call ids, keys of media, and all texts as one string without whitespace.

    Results of a protocol without call ids have the tool's name instead.
    """
    texts: list[str] = []
    for message in messages:
        for block in message.blocks:
            text = _own_text(block)
            if text is not None:
                texts.append(text)
            elif isinstance(block, ToolResult):
                # An id that the codec made is a position, which changes if old turns are dropped.
                yield block.call_id if _has_own_id(block) else ("result", block.name)
            else:
                yield match_key(Message("user", (block,)))
    joined = "".join("".join(texts).split())
    if joined:
        yield joined


def _own_text(block: Block) -> str | None:
    """The user's own text in a block, without the reminders and the context of the client."""
    match block:
        case Text(text=text):
            return "" if is_codex_context(text) else _REMINDER.sub("", text)
        case Reminder():
            return ""
        case _:
            return None
