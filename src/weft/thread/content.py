"""The eight built-in content types, the table of their roles, and registered types.

Each content becomes one `Message`: its type says what it *is*, the message says how a model reads
it. A dict with `content_type` is the same as the class. Members that are not part of the message
(an artifact's language, the members of a registered type) are stored in the commit's metadata under
`content`.
"""

from collections.abc import Callable
from typing import Any, Literal, cast, get_args

import msgspec
from msgspec import Struct

from weft import exact_json
from weft.checked import checked_function
from weft.errors import NotFound, ThreadError, WrongValue
from weft.history import check_json
from weft.ids import canonical
from weft.model import JsonObject, Message, Text, Thinking, ToolCall, ToolResult

TAG = "content_type"


class InstructionContent(Struct, frozen=True, tag_field=TAG, tag="instruction"):
    """Instructions for the model."""

    text: str
    name: str | None = None


class DialogueContent(Struct, frozen=True, tag_field=TAG, tag="dialogue"):
    """A message of the dialogue; the only type with a role of its own."""

    role: str
    text: str
    name: str | None = None


class ToolIOContent(Struct, frozen=True, tag_field=TAG, tag="tool_io"):
    """Input or output of a tool. With `call_id` it is a tool call or result of a vendor."""

    tool_name: str
    payload: Any
    direction: Literal["call", "result"] = "result"
    status: str | None = None
    call_id: str | None = None


class ReasoningContent(Struct, frozen=True, tag_field=TAG, tag="reasoning"):
    """Thinking as plain text, which is stored but not sent."""

    text: str
    format: str | None = None


class ArtifactContent(Struct, frozen=True, tag_field=TAG, tag="artifact"):
    """Something that was produced: code, a document, a table."""

    content: str
    artifact_type: str = "text"
    language: str | None = None


class OutputContent(Struct, frozen=True, tag_field=TAG, tag="output"):
    """A finished answer."""

    text: str
    format: str | None = None


class FreeformContent(Struct, frozen=True, tag_field=TAG, tag="freeform"):
    """Any other JSON value."""

    payload: Any


class SessionContent(Struct, frozen=True, tag_field=TAG, tag="session"):
    """The state of a session when it is handed over."""

    summary: str
    session_type: str = "handoff"
    decisions: tuple[str, ...] = ()
    failed_approaches: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()


class CustomContent(Struct, frozen=True):
    """Content of a registered type (`register_content_type`), with its members as given."""

    type: str
    members: JsonObject


BuiltInContent = (
    InstructionContent
    | DialogueContent
    | ToolIOContent
    | ReasoningContent
    | ArtifactContent
    | OutputContent
    | FreeformContent
    | SessionContent
)

Content = BuiltInContent | CustomContent

CONTENT_TYPES: tuple[type[Struct], ...] = get_args(BuiltInContent)

ROLES: dict[str, str] = {
    "instruction": "system",
    "session": "system",
    "dialogue": "",  # `DialogueContent.role`
    "tool_io": "tool",
    "reasoning": "assistant",
    "artifact": "assistant",
    "output": "assistant",
    "freeform": "assistant",
}
"""The role of the message that each content type becomes."""

KNOWN_ROLES = ("user", "assistant", "system", "developer", "tool")
FIELDS: dict[str, tuple[str, ...]] = {
    str(kind.__struct_config__.tag): kind.__struct_fields__ for kind in CONTENT_TYPES
}
"""The members of each type."""

METADATA_KEY = "content"
"""The member of a commit's metadata that stores the members that are not in the message."""

TEXT_MEMBERS = ("text", "content", "summary")
"""If a registered type has no function for its text, the text is the first of these members."""

HIDDEN_MEMBERS: dict[str, JsonObject] = {
    "tool_io": {"tool_name": None, "direction": "result", "status": None},
    "reasoning": {"format": None},
    "artifact": {"artifact_type": "text", "language": None},
    "output": {"format": None},
    "session": {"session_type": "handoff"},
}
"""Members of built-in types that are not in the message, with their defaults."""


class CustomType(Struct, frozen=True):
    """A registered type; the fields are the arguments of `register_content_type`."""

    role: str
    text: Callable[[JsonObject], str] | None = None
    schema: type[Any] | None = None


