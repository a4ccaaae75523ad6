"""A commit in one line: who spoke, and what was said or done.

A note that somebody wrote is what the line says. Where there is none, the commit speaks for
itself: a message by its first words, an edit by the new ones, a mark by the message it is on.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import structs

from weft.errors import ThreadError
from weft.history import Setup
from weft.model import Message, Params, ToolCall, speaker, spoken
from weft.thread import Attempt, CommitInfo, Thread

from .terminal import PLAIN, Screen, shorten

SHORT = 12
WORDS = 72
ROLE = 9
WIDE = 60
MARKS = {"pinned": "pin", "skip": "skip", "important": "important", "normal": "unmark"}
PLAIN_TYPES = frozenset({"dialogue", "tool_io"})
"""Types that say no more than the role does."""


def describe(thread: Thread, info: CommitInfo, screen: Screen = PLAIN, taken: int = 0) -> str:
    """A commit in one line, which a screen may shorten; `taken` columns stand before it."""
    who, what = headline(thread, info)
    who = screen.name(who)
    date = ""
    if screen.width is not None and screen.width - taken >= WIDE:
        date = f"{info.created.astimezone():%Y-%m-%d %H:%M} "
    told = screen.fit(what, taken + SHORT + ROLE + len(date) + 2)
    id, speaker = screen.paint(info.id[:SHORT], "id"), screen.paint(f"{who:<{ROLE}}", "kind")
    return f"{id} {screen.paint(date, 'dim')}{speaker} {told}".rstrip()


def describe_attempt(
    attempt: Attempt, screen: Screen = PLAIN, taken: int = 0, *, whole: bool = False
) -> str:
    """A stopped or failed answer: `! failed: overloaded (529)` or `~ partial: first words`.

    `whole` is how `show` prints it: the reason, then all the text that arrived.
    """
    sign, style = ("~", "kind") if attempt.state == "partial" else ("!", "old")
    reason = "" if attempt.reason is None else " ".join(str(attempt.reason).split())
    if whole:
        head = screen.paint(f"{sign} {attempt.state}", style)
        facts = f"  {attempt.created:%Y-%m-%d %H:%M:%S}" + (
            f"  {screen.safe(attempt.model)}" if attempt.model else ""
        )
        text = "" if attempt.message is None else screen.safe(spoken(attempt.message))
        return "\n".join(filter(None, [head + facts, screen.safe(reason), text]))
    words = "" if attempt.message is None else preview(attempt.message)
    told = f"{words} [{reason}]" if words and reason else words or reason or "no reason given"
    told = screen.fit(told, taken + len(attempt.state) + 6)
    return f"  {screen.paint(f'{sign} {attempt.state}', style)}: {told}"


def group_attempts(attempts: Iterable[Attempt]) -> dict[str, list[Attempt]]:
    """Attempts by the id of the commit they belong to."""
    found: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        found.setdefault(attempt.commit, []).append(attempt)
    return found


def commit_json(info: CommitInfo, attempts: Mapping[str, list[Attempt]]) -> dict[str, Any]:
    """A commit as JSON, with the attempts to answer it where there are any."""
    here = [attempt.to_dict() for attempt in attempts.get(info.id, ())]
    return {**info.to_dict(), "attempts": here} if here else info.to_dict()


def headline(thread: Thread, info: CommitInfo) -> tuple[str, str]:
    """Who the commit is about, or what kind it is where that is nobody; and what it did."""
    if info.kind == "annotate":
        return _marked(thread, info)
    if info.setup is not None and not info.message:
        return info.kind, tell_setup(info.setup)
    message = info.messages[0] if len(info.messages) == 1 else None
    if message is None or info.kind not in ("append", "edit"):
        return info.kind, info.message or " ".join(preview(m) for m in info.messages)
    note = info.message or ""
    type, _, words = note.partition(": ")
    if type in PLAIN_TYPES:
        note = "" if _begins(message, words) else words
    if not note:
        note = f"edit: {preview(message)}" if info.kind == "edit" else preview(message)
    return speaker(message), note


def tell_setup(setup: Setup) -> str:
    """The tools and the parameters that a setup brings, by name."""
    tools = "tools " + ", ".join(tool.name for tool in setup.tools) if setup.tools else ""
    unset = Params()
    params = [
        f"{name} {value if isinstance(value, str | int | float) else 'set'}"
        for name, value in structs.asdict(setup.params).items()
        if value != getattr(unset, name)
    ]
    told = "; ".join(filter(None, [tools, ", ".join(params)]))
    return shorten(told, WORDS) or "no tools, no parameters"


def preview(message: Message) -> str:
    """The first words of a message, and the names of what it calls."""
    said = shorten(" ".join(message.text.split()), WORDS)
    calls = ", ".join(block.name for block in message.blocks if isinstance(block, ToolCall))
    return " ".join([*filter(None, [said]), *([f"[calls {calls}]"] if calls else [])])


def _begins(message: Message, words: str) -> bool:
    """Whether a note is only the beginning of what the message says."""
    said, noted = (" ".join(text.split()) for text in (message.text, words.removesuffix("...")))
    return said.startswith(noted)


def _marked(thread: Thread, info: CommitInfo) -> tuple[str, str]:
    """`pin: the first words of what was pinned`."""
    for id, priority in info.marked.items():
        try:
            messages = thread.show(id).messages
        except ThreadError:  # its line came with a branch that is not this one
            messages = ()
        if len(messages) == 1:
            return speaker(messages[0]), f"{MARKS[priority]}: {preview(messages[0])}"
        return info.kind, f"{MARKS[priority]}: {id[:SHORT]}"
    return info.kind, info.message or "nothing new"
