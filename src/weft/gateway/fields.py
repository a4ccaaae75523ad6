"""What a caller of the page's API asked: fields of a query, a body or a frame, read one by one.

A field that is missing or of another kind is refused by its name, before anything is done.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from weft.errors import Refused
from weft.history import read_branches
from weft.model import JsonObject
from weft.store import Store, ThreadRecord
from weft.thread import Thread
from weft.thread import open as open_thread

from .state import State


class Ask(Struct, frozen=True):
    """What a caller asked: the open state, and the fields of the query or the body."""

    state: State
    fields: Mapping[str, Any]

    @property
    def store(self) -> Store:
        return self.state.store

    def text(self, name: str) -> str:
        """A field that must be there and not blank."""
        value = self.fields.get(name)
        if not isinstance(value, str) or not value.strip():
            raise Refused(f"a text is needed here, not {_shown(value)}", param=name)
        return value

    def text_or_none(self, name: str) -> str | None:
        return None if self.fields.get(name) in (None, "") else self.text(name)

    def number(self, name: str) -> int | None:
        """A whole number above zero, or nothing."""
        value = self.fields.get(name)
        if value in (None, ""):
            return None
        if isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            raise Refused(f"a whole number above 0 is needed here, not {_shown(value)}", param=name)
        return value

    def flag(self, name: str) -> bool:
        value = self.fields.get(name, False)
        if not isinstance(value, bool):
            raise Refused(f"true or false is needed here, not {_shown(value)}", param=name)
        return value

    def record(self) -> ThreadRecord | None:
        return self.store.read_thread(self.text("thread"))

    def thread(self) -> Thread:
        """The thread that was named, on the branch that was named; both must exist."""
        record = self.record()
        if record is None:
            raise Refused(f"no thread {self.text('thread')!r}", param="thread", status=404)
        branch = self.text_or_none("branch") or record.head
        if branch != record.head and branch not in read_branches(self.store, record.name):
            raise Refused(f"no branch {branch!r}", param="branch", status=404)
        return open_thread(self.store, record.name, branch=branch)


Answer = Callable[[Ask], JsonObject]
"""A question or a wish: from what was asked to what is answered."""


def _shown(value: object) -> str:
    return "nothing" if value is None else repr(value)[:80]
