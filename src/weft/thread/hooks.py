"""Hooks: who is asked before a commit lands, and who is told of it after.

A hook that is told of a commit cannot stop it any more: what it raises is collected and reported
(`HookWarning`, `CommitInfo.hook_errors`), and the verb returns its commit as usual.

A hook sees what is said. What rides along with it (lines of a file, an imprint of what was sent)
is not said, and whoever rebuilds every message of a draft shall not take it for one: it is taken
away before, and given back after.
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
from .source_lines import spoken

Before = Callable[[Draft], Draft | None]
"""Asked before a commit lands: raises to stop it, may answer with another draft."""

After = Callable[[CommitInfo], None]
"""SummaryBatch of a commit that has landed."""


class HookWarning(UserWarning):
    """An `after` hook raised an error; the commit it was told of has landed all the same."""


class Hooks(Struct, frozen=True):
    """The hooks of a thread's handle, in the order in which they are called."""

    before: tuple[Before, ...] = ()
    after: tuple[After, ...] = ()


def check_hook(hook: Any) -> Any:
    """The hook, if it can be called."""
    return check_function("hook", hook)


def hook_name(hook: object) -> str:
    """What a hook is called in messages."""
    return str(getattr(hook, "__qualname__", None) or type(hook).__name__)


def run_after_hooks(hooks: Iterable[After], info: CommitInfo) -> None:
    """Call each hook with a commit that has landed; what they raise is reported, not raised."""
    for hook in hooks:
        try:
            hook(info)
        except Exception as error:  # foreign code, and its commit has landed already
            info.hook_errors += (error,)
            what = f"{type(error).__name__}: {error}"
            line = f"the hook {hook_name(hook)!r} failed after commit {info.id[:12]} landed: {what}"
            warnings.warn(line, HookWarning, stacklevel=2)


def run_before_hooks(hooks: Iterable[Before], draft: Draft) -> Draft:
    """The draft that all hooks let through; raises `WrongValue` for one that cannot be said."""
    said = spoken(draft.messages)
    riders = draft.messages[len(said) :]
    draft = structs.replace(draft, messages=said)
    for hook in hooks:
        answer = hook(draft)
        if answer is not None:
            draft = _checked(_noted(draft, _read_answer(hook, answer)), hook)
    return structs.replace(draft, messages=(*draft.messages, *riders))


def _read_answer(hook: Before, answer: Any) -> Draft:
    """A hook's answer, if it is a draft made of what drafts are made of."""
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


def _checked(answer: Draft, hook: Before) -> Draft:
    """A hook's answer, if its operation speaks of every message that it has."""
    said, needed = len(spoken(answer.messages)), count_entries(answer.op)
    if said != needed or said != len(answer.messages):
        of = f"of the answer of the hook {hook_name(hook)!r}"
        raise WrongValue("messages", f"{of} must be {needed}, not {said}")
    return answer


def _noted(draft: Draft, answer: Draft) -> Draft:
    """A hook's answer; a note that only quotes what it was asked about quotes the answer."""
    op, note = answer.op, answer.note
    if note != draft.note or answer.messages == draft.messages or not isinstance(op, Append):
        return answer
    if not isinstance(note, str) or not f"{note}: ".startswith(f"{op.kind}: "):
        return answer
    words = answer.messages[0].text if answer.messages else ""
    return structs.replace(answer, note=auto_note(op.kind, words))
