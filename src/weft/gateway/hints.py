"""How clients name their sessions, and which threads belong to one session.

No protocol has a field for the name of a session, so every client uses its own headers or members.
The name says where to look for the conversation, and a new thread gets this name. It proves nothing
by itself.

A session's conversation is its *main* thread. Under the same session name, clients also ask side
questions: for a title, whether a message starts a new topic, whether the account may use the model.
Subagents have conversations of their own. All of these are children of the main thread:
`ThreadRecord.parent` names it, and `kind` says what the child is:

- `title`, `topic`, `check`: a side question (`read_side_kind`). A title becomes the title of the
  parent, unless the user has renamed the parent.
- `agent`: a subagent, which names the session of its parent.
- `child`: another conversation under the session's name.

A child may come before its parent. It joins the family when the main thread is created.
"""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, cast

from msgspec import Struct, convert

from weft import exact_json
from weft.model import Message, Request, Text, is_system
from weft.store import Store, ThreadRecord
from weft.thread import PREFIXES, child_key, find_session, safe_name

from .codex_compaction import QUESTION

TITLE_LENGTH = 120
RETRY_DIGITS = 4
"""A retry count with more digits is not an SDK's; it counts as one retry."""

SideKind = Literal["title", "topic", "check"]

QuestionKind = Literal["title", "topic", "check", "summary"]


