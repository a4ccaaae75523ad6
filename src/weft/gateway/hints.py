"""The headers and body members in which clients name their sessions.

No protocol has a field for this, so every client uses its own. The name says where to look for the
conversation, and a new thread gets this name. It proves nothing by itself.
"""

import re
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Any, Literal, cast

import orjson

from weft.model import Request, Text, is_system
from weft.thread import PREFIXES, name_of

from .codex_compaction import QUESTION

TITLE_PROMPT_LENGTH = 200
TITLE_LENGTH = 120
RETRY_DIGITS = 4

SideKind = Literal["title", "topic", "check"]

SUMMARY_QUESTIONS = (
    "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.",  # Claude Code
    "Your task is to create a detailed summary of the conversation so far",  # Claude Code before 2
    "You are performing a CONTEXT CHECKPOINT COMPACTION.",  # Codex
    "Provide a detailed prompt for continuing our conversation above.",  # opencode
    QUESTION,  # Weft, for Codex
)
"""First words of the requests in which clients ask for a summary."""

_TITLE = re.compile(r"\b(?:generate|write|create)\b.*\btitle\b|\btitle generator\b", re.I)
_TITLE_FIELD = 'JSON with a single "title" field'
_SESSION = re.compile(r"session_([0-9a-f-]{8,})")


def read_hint(headers: Mapping[str, str], request: Request) -> str | None:
    """The session that the client names, as the name of a thread; None if it names none.

    `prompt_cache_key` is not used: different conversations may share one.
    """
    for prefix, read in HINTS:
        if name := read(headers, request):
            return prefix + name_of(name)
    return None


def read_parent_hint(headers: Mapping[str, str], request: Request) -> str | None:
    """The session that the client names as the parent of its own; None if it names none.

    Subagents of Claude Code and Codex have sessions of their own.
    """
    session = headers.get("x-claude-code-session-id") or _user_session(headers, request)
    if session and headers.get("x-claude-code-agent-id"):
        return PREFIXES["claude-code"] + name_of(session)
    session, thread = headers.get("session-id"), headers.get("thread-id")
    is_child = bool(session) and bool(thread) and thread != session
    return PREFIXES["codex"] + name_of(session) if session and is_child else None


def retry_count(headers: Mapping[str, str]) -> int:
    """How often an official SDK has sent this request before, by its own count.

    https://github.com/openai/openai-python/blob/main/src/openai/_base_client.py
    """
    value = headers.get("x-stainless-retry-count", "0").strip()
    if value in ("", "0"):
        return 0
    return int(value) if value.isdecimal() and len(value) <= RETRY_DIGITS else 1


def is_retry(headers: Mapping[str, str]) -> bool:
    """Whether an official SDK marks this request as a retry."""
    return retry_count(headers) > 0


def read_side_kind(request: Request) -> SideKind | None:
    """The kind of a client's side question; None for a turn of the conversation.

    - `title`: a title for the conversation. opencode asks for it before the first turn, with the
      same session.
    - `topic`: whether the person's message starts a new topic, and a title for it.
    - `check`: whether the account may use the model.
    """
    if request.tools:
        return None
    system = list(takewhile(is_system, request.messages))
    dialogue = [message for message in request.messages if not is_system(message)]
    if any("isNewTopic" in message.text for message in system):
        return "topic"
    if any(_TITLE_FIELD in message.text for message in system):
        return "title"
    texts = [b.text for m in system for b in m.blocks if isinstance(b, Text)]
    texts += [message.text for message in dialogue[:2]]
    if any(_TITLE.search(text[:TITLE_PROMPT_LENGTH]) for text in texts):
        return "title"
    is_check = len(dialogue) == 1 and dialogue[0].text == "quota"
    return "check" if is_check and request.params.max_tokens == 1 else None


def read_title_answer(text: str) -> str | None:
    """The title in an answer to a title or topic request; None if there is none.

    Claude Code asks for JSON with a `title`, other clients for the bare title.
    """
    start, end = text.find("{"), text.rfind("}")
    title: object = text
    if 0 <= start < end:
        try:
            title = cast(dict[str, Any], orjson.loads(text[start : end + 1])).get("title")
        except orjson.JSONDecodeError:
            return None
    if not isinstance(title, str) or not title.strip():
        return None
    line = " ".join(title.strip().splitlines()[0].strip("#*\"'` ").split())
    return line[:TITLE_LENGTH] or None


def is_title_request(request: Request) -> bool:
    """Whether a request is a side question, such as one for a title, and not a turn."""
    return read_side_kind(request) is not None


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
    """The session of Claude Code. Subagents send their parent's session id and their own id."""
    session = headers.get("x-claude-code-session-id") or _user_session(headers, request)
    agent = headers.get("x-claude-code-agent-id")
    return f"{session}.{agent}" if session and agent else session


def _user_session(_: Mapping[str, str], request: Request) -> str | None:
    """The session in Claude Code's `metadata.user_id`; None if it is only the id of a user."""
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
