"""What a thread is called in a list: the first words that somebody said in it.

A thread's beginning does not change, so it is read once and remembered.
"""

from weft.history import View
from weft.model import Message, is_system
from weft.store import Store, ThreadRecord

from .views import message_text

OPENING = 8
LENGTH = 80
DEEPEST = 1_000_000


class Titles:
    """The titles of a store's threads, by their names."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, store: Store, record: ThreadRecord) -> str | None:
        """The title; None where nothing was said yet."""
        if record.name not in self._known:
            title = read_title(store, record)
            if title is None:
                return None
            self._known[record.name] = title
        return self._known[record.name]


def read_title(store: Store, record: ThreadRecord) -> str | None:
    """The first words of the first commits; a person's before a system prompt's."""
    head = store.read_ref(record.name, record.head)
    if head is None:
        return None
    oldest = store.walk_nodes(record.name, head, DEEPEST)[-OPENING:]
    steps = store.read_commits(record.name, [node.id for node in reversed(oldest)])
    said = [row.message for row in View().extend(steps).rows]
    spoken = [message for message in said if not is_system(message)]
    return next((line for message in (*spoken, *said) if (line := _line(message))), None)


def _line(message: Message) -> str:
    words = " ".join(message_text(message).split())
    return words if len(words) <= LENGTH else words[: LENGTH - 1].rstrip() + "…"
