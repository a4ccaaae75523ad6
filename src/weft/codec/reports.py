"""Reports of what a target cannot express: parameters, vendor members, tools, stop reasons."""

from collections.abc import Iterator
from typing import Any

from weft.errors import Refused
from weft.model import (
    Ext,
    Format,
    JsonObject,
    Level,
    Position,
    Request,
    Stop,
    StopKind,
    Thinking,
    Tool,
    ToolCall,
)

from .base import Losses, as_object
from .read import optional

DEFAULTS: dict[str, Any] = {
    "background": False,
    "frequency_penalty": 0,
    "include": ["reasoning.encrypted_content"],
    "logprobs": False,
    "modalities": ["text"],
    "n": 1,
    "parallel_tool_calls": True,
    "presence_penalty": 0,
    "stream_options.include_usage": True,
    "top_logprobs": 0,
    "truncation": "disabled",
    "verbosity": "medium",
}
"""Parameters that have this default in every protocol: dropping one is only a loss of form."""

CACHE_MEMBERS = frozenset({"prompt_cache_key", "prompt_cache_retention", "store"})
"""Parameters for how a vendor stores and caches a request. The answer does not depend on them, and
Codex sends them with every request, so dropping one is only a loss of form."""

CLIENT_PARAMS = frozenset(
    {
        "client_metadata",
        "context_management",
        "include",
        "metadata",
        "safety_identifier",
        "thinking.display",
        "user",
    }
)
"""Parameters that name the client, or that only say what of an answer is returned or shown.

`context_management` lets a vendor forget old thinking and results: without it, the model sees more.
"""

FORM_MEMBERS = frozenset(
    {
        "avgLogprobs",
        "caller",
        "created",
        "envelope",
        "id",
        "index",
        "internal_chat_message_metadata_passthrough",
        "item",
        "logprobs",
        "obfuscation",
        "object",
        "phase",
        "role",
        "source",
        "status",
        "system_fingerprint",
        "type",
    }
)
"""Vendor members that mean nothing to the model or the user: dropping one is a loss of form."""

MISSING_CONTEXT = frozenset(
    {"cachedContent", "conversation", "item_reference", "previous_response_id", "prompt"}
)
"""Members and item types that refer to context which only the vendor stores."""


def read_schema_format(fields: JsonObject) -> Format:
    """A JSON schema format, as both of OpenAI's protocols write it."""
    return Format(
        "schema",
        as_object(fields.get("schema")),
        optional(fields, "name", str),
        optional(fields, "description", str),
        optional(fields, "strict", bool),
    )


def refuse_missing_context(request: Request) -> None:
    """Raise `Refused` if a part of the conversation is not in the body itself."""
    for path, value in request.rest.items():
        kind = (as_object(value) or {}).get("type")
        name = kind if isinstance(kind, str) and kind in MISSING_CONTEXT else path
        if name in MISSING_CONTEXT and value is not None:
            raise Refused(
                f"{name} refers to context that only its own vendor stores, so it cannot be"
                " translated: send the whole conversation",
                param=path,
            )


def report_params(request: Request, supported: frozenset[str], losses: Losses) -> None:
    """Report every parameter that the caller set and the target does not support.

    Raises `Refused` if a part of the conversation itself is missing.
    """
    refuse_missing_context(request)
    reported = {loss.path for loss in losses.items if loss.kind == "dropped"}
    for key in request.params.__struct_fields__:
        value = getattr(request.params, key)
        is_dropped = value is not None and value != {} and key not in supported
        if is_dropped and losses.path(("params", key)) not in reported:
            losses.param(key, "param_dropped", key, _level(key, value))
    _report_null_members(request, supported, losses)
    for path, value in request.rest.items():
        if value is None:
            losses.add(path, "form_changed", path)
            continue
        losses.add(path, "member_dropped", path, _level(path, value))


