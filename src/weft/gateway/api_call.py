"""A call of the page's API: reads the fields of a query, a body or a frame.

If a field is missing or has the wrong type, the call is refused before anything is done, and the
error names the field.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from weft.errors import Refused
from weft.history import read_branches
from weft.ids import Id
from weft.model import JsonObject
from weft.store import Store, ThreadRecord
from weft.thread import Thread, open as open_thread

from .auth import Caller, may_see, name_in_scope
from .state import State
from .thread_views import ThreadView

DEFAULT_BRANCH = "main"
BEFORE_FIRST = "start"
"""The value of `until` for the state before the first commit."""


class ApiCall(Struct, frozen=True):
    """One call: the server's state, and the fields of the query or the body.

    `key` is the caller's own key; an agent that works for the caller sends it to this server.
    """

    state: State
    fields: Mapping[str, Any]
    caller: Caller = Caller()
    key: str | None = None

    @property
    def store(self) -> Store:
        return self.state.store

    def text(self, name: str) -> str:
        """A field that must be present and not blank."""
        value = self.fields.get(name)
        if not isinstance(value, str) or not value.strip():
            raise Refused(f"must be a non-empty string, not {_quote(value)}", param=name)
        return value

    def text_or_none(self, name: str) -> str | None:
        return None if self.fields.get(name) in (None, "") else self.text(name)

    def number(self, name: str) -> int | None:
        """A whole number above 0; None if the field is missing."""
        value = self.fields.get(name)
        if value in (None, ""):
            return None
        if isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            raise Refused(f"must be a whole number above 0, not {_quote(value)}", param=name)
        return value

    def flag(self, name: str) -> bool:
        value = self.fields.get(name, False)
        if not isinstance(value, bool):
            raise Refused(f"must be true or false, not {_quote(value)}", param=name)
        return value

    def flag_or_none(self, name: str) -> bool | None:
        return None if self.fields.get(name) is None else self.flag(name)

    def thread_and_branch(self) -> tuple[str, str]:
        """The names of the thread (with its namespace) and the branch; the thread may be new."""
        record = self.thread_record()
        if record is None:
            return self.scoped_name, self.text_or_none("branch") or DEFAULT_BRANCH
        branch = self.text_or_none("branch") or record.head
        if branch != record.head and branch not in read_branches(self.store, record.name):
            raise Refused(f"no branch {branch!r}", param="branch", status=404)
        return record.name, branch

    def read_view(self) -> ThreadView:
        """The thread of the call at the commit `until`, or as it is now."""
        record = self.thread_record()
        if record is None:
            raise Refused(f"no thread {self.text('thread')!r}", param="thread", status=404)
        branch = self.thread_and_branch()[1]
        head = self.read_until(record.name, branch)
        return self.state.views.read(self.store, record.name, branch, head)

    def read_until(self, thread: str, branch: str) -> Id | None:
        """The commit `until`, or the newest commit of the branch; None before the first commit."""
        until = self.text_or_none("until")
        if until is None:
            return self.store.read_ref(thread, branch)
        commit = read_commit_id(until)
        if commit is not None and not self.store.read_nodes(thread, [commit]):
            raise Refused(f"no commit {until!r} in this thread", param="until", status=404)
        return commit

    def thread_record(self) -> ThreadRecord | None:
        """The thread of the call, by its full name or its name in the caller's own namespace.

        None if it does not exist, or belongs to another caller.
        """
        for name in (self.text("thread"), self.scoped_name):
            record = self.store.read_thread(name)
            if record is not None and self.sees(record):
                return record
        return None

    @property
    def scoped_name(self) -> str:
        """The name of the thread in the caller's own namespace; a new thread gets this name."""
        return name_in_scope(self.caller, self.text("thread"))

    def sees(self, record: ThreadRecord) -> bool:
        """Whether the caller may see a thread."""
        return may_see(self.caller, record.scope, self.state.settings)

    def visible_threads(self) -> list[ThreadRecord]:
        """The threads that the caller may see, oldest first."""
        return [record for record in self.store.threads() if self.sees(record)]

    @property
    def scope(self) -> str | None:
        """The scope of a thread that the caller creates."""
        return self.caller.scope if self.state.settings.keys else None

    def thread(self) -> Thread:
        """The thread on the branch of the call; both must exist."""
        if self.thread_record() is None:
            raise Refused(f"no thread {self.text('thread')!r}", param="thread", status=404)
        name, branch = self.thread_and_branch()
        return open_thread(self.store, name, branch=branch)


Handler = Callable[[ApiCall], JsonObject]
"""A read or a write: takes a call and returns JSON."""
AsyncHandler = Callable[[ApiCall], Awaitable[JsonObject]]
"""A handler that waits for an upstream."""


def read_commit_id(text: str, param: str = "until") -> Id | None:
    """The commit id in the field `param`; None for the state before the first commit."""
    if text == BEFORE_FIRST:
        return None
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise Refused(f"{text!r} is not a commit id", param=param) from None


def _quote(value: object) -> str:
    return "nothing" if value is None else repr(value)[:80]
