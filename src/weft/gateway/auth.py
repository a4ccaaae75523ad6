"""Who may call, and whose credentials are sent to an upstream.

Without configured keys the server listens on loopback, and every program of this machine may call.
Web pages may not: a foreign `Origin`, or a `Host` that is not this machine (DNS rebinding), is
refused. With configured keys every caller must send one.

A caller's own vendor credentials are forwarded only if all of these hold: the server listens on
loopback without keys, the upstream speaks the caller's protocol, no key is configured for it, and
it is the vendor's own host or has `pass_through = true`. They are never stored and never logged.
"""

import re
from base64 import b64decode
from collections.abc import Collection, Iterable, Mapping
from hmac import compare_digest
from urllib.parse import parse_qsl, urlencode, urlsplit

from msgspec import Struct

from weft.client import Provider, is_secret
from weft.codec import CODECS
from weft.errors import Refused
from weft.thread import LOCAL_SCOPE

from .asgi import Inbound
from .settings import (
    SCOPE_LENGTH,
    SCOPE_PREFIX,
    ClientKey,
    Settings,
    hash_key,
    is_loopback,
)

KEY_HEADERS = ("x-api-key", "x-goog-api-key")
_LOAD_HEADERS = ("upgrade-insecure-requests", "sec-purpose")
"""Headers that only browsers send, when they open or prefetch a document."""
_METHOD_PARAMETER = re.compile(r"(_|\$|x[-_]|http).*method.*|method[-_]override|\$http.*|\$req")
"""Query parameters that some servers, such as Google's, take for another method or for headers."""
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")


class Caller(Struct, frozen=True, gc=False):
    """An admitted caller. `scope` separates the threads of different keys.

    `name` is what the log and the metrics call it, if it has a key. `records` says whether its
    exchanges may be recorded.
    """

    scope: str = LOCAL_SCOPE
    name: str | None = None
    records: bool = True


def admit(headers: Mapping[str, str], settings: Settings) -> Caller:
    """Identify the caller; raises `Refused` with 401 or 403."""
    refuse_foreign_pages(headers, settings)
    if not settings.keys:
        return Caller()
    if read_key(headers) is None:
        raise Refused("no API key was sent", status=401, type="authentication_error")
    client = find_client(headers, settings)
    if client is None:
        raise Refused("the API key is not valid here", status=401, type="authentication_error")
    return Caller(client.scope, client.name, client.record)


def admit_program(inbound: Inbound, settings: Settings) -> Caller:
    """Identify the caller of a path for programs; raises `Refused` with 401 or 403.

    Unlike a page, such a path may cost money, so a website must not make a browser open it.
    """
    refuse_own_requests_of_browsers(inbound.method, inbound.headers)
    return admit(inbound.headers, settings)


def refuse_own_requests_of_browsers(method: str, headers: Mapping[str, str]) -> None:
    """Raises `Refused` for what a browser requests without a script of the gateway's own page:
    documents, images, frames, and requests of other sites that have no `Origin`.

    https://www.w3.org/TR/fetch-metadata/

    Browsers send `Sec-Fetch-*` over HTTPS and to loopback. Elsewhere a login that the browser
    remembers is refused for methods that a link or an image can use.
    """
    site, mode, destination = (
        headers.get(f"sec-fetch-{part}", "").strip().lower() for part in ("site", "mode", "dest")
    )
    is_foreign = site not in ("", "none", "same-origin") and "origin" not in headers
    is_load = (
        mode in ("navigate", "websocket")
        or destination not in ("", "empty")
        or any(name in headers for name in _LOAD_HEADERS)
    )
    remembers_login = (
        method in ("GET", "HEAD") and _sends_basic(headers) and not site and "origin" not in headers
    )
    if is_foreign or is_load or remembers_login:
        raise Refused(
            "this path is for programs, and a browser requested it by itself; a program sends its "
            "key as `Authorization: Bearer KEY` and no Sec-Fetch headers",
            status=403,
            type="permission_error",
        )


def _sends_basic(headers: Mapping[str, str]) -> bool:
    scheme = headers.get("authorization", "").partition(" ")[0].lower()
    return scheme == "basic" and not any(headers.get(name) for name in KEY_HEADERS)


def find_client(headers: Mapping[str, str], settings: Settings) -> ClientKey | None:
    """The client whose key was sent; None without a valid key."""
    if not settings.keys or (key := read_key(headers)) is None:
        return None
    digest = hash_key(key)
    # All keys are compared, each in constant time, so that timing reveals nothing about them.
    matches = [each for each in settings.keys if compare_digest(each, digest)]
    return settings.client_key(digest) if matches else None


def may_see(caller: Caller, scope: str | None, settings: Settings) -> bool:
    """Whether the caller may see a thread of this scope; without keys it may see all."""
    return not settings.keys or owns(caller, scope)


def owns(caller: Caller, scope: str | None) -> bool:
    """Whether a thread of this scope was created with the caller's key."""
    return scope is not None and scope.partition("/")[0] == caller.scope


