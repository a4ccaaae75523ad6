"""OpenAI Responses."""

from typing import Any, cast

from weft.codec.base import (
    Auth,
    Codec,
    Http,
    PreviousAnswer,
    Vendor,
    as_object,
    has_refused_developer,
)
from weft.codec.openai import decode_error, encode_error
from weft.model import JsonObject

from .blocks import PARTS
from .fields import FIELDS
from .items import CALLS, RESULTS
from .request import decode_request, encode_request, write_messages
from .response import decode_response, encode_response, locate_answer
from .stream import StreamDecoder, StreamEncoder
from .wire import FAILED_STOPS, PROTOCOL


def request_path(_model: str, _stream: bool) -> str:
    return "/v1/responses"


def _answer_id(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _stored_ids(body: JsonObject) -> list[tuple[str, str]]:
    """The conversation and the items that a body names instead of sending them, as path and id."""
    value = body.get("conversation")
    conversation = as_object(value)
    conversation_id = value if conversation is None else conversation.get("id")
    stored: list[tuple[str, str]] = []
    if isinstance(conversation_id, str) and conversation_id:
        stored.append(("conversation", conversation_id))
    items = body.get("input")
    for number, item in enumerate(cast("list[Any]", items) if isinstance(items, list) else ()):
        fields = as_object(item) or {}
        item_id = fields.get("id")
        is_reference = fields.get("type") == "item_reference" or fields.keys() <= {"id", "type"}
        if isinstance(item_id, str) and is_reference:
            stored.append((f"input[{number}]", item_id))
    return stored


HTTP = Http(
    vendor=Vendor(
        upstream_name="openai",
        url="https://api.openai.com",
        catalog_name="openai",
        key_variable="OPENAI_API_KEY",
        url_variable="OPENAI_BASE_URL",
    ),
    # https://platform.openai.com/docs/api-reference/authentication; `api-key` is Azure's
    auth=Auth("authorization", prefix="Bearer ", accepted=("authorization", "api-key")),
    paths=("/v1/responses", "/v1/responses/compact"),
    hosts_without_version=(".githubcopilot.com",),
    id_prefix="resp_",
    # https://platform.openai.com/docs/guides/reasoning#encrypted-reasoning-items
    thinking_members={"include": ["reasoning.encrypted_content"]},
    previous=PreviousAnswer(
        "previous_response_id",
        _answer_id,
        unknown="Previous response with id '{id}' not found.",
        code="previous_response_not_found",
    ),
    store_member="store",
    stored_ids=_stored_ids,
)

CODEC = Codec(
    protocol=PROTOCOL,
    decode_request=decode_request,
    encode_request=encode_request,
    write_messages=write_messages,
    decode_response=decode_response,
    encode_response=encode_response,
    locate_answer=locate_answer,
    stream_decoder=StreamDecoder,
    stream_encoder=StreamEncoder,
    decode_error=decode_error,
    encode_error=encode_error,
    request_path=request_path,
    fields=FIELDS,
    http=HTTP,
    conversation_member="input",
    answer_member="output",
    empty_request={"model": "any", "input": ""},
    rewritable_members=("instructions", "input"),
    rules_apply=has_refused_developer,
    failed_stops=FAILED_STOPS,
    stream_errors=frozenset({"context_length"}),
)

# The tables are exported for the tests, which compare them with `docs/protocols`.
__all__ = ["CALLS", "CODEC", "PARTS", "RESULTS"]
