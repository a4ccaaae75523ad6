"""The routes of the data plane by method and path, and the small endpoints beside conversations.

The list of models has the form that the client's SDK expects.

Every endpoint is a function of the state, the request and the answer. Errors are reported in the
client's protocol.
"""

import asyncio
import re
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, cast

from weft import exact_json
from weft.client import GATEWAY_RETRY, OFFLINE, OFFLINE_MODEL, Provider, read_all
from weft.codec import CODECS, Codec
from weft.errors import Refused, UpstreamError, UpstreamFailed
from weft.model import ApiError, JsonObject, Request
from weft.printable import clean_text
from weft.tokens import counter_for_model

from .asgi import BodyCutOff, ClientLeft, Inbound, Outbound, parse_body
from .auth import Caller, admit, admit_program, upstream_credentials
from .errors import failure, internal_failure, refusal
from .exchange import answer_request, read_request
from .exchange_log import ExchangeLog, write_line
from .google import (
    COUNT,
    METHODS,
    PROTOCOL as GOOGLE,
    choose_outbound,
    is_google,
    move_key_to_header,
    read_address,
)
from .guard import Guard
from .listings import LISTING_SECONDS, MODEL_PREFIX
from .outgoing import is_direct, write_outgoing
from .state import State
from .stored_responses import read_path, stored_response
from .vendor_paths import is_vendor_path, pass_on

WRAPPED = "generateContentRequest"
"""Gemini's token count also accepts the whole request as one member."""

HEALTH = "/healthz"
METRICS = "/metrics"
ALWAYS_SERVED = (HEALTH, METRICS)
"""These need no slot, so that a full gateway can be watched."""
EPOCH = "1970-01-01T00:00:00Z"
"""The time of a model whose upstream sends none: the SDKs require one."""

Endpoint = Callable[[State, Inbound, Outbound], Awaitable[None]]


async def conversation(protocol: str, state: State, inbound: Inbound, outbound: Outbound) -> None:
    """Serve one exchange, and always log one line about it."""
    codec = CODECS[protocol]
    log = ExchangeLog(inbound.path, inbound.request_id)
    state.metrics.exchanges += 1
    try:
        await answer_request(state, codec, inbound, outbound, log)
    except Exception:  # nothing above this handler would answer the client
        # The server would drop the connection, which clients take for a network failure.
        log.outcome = "fault"
        sys.stderr.write(clean_text(traceback.format_exc()))
        if not outbound.started:
            log.status, body = codec.encode_error(internal_failure())
            await outbound.send(log.status, exact_json.dumps(body))
    finally:
        state.metrics.add(protocol, log)
        write_line(log, sys.stderr)


async def count_tokens(protocol: str, state: State, inbound: Inbound, outbound: Outbound) -> None:
    """Count the tokens of a request: the upstream's own count if it has one, else our estimate."""
    codec = CODECS[protocol]
    member = codec.http.count_member
    try:
        caller = admit_program(inbound, state.settings)
        body = await inbound.read(state.settings.max_body)
        size = len(body)
        raw = await state.large_bodies.run(size, parse_body, body)
        request, route, _ = await state.large_bodies.run(
            size, read_request, state, codec, raw.get(WRAPPED, raw), inbound
        )
        if route.provider is OFFLINE or not is_direct(route, codec):
            count = await state.large_bodies.run(
                size, count_request, state, request, route.model, route.provider.protocol
            )
            await outbound.send(200, exact_json.dumps({member: count}))
            return
        outgoing = write_outgoing(state, codec, route, request, body, inbound)
        async with Guard(inbound, state.gate) as guard:
            with guard.waiting():
                reply = await state.http_client.post(
                    route.provider,
                    outgoing.path,
                    outgoing.body,
                    outgoing.headers,
                    GATEWAY_RETRY,
                    owner=caller.scope,
                )
            try:
                answer = await guard.read_all(reply)
            finally:
                reply.close()
        if reply.status < 400:
            check_count(answer, member, route.provider.name)
        content_type = reply.headers.get("content-type", "application/json")
        await outbound.send(reply.status, answer, [("content-type", content_type)])
    except BodyCutOff as error:
        await send_refusal(codec, outbound, error.refusal)
    except ClientLeft:
        return
    except Refused as error:
        await send_refusal(codec, outbound, error)
    except UpstreamError as error:
        status, wire = codec.encode_error(failure(error))
        await outbound.send(status, exact_json.dumps(wire))


def check_count(body: bytes, member: str, upstream: str) -> None:
    """Raises `UpstreamFailed` if an upstream's answer has no count."""
    try:
        raw = parse_body(body)
    except Refused:
        raw = {}
    if not isinstance(raw.get(member), int):
        raise UpstreamFailed(f"upstream {upstream!r} answered without {member}")


def count_request(state: State, request: Request, model: str, protocol: str = "") -> int:
    """The tokens of a request to a model: its messages and the definitions of its tools.

    `protocol` is the upstream's; by default, the one that the request came in.
    """
    if not protocol and request.wire is not None:
        protocol = request.wire.protocol
    counter = counter_for_model(state.catalog.find(model), protocol)
    return counter.request(request.messages, request.tools)


