"""Paths of the vendors that Weft does not know: embeddings, files, images, audio and others.

A client has one base URL for all of them. They are passed on to the upstream of the client's
protocol, unrecorded and untranslated: method, path, query, body and answer are kept. Both bodies
stream, so a large upload or download is never in memory as a whole.

What applies to conversations applies here too: keys, slots, deadlines, the headers that are left
out, whose credentials are used, and that redirects are not followed.

Which upstream: the one of the model in the body or path, if there is one. Otherwise the one with
`default = true`, or the only one of the protocol.

With keys, all callers share the upstream's account. So only the paths of `vendor_templates` are
passed on, unless the setting `pass_through_paths` opens more.
"""

import re
import sys
import traceback
from collections.abc import AsyncIterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, cast
from urllib.parse import quote

from msgspec import Struct

from weft import exact_json
from weft.client import OFFLINE, Provider, Reply, Route, find_route, resolve_alias
from weft.codec import CODECS, Codec, edit_json
from weft.errors import Refused, UpstreamError, UpstreamFailed
from weft.model import JsonObject
from weft.printable import clean_text

from .asgi import ClientLeft, Inbound, Outbound, decompress
from .auth import Caller, admit_program, has_credentials, upstream_credentials, with_safe_query
from .errors import failure, internal_failure
from .exchange_log import ExchangeLog, write_line
from .guard import Guard
from .listings import MODEL_PREFIX
from .outgoing import connection_headers, is_forwarded, read_request_id, returned_headers
from .state import State
from .vendor_templates import is_template_path

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

_PREFIX = re.compile(r"(/upload)?/v1(beta|alpha)?/[^/]")
_SEGMENT = re.compile(r"[^\x00-\x1f\x7f-\x9f/\\%;]+")
_MODEL_PATH = re.compile(r"(?P<before>/v1(?:beta|alpha)?/models/)(?P<model>.+)(?P<method>:\w+)")
_FILENAME = re.compile(
    r';\s*(?P<name>filename\*?)\s*=\s*(?P<value>"(?:[^"\\]|\\.)*"|[^\s;,"]+)', re.IGNORECASE
)
_MODEL_FIELD = re.compile(
    rb'name="?model"?[^\r\n]*\r\n(?:[^\r\n]+\r\n)*\r\n(?P<model>[^\r\n]{1,500})\r\n', re.IGNORECASE
)
FORM_PEEK = 64 * 1024
"""How many bytes of a form are searched for its model. The SDKs put fields before files."""

OWNED = ("/v1/responses/", "/v1/conversations/")
"""Objects whose ids Weft records, so it knows whose they are."""

ANSWER_HEADERS = frozenset(
    {
        *("content-type", "content-range", "accept-ranges", "etag", "last-modified"),
        "cache-control",
    }
)
ANSWER_PREFIX = "x-goog-upload-"
"""Headers of an answer that are forwarded here, beside those of conversations."""

WAIT_SECONDS = 15.0


class VendorCall(Struct, frozen=True):
    """A call that is passed on: where to, and its body."""

    provider: Provider
    path: str
    body: "bytes | Upload | None"


def is_vendor_path(method: str, path: str) -> bool:
    """Whether a request may be one for a vendor; the rest is known or belongs to Weft."""
    return method in METHODS and _PREFIX.match(path) is not None


class Upload:
    """A body that is still arriving; `error` is why it broke off."""

    def __init__(self, begun: Sequence[bytes], rest: AsyncIterator[bytes] | None) -> None:
        self.error: Exception | None = None
        self._begun = begun
        self._rest = rest

    async def chunks(self) -> AsyncIterator[bytes]:
        """The pieces of the body."""
        for chunk in self._begun:
            yield chunk
        self._begun = ()
        if self._rest is None:
            return
        try:
            async for chunk in self._rest:
                yield chunk
        except (ClientLeft, Refused) as error:
            self.error = error
            raise


