"""Separates the text that a user typed into a message from the text that the client added.

Clients (Claude Code, Codex and others) add reminders, file names and command output to a user's
message, mostly as XML-like elements.
"""

import re

from weft.lazy import lazy_pattern
from weft.model import Message, Refusal, Text

CLIENT_ELEMENTS = (
    "system-reminder",
    "environment_context",
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
    "command-name",
    "command-message",
    "command-args",
)
"""Elements with which clients put their own text into a user's message."""

CLIENT_TEXT = lazy_pattern(
    rf"<({'|'.join(CLIENT_ELEMENTS)})>.*?</\1>"
    r"|# AGENTS\.md instructions for \S+"
    r"|<image name=[^>]*>|</image>"
    r"|<checkpoint:\w+>",
    re.DOTALL,
)
"""The parts of a user's message that the user did not type; group 1 is an element's name."""


def typed_text(message: Message) -> str:
    """The text that was typed into a message, on one line."""
    texts = [block.text for block in message.blocks if isinstance(block, Text | Refusal)]
    return " ".join(CLIENT_TEXT.sub(" ", "\n".join(texts)).split())


def text_for_list(role: str, text: str) -> str:
    """The text of a message in a list: for a user's message, only the part that was typed.

    If nothing was typed, these are the names of the client's elements: `[system-reminder]`.
    """
    if role != "user" or ("<" not in text and "#" not in text):
        return text
    typed, elements = split_typed(text)
    return typed or "".join(f"[{name}]" for name in elements)


def split_typed(text: str) -> tuple[str, list[str]]:
    """The part of a user's message that the user typed, and the names of the client's elements."""
    if "<" not in text and "# AGENTS.md" not in text:
        return text, []
    parts = list(CLIENT_TEXT.finditer(text))
    if not parts:
        return text, []
    names = [part[1] or ("instructions" if part[0].startswith("#") else "") for part in parts]
    return CLIENT_TEXT.sub(" ", text).strip(), list(dict.fromkeys(filter(None, names)))
