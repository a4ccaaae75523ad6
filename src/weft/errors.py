"""Every error Weft raises, in one tree; the type says which side caused it.

    WeftError
    ├── Refused                  the caller's body cannot be sent, or strict mode refuses it (4xx)
    │   └── NotAnAnswer          a body given as an answer is not one
    ├── UpstreamError            the model's server gave no usable answer
    │   ├── UpstreamFailed       it answered with an error (429, 500, ...), or not at all
    │   │   └── SummaryFailed    the model wrote no usable summary
    │   └── UpstreamProtocolError  it broke its own protocol (502)
    ├── ThreadError              the thread cannot do what was asked; nothing was changed
    │   ├── WrongValue           an argument has a wrong type, or JSON cannot represent it
    │   │   └── UnknownArgument  a function was called with an unknown keyword argument
    │   ├── NotFound             no commit, entry, branch or thread of that name
    │   ├── Ambiguous            an id prefix matches more than one object
    │   ├── MergeConflict        both sides changed the same thing; carries the conflicts
    │   ├── BudgetExceeded       the compiled context would not fit
    │   └── CompactRefused       a compaction's input is wrong; carries the field
    ├── StoreError               the store failed; nothing was changed
    │   ├── RefMoved             another writer was first; re-read and try again
    │   ├── Damaged              stored data is corrupt; the message names the object
    │   └── JournalError         the local journal cannot be opened, read or written
    │       └── JournalInUse     another process has it open
    ├── RunLimit                 an agent's run reached a limit; retry continues it
    │   └── StepLimit            it used all its steps
    ├── WrongAnswer              an answer is not what `response_format` asked for
    └── ConfigError              a setting, flag or file is wrong; the message names it

Lost information is not an error: encoders return `Loss` values instead.
"""

from collections.abc import Mapping, Sequence
from typing import Any


class WeftError(Exception):
    """The base class of every error that Weft raises on purpose."""


class Refused(WeftError):
    """A body that Weft refuses to send. Its attributes are the members of a vendor's error body.

    With a `code`, it is the vendor's own error, and `message` the vendor's text.
    """

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        status: int = 400,
        type: str = "invalid_request_error",
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.param = param
        self.status = status
        self.type = type

    def __str__(self) -> str:
        return f"{self.param}: {self.message}" if self.param else self.message


class NotAnAnswer(Refused):
    """A body was given as a model's answer, but is not one. `param` is the missing member."""


class UpstreamError(WeftError):
    """An upstream gave no usable answer: it failed, or it broke its protocol."""


class UpstreamFailed(UpstreamError):
    """An upstream answered with an error, or not at all.

    `kind` is the kind of error, and `error` the whole `ApiError`, if the upstream sent one.
    `native` is true if the answer itself reports the failure in the form of its own protocol. Then
    it can be forwarded unchanged to a client of that protocol.
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
    """The model wrote no usable summary.

    `answered` is whether it answered at all. If it did, a shorter summary may succeed.
    """

    def __init__(self, message: str, *, status: int = 502, answered: bool = False) -> None:
        super().__init__(message, status=status)
        self.answered = answered


class UpstreamProtocolError(UpstreamError):
    """An upstream sent something that its protocol does not allow."""


class ThreadError(WeftError):
    """The thread cannot do what was asked. Nothing was changed."""


class WrongValue(ThreadError):
    """An argument has a wrong type, or JSON cannot represent it; `field` is its name."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field} {message}")
        self.field = field


class UnknownArgument(WrongValue, TypeError):
    """A function was called with an unknown keyword argument. Also a `TypeError`, as in Python."""

    def __init__(self, name: str, call: str, accepted: Sequence[str]) -> None:
        super().__init__(name, f"is not an argument of {call}: give {', '.join(accepted)}")


OUTSIDE_THREADS = ("thread", "deleted thread", "content type")
"""Kinds of things that are not part of one thread."""


class NotFound(ThreadError):
    """There is nothing with this name. The message may list the names that exist."""

    def __init__(self, kind: str, name: str, hint: str = "") -> None:
        where = "" if kind in OUTSIDE_THREADS else " in this thread"
        advice = f": {hint}" if hint else ""
        super().__init__(f"no {kind} {name!r}{where}{advice}")
        self.kind = kind
        self.name = name


class Ambiguous(ThreadError):
    """An id prefix matches more than one object; `candidates` lists them."""

    def __init__(self, prefix: str, candidates: tuple[str, ...]) -> None:
        ids = ", ".join(candidate[:12] for candidate in candidates)
        super().__init__(f"{prefix!r} matches more than one object: {ids}")
        self.prefix = prefix
        self.candidates = candidates


class MergeConflict(ThreadError):
    """Both sides changed the same messages; `conflicts` lists them with both versions."""

    def __init__(self, message: str, conflicts: tuple[Any, ...]) -> None:
        super().__init__(message)
        self.conflicts = conflicts


class BudgetExceeded(ThreadError):
    """The compiled context would exceed the budget; `needed` and `budget` are in tokens.

    `works`: values of `keep` and `budget` with which a refused compaction works.
    """

    def __init__(
        self, message: str, *, needed: int, budget: int, works: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(message)
        self.needed = needed
        self.budget = budget
        self.works = dict(works or {})


class CompactRefused(ThreadError):
    """The input of a compaction is invalid; `field` is the path of the wrong value."""

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class StoreError(WeftError):
    """The store failed, and nothing was changed.

    `is_data` is whether the data is the cause. If it is, a retry fails too; otherwise the same
    write may succeed later.
    """

    is_data = False


class RefMoved(StoreError):
    """Another writer moved the ref since it was read."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} was moved by another writer")
        self.name = name


class Damaged(StoreError):
    """Stored data is corrupt: bytes do not match their hash, or a referenced row is missing."""


class JournalError(StoreError):
    """The local journal cannot be opened, read or written.

    The message contains no path, so it can be shown to any user.
    """


class JournalInUse(JournalError):
    """Another process has this journal open."""


class RunLimit(WeftError):
    """An agent's run reached a limit before the model was done. `Agent.retry` continues it."""


class StepLimit(RunLimit):
    """An agent's run used all its steps before the model was done. `Agent.retry` continues it."""


class WrongAnswer(WeftError):
    """A model's answer is not what `response_format` asked for."""


class ConfigError(WeftError):
    """A setting, flag or file is wrong; the message names it."""
