"""Which proxy a call to an upstream goes through.

A proxy is configured for one upstream (`proxy = "http://host:3128"`, or `"none"`), or for all of
them in the environment: `HTTPS_PROXY` for upstreams with `https`, `HTTP_PROXY` for `http`,
`ALL_PROXY` for both, `NO_PROXY` for hosts that need none. As in curl, the variables in lower case
win. Upstreams on this machine (loopback) never use a proxy of the environment.

Nothing else of the environment changes a call: `.netrc` is not read. The user and password of a
proxy are in its URL; no error and no log shows them.
"""

from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from msgspec import Struct

from .address import WrongSetting

DIRECT = "none"


class Proxies(Struct, frozen=True):
    """The proxies of the environment, by the scheme of the upstream, and the hosts without one."""

    by_scheme: Mapping[str, str] = {}
    excluded: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "Proxies()"


class WrongProxy(Exception):
    """The proxy of the environment cannot be used; without its URL, which may have a password."""


def read_proxies(environ: Mapping[str, str]) -> Proxies:
    """The proxies in an environment."""

    def read(name: str) -> str:
        value = environ.get(name.lower(), "").strip()
        # A CGI server puts the header `Proxy` of a request into HTTP_PROXY: https://httpoxy.org
        if not value and not (name == "HTTP_PROXY" and "REQUEST_METHOD" in environ):
            value = environ.get(name, "").strip()
        return value

    fallback = read("ALL_PROXY")
    by_scheme = {
        scheme: proxy
        for scheme in ("http", "https")
        if (proxy := read(f"{scheme.upper()}_PROXY") or fallback)
    }
    excluded = tuple(filter(None, (part.strip() for part in read("NO_PROXY").split(","))))
    return Proxies(by_scheme, excluded)


def check_proxy(proxy: str) -> str:
    """The setting `proxy`; raises `WrongSetting`."""
    if proxy == DIRECT or (reason := _find_fault(proxy)) is None:
        return proxy
    raise WrongSetting("proxy", reason)


def find_proxy(url: str, setting: str | None, proxies: Proxies) -> str | None:
    """The proxy for a call to this URL; None for none. Raises `WrongProxy`."""
    if setting is not None:
        return None if setting == DIRECT else setting
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    proxy = proxies.by_scheme.get(parts.scheme)
    if proxy is None or _is_loopback(host):
        return None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if any(_excludes(entry, host, port) for entry in proxies.excluded):
        return None
    if "://" not in proxy:  # as in curl
        proxy = f"http://{proxy}"
    if (reason := _find_fault(proxy)) is not None:
        raise WrongProxy(f"the proxy for {parts.scheme} in the environment {reason}")
    return proxy


def _find_fault(proxy: str) -> str | None:
    """Why a proxy cannot be used."""
    try:
        parts = urlsplit(proxy)
        port = parts.port
    except ValueError:
        return "is not a URL"
    if parts.scheme not in ("http", "https"):
        return "must begin with http:// or https://: SOCKS is not supported"
    if not parts.hostname or port == 0 or not proxy.isascii() or not proxy.isprintable():
        return "names no valid host and port"
    if parts.path.strip("/") or parts.query or parts.fragment or " " in proxy:
        return "must be a host and a port, without a path"
    return None


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _excludes(entry: str, host: str, port: int) -> bool:
    """Whether an entry of `NO_PROXY` is about this host: `*`, a name, an address or a range.

    A name also excludes its subdomains, with and without a dot before it. A port may follow.
    """
    if entry == "*":
        return True
    name, wanted_port = _split_port(entry.lower())
    if wanted_port is not None and wanted_port != port:
        return False
    try:
        address = ip_address(host)
    except ValueError:
        name = name.removeprefix("*").strip(".")
        return bool(name) and (host == name or host.endswith(f".{name}"))
    try:
        return address in ip_network(name, strict=False)
    except ValueError:
        return False


def _split_port(entry: str) -> tuple[str, int | None]:
    """An entry without its port, and the port. IPv6 addresses may be in brackets."""
    if entry.startswith("["):
        name, _, rest = entry[1:].partition("]")
        port = rest.removeprefix(":")
    elif entry.count(":") == 1:
        name, _, port = entry.partition(":")
    else:
        name, port = entry, ""
    return name, int(port) if port.isdecimal() else None