class ClientQuestion(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of `side_questions.toml`, which explains the fields."""

    client: str
    seen: tuple[str, ...]
    kind: QuestionKind
    system: str | None = None
    first: str | None = None
    last: str | None = None
    last_is: str | None = None
    alone: bool = False
    max_tokens: int | None = None
    session: bool = False

    def matches(self, request: Request) -> bool:
        """Whether the request is this question."""
        if self.kind != "summary" and request.tools:
            return False
        if self.max_tokens not in (None, request.params.max_tokens):
            return False
        dialogue = [message for message in request.messages if not is_system(message)]
        if not dialogue or (self.alone and len(dialogue) > 1):
            return False
        if self.session and _read_user_session(request) is None:
            return False
        if self.system is not None:
            leading = takewhile(is_system, request.messages)
            if not any(text.startswith(self.system) for m in leading for text in _texts(m)):
                return False
        first, last = _texts(dialogue[0]), _texts(dialogue[-1])
        if self.first is not None and not (first and first[0].startswith(self.first)):
            return False
        if self.last is None and self.last_is is None:
            return True
        if dialogue[-1].role != "user":
            return False
        if self.last_is is not None:
            return last == [self.last_is]
        return any(text.lstrip().startswith(self.last or "") for text in last)


def _texts(message: Message) -> list[str]:
    return [block.text for block in message.blocks if isinstance(block, Text)]


class _Questions(Struct, frozen=True, forbid_unknown_fields=True):
    question: tuple[ClientQuestion, ...]


OWN_SUMMARY = ClientQuestion(client="Weft, for Codex", seen=(), kind="summary", last=QUESTION)


@cache
def client_questions() -> tuple[ClientQuestion, ...]:
    """The rows of `side_questions.toml`."""
    data = Path(__file__).with_name("side_questions.toml").read_text("utf-8")
    return convert(tomllib.loads(data), _Questions).question


_SESSION = re.compile(r"session_([0-9a-f-]{8,})")


def read_hint(headers: Mapping[str, str], request: Request) -> str | None:
    """The session that the client names, as the name of a thread; None if it names none.

    `prompt_cache_key` is not used: different conversations may share one.
    """
    for prefix, read in HINTS:
        if name := read(headers, request):
            return prefix + safe_name(name)
    return None


def read_parent_hint(headers: Mapping[str, str], request: Request) -> str | None:
    """The session that the client names as the parent of its own; None if it names none.

    Subagents of Claude Code and Codex have sessions of their own.
    """
    session = headers.get("x-claude-code-session-id") or _read_user_session(request)
    if session and headers.get("x-claude-code-agent-id"):
        return PREFIXES["claude-code"] + safe_name(session)
    session, thread = headers.get("session-id"), headers.get("thread-id")
    if session and thread and thread != session:
        return PREFIXES["codex"] + safe_name(session)
    return None


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

    A question is recognised by the exact texts that a client sends (`side_questions.toml`), never
    by the words of a person.
    """
    for question in client_questions():
        if question.kind != "summary" and question.matches(request):
            return question.kind
    return None


def read_title_answer(text: str) -> str | None:
    """The title in an answer to a title or topic request; None if there is none.

    Claude Code asks for JSON with a `title`, other clients for the bare title.
    """
    start, end = text.find("{"), text.rfind("}")
    title: object = text
    if 0 <= start < end:
        try:
            title = cast(dict[str, Any], exact_json.loads(text[start : end + 1])).get("title")
        except exact_json.JSONDecodeError:
            return None
    if not isinstance(title, str) or not title.strip():
        return None
    line = " ".join(title.strip().splitlines()[0].strip("#*\"'` ").split())
    return line[:TITLE_LENGTH] or None


def is_side_question(request: Request) -> bool:
    """Whether a request is not a turn of the conversation, but for example asks for a title."""
    return read_side_kind(request) is not None


def is_summary_request(request: Request) -> bool:
    """Whether a client asks for a summary of its conversation, to compact it."""
    questions = (each for each in client_questions() if each.kind == "summary")
    return any(each.matches(request) for each in (*questions, OWN_SUMMARY))


def _header_reader(name: str) -> Callable[[Mapping[str, str], Request], str | None]:
    return lambda headers, _: headers.get(name)


def _read_claude_code(headers: Mapping[str, str], request: Request) -> str | None:
    """The session of Claude Code. Subagents send their parent's session id and their own id."""
    session = headers.get("x-claude-code-session-id") or _read_user_session(request)
    agent = headers.get("x-claude-code-agent-id")
    return f"{session}.{agent}" if session and agent else session


def _read_user_session(request: Request) -> str | None:
    """The session in Claude Code's `metadata.user_id`; None if it is only the id of a user."""
    user = request.params.user or (request.params.metadata or {}).get("user_id")
    if not isinstance(user, str):
        return None
    if match := _SESSION.search(user):
        return match[1]
    try:
        session = cast(dict[str, Any], exact_json.loads(user)).get("session_id")
    except (exact_json.JSONDecodeError, AttributeError):
        return None
    return session if isinstance(session, str) else None


HINTS: tuple[tuple[str, Callable[[Mapping[str, str], Request], str | None]], ...] = (
    ("", _header_reader("x-weft-thread")),
    (PREFIXES["claude-code"], _read_claude_code),
    (PREFIXES["codex"], _header_reader("thread-id")),  # its `session-id` is that of the parent
    (PREFIXES["codex"], _header_reader("session_id")),  # older versions
    (PREFIXES["codex"], _header_reader("session-id")),
    ("session-", _header_reader("x-session-id")),
    ("session-", _header_reader("x-session-affinity")),
)
"""The prefix of the thread's name, and how to read the session's; the most reliable first."""

SESSION_HEADERS = (
    "x-weft-thread",
    "x-claude-code-session-id",
    "x-claude-code-agent-id",
    "thread-id",
    "session_id",
    "session-id",
    "x-session-id",
    "x-session-affinity",
)
"""The headers in which clients name their sessions."""


TITLE_KINDS = ("title", "topic")
"""The kinds of side questions whose answer has a title."""
SIDE_KINDS = (*TITLE_KINDS, "check")


class Family(Struct, frozen=True):
    """The session of a request (`hint`), the session of its parent, and the kind of the request."""

    scope: str
    hint: str
    parent: str | None = None
    kind: str | None = None


def find_main_thread(store: Store, session: Sequence[str]) -> str | None:
    """The main thread among the threads of a session."""
    records = [store.read_thread(name) for name in session]
    return next(
        (r.name for r in records if r is not None and not r.parent and r.kind not in SIDE_KINDS),
        None,
    )


def join_family(
    store: Store, thread: ThreadRecord, family: Family, session: Sequence[str], main: str | None
) -> None:
    """Set the parent of a new thread, or make it the parent of children that came before it.

    `session` are the other threads of its session, `main` the main one of them.
    """
    if family.parent is not None and main is None:
        parent = find_main_thread(store, find_session(store, family.scope, family.parent))
        store.describe_thread(thread.name, parent=parent, kind=family.kind or "agent")
        return
    if family.kind is not None or main is not None:
        store.describe_thread(thread.name, parent=main, kind=family.kind or "child")
        return
    links = store.find_links([child_key(family.scope, family.hint)])
    for name in dict.fromkeys([*session, *(link.thread for link in links)]):
        child = store.read_thread(name)
        if child is not None and child.parent is None and name != thread.name:
            store.describe_thread(name, parent=thread.name)
            if child.title is not None and child.kind in TITLE_KINDS:
                store.describe_thread(thread.name, title=child.title)


def set_title(store: Store, child: ThreadRecord, answer: str) -> None:
    """Use the answer to a title request as the title of the parent, if the parent exists."""
    title = read_title_answer(answer)
    if title is None:
        return
    store.describe_thread(child.name, title=title)
    if child.parent is not None and not _is_renamed(child.parent, child.name):
        store.describe_thread(child.parent, title=title)


def _is_renamed(parent: str, child: str) -> bool:
    """Whether the user gave the parent another name than its session's.

    A child is named after its session, with a number.
    """
    session = child.rpartition(".")[0]
    return parent not in (session, *(session.removeprefix(each) for each in PREFIXES.values()))
