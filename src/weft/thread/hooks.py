"""Hooks: who is asked before a commit lands, and who is told of it after.

A hook sees what is said. What rides along with it (lines of a file, an imprint of what was sent)
is not said, and whoever rebuilds every message of a draft shall not take it for one: it is taken
away before, and given back after.
"""

from collections.abc import Callable, Iterable

from msgspec import structs

from weft.errors import WrongValue
from weft.history import Append, Draft, count_entries

from .attachments import spoken
from .info import CommitInfo, auto_note

Before = Callable[[Draft], Draft | None]
"""Asked before a commit lands: raises to stop it, may answer with another draft."""

After = Callable[[CommitInfo], None]
"""Told of a commit that has landed."""


def ask_hooks(hooks: Iterable[Before], draft: Draft) -> Draft:
    """The draft that all hooks let through; raises `WrongValue` for one that cannot be said."""
    said = spoken(draft.messages)
    riders = draft.messages[len(said) :]
    draft = structs.replace(draft, messages=said)
    for hook in hooks:
        draft = _checked(_noted(draft, hook(draft) or draft))
    return structs.replace(draft, messages=(*draft.messages, *riders))


def _checked(answer: Draft) -> Draft:
    """A hook's answer, if its operation speaks of every message that it has."""
    said, needed = len(spoken(answer.messages)), count_entries(answer.op)
    if said != needed or said != len(answer.messages):
        raise WrongValue("messages", f"of a hook's answer must be {needed}, not {said}")
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
