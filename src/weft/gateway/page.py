"""The page itself: static files that say of themselves what they may load.

Nothing comes from anywhere else, and the browser is told so: no script, style, picture or
connection but from this server, no frame around it, no plug-in in it.
"""

from importlib.resources import files
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send

HEADERS = {
    "content-security-policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


def page_routes() -> list[BaseRoute]:
    """`/` and everything it loads."""
    folder = Path(str(files("weft.web")))

    async def index(_: Request) -> Response:
        return FileResponse(folder / "index.html", headers=HEADERS)

    return [Route("/", index), Mount("/static", Assets(folder))]


class Assets:
    """The files of the page by name; those of other kinds (this package's Python) are not there."""

    def __init__(self, folder: Path) -> None:
        self._files = StaticFiles(directory=folder)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = TYPES.get(Path(scope["path"]).suffix)
        if kind is None:
            await Response("not found", 404, headers=HEADERS)(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [pair for pair in message["headers"] if pair[0] != b"content-type"]
                given = {**HEADERS, "content-type": f"{kind}; charset=utf-8"}
                extra = [(name.encode(), value.encode()) for name, value in given.items()]
                message = {**message, "headers": [*kept, *extra]}
            await send(message)

        await self._files(scope, receive, send_guarded)
