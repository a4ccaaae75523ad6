"""The state of a running server: settings, store, upstream connections, recorder, caches."""

from msgspec import Struct, field

from weft.agent import ClaudeSession, McpServer
from weft.catalog import Catalog
from weft.client import HttpClient, Provider
from weft.printable import without_bold
from weft.store import Store, ThreadRecord
from weft.thread import read_title

from .auto_compact import SessionCompactor
from .bodies import LargeBodyWorker
from .exchange_log import Metrics
from .guard import Gate
from .listings import Listings
from .live import LiveFeed
from .recorder import ExchangeRecorder
from .runs import CallerPermissions, Runs
from .settings import LimitSettings, Settings
from .thread_views import ThreadViews
from .uploads import Uploads

TITLE_LENGTH = 80


class Titles:
    """The titles of threads: the client's title of the session, or a person's first words.

    The beginning of a thread does not change, so a title is read once and cached.
    """

    def __init__(self) -> None:
        self._titles: dict[tuple[str, float], str] = {}

    def of(self, store: Store, record: ThreadRecord) -> str | None:
        """The title; None if the thread has no text from a person yet."""
        if record.title is not None:
            return _shorten(record.title)
        # The name alone is not enough: after a deletion another thread may have the same name.
        key = (record.name, record.created)
        if key not in self._titles:
            title = read_title(store, record)
            if title is None:
                return None
            self._titles[key] = _shorten(title)
        return self._titles[key]


def _shorten(text: str) -> str:
    """A title of at most `TITLE_LENGTH` characters, without the `**` of bold text."""
    text = without_bold(text)
    return text if len(text) <= TITLE_LENGTH else text[: TITLE_LENGTH - 1].rstrip() + "…"


class State(Struct, frozen=True):
    """Passed to every endpoint.

    `recorder` is None if nothing is recorded, `compactor` if sessions are not compacted. The page's
    agent may use the tools of `tool_servers`, with permission. `url` is the server's own address;
    `claude_sessions` are the sessions of Claude Code by thread and branch.
    """

    settings: Settings
    store: Store
    catalog: Catalog
    http_client: HttpClient
    recorder: ExchangeRecorder | None = None
    compactor: SessionCompactor | None = None
    titles: Titles = field(default_factory=Titles)
    metrics: Metrics = field(default_factory=Metrics)
    gate: Gate = field(default_factory=lambda: Gate(LimitSettings().requests))
    large_bodies: LargeBodyWorker = field(default_factory=LargeBodyWorker)
    runs: Runs = field(default_factory=Runs)
    listings: Listings = field(default_factory=Listings)
    live_feed: LiveFeed = field(default_factory=LiveFeed)
    views: ThreadViews = field(default_factory=ThreadViews)
    permissions: CallerPermissions = field(default_factory=CallerPermissions)
    tool_servers: tuple[McpServer, ...] = ()
    url: str | None = None
    claude_sessions: dict[tuple[str, str], ClaudeSession] = field(
        default_factory=dict[tuple[str, str], ClaudeSession]
    )
    uploads: Uploads = field(default_factory=Uploads)

    @property
    def providers(self) -> tuple[Provider, ...]:
        """The upstreams, in order of preference."""
        return self.settings.providers
