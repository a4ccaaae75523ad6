"""The headers and body members in which clients name their sessions.

No protocol has a field for this, so every client uses its own. The name says where to look for the
conversation, and a new thread gets this name. It proves nothing by itself.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import orjson

from weft.model import Request, Text, is_system
from weft.thread import PREFIXES, name_of

from .codex_compaction import QUESTION

TITLE_PROMPT_LENGTH = 200

SUMMARY_QUESTIONS = (
    "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.",  # Claude Code
    "Your task is to create a detailed summary of the conversation so far",  # Claude Code before 2
    "You are performing a CONTEXT CHECKPOINT COMPACTION.",  # Codex
    "Provide a detailed prompt for continuing our conversation above.",  # opencode
    QUESTION,  # Weft, for Codex
)
"""How the requests begin with which clients ask for a summary."""

_TITLE = re.compile(r"\b(?:generate|write|create)\b.*\btitle\b|\btitle generator\b", re.I)
_SESSION = re.compile(r"session_([0-9a-f-]{8,})")


def read_hint(headers: Mapping[str, str], request: Request) -> str | None:
    """The session that the client names, as the name of a thread; None if it names none.

    `prompt_cache_key` is not used: different conversations may share one.
    """
    for prefix, read in HINTS:
        if name := read(headers, request):
            return prefix + name_of(name)
    return None


def is_retry(headers: Mapping[str, str]) -> bool:
    """Whether an official SDK marks this request as a retry.

    https://github.com/openai/openai-python/blob/main/src/openai/_base_client.py
    """
    return headers.get("x-stainless-retry-count", "0").strip() not in ("", "0")


def is_title_request(request: Request) -> bool:
    """Whether a request asks for a title of the conversation.

    opencode sends one before the first request of the conversation, with the same session name.
    """
    if request.tools:
        return False
    return any(
        _TITLE.search(message.text[:TITLE_PROMPT_LENGTH]) for message in request.messages[:2]
    )


def is_summary_request(request: Request) -> bool:
    """Whether a client asks for a summary of its conversation, to compact it."""
    last = next((m for m in reversed(request.messages) if not is_system(m)), None)
    if last is None or last.role != "user":
        return False
    texts = [block.text.lstrip() for block in last.blocks if isinstance(block, Text)]
    return any(text.startswith(SUMMARY_QUESTIONS) for text in texts)


def _header(name: str) -> Callable[[Mapping[str, str], Request], str | None]:
    return lambda headers, _: headers.get(name)


def _claude_code(headers: Mapping[str, str], request: Request) -> str | None:
    """Claude Code's subagents carry their parent's session id beside an id of their own."""
    session = headers.get("x-claude-code-session-id") or _user_session(headers, request)
    agent = headers.get("x-claude-code-agent-id")
    return f"{session}.{agent}" if session and agent else session


def _user_session(_: Mapping[str, str], request: Request) -> str | None:
    """Claude Code's `metadata.user_id` holds its session; a plain user's id names no session."""
    user = request.params.user or (request.params.metadata or {}).get("user_id")
    if not isinstance(user, str):
        return None
    if match := _SESSION.search(user):
        return match[1]
    try:
        session = cast(dict[str, Any], orjson.loads(user)).get("session_id")
    except (orjson.JSONDecodeError, AttributeError):
        return None
    return session if isinstance(session, str) else None


HINTS: tuple[tuple[str, Callable[[Mapping[str, str], Request], str | None]], ...] = (
    ("", _header("x-weft-thread")),
    (PREFIXES["claude-code"], _claude_code),
    (PREFIXES["codex"], _header("thread-id")),  # its `session-id` is that of the parent
    (PREFIXES["codex"], _header("session_id")),  # older versions
    (PREFIXES["codex"], _header("session-id")),
    ("session-", _header("x-session-id")),
    ("session-", _header("x-session-affinity")),
)
"""The prefix of the thread's name, and how to read the session's; the most reliable first."""
