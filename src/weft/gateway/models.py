"""Lists the models of all upstreams, in the form that the client's SDK expects."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import orjson

from weft.client import OFFLINE_MODEL, RELAY, Provider, read_all
from weft.codec import CODECS
from weft.errors import Refused, UpstreamError
from weft.model import JsonObject

from .asgi import ClientLeft, Inbound, Outbound
from .auth import admit, upstream_credentials
from .errors import failure
from .google import METHODS, PROTOCOL as GOOGLE, is_google, move_key_to_header
from .guard import Guard
from .listings import LISTING_SECONDS, PREFIX
from .state import State

EPOCH = "1970-01-01T00:00:00Z"


def dialect(inbound: Inbound) -> str:
    """The protocol of a client, if its path does not determine it."""
    if is_google(inbound):
        return GOOGLE
    anthropic = inbound.path.startswith("/v1/messages") or "anthropic-version" in inbound.headers
    return "anthropic" if anthropic else "openai-chat"


async def models(state: State, inbound: Inbound, outbound: Outbound) -> None:
    """Answer with the list, or with the one model that the path names."""
    move_key_to_header(inbound)
    protocol = dialect(inbound)
    try:
        admit(inbound.headers, state.settings)
        async with Guard(inbound, state.gate) as guard:
            with guard.waiting():
                rows_by_name = await _collect(state, inbound, protocol)
        name = inbound.path.partition("/models")[2].strip("/")
        if name and name not in rows_by_name:
            raise Refused(f"no model {name!r} here", status=404, type="not_found_error")
    except ClientLeft:
        return
    except (Refused, UpstreamError) as error:
        status, body = CODECS[protocol].encode_error(failure(error))
        await outbound.send(status, orjson.dumps(body))
        return
    write = _google_row if protocol == GOOGLE else _row
    if name:
        await outbound.send(200, orjson.dumps(write(state, name, rows_by_name[name])))
        return
    rows = [write(state, name, row) for name, row in rows_by_name.items()]
    listing = {"models": rows} if protocol == GOOGLE else _list(rows)
    await outbound.send(200, orjson.dumps(listing))


async def _collect(state: State, inbound: Inbound, protocol: str) -> dict[str, JsonObject]:
    listings = await asyncio.gather(
        *(_read_models(state, provider, inbound.headers, protocol) for provider in state.providers)
    )
    rows_by_name = {name: row for rows in listings for name, row in rows.items()}
    names = [alias.pattern for alias in state.settings.aliases if alias.is_name]
    own_rows = {name: {"id": name, "owned_by": "weft"} for name in (*names, OFFLINE_MODEL)}
    return {**rows_by_name, **own_rows}


async def _read_models(
    state: State, provider: Provider, headers: Mapping[str, str], protocol: str
) -> dict[str, JsonObject]:
    """The models of one upstream; empty if it does not list them."""
    credentials = upstream_credentials(headers, state.settings, provider, protocol)
    if provider.keyed and not credentials:
        return {}
    form = CODECS[provider.protocol].http.models
    try:
        async with asyncio.timeout(LISTING_SECONDS):
            request_headers = {**dict(provider.headers), **credentials}
            reply = await state.http_client.get(provider, form.path, request_headers, RELAY)
            try:
                listing: Any = orjson.loads(await read_all(reply))
            finally:
                reply.close()
    except (UpstreamError, TimeoutError, orjson.JSONDecodeError):
        return {}
    rows = cast(JsonObject, listing).get(form.rows) if isinstance(listing, dict) else None
    if reply.status != 200 or not isinstance(rows, list):
        return {}
    entries = [cast(JsonObject, row) for row in cast(list[Any], rows) if isinstance(row, dict)]
    return {
        name.removeprefix(PREFIX): row
        for row in entries
        if isinstance(name := row.get(form.name), str)
    }


def _row(_state: State, name: str, row: JsonObject) -> JsonObject:
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


def _list(rows: list[JsonObject]) -> JsonObject:
    ends = {"first_id": rows[0]["id"], "last_id": rows[-1]["id"]}
    return {"object": "list", "data": rows, "has_more": False, **ends}


def _google_row(state: State, name: str, row: JsonObject) -> JsonObject:
    """https://ai.google.dev/api/models"""
    if str(row.get("name", "")).startswith(PREFIX):
        return row
    return {
        "name": PREFIX + name,
        "baseModelId": name,
        "version": "1",
        "displayName": name,
        "inputTokenLimit": state.catalog.find(name).window,
        "supportedGenerationMethods": list(METHODS),
    }
