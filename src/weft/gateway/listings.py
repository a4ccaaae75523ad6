"""Which models the configured upstreams list, for the page's model menu.

The list is read with the configured keys only: a browser has no credentials of its own for an
upstream. Upstreams are asked at the same time, each for a few seconds at most, and the answers are
cached for a minute. The lists are untrusted: names are checked, and their number is limited.
"""

import asyncio
from time import monotonic
from typing import Any, cast

from msgspec import Struct

from weft import exact_json
from weft.client import GATEWAY_RETRY, HttpClient, Provider, read_all
from weft.codec import CODECS
from weft.errors import UpstreamError
from weft.model import JsonObject

LISTING_SECONDS = 5.0
MODEL_PREFIX = "models/"
"""Gemini puts this before the names of its models."""
CACHE_SECONDS = 60.0
MODEL_LIMIT = 2000
NAME_LENGTH = 200


class ModelListing(Struct, frozen=True):
    """The models of one upstream, or why they are not known (`error`)."""

    upstream: str
    models: tuple[str, ...] = ()
    error: str | None = None


class Listings:
    """The lists of all upstreams, cached."""

    def __init__(self) -> None:
        self._listings: dict[str, ModelListing] = {}
        self._read_at = 0.0
        self._reading: asyncio.Task[None] | None = None

    async def read(
        self, http_client: HttpClient, providers: tuple[Provider, ...]
    ) -> tuple[ModelListing, ...]:
        """The lists, at most a minute old; callers at the same time share one round of requests.

        An upstream without a configured key is not asked, because it serves only clients that send
        their own key.
        """
        providers = tuple(p for p in providers if p.has_key or not p.keyed)
        is_fresh = monotonic() - self._read_at < CACHE_SECONDS and bool(self._listings)
        if not is_fresh and providers:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._read(http_client, providers))
            await asyncio.shield(self._reading)
        return tuple(self._listings.values())

    def lacks_model(self, provider: Provider, model: str) -> bool:
        """Whether the upstream is known not to list this model.

        Vendors list dated names (`claude-x-20250929`) and accept the shorter alias too.
        """
        listing = self._listings.get(provider.name)
        if listing is None or listing.error is not None:
            return False
        return not any(name == model or name.startswith(f"{model}-") for name in listing.models)

    def with_model(self, model: str) -> list[ModelListing]:
        """The upstreams that list this model, each as a list of this model alone."""
        return [
            ModelListing(listing.upstream, (model,))
            for listing in self._listings.values()
            if model in listing.models
        ]

    async def _read(self, http_client: HttpClient, providers: tuple[Provider, ...]) -> None:
        results = await asyncio.gather(
            *(_list_models(http_client, provider) for provider in providers)
        )
        self._listings = {result.upstream: result for result in results}
        self._read_at = monotonic()


async def _list_models(http_client: HttpClient, provider: Provider) -> ModelListing:
    """One upstream's list; models in its configuration are included even if it lists none."""
    configured = tuple(name for name in provider.models if not set("*?[") & set(name))
    form = CODECS[provider.protocol].http.models
    path = form.path + form.query
    try:
        async with asyncio.timeout(LISTING_SECONDS):
            headers = {**dict(provider.headers), **provider.auth_headers()}
            reply = await http_client.get(provider, path, headers, GATEWAY_RETRY)
            try:
                if reply.status != 200:
                    return ModelListing(provider.name, configured, f"it answered {reply.status}")
                listing: Any = exact_json.loads(await read_all(reply))
            finally:
                reply.close()
    except TimeoutError:
        return ModelListing(provider.name, configured, f"no answer within {LISTING_SECONDS:.0f} s")
    except UpstreamError as error:
        return ModelListing(provider.name, configured, str(error))
    except exact_json.JSONDecodeError:
        return ModelListing(provider.name, configured, "its list is not JSON")
    names = [*configured, *_read_names(listing, form.list_member, form.name_member)]
    if not names:
        return ModelListing(provider.name, (), "its list of models is empty")
    return ModelListing(provider.name, tuple(dict.fromkeys(names))[:MODEL_LIMIT])


def _read_names(listing: Any, rows: str, name: str) -> list[str]:
    """The usable names in an upstream's list."""
    values: Any = cast(JsonObject, listing).get(rows) if isinstance(listing, dict) else None
    if not isinstance(values, list):
        return []
    entries = [cast(JsonObject, row) for row in cast(list[Any], values) if isinstance(row, dict)]
    values = [entry.get(name) for entry in entries]
    names = [value.removeprefix(MODEL_PREFIX) for value in values if isinstance(value, str)]
    return [text for text in names if 0 < len(text) <= NAME_LENGTH and text.isprintable()]
