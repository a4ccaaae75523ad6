"""A request as it goes upstream: the caller's own bytes, or their translation.

Towards the same protocol only the model's name, the credentials and what a rule of the upstream
concerns change (where its model takes system messages, cache marks, what its server does not know);
every other byte, and every header that speaks of the request rather than of the connection, goes on
as it came.
"""

from collections.abc import Mapping

import orjson
from msgspec import Struct, structs

from weft.client import OFFLINE, Route
from weft.codec import (
    CODECS,
    Calls,
    Codec,
    Target,
    parsed,
    refuse_system_media,
    splice,
    write_request,
)
from weft.errors import Refused
from weft.model import JsonObject, Loss, Request, is_system

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
        refuse_system_only(request, codec)
    if is_direct(route, codec):
        dropped = connection_headers(inbound.headers)
        passed = {n: v for n, v in inbound.headers.items() if forwards(n) and n not in dropped}
        address = read_address(inbound.path)
        path = with_query(inbound.path, inbound.query)
        if address.model is not None:
            path = address.path(route.model, inbound.query)
        named = route.model == request.model or address.model is not None
        losses: tuple[Loss, ...] = ()
        if provider is not OFFLINE:
            target = provider.target(state.catalog, route.model)
            body, losses = apply_rules(codec, body, request, address.model, target)
        renamed = body if named else rename_model(body, route.model)
        return Outgoing(path, renamed, {**base, **passed, **paid}, losses)
    if CODECS[provider.protocol].needs_user_message:
        refuse_system_only(request, codec)
    writer = CODECS[provider.protocol]
    target = provider.target(state.catalog, route.model)
    written = write_request(structs.replace(request, model=route.model), writer, target)
    streams = bool(request.params.stream)
    return Outgoing(
        written.path,
        provider.write_body(written.body, target.model, streams=streams),
        {**base, **paid},
        tuple(written.losses),
        written.calls,
    )


def apply_rules(
    codec: Codec, body: bytes, request: Request, model: str | None, target: Target
) -> tuple[bytes, tuple[Loss, ...]]:
    """A body of the upstream's own protocol with the upstream's rules applied, and what they cost.

    Only the values that a rule changes are written anew. `request` is the body as it was read, or
    more; a body that cannot be read goes on as it is, for the upstream to judge.
    """
    if not may_apply(codec, request, target):
        return body, ()
    try:
        raw: JsonObject = orjson.loads(body)
        own = codec.decode_request(raw, model)
        enforced = structs.replace(target, embed=parsed, enforce=True)
        written = write_request(own, codec, enforced)
    except (Refused, orjson.JSONDecodeError):
        return body, ()
    ruled = codec.rewritten
    wanted = {
        key: written.body[key] if key in ruled else value
        for key, value in raw.items()
        if key not in ruled or key in written.body
    }
    wanted |= {key: written.body[key] for key in ruled if key in written.body}
    if wanted == raw:
        return body, ()
    return splice(body, raw, wanted), tuple(written.losses)


def may_apply(codec: Codec, request: Request, target: Target) -> bool:
    """Whether any rule of the target could change a request: for most, none does."""
    if target.system in ("demote", "merge") and any(map(is_system, request.messages)):
        return True
    return codec.rules_apply(request, target)


def refuse_system_only(request: Request, codec: Codec) -> None:
    """Raises `Refused` where nobody has said anything that could be answered."""
    if all(is_system(message) for message in request.messages):
        member = codec.conversation
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
    """The body with another model's name and every other byte as it was."""
    raw: JsonObject = orjson.loads(body)
    return splice(body, raw, {**raw, "model": model})


def loss_header(losses: tuple[Loss, ...]) -> str:
    """How many, and where: `2; top_k, messages[1].content[0]`."""
    places = ", ".join(dict.fromkeys(loss.path for loss in losses))
    if len(places) > LOSS_HEADER_LIMIT:
        places = places[:LOSS_HEADER_LIMIT].rpartition(", ")[0] + ", ..."
    return f"{len(losses)}; {places}" if losses else "0"
