"""Anthropic Messages."""

from typing import Any

from weft.codec.base import (
    Auth,
    Codec,
    Http,
    ModelList,
    ModelPaths,
    PreviousAnswer,
    Target,
    Vendor,
    as_object,
    has_inline_system,
)
from weft.model import JsonObject, Request

from .blocks import BLOCKS
from .cache import apply_last_system_cache_breakpoint, copy_with_marks
from .fast_path import FAST_PATH
from .fields import FIELDS
from .request import decode_request, encode_request, write_messages
from .response import decode_error, decode_response, encode_error, encode_response, locate_answer
from .stream import StreamDecoder, StreamEncoder
from .wire import FAILED_STOPS, MAX_MARKS, PROTOCOL, VERSION


def request_path(_model: str, _stream: bool) -> str:
    return "/v1/messages"


def _previous_message_id(value: Any) -> str | None:
    id = (as_object(value) or {}).get("previous_message_id")
    return id if isinstance(id, str) and id else None


def _stored_ids(body: JsonObject) -> list[tuple[str, str]]:
    """The container that a body names, as path and id."""
    container = body.get("container")
    fields = as_object(container)
    id = container if fields is None else fields.get("id")
    return [("container", id)] if isinstance(id, str) and id else []


def _rules_apply(request: Request, target: Target) -> bool:
    """Whether cache marks must be added or removed, or a system message in `messages` moved."""
    mark_count = len(request.marks)
    changes_marks = mark_count > MAX_MARKS or (target.cache == "auto" and not mark_count)
    return changes_marks or has_inline_system(request, PROTOCOL)


def _add_cache_marks(raw: JsonObject, request: Request, target: Target) -> JsonObject | None:
    """The body with cache marks; `None` if it needs none, or if another rule may change it."""
    if request.marks or target.cache != "auto" or has_inline_system(request, PROTOCOL):
        return None
    return copy_with_marks(raw)


HTTP = Http(
    vendor=Vendor(
        upstream_name="anthropic",
        url="https://api.anthropic.com",
        catalog_name="anthropic",
        key_variable="ANTHROPIC_API_KEY",
        url_variable="ANTHROPIC_BASE_URL",
    ),
    # https://docs.anthropic.com/en/api/overview
    auth=Auth("x-api-key", accepted=("x-api-key", "authorization")),
    headers=(("anthropic-version", VERSION),),
    paths=("/v1/messages",),
    versions_paths=True,
    # https://docs.cloud.google.com/vertex-ai/generative-ai/docs/partner-models/claude/use-claude
    model_paths=ModelPaths(
        url_end="/publishers/anthropic",
        answer="/models/{model}:rawPredict",
        stream="/models/{model}:streamRawPredict",
        count="/models/count-tokens:rawPredict",
        members={"anthropic_version": "vertex-2023-10-16"},
    ),
    count_path="/v1/messages/count_tokens",
    count_member="input_tokens",
    # https://docs.claude.com/en/api/models-list
    models=ModelList(query="?limit=1000"),
    # https://docs.anthropic.com/en/docs/build-with-claude/streaming#ping-events
    keep_alive=b'event: ping\ndata: {"type": "ping"}\n\n',
    id_prefix="msg_",
    previous=PreviousAnswer("thread", _previous_message_id, keeps_setup=True),
    stored_ids=_stored_ids,
)

CODEC = Codec(
    protocol=PROTOCOL,
    decode_request=decode_request,
    decode_with_known=decode_request,
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
    conversation_member="messages",
    answer_member="content",
    empty_request={"model": "any", "messages": [], "max_tokens": 1},
    rewritable_members=("system", "messages", "tools", "cache_control"),
    rules_apply=_rules_apply,
    add_cache_marks=_add_cache_marks,
    needs_user_message=True,
    fast_path=FAST_PATH,
    has_stop_details=True,
    failed_stops=FAILED_STOPS,
)

# The tables are exported for the tests, which compare them with `docs/protocols`.
__all__ = ["BLOCKS", "CODEC", "apply_last_system_cache_breakpoint"]
