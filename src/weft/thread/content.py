"""The eight kinds of content a person or program commits, and the one table of their roles.

Each becomes one `Message` of the model: content types say what a thing *is*, the message says how
it is told. A dict with `content_type` is the same as the class.
"""

from difflib import get_close_matches
from typing import Any, Literal, cast, get_args

import msgspec
from msgspec import Struct

from weft.errors import ThreadError, WrongValue
from weft.history import check_json
from weft.ids import canonical
from weft.model import JsonObject, Message, Text, Thinking, ToolCall, ToolResult

TAG = "content_type"


class InstructionContent(Struct, frozen=True, tag_field=TAG, tag="instruction"):
    """What the model is told to be."""

    text: str
    name: str | None = None


class DialogueContent(Struct, frozen=True, tag_field=TAG, tag="dialogue"):
    """What somebody says; the one type that brings its own role."""

    role: str
    text: str
    name: str | None = None


class ToolIOContent(Struct, frozen=True, tag_field=TAG, tag="tool_io"):
    """What goes to a tool or comes from it. With `call_id` it is a vendor's call or result."""

    tool_name: str
    payload: Any
    direction: Literal["call", "result"] = "result"
    status: str | None = None
    call_id: str | None = None


class ReasoningContent(Struct, frozen=True, tag_field=TAG, tag="reasoning"):
    """Thoughts that are kept but not sent."""

    text: str
    format: str | None = None


class ArtifactContent(Struct, frozen=True, tag_field=TAG, tag="artifact"):
    """A thing that was made: code, a document, a table."""

    content: str
    artifact_type: str = "text"
    language: str | None = None


class OutputContent(Struct, frozen=True, tag_field=TAG, tag="output"):
    """A finished answer."""

    text: str
    format: str | None = None


class FreeformContent(Struct, frozen=True, tag_field=TAG, tag="freeform"):
    """Anything else that JSON can say."""

    payload: Any


class SessionContent(Struct, frozen=True, tag_field=TAG, tag="session"):
    """Where a session stands when it is handed on."""

    summary: str
    session_type: str = "handoff"
    decisions: tuple[str, ...] = ()
    failed_approaches: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()


Content = (
    InstructionContent
    | DialogueContent
    | ToolIOContent
    | ReasoningContent
    | ArtifactContent
    | OutputContent
    | FreeformContent
    | SessionContent
)

CONTENT_TYPES: tuple[type[Struct], ...] = get_args(Content)

OWN = ""
ROLES: dict[str, str] = {
    "instruction": "system",
    "session": "system",
    "dialogue": OWN,
    "tool_io": "tool",
    "reasoning": "assistant",
    "artifact": "assistant",
    "output": "assistant",
    "freeform": "assistant",
}


KNOWN_ROLES = ("user", "assistant", "system", "developer", "tool")
FIELDS: dict[str, tuple[str, ...]] = {
    str(kind.__struct_config__.tag): kind.__struct_fields__ for kind in CONTENT_TYPES
}
"""The members that each type has."""


def content_type(content: Content) -> str:
    """The word that a dict would carry as `content_type`."""
    return str(content.__struct_config__.tag)


def read_content(content: Content | JsonObject, *, is_strict: bool = True) -> Content:
    """The typed form; raises `ThreadError` naming the types, or the field that is wrong.

    A file that is imported is not read strictly: it may have members of its own, and any role.
    """
    if (
        type(content) is DialogueContent
        and type(content.text) is type(content.role) is str
        and (content.name is None or type(content.name) is str)
    ):
        return content  # nearly everything that is said
    if isinstance(content, CONTENT_TYPES):
        _check_fields(content)
        return content  # pyright: ignore[reportReturnType] - the union's own members
    kind = content.get(TAG) if isinstance(content, dict) else None
    if kind not in ROLES:
        raise ThreadError(
            f"content_type: {kind!r} is unknown; the types are {', '.join(ROLES)}. For anything"
            " else that JSON can say there is 'freeform', and metadata= marks it as your own"
            if isinstance(content, dict)
            else f"a {type(content).__name__} is no content: give a ...Content or a dict"
        )
    if is_strict:
        _check_members(kind, cast(JsonObject, content))
    try:
        return msgspec.convert(content, Content)
    except msgspec.ValidationError as error:
        raise WrongValue(f"{kind} content", f"is not valid: {error}") from None


