"""The HTTP API of the page and of other tools: JSON about threads, and the page's static files.

Every read (`api_reads`) and every write (`api_writes`) is a handler: a function that takes an
`ApiCall`. A table maps paths to handlers. This module reads the fields of a call and turns every
error into JSON.

    GET  /api/threads?q=&limit=&offset=       threads, last active first, 500 unless `limit` says
                                              more; with `q`, only those that contain it
    GET  /api/deleted                         deleted threads that can be restored
    GET  /api/thread?thread=&branch=&last=    rows with ids, priorities, kinds, tokens; branches;
                    &until=&model=            attempts that failed; as of the commit `until`
    GET  /api/rows?thread=&branch=&from=      a window of rows (`api_rows`)
                  &count=&around=&since=
                  &until=&quick=
    GET  /api/locate?thread=&branch=&row=     the last commit that still has a compacted message
    GET  /api/result?thread=&branch=&call=    the whole result of a tool call
    GET  /api/composer?thread=&branch=&model= which model and agent answer next, and how full the
                      &until=                 window is
    GET  /api/head?thread=&branch=            the newest commit, and how many threads there are
    GET  /api/log?thread=&branch=&limit=      commits, newest first
                 &until=
    GET  /api/commit?thread=&branch=&id=      what one commit removed and added, and its pins
    GET  /api/graph?thread=&limit=            the commits of all branches and tags, newest first
    GET  /api/versions?thread=&branch=        messages that have other versions on other branches
    GET  /api/diff?thread=&a=&b=              the difference of two branches or commits
    GET  /api/message?thread=&branch=&id=     the whole text of one message
    GET  /api/sent?thread=&branch=&id=        the request that an answer was made from
    GET  /api/search?thread=&q=               messages, notes, metadata and tags with `q`
    GET  /api/checkpoints?thread=&branch=     checkpoints that a model can refer to
    GET  /api/models                          the models of all upstreams, and failed lists
    GET  /api/system-table                    how system messages are displayed
    GET  /api/events?thread=                  running exchanges and changes, as server-sent events
    POST /api/compact {thread, branch, budget | replacements | model | summary, keep, first, last,
                       preview}
    POST /api/revert {id}, /api/annotate {id, priority}, /api/edit {id, text}
    POST /api/branch {name, at, before, text}, /api/merge {branch, name, answers, preview}
    POST /api/note {id, text}, /api/tag {name, at}, /api/untag {name}, /api/delete-branch {name}
    POST /api/cherry-pick {branch, id, answers, preview}, /api/undo {turn}, /api/redo {turn}
    POST /api/agent {thread, agent}           which agent answers in the page (`weft serve --agent`)
    POST /api/rename {thread, name}, /api/delete {thread}, /api/undelete {thread}
    POST /api/render {text}
    GET  /api/questions, /api/permissions, POST /api/answer, /api/hint, /api/forget: what running
                                              agents ask, and the answers (`socket`)
    GET  /api/usage?thread=&offset=           tokens and dollars per turn, thread, model and day
    POST /api/upload, GET /api/upload, GET /api/media: files of messages (`api_media`)
    GET  /api/export?thread=&format=          the thread as an HTML or Markdown document

An error is `{"error": {"message", "place"}}`; `place` names the field at fault.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from weft import exact_json
from weft.demo import ensure_sample
from weft.errors import (
    Ambiguous,
    BudgetExceeded,
    CompactRefused,
    NotFound,
    Refused,
    StoreError,
    ThreadError,
    UpstreamError,
    WeftError,
)
from weft.model import JsonObject

from .api_call import ApiCall, AsyncHandler, Handler
from .api_events import events_route
from .api_history import HISTORY_READS, HISTORY_WRITES
from .api_media import export_thread, read_upload, show_media, show_upload, store_upload
from .api_reads import READS
from .api_rows import ROW_READS
from .api_writes import WRITES
from .asgi import check_depth
from .auth import admit, name_in_scope, read_key
from .errors import public_message
from .socket import RUN_READS, RUN_WRITES, socket_route
from .state import State

HEADERS = {
    "content-security-policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
PAGE_MEDIA_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
CACHE_FOREVER = "public, max-age=31536000, immutable"
"""For addresses whose content never changes."""
HASH_LENGTH = 12
"""How many characters of the hash are in the addresses of the page's files."""


def page_routes() -> list[BaseRoute]:
    """The page at `/`, and its static files."""
    assets = Assets(Path(str(files("weft.web"))))

    async def index(_: Request) -> Response:
        return Response(assets.index, 200, HEADERS, "text/html")

    return [
        Route("/", index),
        Route("/static/{name}", assets.show),
        Route("/static/{version}/{name}", assets.show),
    ]


