"""How a request that a client respelt is laid beside what is stored of its conversation.

Clients rewrite what they send back: they add default arguments to calls, shorten paths, trim and
join texts, clear old tool results, move reminders. An answer is recognised by the ids of its calls
first, since every client must keep those, and by its visible content otherwise.
"""

import re
from collections.abc import Iterator, Sequence

from weft.history import match_key
from weft.ids import Id
from weft.model import Block, Message, Reminder, Text, ToolCall, ToolResult, is_system, side

_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>\s*", re.DOTALL)

Line = Sequence[tuple[Id, Message]]
"""The messages of a stored conversation, each with the commit that appended it."""


def is_echo(answer: Message, echo: Sequence[Message]) -> bool:
    """Whether these messages of a request are the answer as a client sends it back."""
    shown = Message("assistant", tuple(block for message in echo for block in message.blocks))
    calls, echoed = _calls(answer), _calls(shown)
    if calls or echoed:
        if calls == echoed:
            return True
        # A protocol without call ids: the calls themselves must be equal.
        return [name for _, name in calls] == [name for _, name in echoed] and match_key(
            answer
        ) == match_key(shown)
    return match_key(answer) == match_key(shown)


def _calls(message: Message) -> list[tuple[str, str]]:
    return [(block.id, block.name) for block in message.blocks if isinstance(block, ToolCall)]


def echo_length(messages: Sequence[Message], start: int) -> int:
    """How many messages of one answer's echo begin at `start`: clients may split an answer."""
    end = start
    while end < len(messages) and messages[end].role == "assistant":
        end += 1
    return end - start


def find_edit(line: Line, messages: Sequence[Message]) -> tuple[Id, int] | None:
    """Where a request leaves a stored line because a user's message was edited.

    The line ends in an answer that the request echoes, and `messages` end with that echo. Returns
    the commit before the edited message and the number of messages up to it; `None` where nothing
    was edited. A client that sends fewer turns than the line has dropped the others: that is not
    an edit. Neither is a first message that differs: clients put their context into it.
    """
    stored = list(_groups([message for _, message in line]))
    sent = list(_groups(messages))
    if len(stored) != len(sent) or [g[0] for g in stored] != [g[0] for g in sent]:
        return None
    for number in range(1, len(stored)):
        speaker, first, last = stored[number]
        if speaker == "assistant":
            continue
        ours = [message for _, message in line[first:last]]
        theirs = messages[sent[number][1] : sent[number][2]]
        if not _is_same_input(ours, theirs):
            return line[first - 1][0], sent[number - 1][2]
    return None


def _groups(messages: Sequence[Message]) -> Iterator[tuple[str, int, int]]:
    """Runs of messages of one side, as (side, start, end); system messages belong to none."""
    start, speaker, end = 0, "", 0
    for number, message in enumerate(messages):
        if is_system(message):
            continue
        if side(message.role) != speaker:
            if speaker:
                yield speaker, start, end
            start, speaker = number, side(message.role)
        end = number + 1
    if speaker:
        yield speaker, start, end


def _is_same_input(stored: Sequence[Message], sent: Sequence[Message]) -> bool:
    """Whether two runs of user and tool messages are the same input.

    A result is the same if it belongs to the same call: clients shorten and clear old results.
    """
    ours, theirs = (list(_input_parts(each)) for each in (stored, sent))
    return ours == theirs


def _input_parts(messages: Sequence[Message]) -> Iterator[object]:
    texts: list[str] = []
    for message in messages:
        for block in message.blocks:
            text = _own_text(block)
            if text is not None:
                texts.append(text)
            elif isinstance(block, ToolResult):
                yield block.call_id
            elif not is_system(message):
                yield match_key(Message("user", (block,)))
    joined = "".join("".join(texts).split())
    if joined:
        yield joined


def _own_text(block: Block) -> str | None:
    """The person's own words in a block: without reminders that the client adds."""
    match block:
        case Text(text=text):
            return _REMINDER.sub("", text)
        case Reminder():
            return ""
        case _:
            return None
