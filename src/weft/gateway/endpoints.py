"""The hot routes, by method and path, and the small answers beside the conversation.

Every route is a plain function of the state, what came in and the way out. One that serves a
protocol is wrapped so that whatever fails is told in that protocol's words.
"""

import asyncio
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, cast

import orjson

from weft.client import OFFLINE, OFFLINE_MODEL, RELAY, Provider, read_all
from weft.codec import CODECS, Codec
from weft.errors import Refused, UpstreamProtocolError
from weft.model import JsonObject, Request
from weft.tokens import counter_for

from .asgi import ClientLeft, Inbound, Outbound, parse_body
from .auth import admit, upstream_credentials
from .errors import internal_failure, refusal, upstream_failure
from .exchange import converse, read_request
from .outgoing import is_direct, write_outgoing
from .state import State
from .usage import Ledger, write_line

LISTING_SECONDS = 5.0
EPOCH = "1970-01-01T00:00:00Z"

Endpoint = Callable[[State, Inbound, Outbound], Awaitable[None]]


async def conversation(protocol: str, state: State, inbound: Inbound, outbound: Outbound) -> None:
    """One exchange, and its line in the log whatever became of it."""
    codec = CODECS[protocol]
    ledger = Ledger(inbound.path)
    try:
        await converse(state, codec, inbound, outbound, ledger)
    except Exception:  # the outermost: a fault of ours must not take the connection with it
        ledger.outcome = "fault"
        traceback.print_exc(file=sys.stderr)
        if not outbound.started:
            ledger.status, body = codec.encode_error(internal_failure())
            await outbound.send(ledger.status, orjson.dumps(body))
    finally:
        write_line(ledger, sys.stderr)


async def count_tokens(state: State, inbound: Inbound, outbound: Outbound) -> None:
    """Anthropic's count: the upstream's own where it has one, our estimate elsewhere."""
    codec = CODECS["anthropic"]
    try:
        admit(inbound.headers, state.settings)
        body = await inbound.read(state.settings.max_body)
        request, route, _ = read_request(state, codec, parse_body(body))
        if route.provider is OFFLINE or not is_direct(route, codec):
            count = count_request(state, request)
            await outbound.send(200, orjson.dumps({"input_tokens": count}))
            return
        outgoing = write_outgoing(state, codec, route, request, body, inbound)
        reply = await state.wire.post(
            route.provider, outgoing.path, outgoing.body, outgoing.headers, RELAY
        )
        kind = reply.headers.get("content-type", "application/json")
        await outbound.send(reply.status, await read_all(reply), [("content-type", kind)])
    except ClientLeft:
        return
    except Refused as error:
        await send_error(codec, outbound, error)
    except UpstreamProtocolError as error:
        status, wire = codec.encode_error(upstream_failure(error))
        await outbound.send(status, orjson.dumps(wire))


def count_request(state: State, request: Request) -> int:
    """The tokens of a request: its messages and the definitions of its tools."""
    counter = counter_for(state.catalog.find(request.model).tokenizer)
    tools = sum(
        counter.text(f"{tool.name} {tool.description or ''} ")
        + counter.text(orjson.dumps(tool.parameters or {}).decode())
        for tool in request.tools
    )
    return tools + sum(counter.message(message) for message in request.messages)


async def send_error(codec: Codec, outbound: Outbound, error: Refused) -> None:
    """A refusal in this protocol's words."""
    status, wire = codec.encode_error(refusal(error))
    await outbound.send(status, orjson.dumps(wire))


async def no_websocket(_state: State, _inbound: Inbound, outbound: Outbound) -> None:
    """Codex asks for a WebSocket first; 426 sends it to plain HTTP at once."""
    message = "responses are served over HTTP: POST /v1/responses"
    body = {"error": {"message": message, "type": "invalid_request_error"}}
    await outbound.send(426, orjson.dumps(body))


async def health(_state: State, _inbound: Inbound, outbound: Outbound) -> None:
    """Whether we are up; `name` tells `weft run` that it is us."""
    await outbound.send(200, orjson.dumps({"status": "ok", "name": "weft"}))


async def models(state: State, inbound: Inbound, outbound: Outbound) -> None:
    """All models of all upstreams that answer, in a form that every vendor's SDK reads."""
    protocol = "anthropic" if "anthropic-version" in inbound.headers else "openai-chat"
    try:
        admit(inbound.headers, state.settings)
    except Refused as error:
        await send_error(CODECS[protocol], outbound, error)
        return
    listings = await asyncio.gather(
        *(_list_models(state, provider, inbound.headers, protocol) for provider in state.providers)
    )
    found = {str(row["id"]): row for rows in listings for row in rows}
    found[OFFLINE_MODEL] = {"id": OFFLINE_MODEL, "owned_by": "weft"}
    name = inbound.path.removeprefix("/v1/models").strip("/")
    if name and name not in found:
        missing = Refused(f"no model {name!r} here", status=404, type="not_found_error")
        await send_error(CODECS[protocol], outbound, missing)
        return
    rows = [_model_row(row) for row in found.values()]
    if name:
        await outbound.send(200, orjson.dumps(_model_row(found[name])))
        return
    ends = {"first_id": rows[0]["id"], "last_id": rows[-1]["id"]}
    await outbound.send(
        200, orjson.dumps({"object": "list", "data": rows, "has_more": False, **ends})
    )


async def _list_models(
    state: State, provider: Provider, headers: Mapping[str, str], protocol: str
) -> list[JsonObject]:
    """One upstream's models; an upstream that does not list them serves them all the same."""
    paid = upstream_credentials(headers, state.settings, provider, protocol)
    if provider.keyed and not paid:
        return []
    try:
        async with asyncio.timeout(LISTING_SECONDS):
            asked = {**dict(provider.headers), **paid}
            reply = await state.wire.get(provider, "/v1/models", asked, RELAY)
            listing: Any = orjson.loads(await read_all(reply))
    except (UpstreamProtocolError, TimeoutError, orjson.JSONDecodeError):
        return []
    rows = cast(JsonObject, listing).get("data") if isinstance(listing, dict) else None
    if reply.status != 200 or not isinstance(rows, list):
        return []
    named = [cast(JsonObject, row) for row in cast(list[Any], rows) if isinstance(row, dict)]
    return [row for row in named if isinstance(row.get("id"), str)]


def _model_row(row: JsonObject) -> JsonObject:
    """The union of what the vendors' SDKs read of a model."""
    return {
        "type": "model",
        "object": "model",
        "display_name": row["id"],
        "created_at": EPOCH,
        "created": 0,
        "owned_by": "upstream",
        **row,
    }


def _protocol_route(protocol: str) -> Endpoint:
    return partial(conversation, protocol)


ROUTES: dict[tuple[str, str], Endpoint] = {
    ("POST", "/v1/messages"): _protocol_route("anthropic"),
    ("POST", "/v1/messages/count_tokens"): count_tokens,
    ("POST", "/v1/chat/completions"): _protocol_route("openai-chat"),
    ("POST", "/v1/responses"): _protocol_route("openai-responses"),
    ("GET", "/v1/responses"): no_websocket,
    ("GET", "/v1/models"): models,
    ("GET", "/healthz"): health,
    ("HEAD", "/healthz"): health,
}


def find_endpoint(method: str, path: str) -> Endpoint | None:
    """The hot route for a request; None sends it to the control plane."""
    if method == "GET" and path.startswith("/v1/models/"):
        return models
    return ROUTES.get((method, path))
