"""The upstreams that the command line, a config file and the environment name.

Without any configured upstream, the hosts of Anthropic, OpenAI and Google are used, with the keys
of the environment. Nothing here reads the environment by itself: it is an argument.

Programs that ask a model themselves (`weft.Agent`, `t.compact(model=...)`, `weft chat`) also read
the base-URL variables that the vendors' own SDKs read. The gateway does not: those variables often
point at the gateway, and it would call itself.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, ValidationError, convert, field, structs

from weft.catalog import Catalog
from weft.codec import CachePolicy, SystemPolicy, ThinkingMember
from weft.errors import ConfigError, Refused

from .provider import HOMES, OFFLINE, Provider, make_provider, read_provider
from .routing import Route, check_name, find_route


class Vendor(Struct, frozen=True, gc=False):
    """An upstream that needs no configuration: its name here, and the variables of its SDKs."""

    name: str
    protocol: str
    vendor: str
    key_variable: str
    url_variable: str


VENDORS = (
    Vendor("anthropic", "anthropic", "anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
    Vendor("openai", "openai-responses", "openai", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    Vendor("openai-chat", "openai-chat", "openai", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    Vendor("gemini", "gemini", "google", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"),
)

_PRINTABLE = re.compile(r"[\x21-\x7e]+")


class UpstreamTable(Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[upstream]]` of a config file.

    `demote-interleaved-system-to-user = true` is the same as `system = "demote"`.
    """

    name: str
    protocol: str
    url: str
    key_env: str | None = None
    models: tuple[str, ...] = ()
    system: SystemPolicy = "auto"
    cache: CachePolicy = "auto"
    pass_through: bool = False
    thinking: ThinkingMember | None = None
    demote: bool = field(default=False, name="demote-interleaved-system-to-user")


def read_upstreams(
    specs: Sequence[str],
    tables: Sequence[UpstreamTable],
    environ: Mapping[str, str],
    *,
    base_urls: bool,
) -> tuple[Provider, ...]:
    """The configured upstreams, or the vendors' own; raises `ConfigError` naming what is wrong.

    `base_urls` is whether the variables of the vendors' SDKs may move a vendor elsewhere.
    """
    providers = [
        make_provider(
            table.name,
            table.protocol,
            table.url,
            key=_table_key(table, environ),
            models=table.models,
            system="demote" if table.demote else table.system,
            cache=table.cache,
            pass_through=table.pass_through,
            thinking=table.thinking,
        )
        for table in tables
    ]
    for spec in specs:
        provider = read_provider(spec)
        key = read_key(environ, key_variable(provider.name))
        providers.append(structs.replace(provider, key=key))
    names = [provider.name for provider in providers]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two upstreams are named {name!r}")
    if providers:
        return tuple(providers)
    return tuple(_vendor_provider(vendor, environ, base_urls=base_urls) for vendor in VENDORS)


def find_upstream(
    model: str,
    environ: Mapping[str, str],
    catalog: Catalog,
    *,
    provider: Provider | str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
) -> Route:
    """The upstream for a model, as a Python program names it; raises `ConfigError`.

    `provider` is a `Provider`, or the name of a vendor (`openai-chat`). With `base_url` and no
    `provider`, the model's vendor decides the protocol; a model that the catalogue does not know is
    asked for by Chat Completions, which most servers speak, and gets no key from the environment.
    """
    if isinstance(provider, Provider):
        if base_url is not None or api_key is not None:
            raise ConfigError("a `Provider` has its own base_url and key: leave out the others")
        return Route(provider, model)
    try:
        check_name(model)
        if provider is None and base_url is None and api_key is None:
            providers = read_upstreams((), (), environ, base_urls=True)
            return find_route(model, "", providers, catalog, pays=False)
    except Refused as refused:
        raise ConfigError(_unfound(model, refused)) from None
    vendor = _named_vendor(provider) if provider is not None else _vendor_of(model, catalog)
    if vendor is None and base_url is None:
        raise ConfigError(f"the vendor of model {model!r} is not known: say provider= or base_url=")
    if vendor is None:
        found = make_provider("custom", "openai-chat", base_url or "", key=api_key)
        return Route(found, model)
    found = _vendor_provider(vendor, environ, base_urls=True, base_url=base_url, key=api_key)
    if found.keyed and found.key is None:
        raise ConfigError(f"{vendor.name} needs a key: set {vendor.key_variable}, or say api_key=")
    return Route(found, model)


def read_tables(path: str) -> tuple[UpstreamTable, ...]:
    """The upstreams of a config file, without the gateway's settings; raises `ConfigError`."""
    try:
        return convert(load_toml(path).get("upstream", []), tuple[UpstreamTable, ...])
    except ValidationError as error:
        raise ConfigError(f"the config {path!r}: upstream: {error}") from None


def load_toml(path: str) -> dict[str, Any]:
    """The members of a config file; raises `ConfigError` naming the file."""
    try:
        return tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise ConfigError(f"the config {path!r} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the config {path!r} is not TOML: {error}") from None


def key_variable(name: str) -> str:
    """The variable that holds the key of an upstream of this name."""
    return re.sub(r"[^A-Za-z0-9]", "_", name).upper() + "_API_KEY"


def read_key(environ: Mapping[str, str], variable: str) -> str | None:
    """The key in a variable, `None` if it is not set; raises `ConfigError` if it is not usable."""
    key = environ.get(variable, "").strip()
    if key and not _PRINTABLE.fullmatch(key):
        raise ConfigError(f"{variable} is not an API key: it has blanks or unprintable characters")
    return key or None


def _table_key(table: UpstreamTable, environ: Mapping[str, str]) -> str | None:
    """The key of a configured upstream. A variable that the file names must be set."""
    key = read_key(environ, table.key_env or key_variable(table.name))
    if table.key_env is not None and key is None:
        raise ConfigError(
            f"upstream {table.name!r}: key_env names the variable {table.key_env}, which is not set"
        )
    return key


def _vendor_provider(
    vendor: Vendor,
    environ: Mapping[str, str],
    *,
    base_urls: bool,
    base_url: str | None = None,
    key: str | None = None,
) -> Provider:
    moved = environ.get(vendor.url_variable, "").strip() if base_urls else ""
    place = "base_url" if base_url is not None else vendor.url_variable
    url = base_url or moved or HOMES[vendor.protocol]
    made = make_provider(
        vendor.name,
        vendor.protocol,
        url,
        key=key or read_key(environ, vendor.key_variable),
        place=place,
    )
    return structs.replace(made, keyed=made.at_vendor, vendor=vendor.vendor)


def _named_vendor(name: str) -> Vendor:
    for vendor in VENDORS:
        if name in (vendor.name, vendor.protocol):
            return vendor
    known = ", ".join(vendor.name for vendor in VENDORS)
    raise ConfigError(f"no provider {name!r}: known are {known}, or give a `Provider`")


def _vendor_of(model: str, catalog: Catalog) -> Vendor | None:
    maker = catalog.vendor_of(model)
    return next((vendor for vendor in VENDORS if vendor.vendor == maker), None)


def _unfound(model: str, refused: Refused) -> str:
    if refused.status != 404:
        return refused.message
    variables = ", ".join(dict.fromkeys(vendor.key_variable for vendor in VENDORS))
    return (
        f"no API key for the model {model!r}: set {variables} (its vendor's), "
        f"or say provider= and base_url=; {OFFLINE.models[0].rstrip('*')!r} needs none"
    )