async def pass_on(protocol: str, state: State, inbound: Inbound, outbound: Outbound) -> None:
    """Pass a request on and answer it; always logs one line about it."""
    codec = CODECS[protocol]
    log = ExchangeLog(inbound.path, inbound.request_id)
    state.metrics.exchanges += 1
    try:
        await _answer(codec, state, inbound, outbound, log)
    except ClientLeft:
        log.outcome = "client_left"
    except (Refused, UpstreamError) as error:
        log.outcome = "refused" if isinstance(error, Refused) else "upstream_failed"
        if outbound.started:
            # The client must not take the part that it has for the whole.
            log.outcome = "cut"
            raise AnswerCut from None
        log.status, body = codec.encode_error(failure(error))
        await outbound.send(log.status, exact_json.dumps(body))
    except Exception:  # nothing above this handler would answer the client
        log.outcome = "fault"
        sys.stderr.write(clean_text(traceback.format_exc()))
        if outbound.started:
            raise AnswerCut from None
        log.status, body = codec.encode_error(internal_failure())
        await outbound.send(log.status, exact_json.dumps(body))
    finally:
        state.metrics.add(protocol, log)
        write_line(log, sys.stderr)


class AnswerCut(Exception):
    """An answer broke off after its first byte. The server closes the connection."""


async def _answer(
    codec: Codec, state: State, inbound: Inbound, outbound: Outbound, log: ExchangeLog
) -> None:
    caller = admit_program(inbound, state.settings)
    log.key = caller.name
    await _check_path(state, inbound, caller)
    call = await _read_call(codec, state, inbound, log)
    log.upstream = call.provider.name
    async with Guard(inbound, state.gate) as guard:
        try:
            with guard.waiting():
                reply = await state.http_client.send(
                    inbound.method,
                    call.provider,
                    call.path,
                    call.body.chunks() if isinstance(call.body, Upload) else call.body,
                    _headers(state, inbound, call),
                    owner=caller.scope,
                )
        except UpstreamError:
            if isinstance(call.body, Upload) and call.body.error is not None:
                raise call.body.error from None
            raise
        try:
            await _relay(guard, reply, call.provider, inbound.method, outbound, log)
        finally:
            reply.close()


async def _relay(
    guard: Guard,
    reply: Reply,
    provider: Provider,
    method: str,
    outbound: Outbound,
    log: ExchangeLog,
) -> None:
    log.status = reply.status
    log.upstream_request_id = read_request_id(reply.headers)
    if 300 <= reply.status < 400 and reply.status != 304:
        raise UpstreamFailed(f"upstream {provider.name!r} answered with status {reply.status}")
    headers = [*_answer_headers(reply.headers), ("x-weft-recorded", "no")]
    if reply.status >= 300 or method == "HEAD":
        log.outcome = "upstream_refused" if reply.status >= 400 else "ok"
        body = await guard.read_all(reply)
        if method == "HEAD" and (length := reply.headers.get("content-length")):
            headers.append(("content-length", length))
            await outbound.start(reply.status, headers)
            await outbound.finish()
            return
        await outbound.send(reply.status, body, headers)
        return
    length = reply.headers.get("content-length", "")
    if length.isdecimal() and "content-encoding" not in reply.headers:
        headers.append(("content-length", length))
    chunk = await guard.read(reply, WAIT_SECONDS)
    while chunk is None:
        chunk = await guard.read(reply, WAIT_SECONDS)
    log.mark_first_byte()
    await outbound.start(reply.status, headers)
    while chunk != b"":
        await outbound.write(chunk or b"")
        chunk = await guard.read(reply, WAIT_SECONDS)
    await outbound.finish()