async def send_refusal(codec: Codec, outbound: Outbound, error: Refused) -> None:
    """Send a refusal in this protocol."""
    status, wire = codec.encode_error(refusal(error))
    await outbound.send(status, exact_json.dumps(wire))


async def refuse_websocket(state: State, inbound: Inbound, outbound: Outbound) -> None:
    """Refuse a WebSocket, which Codex asks for first; status 426 makes it use HTTP at once."""
    try:
        admit(inbound.headers, state.settings)
    except Refused as error:
        await send_refusal(CODECS["openai-responses"], outbound, error)
        return
    message = "responses are served over HTTP: POST /v1/responses"
    body = {"error": {"message": message, "type": "invalid_request_error"}}
    await outbound.send(426, exact_json.dumps(body))


async def health(state: State, _inbound: Inbound, outbound: Outbound) -> None:
    """Report that the server is up.

    `weft run` recognises Weft by `name`, and reads `exchanges` to see whether its program uses it.
    """
    facts = {"status": "ok", "name": "weft", "exchanges": state.metrics.exchanges}
    await outbound.send(200, exact_json.dumps(facts))


async def metrics(state: State, inbound: Inbound, outbound: Outbound) -> None:
    """Counts of exchanges, tokens and seconds for Prometheus; a server with keys requires one."""
    headers = [("content-type", "text/plain; version=0.0.4; charset=utf-8")]
    try:
        admit(inbound.headers, state.settings)
    except Refused as error:
        await outbound.send(error.status, f"{error}\n".encode(), headers)
        return
    await outbound.send(200, state.metrics.text().encode(), headers)


async def google(state: State, inbound: Inbound, outbound: Outbound) -> None:
    """A Gemini path: a conversation, or a token count."""
    move_key_to_header(inbound)
    is_count = read_address(inbound.path).method == COUNT
    serve = count_tokens if is_count else conversation
    await serve(GOOGLE, state, inbound, choose_outbound(inbound, outbound))


async def unknown_path(state: State, inbound: Inbound, outbound: Outbound) -> None:
    """Answer a path that does not exist with the paths that do."""
    move_key_to_header(inbound)
    codec = CODECS[client_protocol(inbound)]
    try:
        admit(inbound.headers, state.settings)
    except Refused as error:
        await send_refusal(codec, outbound, error)
        return
    paths = ", ".join(f"{method} {path}" for method, path in ROUTES if path.startswith("/v1/"))
    methods = ", ".join(f"POST /v1beta/models/MODEL:{method}" for method in METHODS)
    message = f"there is no {inbound.method} {inbound.path} here; the paths are: {paths}, {methods}"
    missing = ApiError("not_found", message, 404, code="unknown_url")
    status, wire = codec.encode_error(missing)
    await outbound.send(status, exact_json.dumps(wire))


async def vendor_path(state: State, inbound: Inbound, outbound: Outbound) -> None:
    """Pass on a path that only the vendor knows; a WebSocket cannot be passed on."""
    if state.settings.pass_through_paths is False or "upgrade" in inbound.headers:
        await unknown_path(state, inbound, outbound)
        return
    move_key_to_header(inbound)
    await pass_on(client_protocol(inbound), state, inbound, outbound)


def client_protocol(inbound: Inbound) -> str:
    """The protocol of a client, if its path does not determine it."""
    if is_google(inbound):
        return GOOGLE
    if inbound.path.startswith("/v1/messages") or "anthropic-version" in inbound.headers:
        return "anthropic"
    return "openai-chat"


async def models(state: State, inbound: Inbound, outbound: Outbound) -> None:
    """Answer with the list of models, or with the one model that the path names."""
    move_key_to_header(inbound)
    protocol = client_protocol(inbound)
    try:
        caller = admit(inbound.headers, state.settings)
        async with Guard(inbound, state.gate) as guard:
            with guard.waiting():
                rows_by_name = await _collect_models(state, inbound, protocol, caller)
        name = inbound.path.partition("/models")[2].strip("/")
        if name and name not in rows_by_name:
            raise Refused(f"no model {name!r} here", status=404, type="not_found_error")
    except ClientLeft:
        return
    except (Refused, UpstreamError) as error:
        status, body = CODECS[protocol].encode_error(failure(error))
        await outbound.send(status, exact_json.dumps(body))
        return
    write_row = _google_model_row if protocol == GOOGLE else _model_row
    if name:
        await outbound.send(200, exact_json.dumps(write_row(state, name, rows_by_name[name])))
        return
    rows = [write_row(state, name, row) for name, row in rows_by_name.items()]
    listing = {"models": rows} if protocol == GOOGLE else _model_list(rows)
    await outbound.send(200, exact_json.dumps(listing))


