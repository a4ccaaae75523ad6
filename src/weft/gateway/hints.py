"""The headers and members in which clients name their sessions.

No protocol has a field for it, so every client uses one of its own. The name says where to look
for the conversation, and becomes the name of a new thread; it proves nothing by itself.
"""

import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, cast

import orjson

from weft.model import Request

NAME_LIMIT = 80
ASIDE_LIMIT = 200

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_TITLE = re.compile(r"\b(?:generate|write|create)\b.*\btitle\b|\btitle generator\b", re.I)
_SESSION = re.compile(r"session_([0-9a-f-]{8,})")


def read_hint(headers: Mapping[str, str], request: Request) -> str | None:
    """The session that the client names, as a thread's name; None where it names none.

    A `prompt_cache_key` is shared by whoever wants to share a cache, so it names no session.
    """
    for prefix, read in HINTS:
        if name := read(headers, request):
            return prefix + _thread_name(name)
    return None


def _thread_name(value: str) -> str:
    """A readable name that differs wherever the client's own text does.

    Texts that are not a plain name get a digest behind what is left of them: `user/1` and `user 1`
    are two sessions.
    """
    bare = _UNSAFE.sub("-", value).strip("-.")[:NAME_LIMIT]
    if bare == value:
        return bare
    digest = sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{bare}-{digest}" if bare else digest


def is_retry(headers: Mapping[str, str]) -> bool:
    """Whether an official SDK says that it sends this request again.

    https://github.com/openai/openai-python/blob/main/src/openai/_base_client.py
    """
    return headers.get("x-stainless-retry-count", "0").strip() not in ("", "0")


def is_aside(request: Request) -> bool:
    """Whether a client asks beside the conversation, for its title.

    opencode does so before the conversation's own first request, and under the same name.
    """
    if request.tools:
        return False
    return any(_TITLE.search(message.text[:ASIDE_LIMIT]) for message in request.messages[:2])


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
    ("claude-", _claude_code),
    ("codex-", _header("thread-id")),  # its `session-id` is that of the parent
    ("codex-", _header("session_id")),  # older versions
    ("codex-", _header("session-id")),
    ("session-", _header("x-session-id")),
    ("session-", _header("x-session-affinity")),
)
"""How clients name their sessions, the surest first, with what a thread's name then begins with."""
