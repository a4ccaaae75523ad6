"""Every error Weft raises, in one tree; the type says who is to blame.

    WeftError
    ├── Refused                  the caller's body cannot be sent on, or strict mode says no (4xx)
    │   └── NotAnAnswer          a body that was to be an answer has no place for one
    ├── UpstreamError            the model's server gave no usable answer
    │   ├── UpstreamFailed       it answered with an error (429, 500, ...), or not at all
    │   │   └── SummaryFailed    a model that was to write a summary wrote none
    │   └── UpstreamProtocolError  it broke its own protocol (502)
    ├── ThreadError              a verb was asked for something the thread cannot do
    │   ├── WrongValue           an argument is of a wrong type, or JSON cannot say it
    │   │   └── UnknownArgument  a call has no keyword argument of that name
    │   ├── NotFound             no commit, entry, branch or thread of that name
    │   ├── Ambiguous            an id prefix names more than one
    │   ├── MergeConflict        both sides changed one line; carries the conflicts
    │   ├── BudgetExceeded       the compiled context would not fit
    │   └── CompactRefused       a compaction's input is wrong; carries the field
    ├── StoreError               the store could not do it; nothing was changed
    │   ├── RefMoved             another writer was first; re-read and try again
    │   ├── Damaged              what is stored is not what was written; names the place
    │   └── JournalError         the local journal cannot be opened, read or written
    │       └── JournalInUse     another process has it open
    ├── StepLimit                an agent's run used up its steps; ask again to go on
    └── ConfigError              a setting, flag or file is wrong; names the place

Lost information is not an error: encoders return `Loss` values instead.
"""

from collections.abc import Sequence
from typing import Any


class WeftError(Exception):
    """The root: catching this catches everything Weft raises on purpose."""


class Refused(WeftError):
    """A body that must not be sent on: the facts that every vendor's error envelope asks for."""

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        status: int = 400,
        type: str = "invalid_request_error",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.status = status
        self.type = type

    def __str__(self) -> str:
        return f"{self.param}: {self.message}" if self.param else self.message


class NotAnAnswer(Refused):
    """A body that was given as a model's answer, and is none: `param` is the member it lacks."""


class UpstreamError(WeftError):
    """An upstream gave no usable answer: catch this for both of its kinds."""


class UpstreamProtocolError(UpstreamError):
    """An upstream sent something that its protocol does not allow."""


class UpstreamFailed(UpstreamError):
    """An upstream answered with an error, or not at all.

    `kind` is the `ErrorKind`, and `error` the whole `ApiError`, where the upstream gave one.
    `native` is true for a failure that a client of the same protocol recognises in the answer
    itself, so that the answer may go on to such a client as it came.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 502,
        kind: str | None = None,
        error: object = None,
        native: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.error = error
        self.native = native


class SummaryFailed(UpstreamFailed):
    """A model that was to write a summary wrote none that can be used.

    `answered` is whether it answered at all: then a shorter summary may succeed.
    """

    def __init__(self, message: str, *, status: int = 502, answered: bool = False) -> None:
        super().__init__(message, status=status)
        self.answered = answered


class ThreadError(WeftError):
    """A verb was asked for something this thread cannot do; nothing was changed."""


class WrongValue(ThreadError):
    """An argument that no verb can take: `field` names it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field} {message}")
        self.field = field


class UnknownArgument(WrongValue, TypeError):
    """A call with a keyword argument that it does not have; a `TypeError` too, as in Python."""

    def __init__(self, name: str, call: str, accepted: Sequence[str]) -> None:
        super().__init__(name, f"is not an argument of {call}: give {', '.join(accepted)}")


class NotFound(ThreadError):
    """Nothing here has that name; `hint` says what names there are."""

    def __init__(self, kind: str, name: str, hint: str = "") -> None:
        super().__init__(f"no {kind} {name!r} in this thread{hint and f': {hint}'}")
        self.kind = kind
        self.name = name


class Ambiguous(ThreadError):
    """An id prefix names more than one object."""

    def __init__(self, prefix: str, candidates: tuple[str, ...]) -> None:
        super().__init__(f"{prefix!r} names more than one: {', '.join(c[:12] for c in candidates)}")
        self.prefix = prefix
        self.candidates = candidates


class MergeConflict(ThreadError):
    """Both sides changed the same lines: `conflicts` says which, and how each side has them."""

    def __init__(self, message: str, conflicts: tuple[Any, ...]) -> None:
        super().__init__(message)
        self.conflicts = conflicts


class BudgetExceeded(ThreadError):
    """The compiled context would not fit; says what would be needed."""

    def __init__(self, message: str, *, needed: int, budget: int) -> None:
        super().__init__(message)
        self.needed = needed
        self.budget = budget


class CompactRefused(ThreadError):
    """A compaction's input is wrong: `field` names the caller's own path."""

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class StoreError(WeftError):
    """The store could not do it, and left things as they were.

    `is_data` is whether the data is to blame: trying again is useless. Otherwise the store may take
    the same write later.
    """

    is_data = False


class RefMoved(StoreError):
    """The ref no longer points where the caller saw it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} was moved by another writer")
        self.name = name


class Damaged(StoreError):
    """What is stored is not what was written: bytes, or a row that another one names."""


class JournalError(StoreError):
    """The local journal cannot be opened, read or written; the message holds no path."""


class JournalInUse(JournalError):
    """Another process has this journal open."""


class StepLimit(WeftError):
    """An agent's run used up its steps before the model was done; `Agent.retry` goes on."""


class ConfigError(WeftError):
    """A setting, flag or file is wrong; the message names the place."""
