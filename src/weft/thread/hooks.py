"""Hooks: functions that run before and after a commit.

A `before` hook may raise an error to stop the commit, or return another draft. An `after` hook
cannot stop it: its errors are collected (`HookWarning`, `CommitInfo.hook_errors`), and the method
returns its commit as usual.

Hooks see the messages of the conversation only. Attachments (lines of an imported file, a record of
the request that was sent) are removed before the hooks run and put back afterwards, so that a hook
which rebuilds every message does not mistake them for messages.
"""

import warnings
from collections.abc import Callable, Iterable
from typing import Any, cast

from msgspec import Struct, structs

from weft.errors import WrongValue
from weft.history import Append, Draft, Rewrite, Setup, count_entries
from weft.model import Message

from .arguments import check_function
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


def check_hook(hook: Any) -> Any:
    """The hook, if it can be called."""
    return check_function("hook", hook)


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
            what = f"the hook {hook_name(hook)!r} failed after commit {info.id[:12]} was written"
            line = f"{what}: {type(error).__name__}: {error}"
            warnings.warn(line, HookWarning, stacklevel=2)


def run_before_hooks(hooks: Iterable[Before], draft: Draft) -> Draft:
    """The draft after all hooks; raises `WrongValue` if a hook returns an invalid one."""
    messages = without_attachments(draft.messages)
    attachments = draft.messages[len(messages) :]
    draft = structs.replace(draft, messages=messages)
    for hook in hooks:
        answer = hook(draft)
        if answer is not None:
            draft = _check_messages(_with_note(draft, _check_type(hook, answer)), hook)
    return structs.replace(draft, messages=(*draft.messages, *attachments))


def _check_type(hook: Before, answer: Any) -> Draft:
    """A hook's return value, if it is a well-formed draft."""
    what = f"the answer of the hook {hook_name(hook)!r}"
    if not isinstance(answer, Draft):
        raise WrongValue(what, f"must be a Draft or None, not {type(answer).__name__}")
    op, messages = cast(Any, answer.op), cast(Any, answer.messages)
    if not isinstance(op, Append | Rewrite | Setup):
        raise WrongValue(what, f"must have an operation as its op, not {type(op).__name__}")
    if not isinstance(messages, tuple) or not all(
        isinstance(message, Message) for message in cast("tuple[Any, ...]", messages)
    ):
        raise WrongValue(what, "must have a tuple of Message as its messages")
    return answer


def _check_messages(answer: Draft, hook: Before) -> Draft:
    """A hook's draft, if it has as many messages as its operation needs."""
    count, needed = len(without_attachments(answer.messages)), count_entries(answer.op)
    if count != needed or count != len(answer.messages):
        what = f"of the answer of the hook {hook_name(hook)!r}"
        raise WrongValue("messages", f"{what} must be {needed}, not {count}")
    return answer


def _with_note(draft: Draft, answer: Draft) -> Draft:
    """A hook's draft; an automatic note is written again for the new message."""
    op, note = answer.op, answer.note
    if note != draft.note or answer.messages == draft.messages or not isinstance(op, Append):
        return answer
    if not isinstance(note, str) or not f"{note}: ".startswith(f"{op.kind}: "):
        return answer
    text = answer.messages[0].text if answer.messages else ""
    return structs.replace(answer, note=auto_note(op.kind, text))
