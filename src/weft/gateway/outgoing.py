"""A request as it goes upstream: the caller's own bytes, or their translation.

Towards the same protocol only the model's name and the credentials change; every other byte, and
every header that speaks of the request rather than of the connection, goes on as it came.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct, structs

from weft.client import OFFLINE, Route
from weft.codec import CODECS, Calls, Codec, Target, refuse_system_media, verbatim
from weft.errors import Refused
from weft.model import Loss, Request, is_system

from .asgi import Inbound
from .auth import is_secret, upstream_credentials, with_query
from .google import read_address
from .state import State

HOP_HEADERS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "expect",
        "forwarded",
        "host",
        "keep-alive",
        "origin",
        "proxy-authorization",
        "referer",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "via",
    }
)
"""Request headers that are about this connection. Secrets are not forwarded either."""

KEPT_HEADERS = ("retry-after", "retry-after-ms", "request-id", "x-request-id", "x-should-retry")
KEPT_PREFIXES = ("anthropic-", "openai-", "x-ratelimit-")
"""Answer headers that go on to the caller."""


SPOKEN = {
    "anthropic": "messages",
    "openai-chat": "messages",
    "openai-responses": "input",
    "gemini": "contents",
}
"""The member of a body that holds what was said."""


LOSS_HEADER_LIMIT = 1000

RETURNED_LIMIT = 16_000
"""Bytes of an upstream's headers that go on to the caller: more than any vendor sends, and fewer
than HTTP clients refuse."""


class Outgoing(Struct, frozen=True):
    """A request as it goes upstream, and what its translation could not say.

    `calls` are the tools whose names it had to change: the answer is turned back by them.
    """

    path: str
    body: bytes
    headers: Mapping[str, str]
    losses: tuple[Loss, ...] = ()
    calls: Calls = {}


def is_direct(route: Route, codec: Codec) -> bool:
    """The offline model speaks every caller's protocol; an upstream speaks its own."""
    return route.provider is OFFLINE or route.provider.protocol == codec.protocol


def write_outgoing(
    state: State, codec: Codec, route: Route, request: Request, body: bytes, inbound: Inbound
) -> Outgoing:
    """The bytes for the upstream: the caller's own, or their translation."""
    provider = route.provider
    paid = upstream_credentials(inbound.headers, state.settings, provider, codec.protocol)
    base = {"content-type": "application/json", **dict(provider.headers)}
    if provider is OFFLINE:  # an upstream would judge its own protocol; this one is ours
        refuse_system_media(request)
        refuse_silence(request, codec)
    if is_direct(route, codec):
        dropped = connection_headers(inbound.headers)
        passed = {n: v for n, v in inbound.headers.items() if forwards(n) and n not in dropped}
        address = read_address(inbound.path)
        path = with_query(inbound.path, inbound.query)
        if address.model is not None:
            path = address.path(route.model, inbound.query)
        named = route.model == request.model or address.model is not None
        renamed = body if named else rename_model(body, route.model)
        return Outgoing(path, renamed, {**base, **passed, **paid})
    writer = CODECS[provider.protocol]
    target = Target(
        state.catalog.find(route.model, provider.name), provider.system, "auto", verbatim
    )
    encoded = writer.encode_request(structs.replace(request, model=route.model), target)
    streams = bool(request.params.stream)
    path = writer.request_path(route.model, streams)
    return Outgoing(
        path,
        provider.write_body(encoded.body, target.model, streams=streams),
        {**base, **paid},
        tuple(encoded.losses),
        encoded.calls,
    )


def refuse_silence(request: Request, codec: Codec) -> None:
    """Raises `Refused` where nobody has said anything that could be answered."""
    if all(is_system(message) for message in request.messages):
        member = SPOKEN[codec.protocol]
        raise Refused(f"{member} holds no message to answer", param=member)


def forwards(name: str) -> bool:
    """Whether a caller's header goes on to an upstream of the same protocol."""
    if name in HOP_HEADERS or is_secret(name):
        return False
    return not name.startswith(("x-weft-", "sec-", "x-forwarded-"))


def connection_headers(headers: Mapping[str, str]) -> frozenset[str]:
    """The headers that `Connection` declares to be about this connection only.

    https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1
    """
    named = headers.get("connection", "").split(",")
    return frozenset(name.strip().lower() for name in named)


def returns(name: str) -> bool:
    """Whether an upstream's header goes on to the caller."""
    return name in KEPT_HEADERS or name.startswith(KEPT_PREFIXES)


def returned_headers(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """The upstream's headers that go on to the caller.

    A value with a control character is left out, because no server may send it on:
    https://www.rfc-editor.org/rfc/rfc9110#section-5.5
    """
    chosen: list[tuple[str, str]] = []
    room = RETURNED_LIMIT
    for raw, value in headers.items():
        name = raw.lower()
        if not returns(name) or not value.replace("\t", " ").isprintable():
            continue
        room -= len(name) + len(value)
        if room < 0:
            break
        chosen.append((name, value))
    return chosen


def rename_model(body: bytes, model: str) -> bytes:
    """The body with another model's name and every other member's bytes as they were."""
    members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    members["model"] = msgspec.Raw(msgspec.json.encode(model))
    return msgspec.json.encode(members)


def loss_header(losses: tuple[Loss, ...]) -> str:
    """How many, and where: `2; top_k, messages[1].content[0]`."""
    places = ", ".join(dict.fromkeys(loss.path for loss in losses))
    if len(places) > LOSS_HEADER_LIMIT:
        places = places[:LOSS_HEADER_LIMIT].rpartition(", ")[0] + ", ..."
    return f"{len(losses)}; {places}" if losses else "0"
