"""Gemini's generateContent."""

from urllib.parse import quote

from weft.codec.base import (
    Auth,
    Codec,
    Http,
    ModelList,
    Target,
    Vendor,
    as_object,
    has_inline_system,
)
from weft.model import JsonObject, Request

from .blocks import OTHER_DATA, READERS
from .fields import FIELDS
from .request import decode_request, encode_request, write_messages
from .response import decode_error, decode_response, encode_error, encode_response, locate_answer
from .stream import StreamDecoder, StreamEncoder
from .wire import FAILED_STOPS, PROTOCOL


def request_path(model: str, stream: bool) -> str:
    """The URL path, which contains the model and whether the answer is streamed."""
    verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return f"/v1beta/models/{quote(model.removeprefix('models/'), safe='')}:{verb}"


def _stored_ids(body: JsonObject) -> list[tuple[str, str]]:
    """The cached content that a body names, as path and id.

    Google's API takes a string. An object is read too, in case another server accepts one: a caller
    must not reach a cache of somebody else.
    """
    stored: list[tuple[str, str]] = []
    for member in ("cachedContent", "cached_content"):
        value = body.get(member)
        cache = as_object(value)
        cache_id = value if cache is None else cache.get("id")
        if isinstance(cache_id, str) and cache_id:
            stored.append((member, cache_id))
    return stored


def _rules_apply(request: Request, _target: Target) -> bool:
    """Whether a system message in `contents` must be moved, which Google refuses there."""
    return has_inline_system(request, PROTOCOL)


HTTP = Http(
    vendor=Vendor(
        upstream_name="gemini",
        url="https://generativelanguage.googleapis.com",
        catalog_name="google",
        key_variable="GEMINI_API_KEY",
        url_variable="GOOGLE_GEMINI_BASE_URL",
    ),
    # https://ai.google.dev/gemini-api/docs/api-key
    auth=Auth("x-goog-api-key", accepted=("x-goog-api-key", "authorization")),
    version="/v1beta",
    versions_paths=True,
    # https://docs.cloud.google.com/vertex-ai/generative-ai/docs/model-reference/inference
    unversioned_ends=("/publishers/google",),
    count_member="totalTokens",
    # https://ai.google.dev/api/models#method:-models.list
    models=ModelList(
        path="/v1beta/models", list_member="models", name_member="name", query="?pageSize=1000"
    ),
    # Google's SDK reads a comment line as the start of an error, and ignores a blank line.
    keep_alive=b"\n",
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
    conversation_member="contents",
    answer_member="candidates",
    empty_request={"contents": []},
    rewritable_members=("systemInstruction", "system_instruction", "contents"),
    rules_apply=_rules_apply,
    needs_user_message=True,
    has_stop_details=True,
    failed_stops=FAILED_STOPS,
    has_alternatives=True,
)

# The tables are exported for the tests, which compare them with `docs/protocols`.
__all__ = ["CODEC", "OTHER_DATA", "READERS"]
