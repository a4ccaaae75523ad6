"""What a thread is called in the page's list: the first words that a person wrote in it.

A thread's beginning does not change, so it is read once and remembered.
"""

from weft.store import Store, ThreadRecord
from weft.thread import read_title

LENGTH = 80


class Titles:
    """The titles of a store's threads, by their names."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, float], str] = {}

    def of(self, store: Store, record: ThreadRecord) -> str | None:
        """The title; None where nothing was said yet."""
        key = (record.name, record.created)  # a name may be that of another thread by now
        if key not in self._known:
            title = read_title(store, record)
            if title is None:
                return None
            self._known[key] = _line(title)
        return self._known[key]


def _line(words: str) -> str:
    return words if len(words) <= LENGTH else words[: LENGTH - 1].rstrip() + "…"
