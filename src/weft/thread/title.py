"""What a thread is called in a list: the first words that a person wrote in it.

Only the beginning is read, however long the thread is. What others put beside a person's words
is no title: checkpoints, reminders of a loop or of a client, what a client says of the folder it
works in, results of tools. A compaction gives a thread no other title. A thread in which nobody has
asked anything is called by what was said first, or by its system prompt.
"""

import re
from collections.abc import Iterator
from itertools import takewhile

from weft.history import View
from weft.model import Message, Refusal, Text, is_system
from weft.store import Store, ThreadRecord

OPENING = 16
CLIENTS_OWN = (
    "system-reminder",
    "environment_context",
    "session_context",
    "user_instructions",
    "INSTRUCTIONS",
    "local-command-caveat",
    "local-command-stdout",
    "command-name",
    "command-message",
    "command-args",
)
"""Elements in which clients put words of their own into a person's message."""

MARKS = re.compile(
    rf"<({'|'.join(CLIENTS_OWN)})>.*?</\1>"
    r"|# AGENTS\.md instructions for \S+"
    r"|<image name=[^>]*>|</image>"
    r"|<checkpoint:\w+>",
    re.DOTALL,
)


def read_title(store: Store, record: ThreadRecord) -> str | None:
    """The words on the thread's current branch, on one line; `None` where nothing was said yet."""
    head = store.read_ref(record.name, record.head)
    if head is None:
        return None
    steps = store.walk(record.name, head, until=OPENING)
    begun = list(takewhile(lambda step: step.commit.kind != "compact", steps))
    said = [row.message for row in View().extend(begun or steps).rows]
    return next((words for message in _by_rank(said) if (words := own_words(message))), None)


def own_words(message: Message) -> str:
    """What a message says itself, on one line."""
    texts = [block.text for block in message.blocks if isinstance(block, Text | Refusal)]
    return " ".join(MARKS.sub(" ", "\n".join(texts)).split())


def _by_rank(said: list[Message]) -> Iterator[Message]:
    """A person's messages first, then those of a model, then the system's."""
    yield from (message for message in said if message.role == "user")
    yield from (message for message in said if not is_system(message))
    yield from said
