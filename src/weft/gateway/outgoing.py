"""Writes the request for an upstream: the client's own bytes, or their translation.

For an upstream of the client's protocol, only these change: the model's name, the credentials, and
values that a rule of the upstream concerns (where system messages may be, cache marks, members that
its server does not support). All other bytes, and all headers that are about the request rather
than the connection, are forwarded unchanged.
"""

from collections.abc import Mapping

from msgspec import Struct, structs

from weft import exact_json
from weft.client import OFFLINE, Provider, Route, is_secret
from weft.codec import (
    CODECS,
    Codec,
    JsonLayout,
    RenamedTools,
    Target,
    edit_json,
    refuse_system_media,
    write_request,
)
from weft.errors import Refused
from weft.model import JsonObject, Loss, Request, is_system

from .asgi import Inbound
from .auth import upstream_credentials, with_safe_query
from .google import Address, read_address
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
        "x-real-ip",
        "x-request-id",
    }
)
"""Request headers that concern only this connection. Secrets are not forwarded either."""

CONNECTION_PREFIXES = (
    *("x-weft-", "sec-", "x-forwarded-"),
    *("x-original-", "x-rewrite-", "x-envoy-"),  # another path, for servers behind a proxy
)
"""Beginnings of other headers that are not forwarded."""

RETURNED_HEADERS = (
    "retry-after",
    "retry-after-ms",
    "request-id",
    "x-upstream-request-id",
    "x-should-retry",
)
RETURNED_PREFIXES = ("anthropic-", "openai-", "x-ratelimit-")
"""Headers of an answer that are forwarded to the client."""
OPERATORS_HEADERS = ("anthropic-organization-id", "openai-organization", "openai-project")
"""Headers of an answer that name the account whose key was used; not for clients."""
RENAMED_HEADERS = {"x-request-id": "x-upstream-request-id"}
"""Headers of an answer that Weft itself sends with another value."""

LOSS_HEADER_LIMIT = 1000
"""How many characters of paths the header about losses has."""

REQUEST_ID_LIMIT = 200
"""How many characters of an upstream's request id are logged."""

RETURNED_LIMIT = 16_000
"""How many bytes of an upstream's headers are forwarded: more than any vendor sends, but below the
limits of HTTP clients."""


class Outgoing(Struct, frozen=True):
    """A request for an upstream, and what its translation lost.

    `renamed_tools` is used to restore the tool names in the answer.
    """

    path: str
    body: bytes
    headers: Mapping[str, str]
    losses: tuple[Loss, ...] = ()
    renamed_tools: RenamedTools = {}


def is_direct(route: Route, codec: Codec) -> bool:
    """Whether the upstream speaks the client's protocol; the offline model speaks all of them."""
    return route.provider is OFFLINE or route.provider.protocol == codec.protocol


def write_outgoing(
    state: State,
    codec: Codec,
    route: Route,
    request: Request,
    body: bytes,
    inbound: Inbound,
    raw: JsonObject | None = None,
    layout: JsonLayout | None = None,
) -> Outgoing:
    """The request for the upstream: the client's own bytes, or their translation.

    `raw` is the parsed body, if the whole request was decoded from it. `layout` is the layout of
    the body, if it is known.
    """
    if route.provider is OFFLINE:  # a real upstream checks its bodies itself
        refuse_system_media(request)
        refuse_system_only(request, codec)
    if is_direct(route, codec):
        client_body = ClientBody(body, request, read_address(inbound.path), raw, layout)
        return _forward(state, codec, route, client_body, inbound)
    return _translate(state, codec, route, request, inbound)


def _forward(
    state: State, codec: Codec, route: Route, body: "ClientBody", inbound: Inbound
) -> Outgoing:
    """The client's own request for an upstream of its protocol."""
    provider = route.provider
    connection = connection_headers(inbound.headers)
    forwarded = {
        name: value
        for name, value in inbound.headers.items()
        if is_forwarded(name) and name not in connection
    }
    new_name = None
    if body.address.model is not None:  # the name is in the path, not in the body
        path = body.address.path(route.model, inbound.query)
    else:
        path = with_safe_query(inbound.path, inbound.query)
        new_name = None if route.model == body.request.model else route.model
    target = None if provider is OFFLINE else provider.target(state.catalog, route.model)
    forwarded_body, losses = rewrite_body(codec, body, new_name, target)
    credentials = upstream_credentials(inbound.headers, state.settings, provider, codec.protocol)
    headers = {**_base_headers(provider), **forwarded, **credentials}
    return Outgoing(path, forwarded_body, headers, losses)


def _translate(
    state: State, codec: Codec, route: Route, request: Request, inbound: Inbound
) -> Outgoing:
    """The client's request in the protocol of the upstream."""
    provider = route.provider
    upstream_codec = CODECS[provider.protocol]
    if upstream_codec.needs_user_message:
        refuse_system_only(request, codec)
    target = provider.target(state.catalog, route.model)
    written = write_request(structs.replace(request, model=route.model), upstream_codec, target)
    credentials = upstream_credentials(inbound.headers, state.settings, provider, codec.protocol)
    streams = bool(request.params.stream)
    return Outgoing(
        written.path,
        provider.write_body(written.body, target.model, streams=streams),
        {**_base_headers(provider), **credentials},
        tuple(written.losses),
        written.renamed_tools,
    )


def _base_headers(provider: Provider) -> dict[str, str]:
    return {"content-type": "application/json", **dict(provider.headers)}


