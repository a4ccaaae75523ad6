"""How clients name their sessions.

No protocol has a field for it, so every client found its own. A name that one gives is heard
before any guess from what was said; it becomes the name of the thread.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import orjson

from weft.model import Request

NAME_LIMIT = 80
ASIDE_LIMIT = 200

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_TITLE = re.compile(r"\b(?:generate|write|create)\b.*\btitle\b|\btitle generator\b", re.I)
_SESSION = re.compile(r"session_([0-9a-f-]{8,})")


def read_hint(headers: Mapping[str, str], request: Request) -> str | None:
    """The session that the client itself names, as a thread's name; None where it names none."""
    for prefix, read in HINTS:
        if found := read(headers, request):
            name = _UNSAFE.sub("-", found).strip("-.")[:NAME_LIMIT]
            if name:
                return prefix + name
    return None


def is_aside(request: Request) -> bool:
    """Whether a client asks beside the conversation, for its title.

    opencode does so before the conversation's own first request, and under the same name.
    """
    if request.tools:
        return False
    return any(_TITLE.search(message.text[:ASIDE_LIMIT]) for message in request.messages[:2])


def _header(name: str) -> Callable[[Mapping[str, str], Request], str | None]:
    return lambda headers, _: headers.get(name)


def _cache_key(_: Mapping[str, str], request: Request) -> str | None:
    return request.params.prompt_cache_key


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
    ("claude-", _header("x-claude-code-session-id")),
    ("codex-", _header("session_id")),
    ("codex-", _header("session-id")),
    ("session-", _header("x-session-id")),
    ("session-", _header("x-session-affinity")),
    ("cache-", _cache_key),
    ("claude-", _user_session),
)
"""How clients name their sessions, the surest first, with what a thread's name then begins with."""
