"""The server: the data plane (the routes of `endpoints`) as plain ASGI, and the control plane (the
page and its API) as a Starlette application.

`build` makes the application; `serve` opens the state, listens, announces the URL, and stops on a
signal. Granian runs in our own event loop, so that the store, the connections and the page's
sockets are in one process.
"""

import asyncio
import resource
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server
from msgspec import structs
from starlette.applications import Starlette
from starlette.types import ASGIApp

from weft import exact_json
from weft.agent import McpServer
from weft.client import HttpClient
from weft.codec import CODECS
from weft.errors import ConfigError, Refused
from weft.model import JsonObject
from weft.store import SERVER_SUFFIX, announce_server, open_store

from .api import routes
from .api_events import PATH as EVENTS
from .asgi import (
    ClientLeft,
    Inbound,
    Outbound,
    Receive,
    Scope,
    Send,
    as_http_send,
    as_no_page,
    send_request_id,
    with_body_deadline,
    with_request_id,
    with_write_timeout,
)
from .auth import admit, find_client
from .auto_compact import SessionCompactor
from .bodies import tune_interpreter
from .endpoints import ALWAYS_SERVED, client_protocol, find_endpoint, full_path
from .errors import refusal
from .guard import Gate, NoSlot
from .live import StorePoller
from .log_output import LogOutput, queued_log
from .recorder import ExchangeRecorder
from .runs import CallerPermissions
from .settings import SPARE_FILES, LimitSettings, Settings, default_store
from .state import State

POLL_SECONDS = 0.02
"""The pause between two attempts of a starting server to connect to its own port."""
START_SECONDS = 15.0
"""How long the server may take until it accepts connections."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that stop the server. It drains on SIGHUP too, so that a closed terminal cuts no
stream; under `nohup`, which ignores SIGHUP, it goes on."""
BACKLOG = 4096
"""How many connections may wait to be accepted. The kernel may use a lower limit."""
GOING_AWAY = 1001
"""https://www.rfc-editor.org/rfc/rfc6455#section-7.4.1"""


def build(state: State) -> ASGIApp:
    """The ASGI application over an open state."""
    control_plane = Starlette(routes=routes(state))
    limits = state.settings.limits

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = with_request_id(scope)
            timed_receive = with_body_deadline(receive, limits.body_seconds)
            timed_send = with_write_timeout(send_request_id(scope, send), limits.write_seconds)
            with suppress(ClientLeft):
                await serve_request(scope, timed_receive, timed_send)
        elif scope["type"] == "websocket":
            if not await _serve_long_lived(state.gate, dispatch, scope, receive, send):
                await send({"type": "websocket.close", "code": GOING_AWAY})
        else:
            await control_plane(scope, receive, send)

    async def serve_request(scope: Scope, receive: Receive, send: Send) -> None:
        inbound = Inbound(scope, receive)
        path = full_path(inbound.path)
        if inbound.is_http_1_1 and not inbound.headers.get("host", "").strip():
            # https://www.rfc-editor.org/rfc/rfc9112#section-3.2
            await _refuse(Refused("the Host header is missing"), Outbound(send))
            return
        if path in ALWAYS_SERVED:  # even when the gateway is full
            await dispatch(scope, receive, send)
            return
        if path == EVENTS:
            await _serve_long_lived(state.gate, dispatch, scope, receive, send)
            return
        client = find_client(inbound.headers, state.settings)
        key = None if client is None else client.name
        try:
            with state.gate.serving(key, is_page=find_endpoint(inbound.method, path) is None):
                await dispatch(scope, receive, send)
        except NoSlot as error:
            state.metrics.add_refused(key, error.status)
            await _refuse_for_now(error, inbound, Outbound(send))

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        inbound, outbound = Inbound(scope, receive), Outbound(as_http_send(scope, send))
        inbound.path = full_path(inbound.path)
        endpoint = find_endpoint(inbound.method, inbound.path)
        if endpoint is not None:
            # It calls `admit` itself, so that it can refuse in the client's protocol.
            await endpoint(state, inbound, Outbound(as_no_page(outbound.sender)))
            return
        try:
            admit(inbound.headers, state.settings)
        except Refused as error:
            await _refuse(error, outbound)
            return
        await control_plane(scope, receive, send)

    return application