class ClientBody(Struct, frozen=True):
    """A body of the upstream's own protocol.

    `request` is the decoded body, perhaps with an earlier conversation before it. `raw` is the
    parsed body, if the whole request was decoded from it. `address` has the model's name, if it is
    in the path. `layout` is the layout of `bytes`, if it is known.
    """

    bytes: bytes
    request: Request
    address: Address
    raw: JsonObject | None
    layout: JsonLayout | None = None


def rewrite_body(
    codec: Codec, body: ClientBody, model: str | None, target: Target | None
) -> tuple[bytes, tuple[Loss, ...]]:
    """A body with the rules of the target applied, and the losses.

    `model` is the new name of the model, if it changes. Only values that change are written again;
    all other bytes stay.
    """
    has_rules = target is not None and rules_may_apply(codec, body.request, target)
    if model is None and not has_rules:
        return body.bytes, ()
    raw: JsonObject = exact_json.loads(body.bytes) if body.raw is None else body.raw
    changed, losses = raw, ()
    if target is not None and has_rules:
        changed, losses = _add_marks(codec, body, target) or _apply_rules(codec, body, raw, target)
    if model is not None:
        changed = {**changed, "model": model}
    return edit_json(body.bytes, raw, changed, body.layout), losses


def _add_marks(
    codec: Codec, body: ClientBody, target: Target
) -> tuple[JsonObject, tuple[Loss, ...]] | None:
    """The parsed body with cache marks, as the only rule of the target that may change it.

    None if another rule may change it. Marks alone are the usual case, and messages that do not
    change cost nothing.
    """
    if codec.add_cache_marks is None or body.raw is None or _moves_system(body.request, target):
        return None
    marked = codec.add_cache_marks(body.raw, body.request, target)
    return None if marked is None else (marked, ())


def _apply_rules(
    codec: Codec, body: ClientBody, raw: JsonObject, target: Target
) -> tuple[JsonObject, tuple[Loss, ...]]:
    """A parsed body with the rules of the target applied, and the losses.

    A body that cannot be decoded is forwarded unchanged, and the upstream validates it.
    """
    try:
        own_request = (
            codec.decode_request(raw, body.address.model) if body.raw is None else body.request
        )
        written = write_request(
            own_request, codec, structs.replace(target, embed=exact_json.loads, enforce=True)
        )
    except Refused:
        return raw, ()
    members = codec.rewritable_members
    changed = {
        key: written.body[key] if key in members else value
        for key, value in raw.items()
        if key not in members or key in written.body
    }
    changed |= {key: written.body[key] for key in members if key in written.body}
    return (raw, ()) if changed == raw else (changed, tuple(written.losses))


def rules_may_apply(codec: Codec, request: Request, target: Target) -> bool:
    """Whether a rule of the target may change the request. Most requests match no rule."""
    return _moves_system(request, target) or codec.rules_apply(request, target)


def _moves_system(request: Request, target: Target) -> bool:
    """Whether the target does not accept the system messages where they are."""
    return target.system in ("demote", "merge") and any(map(is_system, request.messages))


def refuse_system_only(request: Request, codec: Codec) -> None:
    """Raises `Refused` for a conversation without a message to answer."""
    if all(is_system(message) for message in request.messages):
        member = codec.conversation_member
        raise Refused(f"{member} has no message to answer", param=member)


def is_forwarded(name: str) -> bool:
    """Whether a client's header is forwarded to an upstream of the same protocol."""
    if name in HOP_HEADERS or is_secret(name):
        return False
    dashed = name.replace("_", "-")  # some servers take both for the same name
    return not (dashed.startswith(CONNECTION_PREFIXES) or _changes_request(dashed))


def _changes_request(name: str) -> bool:
    """Whether some servers take a header for another method, path or host of the request."""
    if name.startswith("x-stainless-"):  # what the vendors' SDKs tell about themselves
        return False
    return "method" in name or name.endswith("-override")


def connection_headers(headers: Mapping[str, str]) -> frozenset[str]:
    """The headers that `Connection` lists, which concern only this connection.

    https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1
    """
    header_names = headers.get("connection", "").split(",")
    return frozenset(name.strip().lower() for name in header_names)


def _is_returned(name: str) -> bool:
    """Whether an upstream's header is forwarded to the client."""
    if name in OPERATORS_HEADERS:
        return False
    return name in RETURNED_HEADERS or name.startswith(RETURNED_PREFIXES)


def read_request_id(headers: Mapping[str, str]) -> str | None:
    """The upstream's own id of a request, for its support."""
    ids = (headers.get(name, "") for name in ("x-request-id", "request-id"))
    return next((id[:REQUEST_ID_LIMIT] for id in ids if id and id.isprintable()), None)


def returned_headers(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """The upstream's headers that are forwarded to the client.

    A value with a control character is left out, because no server may forward it:
    https://www.rfc-editor.org/rfc/rfc9110#section-5.5
    """
    returned: list[tuple[str, str]] = []
    bytes_left = RETURNED_LIMIT
    for raw_name, value in headers.items():
        name = RENAMED_HEADERS.get(raw_name.lower(), raw_name.lower())
        if not _is_returned(name) or not value.replace("\t", " ").isprintable():
            continue
        bytes_left -= len(name) + len(value)
        if bytes_left < 0:
            break
        returned.append((name, value))
    return returned


def loss_header(losses: tuple[Loss, ...]) -> str:
    """The number of losses and their paths: `2; top_k, messages[1].content[0]`."""
    paths = ", ".join(dict.fromkeys(loss.path for loss in losses))
    if len(paths) > LOSS_HEADER_LIMIT:
        paths = paths[:LOSS_HEADER_LIMIT].rpartition(", ")[0] + ", ..."
    return f"{len(losses)}; {paths}" if losses else "0"