def _answer_headers(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    returned = returned_headers(headers)
    for raw_name, value in headers.items():
        name = raw_name.lower()
        is_returned = name in ANSWER_HEADERS or name.startswith(ANSWER_PREFIX)
        if is_returned and len(value) < 4000 and value.isprintable():
            returned.append((name, value))
    if not any(name == "content-type" for name, _ in returned):
        returned.append(("content-type", "application/octet-stream"))
    return [*returned, ("content-disposition", _as_attachment(headers))]


def _as_attachment(headers: Mapping[str, str]) -> str:
    """The header that makes a browser save an answer, with the name that the vendor gave it."""
    value = headers.get("content-disposition", "")
    parts = ["attachment"]
    if len(value) < 4000 and value.isprintable():
        named = {match["name"].lower(): match["value"] for match in _FILENAME.finditer(value)}
        parts += [f"{name}={filename}" for name, filename in named.items()]
    return "; ".join(parts)


def _headers(state: State, inbound: Inbound, call: VendorCall) -> dict[str, str]:
    provider = call.provider
    connection = connection_headers(inbound.headers)
    forwarded = {
        name: value
        for name, value in inbound.headers.items()
        if is_forwarded(name) and name not in connection
    }
    kept = ("content-type",)
    if isinstance(call.body, Upload):
        kept = ("content-type", "content-encoding", "content-length")
    about_body = {name: inbound.headers[name] for name in kept if name in inbound.headers}
    return {
        **dict(provider.headers),
        **forwarded,
        **({} if call.body is None else about_body),
        "accept-encoding": "identity",  # the answer is passed on as it is
        **upstream_credentials(inbound.headers, state.settings, provider, provider.protocol),
    }


async def _check_path(state: State, inbound: Inbound, caller: Caller) -> None:
    """Raises `Refused` for a path that is not passed on."""
    allowed = state.settings.pass_through_paths
    for segment in inbound.path[1:].split("/"):
        if segment in (".", "..") or not _SEGMENT.fullmatch(segment):
            raise Refused(
                "the path has a part that is empty, `.`, `..`, or has `\\`, `;`, `%`, or "
                "control characters"
            )
    if isinstance(allowed, tuple):
        if not any(fnmatchcase(inbound.path, pattern) for pattern in allowed):
            raise Refused(
                f"the path {inbound.path} is not one of those that are passed on "
                "(pass_through_paths)",
                status=404,
                type="not_found_error",
            )
        return
    if not state.settings.keys:
        return
    if inbound.path.startswith(OWNED):
        recorder, id = state.recorder, inbound.path.split("/")[3]
        if recorder is None or not await recorder.has_vendor_id(caller.scope, id):
            raise Refused(f"there is no {id!r} here", status=404, type="not_found_error")
    elif allowed is None and not is_template_path(inbound.method, inbound.path):
        raise Refused(
            f"{inbound.method} {inbound.path} is not one of the vendor paths that are open to all "
            "keys: it is only passed on if pass_through_paths names it",
            status=403,
            type="permission_error",
        )


async def _read_call(codec: Codec, state: State, inbound: Inbound, log: ExchangeLog) -> VendorCall:
    """Read as much of the body as the choice of the upstream needs."""
    kind = inbound.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not _has_body(inbound.headers):
        pieces, rest, is_whole = [], None, True
    else:
        rest = inbound.chunks()
        limit = FORM_PEEK if kind == "multipart/form-data" else 0
        limit = state.settings.max_body if kind.endswith("json") else limit
        pieces, is_whole = await _read_pieces(rest, limit)
    raw: JsonObject | None = None
    model: str | None = None
    body: bytes | Upload | None = Upload(pieces, None if is_whole else rest)
    if rest is None:
        body = None
    elif kind.endswith("json") and is_whole:
        encoding = inbound.headers.get("content-encoding")
        body = decompress(b"".join(pieces), encoding, state.settings.max_body)
        raw = await state.large_bodies.run(len(body), _parse, body)
        model = _text(raw.get("model")) if raw is not None else None
    elif kind == "multipart/form-data" and (found := _MODEL_FIELD.search(b"".join(pieces))):
        model = found["model"].decode("utf-8", "replace").strip()
    in_path = _MODEL_PATH.fullmatch(inbound.path)
    path_model = in_path["model"] if in_path is not None else None
    asked = path_model or model
    log.model = asked
    route = _find_upstream(codec, state, inbound, asked)
    path = inbound.path
    if asked is not None and route.model != asked.removeprefix(MODEL_PREFIX):
        if in_path is not None:
            path = in_path["before"] + route.model + in_path["method"]
        if raw is not None and model is not None and isinstance(body, bytes):
            prefix = MODEL_PREFIX if model.startswith(MODEL_PREFIX) else ""
            body = edit_json(body, raw, {**raw, "model": prefix + route.model})
        elif in_path is None:
            raise Refused(
                f"the model {asked!r} is called {route.model!r} by its upstream, and the body of "
                "this request is not changed: send that name",
                param="model",
            )
    path = "/".join(quote(part, safe="!$&'()*+,;=:@~") for part in path.split("/"))
    return VendorCall(route.provider, with_safe_query(path, inbound.query), body)


def _has_body(headers: Mapping[str, str]) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


async def _read_pieces(chunks: AsyncIterator[bytes], limit: int) -> tuple[list[bytes], bool]:
    """The first pieces of a body, at most one piece more than the limit, and whether it ended."""
    pieces: list[bytes] = []
    size = 0
    while size < limit:
        try:
            pieces.append(await anext(chunks))
        except StopAsyncIteration:
            return pieces, True
        size += len(pieces[-1])
    return pieces, False


def _parse(body: bytes) -> JsonObject | None:
    """The JSON object of a body; None for anything else, which the upstream refuses itself."""
    try:
        raw: Any = exact_json.loads(body)
    except exact_json.JSONDecodeError:
        return None
    return cast(JsonObject, raw) if isinstance(raw, dict) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _find_upstream(codec: Codec, state: State, inbound: Inbound, model: str | None) -> Route:
    """The upstream for a path; raises `Refused` if it is not clear which one."""
    family = _vendor(codec)
    speakers = [p for p in state.providers if _vendor(CODECS[p.protocol]) == family]
    usable = [
        provider
        for provider in speakers
        if provider.has_key
        or not provider.keyed
        or has_credentials(inbound.headers, state.settings, provider.protocol)
    ]
    model = None if model is None else model.removeprefix(MODEL_PREFIX)
    if model is not None:
        resolved = resolve_alias(model, state.settings.aliases)
        name, _, rest = resolved.partition("/")
        named = next((p for p in state.providers if p.name == name and rest), None)
        if fnmatchcase(resolved, OFFLINE.models[0]) or (named and named not in speakers):
            owner = OFFLINE.name if named is None else named.name
            raise Refused(
                f"{inbound.path} is not translated: upstream {owner!r}, which serves the model "
                f"{model!r}, does not speak the protocol of this request",
                param="model",
                status=404,
                type="not_found_error",
            )
        if named is not None:
            return Route(named, rest)
    if not usable:
        raise Refused(
            f"there is no upstream for {inbound.path}: none speaks this protocol, or its key is "
            "missing",
            status=404,
            type="not_found_error",
        )
    if model is not None:
        for protocol in dict.fromkeys(provider.protocol for provider in usable):
            try:
                return find_route(
                    model,
                    protocol,
                    usable,
                    state.catalog,
                    aliases=state.settings.aliases,
                )
            except Refused as refused:
                if refused.status != 404:
                    raise
    chosen = [provider for provider in usable if provider.default] or usable
    servers = {(provider.base_url, provider.key): provider for provider in chosen}
    if len(servers) == 1:
        return Route(chosen[0], resolve_alias(model, state.settings.aliases) if model else "")
    names = ", ".join(provider.name for provider in chosen)
    raise Refused(
        f"{inbound.path} names no model that decides between the upstreams {names}: set "
        "default = true for one of them",
    )


def _vendor(codec: Codec) -> str:
    """The vendor of a protocol; a vendor may have several protocols."""
    vendor = codec.http.vendor
    return codec.protocol if vendor is None else vendor.catalog_name
