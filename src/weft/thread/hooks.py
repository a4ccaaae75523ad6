"""Hooks, which run before and after a commit, and the budget of a thread.

A `before` hook may raise an error to stop the commit, or return another draft. An `after` hook
cannot stop it: its errors are collected (`HookWarning`, `CommitInfo.hook_errors`), and the method
returns its commit as usual.

Hooks see the messages of the conversation only. Attachments (lines of an imported file, a record of
the request that was sent) are removed before the hooks run and put back afterwards, so that a hook
which rebuilds every message does not mistake them for messages.

A `Budget` limits the size of the compiled context. Only messages that would be sent to a model
count; hidden and compacted messages do not. A change that makes the context smaller is never
refused, even if the context is still above the limit.
"""

import warnings
from collections.abc import Callable, Iterable
from typing import Any, Literal, cast

from msgspec import Struct, structs

from weft.errors import BudgetExceeded, ThreadError, WrongValue
from weft.history import Append, Draft, Rewrite, Setup, count_entries
from weft.model import Message

from .info import CommitInfo, auto_note
from .source_lines import without_attachments

Before = Callable[[Draft], Draft | None]
"""Called before a commit is written: raises to stop it, or returns another draft."""

After = Callable[[CommitInfo], None]
"""Called after a commit is written."""


class HookWarning(UserWarning):
    """An `after` hook raised an error; its commit was written anyway."""


class Hooks(Struct, frozen=True):
    """The hooks of an open thread, in the order in which they are called."""

    before: tuple[Before, ...] = ()
    after: tuple[After, ...] = ()


def hook_name(hook: object) -> str:
    """The name of a hook in messages."""
    return str(getattr(hook, "__qualname__", None) or type(hook).__name__)


def run_after_hooks(hooks: Iterable[After], info: CommitInfo) -> None:
    """Call each hook with a written commit; errors are reported, not raised."""
    for hook in hooks:
        try:
            hook(info)
        except Exception as error:  # foreign code, and the commit is already written
            info.hook_errors += (error,)
            failure = f"the hook {hook_name(hook)!r} failed after commit {info.id[:12]} was written"
            reason = f"{type(error).__name__}: {error}"
            warnings.warn(f"{failure}: {reason}", HookWarning, stacklevel=2)


def run_before_hooks(hooks: Iterable[Before], draft: Draft) -> Draft:
    """The draft after all hooks; raises `WrongValue` if a hook returns an invalid one."""
    messages = without_attachments(draft.messages)
    attachments = draft.messages[len(messages) :]
    draft = structs.replace(draft, messages=messages)
    for hook in hooks:
        returned = hook(draft)
        if returned is not None:
            draft = _check_messages(_with_new_note(draft, _check_type(hook, returned)), hook)
    return structs.replace(draft, messages=(*draft.messages, *attachments))


def _check_type(hook: Before, returned: Any) -> Draft:
    """The value that a hook returned, if it is a well-formed draft."""
    field = f"the answer of the hook {hook_name(hook)!r}"
    if not isinstance(returned, Draft):
        raise WrongValue(field, f"must be a Draft or None, not {type(returned).__name__}")
    op, messages = cast(Any, returned.op), cast(Any, returned.messages)
    if not isinstance(op, Append | Rewrite | Setup):
        raise WrongValue(field, f"must have an operation as its op, not {type(op).__name__}")
    if not isinstance(messages, tuple) or not all(
        isinstance(message, Message) for message in cast("tuple[Any, ...]", messages)
    ):
        raise WrongValue(field, "must have a tuple of Message as its messages")
    return returned


def _check_messages(returned: Draft, hook: Before) -> Draft:
    """The draft that a hook returned, if it has as many messages as its operation needs."""
    count, needed = len(without_attachments(returned.messages)), count_entries(returned.op)
    if count != needed or count != len(returned.messages):
        owner = f"of the answer of the hook {hook_name(hook)!r}"
        raise WrongValue("messages", f"{owner} must be {needed}, not {count}")
    return returned


def _with_new_note(draft: Draft, returned: Draft) -> Draft:
    """The draft that a hook returned, with a new automatic note if the hook changed the message.

    A note that the caller or the hook wrote stays.
    """
    op, note = returned.op, returned.note
    if note != draft.note or returned.messages == draft.messages or not isinstance(op, Append):
        return returned
    # An automatic note is `kind: preview`, or just the kind.
    is_automatic = isinstance(note, str) and f"{note}: ".startswith(f"{op.kind}: ")
    if not is_automatic:
        return returned
    text = returned.messages[0].text if returned.messages else ""
    return structs.replace(returned, note=auto_note(op.kind, text))


Action = Literal["warn", "reject"] | Callable[[int, int], object]
"""What happens to a change that exceeds a budget; see `Budget`."""


def check_budget(value: Any) -> "Budget | None":
    """The value, if it is a `Budget` or `None`."""
    if value is not None and not isinstance(value, Budget):
        kind = type(value).__name__
        raise WrongValue(
            "budget", f"must be a Budget or None, not {kind}: give weft.Budget(tokens)"
        )
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class BudgetWarning(UserWarning):
    """The compiled context is above its budget; the commit was written anyway."""


class Budget(Struct, frozen=True):
    """At most `tokens`; `action` decides what happens to a change that exceeds them.

    `warn` issues a `BudgetWarning`, `reject` raises `BudgetExceeded`. A function is called with the
    tokens needed and the limit; it may compact the thread, and refuses the change by returning
    `False`.
    """

    tokens: int
    action: Action = "reject"

    def __post_init__(self) -> None:
        if not _is_number(self.tokens):
            kind = type(self.tokens).__name__
            raise WrongValue("the tokens of a budget", f"must be a number, not {kind}")
        if self.tokens < 0:
            raise ThreadError(f"a budget must not be negative: {self.tokens}")
        if not callable(self.action) and self.action not in ("warn", "reject"):
            raise ThreadError(f"unknown action {self.action!r}: use 'warn', 'reject' or a function")

    def check(self, before: int, after: int) -> None:
        """Check a change that takes the context from `before` to `after` tokens."""
        if after <= self.tokens or after <= before:
            return
        reason = f"this would be {after} tokens, more than the budget of {self.tokens}"
        if self.action == "warn":
            warnings.warn(reason, BudgetWarning, stacklevel=2)
        elif self.action == "reject" or (
            callable(self.action) and self.action(after, self.tokens) is False
        ):
            raise BudgetExceeded(reason, needed=after, budget=self.tokens)