_registered: dict[str, CustomType] = {}


def register_content_type(
    name: str,
    *,
    role: str = "assistant",
    text: Callable[[JsonObject], str] | None = None,
    schema: type[Any] | None = None,
) -> None:
    """Let `Thread.commit` take dicts whose `content_type` is `name`.

    The function `text` builds the text of the message from the members. Without this function, the
    text is the first of the members `text`, `content` and `summary` that is a string, or else all
    members as JSON. `schema` (a dataclass, `msgspec.Struct`, `TypedDict` or pydantic model) checks
    the members, and its instances can be committed too.

    All members are kept in the commit's metadata under `content`. The registration is valid for
    this process; threads can be read without it. Registering a name again replaces it.
    """
    if not isinstance(cast(Any, name), str) or not name.strip():
        raise WrongValue("name", "must be a text that is not blank")
    if name in ROLES:
        raise WrongValue("name", f"{name!r} is a built-in content type")
    if role not in KNOWN_ROLES:
        raise WrongValue("role", f"{role!r} is unknown; the roles are {', '.join(KNOWN_ROLES)}")
    if text is not None and not callable(text):
        raise WrongValue("text", "must be a function from the members to a text")
    if schema is not None and not isinstance(cast(Any, schema), type):
        raise WrongValue("schema", "must be a class")
    _registered[name] = CustomType(role, text, schema)


@checked_function
def unregister_content_type(name: str) -> None:
    """Remove a registered content type; raises `NotFound` if there is none with this name."""
    if _registered.pop(name, None) is None:
        raise NotFound("content type", str(name))


def content_type(content: Content) -> str:
    """The `content_type` of a content."""
    if isinstance(content, CustomContent):
        return content.type
    return str(content.__struct_config__.tag)


def read_content(content: Content | JsonObject, *, is_strict: bool = True) -> Content:
    """The content as one of the classes; raises `ThreadError` if its type or a field is wrong.

    Imported files are not read strictly: they may have further members, and any role.
    """
    if (
        type(content) is DialogueContent
        and type(content.text) is type(content.role) is str
        and (content.name is None or type(content.name) is str)
    ):
        return content  # the common case, checked without a conversion
    if isinstance(content, CONTENT_TYPES):
        _check_fields(content)
        return content  # pyright: ignore[reportReturnType] - the union's own members
    if isinstance(content, CustomContent):
        return content
    kind = content.get(TAG) if isinstance(content, dict) else _type_of_instance(content)
    if isinstance(kind, str) and kind in _registered:
        return _read_custom(kind, content)
    if kind not in ROLES and not isinstance(content, dict):
        name = type(content).__name__
        raise ThreadError(f"a {name} is not a content: give a ...Content or a dict")
    if kind not in ROLES:
        types = ", ".join((*ROLES, *_registered))
        raise ThreadError(
            f"content_type: {kind!r} is unknown; the types are {types}. Use 'freeform' for any"
            " JSON, or weft.register_content_type for a type of your own"
        )
    if is_strict:
        _check_members(kind, cast(JsonObject, content))
    try:
        return msgspec.convert(content, BuiltInContent)
    except msgspec.ValidationError as error:
        raise WrongValue(f"{kind} content", f"is not valid: {error}") from None


def _type_of_instance(content: object) -> str | None:
    """The registered type whose class this is an instance of."""
    matching = (name for name, custom in _registered.items() if custom.schema is type(content))
    return next(matching, None)


def _read_custom(kind: str, content: Any) -> CustomContent:
    """Content of a registered type, checked by its class."""
    schema = _registered[kind].schema
    members: JsonObject
    if isinstance(content, dict):
        items = cast(JsonObject, content).items()
        members = {key: value for key, value in items if key != TAG}
    elif callable(dump := getattr(content, "model_dump", None)):
        members = cast(JsonObject, dump(mode="json"))
    else:
        members = cast(JsonObject, msgspec.to_builtins(content))
    check_json(f"{kind} content", members)
    if schema is not None:
        validate = getattr(schema, "model_validate", None)
        try:
            if callable(validate):
                validate(members)
            else:
                msgspec.convert(members, schema)
        except ValueError as error:  # msgspec's and pydantic's errors are both
            raise WrongValue(f"{kind} content", f"is not valid: {error}") from None
    return CustomContent(kind, members)


