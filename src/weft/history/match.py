"""Matches two copies of a conversation, even if a client rewrote parts of one of them.

The copies are a request or a session file, and what is stored.

Clients change what they send back: they add default arguments to calls, shorten paths, trim and
join texts, clear old tool results, move reminders. An answer is recognised by the ids of its calls,
which every client must keep. An answer without calls is recognised by its visible content.
"""

import re
from collections.abc import Iterator, Sequence

from weft.ids import Id
from weft.model import Block, Message, Reminder, Text, ToolCall, ToolResult, is_system, side

from .match import match_key

_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>\s*", re.DOTALL)

StoredMessages = Sequence[tuple[Id, Message]]
"""The messages of a stored conversation, each with the commit that appended it."""


def is_echo(answer: Message, echo: Sequence[Message]) -> bool:
    """Whether these messages of a request are the client's copy of the answer."""
    sent = Message("assistant", tuple(block for message in echo for block in message.blocks))
    calls, echoed = _calls(answer), _calls(sent)
    if calls or echoed:
        if calls == echoed:
            return True
        # A protocol without call ids: the calls themselves must be equal.
        return [name for _, name in calls] == [name for _, name in echoed] and match_key(
            answer
        ) == match_key(sent)
    return match_key(answer) == match_key(sent)


def _calls(message: Message) -> list[tuple[str, str]]:
    return [(block.id, block.name) for block in message.blocks if isinstance(block, ToolCall)]


def echo_length(messages: Sequence[Message], start: int) -> int:
    """How many messages of one answer's echo begin at `start`: clients may split an answer."""
    end = start
    while end < len(messages) and messages[end].role == "assistant":
        end += 1
    return end - start


def find_edit(stored: StoredMessages, messages: Sequence[Message]) -> tuple[Id, int] | None:
    """Where a request departs from the stored conversation because a user message was edited.

    `stored` ends with an answer, and `messages` end with its echo. Returns the commit before the
    edited message and the number of messages up to it; `None` if nothing was edited. Two
    differences are not edits: fewer turns than are stored, because the client dropped some, and
    another first message, because clients put their context into it.
    """
    stored_turns = list(_turns([message for _, message in stored]))
    sent_turns = list(_turns(messages))
    if [turn[0] for turn in stored_turns] != [turn[0] for turn in sent_turns]:
        return None
    for number in range(1, len(stored_turns)):
        speaker, first, last = stored_turns[number]
        if speaker == "assistant":
            continue
        stored_input = [message for _, message in stored[first:last]]
        sent_input = messages[sent_turns[number][1] : sent_turns[number][2]]
        if not _is_same_input(stored_input, sent_input):
            return stored[first - 1][0], sent_turns[number - 1][2]
    return None


def align_turns(stored: Sequence[Message], messages: Sequence[Message]) -> tuple[int, int]:
    """How many messages at the start of both lists are the same conversation.

    Returns the two numbers. Messages are compared turn by turn, because clients group them
    differently. The first turn is not compared: clients put their context into it. Both numbers are
    0 if no answer is the same.
    """
    last = (0, 0)
    is_answered = False
    for number, (left, right) in enumerate(zip(_turns(stored), _turns(messages), strict=False)):
        mine = [message for message in stored[left[1] : left[2]] if not is_system(message)]
        theirs = [message for message in messages[right[1] : right[2]] if not is_system(message)]
        if left[0] != right[0]:
            break
        if left[0] == "assistant":
            joined = Message("assistant", tuple(block for each in mine for block in each.blocks))
            if not is_echo(joined, theirs):
                break
            is_answered = True
        elif number and not _is_same_input(mine, theirs):
            break
        last = (left[2], right[2])
    return last if is_answered else (0, 0)


def _turns(messages: Sequence[Message]) -> Iterator[tuple[str, int, int]]:
    """Runs of messages of one side, as (side, start, end). System messages are skipped."""
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

    Tool results are compared by their call ids only: clients shorten and clear old results.
    """
    return list(_input_parts(stored)) == list(_input_parts(sent))


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
    """The user's own text in a block, without the reminders that the client adds."""
    match block:
        case Text(text=text):
            return _REMINDER.sub("", text)
        case Reminder():
            return ""
        case _:
            return None
