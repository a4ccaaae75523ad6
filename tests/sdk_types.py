"""The official SDKs' types as strict validators of a body.

The SDKs type requests as `TypedDict`s and answers as lenient models: `Iterable[X]` is checked only
on iteration, and unknown members are allowed. Here the same types are compiled again with two
changes: an iterable is a list, and an unknown member is an error. The original types are not
changed.
"""

from functools import cache
from typing import Any

import anthropic.types as anthropic_types
import openai.types.chat as chat_types
import openai.types.responses as responses_types
import orjson
from google.genai import types as gemini_types
from pydantic import BaseModel, ConfigDict, TypeAdapter
from pydantic.alias_generators import to_camel
from pydantic_core import SchemaValidator, ValidationError


class GeminiRequest(BaseModel):
    """The body of generateContent, for which the SDK has no single type."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid")

    contents: list[gemini_types.Content]
    system_instruction: gemini_types.Content | None = None
    tools: list[gemini_types.Tool] | None = None
    tool_config: gemini_types.ToolConfig | None = None
    safety_settings: list[gemini_types.SafetySetting] | None = None
    generation_config: gemini_types.GenerationConfig | None = None
    cached_content: str | None = None
    service_tier: gemini_types.ServiceTier | None = None


REQUESTS: dict[str, Any] = {
    "anthropic": anthropic_types.MessageCreateParams,
    "openai-chat": chat_types.CompletionCreateParams,
    "openai-responses": responses_types.ResponseCreateParams,
    "gemini": GeminiRequest,
}
RESPONSES: dict[str, Any] = {
    "anthropic": anthropic_types.Message,
    "openai-chat": chat_types.ChatCompletion,
    "openai-responses": responses_types.Response,
    "gemini": gemini_types.GenerateContentResponse,
}
OLDER: dict[str, dict[str, tuple[type, ...]]] = {
    "anthropic": {"temperature": (int, float), "top_p": (int, float), "top_k": (int,)},
}
"""Members of the API version that Weft uses (`anthropic-version: 2023-06-01`). The SDK's types lack
them since its version 2, because API version 2026-10-21 removed them."""


def faults(kind: dict[str, Any], protocol: str, body: Any) -> list[str]:
    """The errors of a body by the SDK's type: path and reason of each."""
    if kind is REQUESTS:
        older = OLDER.get(protocol, {})
        body = {
            key: value
            for key, value in body.items()
            if key not in older or type(value) not in older[key]
        }
    try:
        _judge(kind[protocol]).validate_json(orjson.dumps(body), strict=protocol != "gemini")
    except ValidationError as error:
        return [_complaint(match) for match in error.errors() if not _by_convention(match)]
    return []


def _by_convention(error: Any) -> bool:
    """Thinking in Chat Completions: the SDK keeps the member, but its types do not have it."""
    return error["type"] == "extra_forbidden" and error["loc"][-1] == "reasoning_content"


def _complaint(error: Any) -> str:
    path = ".".join(str(step) for step in error["loc"])
    return f"{path}: {error['msg']} ({str(error['input'])[:120]!r})"


@cache
def _judge(kind: Any) -> SchemaValidator:
    return SchemaValidator(_compiled(kind))


def schema_of(kind: str, protocol: str) -> Any:
    """The compiled strict schema of a `request` or a `response`."""
    return _compiled({"request": REQUESTS, "response": RESPONSES}[kind][protocol])


@cache
def _compiled(kind: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        kind.model_rebuild(force=True)  # the SDKs build their models when first used
        return _tightened(kind.__pydantic_core_schema__)
    return _tightened(TypeAdapter(kind).core_schema)


def _tightened(schema: Any) -> Any:
    """A compiled schema with lists for iterables, and without unknown members."""
    if isinstance(schema, list):
        return [_tightened(item) for item in schema]
    if isinstance(schema, tuple):
        return tuple(_tightened(item) for item in schema)
    if not isinstance(schema, dict):
        return schema
    match schema.get("type"):
        case "generator":
            return {"type": "list", "items_schema": _tightened(schema["items_schema"])}
        case "is-instance":  # an open file: JSON has none
            return {"type": "literal", "expected": [schema["type"]]}
        case "typed-dict" | "model-fields":
            tight = {key: _tightened(value) for key, value in schema.items()}
            tight.pop("extras_schema", None)
            return {**tight, "extra_behavior": "forbid"}
        case "model":
            # Its members alone: the class would bring its own lenient validator along.
            named = {"ref": schema["ref"]} if "ref" in schema else {}
            return {**_tightened(schema["schema"]), **named}
        case _:
            return {
                key: value if key in ("config", "serialization") else _tightened(value)
                for key, value in schema.items()
            }