def _check_members(kind: str, content: JsonObject) -> None:
    """Refuse what a dict has and its type has not: it would be forgotten without a word.

    A role is looked at here and not in the class: `DialogueContent` is for those who mean an
    unusual one, a dict is where it is misspelt.
    """
    fields = FIELDS[kind]
    for key in content:
        if key not in fields and key != TAG:
            near = get_close_matches(str(key), fields, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(fields)}"
            raise WrongValue(f"{kind} content", f"has no member {key!r}{hint}")
    role = content.get("role")
    if kind == "dialogue" and isinstance(role, str) and role not in KNOWN_ROLES:
        known = ", ".join(KNOWN_ROLES)
        raise WrongValue(
            "role", f"{role!r} is unknown; the roles are {known} (DialogueContent takes any)"
        )


def _check_fields(content: Any) -> None:
    """A class is as good as the dict it stands for; its fields are looked at in the same way."""
    kind = f"{content_type(content)} content"
    check_json(kind, content)
    try:
        msgspec.convert(msgspec.to_builtins(content), Content)
    except msgspec.ValidationError as error:
        raise WrongValue(kind, f"is not valid: {error}") from None


def extract_text_from_content(content: Content | JsonObject) -> str:
    """What a person would read of it, whatever its type."""
    match read_content(content):
        case InstructionContent(text=text) | DialogueContent(text=text):
            return text
        case ReasoningContent(text=text) | OutputContent(text=text):
            return text
        case ArtifactContent(content=text):
            return text
        case SessionContent(summary=text):
            return text
        case ToolIOContent(payload=payload) | FreeformContent(payload=payload):
            return payload if isinstance(payload, str) else _json(payload)


def to_message(content: Content) -> Message:
    """How the model is told this content."""
    if type(content) is DialogueContent:
        return Message(content.role, (Text(content.text),), content.name)
    role = ROLES[content_type(content)]
    match content:
        case InstructionContent(text=text, name=name):
            return Message(role, (Text(text),), name=name)
        case ReasoningContent(text=text):
            return Message(role, (Thinking(text),))
        case SessionContent():
            return Message(role, (Text(_session_text(content)),))
        case ToolIOContent(call_id=None):
            return Message(role, (Text(extract_text_from_content(content)),))
        case ToolIOContent():
            return _tool_message(content, role)
        case _:
            return Message(role, (Text(extract_text_from_content(content)),))


def _tool_message(content: ToolIOContent, role: str) -> Message:
    """A call is the model's own words, so it alone leaves the table's role."""
    assert content.call_id is not None
    if content.direction == "call":
        payload = content.payload
        arguments = payload if isinstance(payload, str) else _json(payload)
        return Message("assistant", (ToolCall(content.call_id, content.tool_name, arguments),))
    failed = True if content.status == "error" else None
    text = Text(extract_text_from_content(content))
    return Message(role, (ToolResult(content.call_id, (text,), failed, content.tool_name),))


def _session_text(content: SessionContent) -> str:
    """The summary, then its lists, each under a line that names it."""
    lists = (
        ("Decisions", content.decisions),
        ("Failed approaches", content.failed_approaches),
        ("Next steps", content.next_steps),
    )
    parts = [content.summary]
    for title, items in lists:
        if items:
            parts.append("\n".join([f"{title}:", *(f"- {item}" for item in items)]))
    return "\n\n".join(parts)


def _json(value: Any) -> str:
    try:
        return canonical(value).decode()
    except TypeError as error:
        raise ThreadError(f"the payload cannot be said as JSON: {error}") from None
