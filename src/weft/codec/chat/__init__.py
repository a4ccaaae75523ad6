"""OpenAI Chat Completions."""

from weft.codec.base import Auth, Codec, Http, Target, Vendor, as_object, has_refused_developer
from weft.codec.openai import decode_error, encode_error
from weft.model import JsonObject, Request, is_system

from .blocks import PARTS
from .fast_path import FAST_PATH
from .fields import FIELDS
from .request import decode_request, encode_request, write_messages
from .response import decode_response, encode_response, locate_answer, place_thinking
from .stream import DELTA, StreamDecoder, StreamEncoder
from .wire import FAILED_STOPS, PROTOCOL


def request_path(_model: str, _stream: bool) -> str:
    return "/v1/chat/completions"


def _wants_usage(body: JsonObject) -> bool:
    return bool((as_object(body.get("stream_options")) or {}).get("include_usage"))


def _rules_apply(request: Request, target: Target) -> bool:
    """Whether the server supports only an older form of the protocol that the request does not use:
    the name of the output limit, a string as system message, or no `developer` role."""
    model = target.model
    renames_limit = model.max_tokens_field == "max_tokens"
    if renames_limit and "max_completion_tokens" in request.raw.get(PROTOCOL, ()):
        return True
    has_list = any(message.form == "list" and is_system(message) for message in request.messages)
    return (has_list and not model.system_parts) or has_refused_developer(request, target)


HTTP = Http(
    vendor=Vendor(
        upstream_name="openai-chat",
        url="https://api.openai.com",
        catalog_name="openai",
        key_variable="OPENAI_API_KEY",
        url_variable="OPENAI_BASE_URL",
    ),
    # https://platform.openai.com/docs/api-reference/authentication; `api-key` is Azure's
    auth=Auth("authorization", prefix="Bearer ", accepted=("authorization", "api-key")),
    paths=("/v1/chat/completions",),
    # https://docs.perplexity.ai/docs/sonar/openai-compatibility
    # GitHub Copilot has a host for each plan.
    hosts_without_version=("api.perplexity.ai", ".githubcopilot.com"),
    id_prefix="chatcmpl-",
    # https://platform.openai.com/docs/api-reference/chat/create#chat-create-stream_options
    stream_members={"stream_options": {"include_usage": True}},
    wants_usage=_wants_usage,
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
    conversation_member="messages",
    answer_member="choices",
    empty_request={"model": "any", "messages": []},
    rewritable_members=("messages", "max_completion_tokens", "max_tokens"),
    rules_apply=_rules_apply,
    fast_path=FAST_PATH,
    failed_stops=FAILED_STOPS,
    has_alternatives=True,
    place_thinking=place_thinking,
)

# The tables are exported for the tests, which compare them with `docs/protocols`.
__all__ = ["CODEC", "DELTA", "PARTS"]
