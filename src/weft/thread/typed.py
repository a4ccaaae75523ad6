"""Separates the text that a user typed into a message from the text that the client added."""

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

NOT_TYPED = lazy_pattern(
    rf"<({'|'.join(CLIENT_ELEMENTS)})>.*?</\1>"
    r"|# AGENTS\.md instructions for \S+"
    r"|<image name=[^>]*>|</image>"
    r"|<checkpoint:\w+>",
    re.DOTALL,
)
"""Parts of a user's message that the user did not type."""


def typed_text(message: Message) -> str:
    """The text that was typed into a message, on one line."""
    texts = [block.text for block in message.blocks if isinstance(block, Text | Refusal)]
    return " ".join(NOT_TYPED.sub(" ", "\n".join(texts)).split())


def listed_text(role: str, text: str) -> str:
    """What a list shows of a message's text: the part that a user typed.

    If a user's message has no such part, these are the names of the client's elements:
    `[system-reminder]`.
    """
    if role != "user" or ("<" not in text and "#" not in text):
        return text
    typed, elements = split_typed(text)
    return typed or "".join(f"[{name}]" for name in elements)


def split_typed(text: str) -> tuple[str, list[str]]:
    """The part of a user's message that the user typed, and the names of the client's elements."""
    if "<" not in text and "# AGENTS.md" not in text:
        return text, []
    parts = list(NOT_TYPED.finditer(text))
    if not parts:
        return text, []
    names = [part[1] or ("instructions" if part[0].startswith("#") else "") for part in parts]
    return NOT_TYPED.sub(" ", text).strip(), list(dict.fromkeys(filter(None, names)))