async def _collect_models(
    state: State, inbound: Inbound, protocol: str, caller: Caller
) -> dict[str, JsonObject]:
    """The models of all upstreams, the aliases and the offline model, by name."""
    listings = await asyncio.gather(
        *(
            _read_models(state, provider, inbound.headers, protocol, caller)
            for provider in state.providers
        )
    )
    rows_by_name = {name: row for rows in listings for name, row in rows.items()}
    names = [alias.pattern for alias in state.settings.aliases if alias.is_exact]
    own_rows = {name: {"id": name, "owned_by": "weft"} for name in (*names, OFFLINE_MODEL)}
    return {**rows_by_name, **own_rows}


async def _read_models(
    state: State, provider: Provider, headers: Mapping[str, str], protocol: str, caller: Caller
) -> dict[str, JsonObject]:
    """The models of one upstream; empty if it does not list them."""
    credentials = upstream_credentials(headers, state.settings, provider, protocol)
    if provider.keyed and not credentials:
        return {}
    form = CODECS[provider.protocol].http.models
    try:
        async with asyncio.timeout(LISTING_SECONDS):
            request_headers = {**dict(provider.headers), **credentials}
            reply = await state.http_client.get(
                provider, form.path, request_headers, GATEWAY_RETRY, owner=caller.scope
            )
            try:
                listing: Any = exact_json.loads(await read_all(reply))
            finally:
                reply.close()
    except (UpstreamError, TimeoutError, exact_json.JSONDecodeError):
        return {}
    rows = cast(JsonObject, listing).get(form.list_member) if isinstance(listing, dict) else None
    if reply.status != 200 or not isinstance(rows, list):
        return {}
    entries = [cast(JsonObject, row) for row in cast(list[Any], rows) if isinstance(row, dict)]
    return {
        name.removeprefix(MODEL_PREFIX): row
        for row in entries
        if isinstance(name := row.get(form.name_member), str)
    }


def _model_row(_state: State, name: str, row: JsonObject) -> JsonObject:
    """A model with all members that the SDKs of Anthropic and OpenAI read."""
    return {
        "type": "model",
        "object": "model",
        "display_name": name,
        "created_at": EPOCH,
        "created": 0,
        "owned_by": "upstream",
        **row,
        "id": name,
    }


def _model_list(rows: list[JsonObject]) -> JsonObject:
    ends = {"first_id": rows[0]["id"], "last_id": rows[-1]["id"]}
    return {"object": "list", "data": rows, "has_more": False, **ends}


def _google_model_row(state: State, name: str, row: JsonObject) -> JsonObject:
    """A model as Gemini lists it: https://ai.google.dev/api/models"""
    if str(row.get("name", "")).startswith(MODEL_PREFIX):
        return row
    return {
        "name": MODEL_PREFIX + name,
        "baseModelId": name,
        "version": "1",
        "displayName": name,
        "inputTokenLimit": state.catalog.find(name).window,
        "supportedGenerationMethods": list(METHODS),
    }


def _conversation_routes() -> dict[tuple[str, str], Endpoint]:
    """The paths of all protocols whose bodies name the model."""
    routes: dict[tuple[str, str], Endpoint] = {}
    for protocol, codec in CODECS.items():
        for path in codec.http.paths:
            routes["POST", path] = partial(conversation, protocol)
        if codec.http.count_path is not None:
            routes["POST", codec.http.count_path] = partial(count_tokens, protocol)
    return routes


ROUTES: dict[tuple[str, str], Endpoint] = {
    **_conversation_routes(),
    ("GET", "/v1/responses"): refuse_websocket,
    ("GET", "/v1/models"): models,
    ("GET", "/v1beta/models"): models,
    ("GET", HEALTH): health,
    ("HEAD", HEALTH): health,
    ("GET", METRICS): metrics,
}


_VERSIONS = re.compile(r"/(?:(?:v1|v1beta)/)+(?=(?:v1|v1beta)/)")
_UNVERSIONED = re.compile(
    r"/(?:messages|chat/completions|responses|models|completions|embeddings|files|uploads|images"
    r"|audio|moderations|batches|rerank)(?=[/]|$)"
)


def full_path(path: str) -> str:
    """The path with its version exactly once.

    Some clients add `/v1/messages` to their base URL, others `/messages`, and the base URL may end
    in `/v1`. So the version may come twice, once or not at all.
    """
    path = _VERSIONS.sub("/", path, count=1) if path.startswith("/v1") else path
    if _UNVERSIONED.match(path) is None:
        return path
    return ("/v1beta" if read_address(f"/v1beta{path}").model else "/v1") + path


def find_endpoint(method: str, path: str) -> Endpoint | None:
    """The endpoint of the data plane for a request; None if the control plane serves it."""
    if (method, path) in ROUTES:
        return ROUTES[method, path]
    if method in ("GET", "DELETE") and (address := read_path(path)) is not None:
        return unknown_path if method == "DELETE" and address[1] else stored_response
    if method == "GET" and path.startswith(("/v1/models/", "/v1beta/models/")):
        return models
    if method == "POST" and read_address(path).model:
        return google
    is_listing = method in ("GET", "HEAD")  # of stored completions, for example
    if is_vendor_path(method, path) and (is_listing or ("POST", path) not in ROUTES):
        return vendor_path
    return unknown_path if path.startswith(("/v1/", "/v1beta/")) else None