class Assets:
    """The files of the page, read once. Other files, such as this package's Python, are not served.

    The page names its files with a hash of all of them (`/static/HASH/app.js`), so a browser keeps
    them until they change and asks for nothing but the page itself. It also names all modules, so
    that they load at once instead of one level of imports after the other.
    """

    def __init__(self, folder: Path) -> None:
        paths = [path for path in sorted(folder.iterdir()) if path.suffix in PAGE_MEDIA_TYPES]
        self._files = {path.name: path.read_bytes() for path in paths}
        self._version = sha256(b"".join(self._files.values())).hexdigest()[:HASH_LENGTH]
        names = [name for name in self._files if name.endswith(".js")]
        links = "".join(f'  <link rel="modulepreload" href="/static/{name}">\n' for name in names)
        html = self._files["index.html"].decode().replace("</head>", f"{links}</head>", 1)
        self.index = html.replace("/static/", f"/static/{self._version}/")

    async def show(self, request: Request) -> Response:
        name, version = request.path_params["name"], request.path_params.get("version")
        content = self._files.get(name) if version in (None, self._version) else None
        if content is None:
            return Response("not found", 404, HEADERS)
        headers = HEADERS if version is None else {**HEADERS, "cache-control": CACHE_FOREVER}
        return Response(content, 200, headers, PAGE_MEDIA_TYPES[Path(name).suffix])


BODY_LIMIT = 4 * 1024 * 1024
STATUS_OF_ERROR: dict[type[WeftError], int] = {
    NotFound: 404,
    Ambiguous: 409,
    BudgetExceeded: 422,
    CompactRefused: 422,
    ThreadError: 422,
    UpstreamError: 502,
    StoreError: 500,
    WeftError: 500,
}
"""The HTTP status of each error; the first entry that matches is used."""

_log = logging.getLogger(__name__)


def routes(state: State) -> list[BaseRoute]:
    """The page, its API and its socket. If configured, an empty store gets the sample thread."""
    if state.settings.sample:
        ensure_sample(state.store)
    reads = [
        Route(path, _endpoint(state, handler), methods=["GET"])
        for path, handler in {**READS, **ROW_READS, **HISTORY_READS, **RUN_READS}.items()
    ]
    writes = [
        Route(path, _endpoint(state, handler), methods=["POST"])
        for path, handler in {**WRITES, **RUN_WRITES, **HISTORY_WRITES}.items()
    ]
    media = [
        Route("/api/upload", _endpoint(state, store_upload, read_upload), methods=["POST"]),
        Route("/api/upload", _endpoint(state, show_upload), methods=["GET"]),
        Route("/api/media", _endpoint(state, show_media), methods=["GET"]),
        Route("/api/export", _endpoint(state, export_thread), methods=["GET"]),
    ]
    events = events_route(state, HEADERS)
    return [*page_routes(), *reads, *writes, *media, events, socket_route(state)]


def _endpoint(
    state: State,
    handler: Handler | AsyncHandler | Callable[[ApiCall], Response],
    read_fields: Callable[[Request], Awaitable[Mapping[str, Any]]] | None = None,
) -> Callable[[Request], Any]:
    """The endpoint that calls a handler; its result and its errors become JSON.

    `read_fields` reads the fields of a request, if its body is not JSON.
    """

    async def endpoint(request: Request) -> Response:
        try:
            caller = admit(request.headers, state.settings)
            key = read_key(request.headers) if state.settings.keys else None
            call = ApiCall(state, await (read_fields or _read_fields)(request), caller, key)
            result = await run_in_threadpool(handler, call)
            answer = result if isinstance(result, dict | Response) else await result
            if request.method == "POST":
                _report_change(call)
            return answer if isinstance(answer, Response) else _json(answer)
        except Refused as error:
            return _error(error.message, error.param, error.status)
        except WeftError as error:
            status = next(code for kind, code in STATUS_OF_ERROR.items() if isinstance(error, kind))
            needed = error.needed if isinstance(error, BudgetExceeded) else None
            return _error(public_message(error), getattr(error, "field", None), status, needed)
        except Exception:  # nothing above this handler would answer the caller
            # The caller gets one line without details; they are in the log.
            _log.exception("%s failed", request.url.path)
            return _error("the gateway failed; its log says why", None, 500)

    return endpoint


def _report_change(call: ApiCall) -> None:
    """Notify the watchers of the thread that a write may have changed it.

    The thread needs no permission check: a write to a thread of another caller was refused.
    """
    thread = call.fields.get("thread")
    if isinstance(thread, str):
        for name in {thread, name_in_scope(call.caller, thread)}:
            call.state.live_feed.changed(name, call.scope)


async def _read_fields(request: Request) -> Mapping[str, Any]:
    """The query of a GET, the JSON object of a POST."""
    if request.method != "POST":
        return dict(request.query_params)
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Refused("the body must be application/json", param="content-type", status=415)
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_LIMIT:
            raise Refused(f"the body is larger than {BODY_LIMIT} bytes", param="body", status=413)
    try:
        fields: Any = exact_json.loads(body)
    except exact_json.JSONDecodeError as error:
        raise Refused(f"the body is not JSON: {error}", param="body") from None
    if not isinstance(fields, dict):
        raise Refused("the body is not a JSON object", param="body")
    check_depth(cast(JsonObject, fields))
    return cast(JsonObject, fields)


def _json(body: JsonObject, status: int = 200) -> Response:
    return Response(exact_json.dumps(body), status, HEADERS, "application/json")


def _error(message: str, place: str | None, status: int, needed: int | None = None) -> Response:
    """An error; `needed` is the smallest budget that would work."""
    facts = {} if needed is None else {"needed": needed}
    return _json({"error": {"message": message, "place": place, **facts}}, status)