async def _serve_long_lived(
    gate: Gate, app: ASGIApp, scope: Scope, receive: Receive, send: Send
) -> bool:
    """Serve a connection that may stay open for days; false if a shutdown cut it off."""
    try:
        with gate.long_lived():
            await app(scope, receive, send)
    except asyncio.CancelledError:
        if not gate.stopping:
            raise
        return False
    return True


async def _refuse_for_now(error: Refused, inbound: Inbound, outbound: Outbound) -> None:
    """Answer 429 or 503 in the client's protocol: there is no slot, or the gateway shuts down.

    The client may retry after a second.
    """
    status, body = CODECS[client_protocol(inbound)].encode_error(refusal(error))
    headers = [("retry-after", "1"), ("connection", "close")]
    await outbound.send(status, exact_json.dumps(body), headers)


async def _refuse(error: Refused, outbound: Outbound) -> None:
    """Refuse a request. With status 401, a browser asks for the key as a basic-auth password."""
    headers = [("content-type", "text/plain; charset=utf-8")]
    if error.status == 401:
        headers.append(("www-authenticate", 'Basic realm="weft"'))
    await outbound.send(error.status, f"{error}\n".encode(), headers)


@asynccontextmanager
async def open_state(settings: Settings, url: str | None = None) -> AsyncGenerator[State]:
    """Open everything that a server needs; close it in the right order.

    `url` is the server's own address, which agents on this machine use.
    """
    # Only for the default store: a typing error in another path must not create a folder.
    if settings.store == default_store():
        Path(settings.store).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    store = open_store(settings.store)
    recorder = None
    if settings.record:
        recorder = ExchangeRecorder(
            store,
            journal=settings.journal,
            volatile=settings.volatile,
            record_wait=settings.record_wait,
        )
    limits = settings.limits
    try:
        async with (
            HttpClient(limits.for_calls()) as http_client,
            _connected_servers(settings.mcp) as servers,
        ):
            gate = Gate(limits.requests, limits.slots_per_key(settings.clients))
            compactor = None
            if settings.auto_compact:
                compactor = SessionCompactor(
                    settings.compaction, store, settings.catalog, settings.providers
                )
            state = State(
                settings,
                store,
                settings.catalog,
                http_client,
                recorder,
                compactor,
                gate=gate,
                permissions=CallerPermissions(settings.permissions),
                tool_servers=servers,
                url=url,
            )
            state.runs.on_retry = lambda spec, retry: state.live_feed.retry_run(
                spec.thread, spec.branch, spec.scope, retry
            )
            polling = asyncio.ensure_future(StorePoller(store, state.live_feed).run())
            try:
                yield state
            finally:
                polling.cancel()
                await state.runs.close()
                state.large_bodies.close()
    finally:
        # While the writer is busy (`recorder.close` returned false), closing the store would block.
        if recorder is None or recorder.close():
            store.close()


@asynccontextmanager
async def _connected_servers(commands: Sequence[str]) -> AsyncGenerator[tuple[McpServer, ...]]:
    servers = await asyncio.to_thread(_connect_servers, commands)
    try:
        yield servers
    finally:
        for server in servers:
            await asyncio.to_thread(server.close)


def _connect_servers(commands: Sequence[str]) -> tuple[McpServer, ...]:
    """Connect to the MCP servers; raises `ConfigError` if one does not start."""
    with ExitStack() as started:  # if one fails, those before it are closed
        servers = tuple(started.enter_context(McpServer(command)) for command in commands)
        started.pop_all()
    return servers


async def serve(settings: Settings, announce: Callable[[str], None]) -> JsonObject:
    """Serve until a signal comes; `announce` gets the URL when connections are accepted.

    Returns what was recorded: the main threads, and how many records are not in the store.

    The first signal lets running requests finish, for `limits.drain_seconds` at most; the second
    one ends the process at once.
    """
    port = find_free_port(settings.host, settings.port)
    limits = _fit_limits(settings.limits)
    settings = structs.replace(settings, limits=limits)
    with queued_log() as log:
        return await _serve(settings, port, announce, log)


