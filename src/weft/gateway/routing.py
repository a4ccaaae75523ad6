"""Which upstream answers a model's name.

In this order: the offline model by its name; an upstream named before a slash
(`openai/gpt-5`); with exactly one upstream, that one, the name unchanged; an upstream whose
patterns match; an upstream of the vendor that the catalogue knows the model by. Among several,
one that speaks the caller's protocol wins, because then the bytes need no translation. A model
that is known to be another vendor's is never tried at a vendor's door.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from weft.catalog import Catalog
from weft.client import OFFLINE, Provider, origin_of
from weft.errors import Refused
from weft.model import Origin


class Route(Struct, frozen=True, gc=False):
    """Who answers, and by which name the model is known there."""

    provider: Provider
    model: str

    @property
    def maker(self) -> Origin:
        """Whose answers they are."""
        return origin_of(self.provider, self.model)


def find_route(
    model: str,
    protocol: str,
    providers: Sequence[Provider],
    catalog: Catalog,
    *,
    pays: bool = True,
) -> Route:
    """The upstream for a model's name asked for in this protocol; raises `Refused` with 404.

    `pays` is whether the caller has credentials of its own, good at its vendor.
    """
    if _matches(OFFLINE, model):
        return Route(OFFLINE, model)
    by_name: Mapping[str, Provider] = {provider.name: provider for provider in providers}
    prefix, _, rest = model.partition("/")
    if rest and prefix in by_name and _usable(by_name[prefix], protocol, pays):
        return Route(by_name[prefix], rest)
    if len(providers) == 1:
        return Route(providers[0], model)
    vendor = catalog.find(model).vendor
    for candidates in (
        [provider for provider in providers if _matches(provider, model)],
        [provider for provider in providers if vendor and provider.vendor == vendor],
        [
            p
            for p in providers
            if p.protocol == protocol and (not vendor or p.vendor in ("", vendor))
        ],
    ):
        usable = [p for p in candidates if _usable(p, protocol, pays)]
        if usable:
            return Route(_nearest(usable, protocol), model)
    raise Refused(
        f"no upstream serves the model {model!r}: set its vendor's API key, "
        "or start with --upstream NAME=PROTOCOL:URL",
        param="model",
        status=404,
        type="not_found_error",
    )


def _usable(provider: Provider, protocol: str, pays: bool) -> bool:
    """Whether somebody pays: we with its key, or the caller with its own."""
    return bool(provider.key) or not provider.keyed or (pays and provider.protocol == protocol)


def _matches(provider: Provider, model: str) -> bool:
    return any(fnmatchcase(model, pattern) for pattern in provider.models)


def _nearest(providers: Sequence[Provider], protocol: str) -> Provider:
    """The first that speaks the caller's protocol, else the first."""
    return next((p for p in providers if p.protocol == protocol), providers[0])
