"""Which upstream answers for a model name.

The first rule that finds an upstream wins:

1. the offline model, by its name;
2. an upstream named before a slash (`openai/gpt-5`);
3. the only upstream there is, with the name unchanged;
4. an upstream whose `models` patterns match;
5. an upstream of the vendor that the catalogue lists the model under;
6. an upstream that speaks the caller's protocol, unless the model belongs to another vendor.

If a rule finds several, the one that speaks the caller's protocol wins: it needs no translation.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from weft.catalog import Catalog
from weft.errors import Refused
from weft.model import Origin

from .ask import origin_of
from .provider import OFFLINE, Provider

NAME_LIMIT = 500
"""Longest model name in characters. Real names have at most about a hundred."""


class Route(Struct, frozen=True, gc=False):
    """The upstream that answers, and the name of the model there."""

    provider: Provider
    model: str

    @property
    def maker(self) -> Origin:
        """The origin of the answers."""
        return origin_of(self.provider, self.model)


def find_route(
    model: str,
    protocol: str,
    providers: Sequence[Provider],
    catalog: Catalog,
    *,
    pays: bool = True,
) -> Route:
    """The upstream for a model name that was asked for in this protocol.

    `pays` is whether the caller has credentials for its own vendor. Raises `Refused`: with 400 for
    a name that no model has, with 404 if no upstream serves the model.
    """
    check_name(model)
    if _matches(OFFLINE, model):
        return Route(OFFLINE, model)
    by_name: Mapping[str, Provider] = {provider.name: provider for provider in providers}
    prefix, _, rest = model.partition("/")
    if rest and prefix in by_name and _usable(by_name[prefix], protocol, pays):
        return Route(by_name[prefix], rest)
    if len(providers) == 1:
        return Route(providers[0], model)
    vendor = catalog.vendor_of(model)
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


def check_name(model: str) -> None:
    """Raises `Refused` for a model name with control characters, or one that is too long.

    Model names end up in URLs, logs and terminals.
    """
    if len(model) > NAME_LIMIT:
        raise Refused(f"the model name has more than {NAME_LIMIT} characters", param="model")
    if any(sign < " " or "\x7f" <= sign <= "\x9f" for sign in model):
        raise Refused(f"the model name {model!r} has control characters", param="model")


def _usable(provider: Provider, protocol: str, pays: bool) -> bool:
    """Whether there is a key: the configured one, or the caller's own."""
    return bool(provider.key) or not provider.keyed or (pays and provider.protocol == protocol)


def _matches(provider: Provider, model: str) -> bool:
    return any(fnmatchcase(model, pattern) for pattern in provider.models)


def _nearest(providers: Sequence[Provider], protocol: str) -> Provider:
    """The first that speaks the caller's protocol, else the first."""
    return next((p for p in providers if p.protocol == protocol), providers[0])
