"""What lives as long as the server: the open store, the settings, the way out."""

from msgspec import Struct, field

from weft.catalog import Catalog
from weft.client import Provider, Wire
from weft.store import Store

from .guard import Gate
from .large_bodies import Heavy
from .limits import LimitSettings
from .listings import Listings
from .recorder import Recorder
from .runs import Runs
from .settings import Settings
from .titles import Titles


class State(Struct, frozen=True):
    """Handed to every endpoint. `recorder` is None where nothing is to be kept."""

    settings: Settings
    store: Store
    catalog: Catalog
    wire: Wire
    recorder: Recorder | None = None
    titles: Titles = field(default_factory=Titles)
    gate: Gate = field(default_factory=lambda: Gate(LimitSettings().requests))
    heavy: Heavy = field(default_factory=Heavy)
    runs: Runs = field(default_factory=Runs)
    listings: Listings = field(default_factory=Listings)

    @property
    def providers(self) -> tuple[Provider, ...]:
        """The upstreams, in the order in which they are preferred."""
        return self.settings.providers