def name_in_scope(caller: Caller, name: str) -> str:
    """The thread name in the caller's own namespace, with a suffix for its scope.

    Names are unique in a store. Without a namespace, a caller could find out the names of other
    callers' threads by trying which ones are taken.
    """
    if caller.scope == LOCAL_SCOPE:
        return name
    suffix = f"-k{_scope_digits(caller.scope)}"
    # Further threads of a session have a number after the suffix: `session-k1a2b3c.2`.
    return name if re.search(rf"{suffix}(\.[0-9]+)?$", name) else name + suffix


def _scope_digits(scope: str) -> str:
    """Six hexadecimal digits for a scope: of the key's hash, or of the hash of the key's name."""
    is_hash = len(scope) == SCOPE_LENGTH and not set(scope) - set("0123456789abcdef")
    return (scope if is_hash else hash_key(scope))[:SCOPE_PREFIX]


def refuse_foreign_pages(headers: Mapping[str, str], settings: Settings) -> None:
    """Raises `Refused` for a request that a foreign web page made a browser send.

    A page may call the host that it came from, and a page of a trusted host any: a reverse proxy
    may have replaced `Host`. `X-Forwarded-Host` is not read, because anybody can send it.
    """
    host = headers.get("host", "")
    origin = headers.get("origin")
    if host and not is_host(host):
        raise Refused("the Host header is malformed")
    if origin is not None and not _is_own_page(origin, host, settings):
        raise Refused(
            f"web pages of {origin!r} may not call this server; behind a reverse proxy, add the "
            "page's host to `trusted_hosts`",
            status=403,
            type="permission_error",
        )
    is_known = is_loopback(_hostname(host)) or host.lower() in settings.trusted_hosts
    if settings.loopback and not settings.keys and host and not is_known:
        raise Refused(f"{host!r} is not this machine", status=403, type="permission_error")


def _is_own_page(origin: str, host: str, settings: Settings) -> bool:
    scheme, _, origin_host = origin.partition("://")
    if origin_host == host:
        return True
    return scheme in ("http", "https") and origin_host.lower() in settings.trusted_hosts


def is_host(text: str) -> bool:
    """Whether the text is a valid `Host` header: a host with an optional port."""
    if _HOST.fullmatch(text) is None:
        return False
    try:
        return urlsplit(f"//{text}").port != 0
    except ValueError:
        return False


def read_key(headers: Mapping[str, str]) -> str | None:
    """The caller's key, from whichever header its SDK uses."""
    for name in KEY_HEADERS:
        if key := headers.get(name):
            return key
    scheme, _, token = headers.get("authorization", "").partition(" ")
    match scheme.lower():
        case "bearer":
            return token.strip() or None
        case "basic":
            return _basic_password(token.strip()) or None
        case _:
            return None


def _basic_password(token: str) -> str:
    """The password of the basic scheme, with which browsers send a key."""
    try:
        return b64decode(token, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def upstream_credentials(
    headers: Mapping[str, str], settings: Settings, provider: Provider, protocol: str
) -> dict[str, str]:
    """The headers that authenticate at the upstream.

    They have the configured key, or the caller's own if that is allowed.
    """
    if provider.has_key:
        return provider.auth_headers()
    if provider.protocol != protocol or not (provider.at_vendor or provider.pass_through):
        return {}
    return client_credentials(headers, settings, protocol)


def client_credentials(
    headers: Mapping[str, str], settings: Settings, protocol: str
) -> dict[str, str]:
    """The caller's own vendor credentials; empty if they may not be used.

    On a server with keys, the caller's credential is one of those keys, not a vendor's.
    """
    if settings.keys or not settings.loopback:
        return {}
    return {
        name: headers[name]
        for name in CODECS[protocol].http.auth.accepted
        if headers.get(name) and (name != "authorization" or _is_bearer(headers[name]))
    }


def has_credentials(headers: Mapping[str, str], settings: Settings, protocol: str) -> bool:
    """Whether the caller has credentials of its own for its protocol's vendor."""
    return bool(client_credentials(headers, settings, protocol))


def with_safe_query(
    path: str,
    query: str,
    *,
    without: Collection[str] = (),
    added: Iterable[tuple[str, str]] = (),
) -> str:
    """A path for an upstream with the caller's query, without secrets and other methods.

    Parameters named in `without` are left out, and `added` are appended.
    """
    pairs = parse_qsl(query, keep_blank_values=True)
    allowed = [
        (name, value)
        for name, value in pairs
        if name not in without
        and not is_secret(name)
        and not _METHOD_PARAMETER.fullmatch(name.strip().lower())
    ]
    encoded = urlencode([*allowed, *added])
    return f"{path}?{encoded}" if encoded else path


def _is_bearer(value: str) -> bool:
    return value.partition(" ")[0].lower() == "bearer"


def _hostname(host: str) -> str:
    return urlsplit(f"//{host}").hostname or ""
