"""OpenAI Chat Completions."""

from weft.codec.base import Codec

from .errors import decode_error, encode_error
from .fast_path import FAST_PATH
from .request import decode_request, encode_request
from .response import decode_response, encode_response, locate_answer, place_thinking
from .stream_in import StreamDecoder
from .stream_out import StreamEncoder
from .wire import FAILED_STOPS, PROTOCOL


def request_path(_model: str, _stream: bool) -> str:
    return "/v1/chat/completions"


CODEC = Codec(
    protocol=PROTOCOL,
    decode_request=decode_request,
    encode_request=encode_request,
    decode_response=decode_response,
    encode_response=encode_response,
    locate_answer=locate_answer,
    stream_decoder=StreamDecoder,
    stream_encoder=StreamEncoder,
    decode_error=decode_error,
    encode_error=encode_error,
    request_path=request_path,
    fast_path=FAST_PATH,
    failed_stops=FAILED_STOPS,
    place_thinking=place_thinking,
)

__all__ = ["CODEC"]
