"""A commit or an attempt in one line of `weft log`.

The line shows the commit's note. A commit without a note is described by its content: the first
words of a message, the new text of an edit, or the message that was pinned or skipped.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import structs

from weft.errors import ThreadError
from weft.history import Setup, text_for_list
from weft.model import Message, Params, Text, ToolCall, describe_call, display_text, speaker
from weft.thread import Attempt, CommitInfo, Thread

from .terminal import PLAIN, Screen, shorten

ID_LENGTH = 12
PREVIEW_WIDTH = 72
CALL_WIDTH = 60
ROLE_WIDTH = 9
DATE_FROM_WIDTH = 60
"""How wide a screen must be to have room for a date."""

REVERTED = "(reverted) "

MARKS = {"pinned": "pin", "skip": "skip", "important": "important", "normal": "unmark"}
PLAIN_TYPES = frozenset({"dialogue", "tool_io"})
"""Content types that add nothing to the role."""


def describe(
    thread: Thread,
    info: CommitInfo,
    screen: Screen = PLAIN,
    used_columns: int = 0,
    *,
    is_reverted: bool = False,
) -> str:
    """A commit in one line that fits the screen beside `used_columns` columns.

    A commit that was reverted says so.
    """
    if screen.width is None and not screen.colour:  # a pipe, which may get thousands of lines
        message = info.plain_message
        block = message.blocks[0] if message is not None and len(message.blocks) == 1 else None
        if message is not None and type(block) is Text:
            subject = message.role if message.name is None else speaker(message)
            text = _preview_text(message.role, block.text)  # already one line
        else:
            subject, text = summarise(thread, info)
            text = screen.fit(text)
        if is_reverted:
            text = REVERTED + text
        return f"{info.id[:ID_LENGTH]} {subject.ljust(ROLE_WIDTH)} {text}".rstrip()
    subject, text = summarise(thread, info)
    if is_reverted:
        text = REVERTED + text
    subject = screen.name(subject)
    date = ""
    if screen.width is not None and screen.width - used_columns >= DATE_FROM_WIDTH:
        date = f"{info.created.astimezone():%Y-%m-%d %H:%M} "
    text = screen.fit(text, used_columns + ID_LENGTH + ROLE_WIDTH + len(date) + 2)
    id = screen.paint(info.id[:ID_LENGTH], "id")
    subject = screen.paint(f"{subject:<{ROLE_WIDTH}}", "kind")
    return f"{id} {screen.paint(date, 'dim')}{subject} {text}".rstrip()


def describe_attempt(
    attempt: Attempt, screen: Screen = PLAIN, used_columns: int = 0, *, whole: bool = False
) -> str:
    """A stopped or failed answer: `! failed: overloaded (529)` or `~ partial: first words`.

    With `whole`, as `weft show` prints it: the reason, then all the text that arrived.
    """
    sign, style = ("~", "kind") if attempt.state == "partial" else ("!", "failed")
    reason = "" if attempt.reason is None else " ".join(str(attempt.reason).split())
    if whole:
        head = screen.paint(f"{sign} {attempt.state}", style)
        facts = f"  {attempt.created:%Y-%m-%d %H:%M:%S}" + (
            f"  {screen.safe(attempt.model)}" if attempt.model else ""
        )
        text = "" if attempt.message is None else screen.safe(display_text(attempt.message))
        return "\n".join(filter(None, [head + facts, screen.safe(reason), text]))
    arrived = "" if attempt.message is None else preview(attempt.message)
    text = f"{arrived} [{reason}]" if arrived and reason else arrived or reason or "no reason given"
    text = screen.fit(text, used_columns + len(attempt.state) + 6)
    return f"  {screen.paint(f'{sign} {attempt.state}', style)}: {text}"


def group_attempts(attempts: Iterable[Attempt]) -> dict[str, list[Attempt]]:
    """Attempts by the id of their commit."""
    groups: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        groups.setdefault(attempt.commit, []).append(attempt)
    return groups


def commit_json(
    thread: Thread,
    info: CommitInfo,
    attempts: Mapping[str, list[Attempt]],
    is_reverted: bool = False,
) -> dict[str, Any]:
    """A commit as JSON, with its line in the log and with its attempts if it has any.

    A reverted commit has `"reverted": true`.
    """
    subject, text = summarise(thread, info)
    rows = [attempt.to_dict() for attempt in attempts.get(info.id, ())]
    line = {"speaker": subject, "preview": text} | ({"reverted": True} if is_reverted else {})
    return info.to_dict() | line | ({"attempts": rows} if rows else {})


def summarise(thread: Thread, info: CommitInfo) -> tuple[str, str]:
    """The speaker (or the kind of commit) and what the commit did."""
    messages = info.messages
    if info.kind == "append" and len(messages) == 1 and info.automatic_type in PLAIN_TYPES:
        # Most commits: their note would be the beginning of the message.
        return speaker(messages[0]), preview(messages[0])
    if info.kind == "annotate":
        return _summarise_marks(thread, info)
    if info.setup is not None and not info.message:
        return info.kind, describe_setup(info.setup)
    message = messages[0] if len(messages) == 1 else None
    note = info.message or ""
    if message is None or info.kind not in ("append", "edit"):
        return info.kind, note or " ".join(map(preview, messages))
    type, _, text = note.partition(": ")
    if type in PLAIN_TYPES:
        note = "" if _starts_with(message, text) else text
    if not note:
        note = f"edit: {preview(message)}" if info.kind == "edit" else preview(message)
    return speaker(message), note


def describe_setup(setup: Setup) -> str:
    """The names of the tools and parameters of a setup."""
    tools = "tools " + ", ".join(tool.name for tool in setup.tools) if setup.tools else ""
    defaults = Params()
    params = [
        f"{name} {value if isinstance(value, str | int | float) else 'set'}"
        for name, value in structs.asdict(setup.params).items()
        if value != getattr(defaults, name)
    ]
    text = "; ".join(filter(None, [tools, ", ".join(params)]))
    return shorten(text, PREVIEW_WIDTH) or "no tools, no parameters"


def preview(message: Message) -> str:
    """The first words that the speaker wrote, and the calls with their main arguments.

    Text that a client added to a user's message is left out. If there is no other text, its kind is
    shown: `[system-reminder]`.
    """
    blocks = message.blocks
    if len(blocks) == 1 and type(blocks[0]) is Text:  # most messages
        return _preview_text(message.role, blocks[0].text)
    first_words = _preview_text(message.role, message.text)
    calls = [block for block in blocks if isinstance(block, ToolCall)]
    if not calls:
        return first_words
    described = ", ".join(shorten(describe_call(call), CALL_WIDTH) for call in calls)
    return f"{first_words} [{described}]" if first_words else f"[{described}]"


def _preview_text(role: str, text: str) -> str:
    if role == "user":
        text = text_for_list(role, text)
    start = text[: PREVIEW_WIDTH + 1]
    is_line = start.isascii() and start.isprintable() and "  " not in start
    if is_line and len(start) > PREVIEW_WIDTH and start[0] != " ":  # most texts
        return start[: PREVIEW_WIDTH - 1] + "…"
    return shorten(_first_words(text), PREVIEW_WIDTH)


def _first_words(text: str) -> str:
    """The beginning of a text, at least one line of it; a long text is not split as a whole."""
    return " ".join(text.split(None, PREVIEW_WIDTH)[:PREVIEW_WIDTH])


def _starts_with(message: Message, note: str) -> bool:
    """Whether a note is only the beginning of the message's text."""
    return _first_words(message.text).startswith(_first_words(note.removesuffix("...")))


def _summarise_marks(thread: Thread, info: CommitInfo) -> tuple[str, str]:
    """`pin: the first words of the pinned message`."""
    for id, priority in info.marked.items():
        message = _marked_message(thread, info, id)
        if message is not None:
            return speaker(message), f"{MARKS[priority]}: {preview(message)}"
        return info.kind, f"{MARKS[priority]}: {id[:ID_LENGTH]}"
    return info.kind, info.message or "nothing new"


def marked_messages(thread: Thread, info: CommitInfo) -> list[Message]:
    """The messages that a commit marked, as they were then; without those of other branches."""
    messages = (_marked_message(thread, info, id) for id in info.marked)
    return [message for message in messages if message is not None]


def _marked_message(thread: Thread, info: CommitInfo, id: str) -> Message | None:
    """The version of a message that a commit marked; `None` if it is not on this branch."""
    try:
        versions = thread.edit_history(id)
    except ThreadError:
        versions = []
    earlier = [version for version in versions if version.created <= info.created]
    if versions:
        return (earlier or versions[:1])[-1].message
    try:
        messages = thread.show(id).messages
    except ThreadError:
        return None
    return messages[0] if len(messages) == 1 else None
