"""`write_request`: the one function that writes a request for a target.

`weft.translate`, `to_*_params()`, the client, the gateway and export all use it. It uses the fast
path if the fast path read the source, and a codec's encoder otherwise.
"""

from typing import TYPE_CHECKING

from msgspec import Struct

from weft.model import JsonObject, Loss, Request

from .base import Calls, Codec, Target

if TYPE_CHECKING:
    from .fast_path import SimpleRequest


class WrittenRequest(Struct, frozen=True):
    """A request body, the path it is posted to, and everything the target cannot express.

    `calls` are the tools that have another name at the target; the answer is translated back by
    them. If `Target.embed` is `verbatim`, parts of `body` are JSON text, which only `orjson.dumps`
    can write.
    """

    path: str
    body: JsonObject
    losses: list[Loss]
    calls: Calls


def write_request(
    source: "Request | SimpleRequest", codec: Codec, target: Target
) -> WrittenRequest:
    """The request for this target; raises `Refused` if it cannot be written."""
    encoded = None
    if isinstance(source, Request):
        request = source
    else:
        # Imported here because its typed decoders are costly to build, and most commands need none.
        from .fast_path import write_simple

        encoded = write_simple(source, codec, target)
        request = source.setup if encoded is not None else source.request
    if encoded is None:
        encoded = codec.encode_request(request, target)
    path = codec.request_path(request.model, bool(request.params.stream))
    return WrittenRequest(path, encoded.body, encoded.losses, encoded.calls)
