"""The application: hot routes as plain ASGI, everything else Starlette, both behind one door.

`build` makes it of a state; `serve` opens that state from settings, listens, says where, and stops
on a signal. Granian runs inside our own event loop, so one process holds the store, the
connections and the page's sockets.
"""

import asyncio
import signal
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from granian.constants import Interfaces
from granian.server.embed import Server
from starlette.applications import Starlette
from starlette.types import ASGIApp

from weft.catalog import load_catalog
from weft.client import Wire
from weft.errors import ConfigError, Refused
from weft.store import open_store

from .api import routes
from .asgi import Inbound, Outbound, Receive, Scope, Send, plain_answers
from .auth import admit
from .endpoints import find_endpoint
from .sessions import Recorder
from .settings import Settings
from .state import State

POLL_SECONDS = 0.02
PATIENCE_SECONDS = 15.0


def build(state: State) -> ASGIApp:
    """The ASGI application over an open state."""
    control = Starlette(routes=routes(state))

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await control(scope, receive, send)
            return
        inbound, outbound = Inbound(scope, receive), Outbound(plain_answers(scope, send))
        endpoint = find_endpoint(inbound.method, inbound.path)
        if endpoint is not None:
            await endpoint(state, inbound, outbound)
            return
        try:
            admit(inbound.headers, state.settings)
        except Refused as error:
            await _turn_away(error, outbound)
            return
        await control(scope, receive, send)

    return application


async def _turn_away(error: Refused, outbound: Outbound) -> None:
    """A browser is asked for the key; it answers as the password of HTTP's basic scheme."""
    headers = [("content-type", "text/plain; charset=utf-8")]
    if error.status == 401:
        headers.append(("www-authenticate", 'Basic realm="weft"'))
    await outbound.send(error.status, f"{error}\n".encode(), headers)


@asynccontextmanager
async def open_state(settings: Settings) -> AsyncGenerator[State]:
    """Everything a server holds, closed again in the right order."""
    store = open_store(settings.store)
    recorder = Recorder(store) if settings.record else None
    try:
        async with Wire() as wire:
            yield State(settings, store, load_catalog(), wire, recorder)
    finally:
        if recorder is not None:
            recorder.close()
        store.close()


async def serve(settings: Settings, announce: Callable[[str], None]) -> None:
    """Serve until a signal comes; `announce` gets the URL once connections are taken."""
    port = claim_port(settings.host, settings.port)
    async with open_state(settings) as state:
        server = Server(
            build(state),
            address=find_address(settings.host),
            port=port,
            interface=Interfaces.ASGI,
            log_enabled=False,
        )
        serving = asyncio.ensure_future(server.serve())
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, server.stop)
        await _await_listener(settings.host, port, serving)
        announce(url_of(settings.host, port))
        await serving


def claim_port(host: str, port: int) -> int:
    """A port that is free now (0 asks for any); raises `ConfigError` where it is taken.

    The server listens with SO_REUSEPORT and would share a taken port in silence.
    """
    address = find_address(host)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            why = f"cannot listen on {host}:{port}: {error.strerror}; --port chooses another"
            raise ConfigError(why) from None
        return probe.getsockname()[1]


def find_address(host: str) -> str:
    """The IP address of a host, because the server takes no names; raises `ConfigError`.

    A name with several addresses is listened on at the first; `localhost` is `127.0.0.1`.
    """
    try:
        found = socket.getaddrinfo(host, None, socket.AF_UNSPEC, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"host {host!r} is not an address of this machine: {why}") from None
    return str(sorted(found, key=lambda one: one[0] != socket.AF_INET)[0][4][0])


def url_of(host: str, port: int) -> str:
    """Where a browser finds a server that listens on this host."""
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{name}:{port}"


async def _await_listener(host: str, port: int, serving: "asyncio.Future[None]") -> None:
    """Return when connections are taken; raises what the server failed with, if it did."""
    reach = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, find_address(host))
    for _ in range(int(PATIENCE_SECONDS / POLL_SECONDS)):
        if serving.done():
            await serving
            raise ConfigError(f"the server on {host}:{port} ended as soon as it began")
        try:
            _, writer = await asyncio.open_connection(reach, port)
        except OSError:
            await asyncio.sleep(POLL_SECONDS)
            continue
        writer.close()
        return
    raise ConfigError(f"the server on {host}:{port} did not come up")