def _level(name: str, value: Any) -> Level:
    """The level of a lost member: `meaning` if the answer could depend on it."""
    is_default = name in DEFAULTS and value == DEFAULTS[name]
    if is_default or name in CACHE_MEMBERS or name in CLIENT_PARAMS or value in ([], {}, (), ""):
        return "form"
    return "meaning"


def report_tier(tier: str | None, losses: Losses) -> None:
    """Report a service tier that the target does not have."""
    if tier is not None:
        losses.param("service_tier", "service_tier_dropped", tier)


def report_stop(
    stop: Stop | None, supported: frozenset[StopKind], losses: Losses, expressed: str = ""
) -> None:
    """Report a stop reason that the target does not have, and its details.

    `expressed` is the detail that the target can express: `sequence`, `details` or none.
    """
    if stop is None:
        return
    if stop.raw == "":
        losses.add(("stop",), "stop_reason_added")
    for part in ("sequence", "details"):
        if part != expressed and getattr(stop, part) is not None:
            losses.add(("stop", part), "stop_detail_dropped", part)
    if stop.kind not in supported:
        losses.add(
            ("stop",),
            "stop_reason_changed",
            stop.raw or stop.kind,
            "form" if stop.kind == "sequence" and not stop.sequence else "meaning",
        )


NULL, EMPTY = "null", "empty"


def _report_null_members(request: Request, supported: frozenset[str], losses: Losses) -> None:
    """Report members that are null or empty objects: other protocols leave them out."""
    for fields in request.raw.values():
        for path, state in sorted(_null_paths(fields)):
            is_written = path in supported and getattr(request.params, path, None) == {}
            if path not in request.rest and not (state == EMPTY and is_written):
                losses.add(path, "null_member_dropped", path)
    for number, tool in enumerate(request.tools):
        for fields in (tool.raw or {}).values():
            for path, _ in _null_paths(fields):
                tool_path = losses.path(("tools", number))
                if len(fields) == 1:  # Gemini: the path of the tool already ends in this member
                    tool_path = tool_path.removesuffix(f".{next(iter(fields))}")
                losses.add(f"{tool_path}.{path}", "null_member_dropped", path)


def _null_paths(fields: JsonObject, path: str = "") -> Iterator[tuple[str, str]]:
    """The paths of null and empty members, except inside of the caller's own data."""
    for key, value in fields.items():
        inner = as_object(value)
        if value is None:
            yield path + key, NULL
        elif inner == {} and key not in SCHEMAS:
            yield path + key, EMPTY
        elif inner is not None and key not in CALLER_DATA:
            yield from _null_paths(inner, f"{path}{key}.")


SCHEMAS = frozenset(
    {
        "input_schema",
        "parameters",
        "parametersJsonSchema",
        "parameters_json_schema",
        "responseJsonSchema",
        "responseSchema",
        "response_json_schema",
        "schema",
    }
)
CALLER_DATA = SCHEMAS | {"@form", "metadata"}
"""Members that contain the caller's own data."""


def report_ext(ext: Ext, protocol: str, position: Position, losses: Losses) -> None:
    """Report the vendor members in `ext`, except those of this protocol."""
    for name, fields in ext.items():
        if name == protocol:
            continue
        path = losses.path(position)
        item = as_object(fields.get("item"))
        if item is None:
            name = fields.get("item")
            if isinstance(name, str) and path.endswith(
                f".{name}"
            ):  # the members are beside this one
                path = path.removesuffix(f".{name}")
            _report_members(fields, path, losses)
            continue
        # In Responses, `item` has the members of the message that contains this part.
        inner = {key: value for key, value in fields.items() if key != "item"}
        _report_members(inner, path, losses)
        outer = {key: value for key, value in item.items() if key != "content"}
        _report_members(outer, path.partition(".content")[0], losses)


def report_call(call: ToolCall, position: Position, losses: Losses, *, custom: bool = True) -> None:
    """Report that an answer's call loses its namespace, and that a custom call becomes a function
    call unless the target supports `custom` calls."""
    if call.namespace is not None:
        losses.add(position, "namespace_flattened", call.namespace)
    if call.custom and not custom:
        losses.add(position, "custom_call_as_function")