async def _serve(
    settings: Settings, port: int, announce: Callable[[str], None], log: LogOutput | None
) -> JsonObject:
    limits = settings.limits
    async with open_state(settings, url_of(settings.host, port)) as state:
        state.metrics.log = log
        state.metrics.running_by_key = state.gate.slots.by_key
        server = Server(
            build(state),
            address=find_address(settings.host),
            port=port,
            interface=Interfaces.ASGI,
            # Where HTTP/2 is offered too, granian waits without a deadline for the first bytes.
            http=HTTPModes.http1,
            http1_settings=HTTP1Settings(header_read_timeout=int(limits.header_seconds * 1000)),
            backlog=BACKLOG,
            backpressure=limits.connections,
            log_enabled=False,
        )
        tune_interpreter()
        serving = asyncio.ensure_future(server.serve())
        stopped = _stop_on_signal()
        await _await_listener(settings.host, port, serving)
        url = url_of(settings.host, port)
        # Other `weft` commands on this store find the running server through this file. It is
        # beside the journal: `companion_path` has the path of both.
        server_file = (
            None if settings.journal is None else settings.journal.with_suffix(SERVER_SUFFIX)
        )
        with announce_server(server_file, url):
            announce(url)
            await asyncio.wait((serving, stopped), return_when=asyncio.FIRST_COMPLETED)
        server.stop()
        await state.gate.drain(limits.drain_seconds)
        await serving
        return {} if state.recorder is None else state.recorder.summary()


def _stop_on_signal() -> "asyncio.Future[None]":
    """A future that is done at the first signal. A second signal ends the process as usual."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[None] = loop.create_future()

    numbers = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]

    def stop() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        if not stopped.done():  # two signals may arrive in one iteration of the loop
            stopped.set_result(None)

    for number in numbers:
        loop.add_signal_handler(number, stop)
    return stopped


def _fit_limits(limits: LimitSettings) -> LimitSettings:
    """The limits. If the process may not open enough files, reduces them and prints a warning."""
    files = raise_file_limit(limits.connections + limits.requests + SPARE_FILES)
    fitting = limits.within(files)
    if fitting is not limits:
        print(
            f"weft: this process may open {files} files (ulimit -n), so it serves "
            f"{fitting.connections} connections and {fitting.requests} requests at the same time",
            file=sys.stderr,
        )
    return fitting


def raise_file_limit(needed: int) -> int:
    """Raise the open-file limit to `needed`, or as far as the system allows.

    Returns how many of the needed files can be opened.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return needed
    limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return limit


def find_free_port(host: str, port: int) -> int:
    """The port, or a free one if it is 0; raises `ConfigError` if the port is taken.

    The port is not reserved: the server binds it again. The server listens with SO_REUSEPORT, so
    without this check it would silently share a port that is taken.
    """
    address = find_address(host)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            message = f"cannot listen on {host}:{port}: {error.strerror}; --port chooses another"
            raise ConfigError(message) from None
        return probe.getsockname()[1]


def find_address(host: str) -> str:
    """The IP address of a host, because the server cannot listen on a name.

    If a name has several addresses, the first is used, IPv4 before IPv6. Raises `ConfigError` if
    the name cannot be resolved.
    """
    try:
        addresses = socket.getaddrinfo(host, None, socket.AF_UNSPEC, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot resolve the host {host!r}: {reason}") from None
    return str(sorted(addresses, key=lambda each: each[0] != socket.AF_INET)[0][4][0])


def url_of(host: str, port: int) -> str:
    """The URL of a server that listens on this host."""
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{name}:{port}"


async def _await_listener(host: str, port: int, serving: "asyncio.Future[None]") -> None:
    """Wait until connections are accepted; raises the error of a server that failed."""
    address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, find_address(host))
    for _ in range(int(START_SECONDS / POLL_SECONDS)):
        if serving.done():
            await serving
            raise ConfigError(f"the server on {host}:{port} stopped right after its start")
        try:
            _, writer = await asyncio.open_connection(address, port)
        except OSError:
            await asyncio.sleep(POLL_SECONDS)
            continue
        writer.close()
        return
    raise ConfigError(f"the server on {host}:{port} did not accept connections in time")