def hidden_members(content: Content) -> JsonObject | None:
    """The members that are not in the message, with the content type; `None` if there are none."""
    if isinstance(content, CustomContent):
        return {TAG: content.type, **content.members}
    kind = content_type(content)
    if isinstance(content, ToolIOContent) and content.call_id is not None:
        return None  # a vendor's call or result: the message has all of it
    defaults = HIDDEN_MEMBERS.get(kind, {})
    members = {name: getattr(content, name) for name in defaults}
    if members == defaults:
        return None
    return {TAG: kind, **{name: value for name, value in members.items() if value is not None}}


def _check_members(kind: str, content: JsonObject) -> None:
    """Refuse unknown members of a dict: they would be dropped silently.

    The role is checked for dicts only, where it is often misspelt. `DialogueContent` accepts any
    role, for callers who need an unusual one.
    """
    fields = FIELDS[kind]
    for key in content:
        if key not in fields and key != TAG:
            from difflib import get_close_matches

            similar = get_close_matches(str(key), fields, 1)
            hint = f"; did you mean {similar[0]!r}?" if similar else f"; it has {', '.join(fields)}"
            raise WrongValue(f"{kind} content", f"has no member {key!r}{hint}")
    role = content.get("role")
    if kind == "dialogue" and isinstance(role, str) and role not in KNOWN_ROLES:
        roles = ", ".join(KNOWN_ROLES)
        raise WrongValue(
            "role", f"{role!r} is unknown; the roles are {roles} (DialogueContent takes any)"
        )


def _check_fields(content: Any) -> None:
    """Check the fields of a class in the same way as those of a dict."""
    kind = f"{content_type(content)} content"
    check_json(kind, content)
    try:
        msgspec.convert(msgspec.to_builtins(content), BuiltInContent)
    except msgspec.ValidationError as error:
        raise WrongValue(kind, f"is not valid: {error}") from None


def extract_text_from_content(content: Content | JsonObject) -> str:
    """The text of any content type."""
    match read_content(content):
        case CustomContent() as custom:
            return _custom_text(custom)
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
    """The message that a model is sent for this content."""
    if type(content) is DialogueContent:
        return Message(content.role, (Text(content.text),), content.name)
    if isinstance(content, CustomContent):
        return Message(_registered[content.type].role, (Text(_custom_text(content)),))
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


def _custom_text(content: CustomContent) -> str:
    """The text of the message of a registered type."""
    make_text = _registered[content.type].text
    if make_text is None:
        texts = (content.members.get(name) for name in TEXT_MEMBERS)
        text = next((text for text in texts if isinstance(text, str)), None)
        return exact_json.encode(content.members).decode() if text is None else text
    field = f"{content.type} content"
    try:
        text = make_text(dict(content.members))
    except Exception as error:  # the caller's own function: its error belongs to this content
        reason = f"{type(error).__name__}: {error}"
        raise WrongValue(field, f"has no text: its `text` function failed with {reason}") from error
    if not isinstance(cast(Any, text), str):
        raise WrongValue(
            field, f"has no text: its `text` function returned {type(text).__name__}, not a string"
        )
    return text


def _tool_message(content: ToolIOContent, role: str) -> Message:
    """A tool call or result. A call is written by the model, so its role is `assistant`."""
    assert content.call_id is not None
    if content.direction == "call":
        payload = content.payload
        arguments = payload if isinstance(payload, str) else _json(payload)
        return Message("assistant", (ToolCall(content.call_id, content.tool_name, arguments),))
    is_error = True if content.status == "error" else None
    text = Text(extract_text_from_content(content))
    return Message(role, (ToolResult(content.call_id, (text,), is_error, content.tool_name),))


def _session_text(content: SessionContent) -> str:
    """The summary, then its lists, each under a heading."""
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
        raise ThreadError(f"the payload cannot be written as JSON: {error}") from None