def report_thinking(block: Thinking, protocol: str, position: Position, losses: Losses) -> None:
    """Report what is lost if only the text of another protocol's thinking is written."""
    if block.signature is not None:
        losses.add(position, "thinking_signature_dropped")
    if block.ext is not None:
        report_ext(block.ext, protocol, position, losses)
    if not block.text:
        losses.add(position, "empty_thinking_dropped")


def report_answer(ext: Ext, protocol: str, losses: Losses) -> None:
    """Report the vendor members of a whole answer, except those of this protocol."""
    for name, fields in ext.items():
        if name == protocol:
            continue
        for key, value in fields.items():
            if key in RETYPED_NOTES:
                losses.add(("member", RETYPED_NOTES[key]), "value_retyped", "object -> JSON text")
            if key.startswith("@"):
                continue
            is_form = key.rpartition(".")[2] in FORM_MEMBERS or value in (None, "", [], {})
            losses.add(("member", key), "member_dropped", key, "form" if is_form else "meaning")


RETYPED_NOTES = {"@content": "choices[0].message.content"}
"""Notes in the `ext` of an answer for a value that became JSON text, with its path. Every key that
begins with `@` is a note of a decoder on how the answer was written."""


def _report_members(fields: JsonObject, path: str, losses: Losses) -> None:
    """Report each vendor member of the object at this path."""
    for key, value in fields.items():
        is_form = key in FORM_MEMBERS or value in (None, "", [], {})
        if (key, type(value)) in DECODER_NOTES:
            member_path = path
        else:
            key = key.removeprefix("@")  # it is there if the name could be taken for a note
            member_path = f"{path}.{key}" if path else key
        losses.add(member_path, "member_dropped", key, "form" if is_form else "meaning")


DECODER_NOTES = frozenset(
    {("id", type(None)), ("id", list), ("item", str), ("reasoning_details", list)}
)
"""Members of `ext`, with the type of their value, that a decoder added and the body does not
have."""


def report_tool_members(tool: Tool, number: int, losses: Losses) -> None:
    """Report the members of a tool's definition that `Tool` has no field for."""
    for fields in (tool.raw or {}).values():
        unknown = [key for key in fields if key not in TOOL_MEMBERS]
        for kind in DEFINITION_MEMBERS:
            nested = as_object(fields.get(kind)) if kind in fields else None
            if nested is not None and not nested.keys() <= TOOL_MEMBERS:
                unknown += [f"{kind}.{key}" for key in nested if key not in TOOL_MEMBERS]
        has_no_type = "type" not in fields and bool(as_object(fields.get("function")))
        if not unknown and not has_no_type:
            continue
        path = losses.path(("tools", number))
        for key in unknown:
            member = key.rpartition(".")[2]
            losses.add(f"{path}.{key}", "tool_member_dropped", f"{member} of the tool {tool.name}")
        if has_no_type:
            losses.add(f"{path}.type", "default_added", "type: function")


def schema_path(tool: Tool, number: int, losses: Losses) -> str:
    """The path of a tool's schema in the caller's body."""
    path = losses.path(("tools", number))
    for fields in (tool.raw or {}).values():
        inner = as_object(fields.get("function"))
        step = f"{path}.function" if inner is not None else path
        for key in SCHEMA_MEMBERS:
            if key in (inner or fields):
                return f"{step}.{key}"
    return path


SCHEMA_MEMBERS = ("input_schema", "parameters", "parametersJsonSchema", "parameters_json_schema")


DEFINITION_MEMBERS = ("function", "custom")
"""The member of a Chat tool that contains the definition, by the kind of the tool."""

TOOL_MEMBERS = frozenset(
    {
        *DEFINITION_MEMBERS,
        "type",
        "name",
        "description",
        "input_schema",
        "parameters",
        "parametersJsonSchema",
        "parameters_json_schema",
        "strict",
        "format",
    }
)
