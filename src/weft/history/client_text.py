"""Separates the text that a user typed into a message from the text that the client added.

Clients (Claude Code, Codex and others) add reminders, file names and command output to a user's
message, mostly as XML-like elements. Weft's own checkpoint markers count as added text too.
"""

import re

from weft.lazy import lazy_pattern
from weft.model import Message, Refusal, Text

COMMAND_ELEMENTS = ("command-name", "command-message", "command-args")
"""Elements that Claude Code writes for a slash command that the user typed."""

CLIENT_ELEMENTS = (
    "system-reminder",
    "environment_context",
    "environment_details",
    "session_context",
    "user_instructions",
    "INSTRUCTIONS",
    "local-command-caveat",
    "local-command-stdout",
    "local-command-stderr",
    "total_tokens",
    "task-notification",
    "ide_opened_file",
    "ide_selection",
    "user-prompt-submit-hook",
    "skills_instructions",
    "collaboration_mode",
    "multi_agent_role",
    "multi_agent_mode",
    *COMMAND_ELEMENTS,
)
"""Elements that clients write into a user's message."""

CLIENT_TEXT = lazy_pattern(
    rf"<({'|'.join(CLIENT_ELEMENTS)})>.*?</\1>"
    r"|# AGENTS\.md instructions for [^\n]+"  # Codex: the heading before <INSTRUCTIONS>
    r"|<image name=[^>]*>|</image>"  # Codex: the tags around an image
    r"|<checkpoint:\w+>",  # Weft's own marker
    re.DOTALL,
)
"""The parts of a user's message that a client wrote.

A slash command is one of them, because the client writes it as elements; `without_context`
keeps it.

Group 1 is the name of an element, or `None` for the other parts.
"""


CODEX_CONTEXTS = (
    ("<environment_context>", "</environment_context>"),
    ("<user_instructions>", "</user_instructions>"),
    ("# AGENTS.md instructions", "</INSTRUCTIONS>"),
)
"""The beginning and the end of the texts in which Codex sends its context as a user message.

Codex sends them at the start of a conversation. In a session that it resumes from a file without
them, it sends them before the next question.
"""


def without_client_text(message: Message) -> str:
    """The text of a message without the parts that clients add, on one line.

    It works for every role: the title of a thread may come from an answer.
    """
    texts = [block.text for block in message.blocks if isinstance(block, Text | Refusal)]
    return " ".join(CLIENT_TEXT.sub(" ", "\n".join(texts)).split())


def without_context(text: str) -> str:
    """The text without what a client adds by itself. A slash command stays: the user typed it."""
    if "<" not in text and "# AGENTS.md" not in text:
        return text
    return CLIENT_TEXT.sub(lambda match: match[0] if match[1] in COMMAND_ELEMENTS else "", text)


def is_codex_context(text: str) -> bool:
    """Whether a text of a user message is context that Codex wrote, not the user."""
    bare = text.strip()
    return any(bare.startswith(start) and bare.endswith(end) for start, end in CODEX_CONTEXTS)


def text_for_list(role: str, text: str) -> str:
    """The text of a message for one line of a list, such as `weft log`.

    For a user's message it is the text without `CLIENT_TEXT`. If nothing is left, it is the names
    of the client's elements: `[system-reminder]`.
    """
    if role != "user":
        return text
    typed, elements = split_typed(text)
    return typed or "".join(f"[{name}]" for name in elements)


def split_typed(text: str) -> tuple[str, list[str]]:
    """A user's message without `CLIENT_TEXT`, and the names of the client's elements."""
    if "<" not in text and "# AGENTS.md" not in text:
        return text, []
    matches = list(CLIENT_TEXT.finditer(text))
    if not matches:
        return text, []
    # The AGENTS.md heading counts as "instructions". Image tags and checkpoints have no name.
    names = [match[1] or ("instructions" if match[0][0] == "#" else "") for match in matches]
    return CLIENT_TEXT.sub(" ", text).strip(), list(dict.fromkeys(filter(None, names)))
