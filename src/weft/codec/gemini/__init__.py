"""Gemini's generateContent."""

from urllib.parse import quote

from weft.codec.base import Codec

from .errors import decode_error, encode_error
from .request import decode_request, encode_request
from .response import decode_response, encode_response, locate_answer
from .stream_in import StreamDecoder
from .stream_out import StreamEncoder
from .wire import FAILED_STOPS, PROTOCOL


def request_path(model: str, stream: bool) -> str:
    """The address names the model, and whether the answer is streamed."""
    verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return f"/v1beta/models/{quote(model.removeprefix('models/'), safe='')}:{verb}"


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
    explains=True,
    failed_stops=FAILED_STOPS,
    marks_end=False,
)

__all__ = ["CODEC"]
