"""How the URL of an upstream and a protocol become the address of a request.

An address is `url`, a version and an endpoint: `https://api.openai.com` + `/v1` +
`/chat/completions`. The version is added like in the vendors' own SDKs, so that an address that a
vendor documents works unchanged. The first rule that applies decides:

1. `url` (or `path`) ends in the protocol's endpoint (`/chat/completions`, `/responses`,
   `/messages`): it is used as it is, and other endpoints are put beside it.
2. Its last segment is a version (`/v1`, `/v1beta`, `/api/paas/v4`, `/api/v3`): no other is added.
3. OpenAI's protocols: to a `url` with a path, no version is added (`/inference`,
   `/v1beta/openai`, `/openai/deployments/NAME`).
4. A `url` in which a cloud names the publisher of a model (`/publishers/google`,
   `/publishers/anthropic`): no version is added.
5. Otherwise the version of the protocol is added: `/v1`, for Gemini `/v1beta`. Hosts of vendors
   that have no version get none.

Which protocol follows which rule is in its `codec.Http`.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from msgspec import Struct

from weft.codec import CODECS, Http, ModelPaths

from .secrets import is_secret

_VERSION = re.compile(r"v[0-9]+[a-z0-9]*")
_CANONICAL = re.compile(r"(?P<before>/upload)?/(?P<version>v[0-9]+[a-z0-9]*)(?P<rest>/.*)")
_METHOD = re.compile(r"/models/[^/]+$|:[A-Za-z]+$")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[\x20-\x7e]*")

CONNECTION_HEADERS = frozenset(
    {
        *("connection", "content-encoding", "content-length", "content-type", "expect", "host"),
        *("keep-alive", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade"),
    }
)
"""Headers that the HTTP client sets itself."""

SECRET_PARAMETERS = frozenset({"code", "sig", "signature"})
"""Query parameters that carry a secret, although their names do not say so: Azure's."""


class WrongSetting(ValueError):
    """Why a setting of an upstream cannot be used; without its value, which may be a secret."""

    def __init__(self, setting: str, reason: str) -> None:
        super().__init__(f"{setting} {reason}")
        self.setting = setting


class Layout(Struct, frozen=True):
    """The parts of an upstream's addresses: `root`, then `version`, then an endpoint.

    Without a version, the one of the request is used. `endpoint` replaces the protocol's own path,
    `model_paths` the paths of a cloud's server.
    """

    root: str
    version: str | None
    endpoint: str | None = None
    model_paths: ModelPaths | None = None


@lru_cache(maxsize=1024)
def read_layout(protocol: str, url: str, path: str = "") -> Layout:
    """The layout of an upstream's addresses; `url` has no query."""
    http = CODECS[protocol].http if protocol in CODECS else None
    parts = urlsplit(url)
    host = f"{parts.scheme}://{parts.netloc}"
    whole = parts.path.rstrip("/") + path
    if http is None:
        return Layout(host + whole, None)
    for endpoint in _endpoints(http):
        if whole.endswith(endpoint):
            root, version = _split_version(whole.removesuffix(endpoint))
            return Layout(host + root, version)
    base = parts.path.rstrip("/")
    root, version = _split_version(base)
    if not version and not _is_unversioned(http, base, parts.hostname or ""):
        version = None
    model_paths = None
    if http.model_paths is not None and base.endswith(http.model_paths.url_end):
        version, model_paths = "", http.model_paths
    return Layout(host + root, version, host + whole if path else None, model_paths)


def _endpoints(http: Http) -> list[str]:
    """The protocol's endpoints without the version, the one for conversations first."""
    return [path.removeprefix(http.version) for path in http.paths]


def _is_unversioned(http: Http, path: str, host: str) -> bool:
    if path:
        return not http.versions_paths or path.endswith(http.unversioned_ends)
    return any(
        host == name.removeprefix(".") or (name.startswith(".") and host.endswith(name))
        for name in http.hosts_without_version
    )


def _split_version(path: str) -> tuple[str, str]:
    root, _, last = path.rpartition("/")
    return (root, f"/{last}") if _VERSION.fullmatch(last) else (path, "")


def join_address(
    protocol: str, url: str, path: str, query: Iterable[tuple[str, str]], wanted: str
) -> str:
    """The address of a path as the protocol's vendor has it, such as `/v1/messages?beta=true`.

    The upstream's own query parameters win over those of the request.
    """
    layout = read_layout(protocol, url, path)
    wanted_path, _, wanted_query = wanted.partition("?")
    address = _join_path(protocol, layout, wanted_path)
    own = dict(query)
    if own:
        pairs = parse_qsl(wanted_query, keep_blank_values=True)
        wanted_query = urlencode([*((n, v) for n, v in pairs if n not in own), *own.items()])
    return f"{address}?{wanted_query}" if wanted_query else address


def _join_path(protocol: str, layout: Layout, path: str) -> str:
    match = _CANONICAL.fullmatch(path)
    if match is None:
        return layout.root + path
    before, rest = match["before"] or "", match["rest"]
    http = CODECS[protocol].http if protocol in CODECS else None
    if http is not None and layout.endpoint is not None and rest == _endpoints(http)[0]:
        return layout.endpoint
    version = f"/{match['version']}" if layout.version is None else layout.version
    return layout.root + before + version + rest


def find_model_paths(protocol: str, url: str, path: str) -> ModelPaths | None:
    """The addresses of a cloud that names the model in the path, if `url` is such a server's."""
    return read_layout(protocol, url, path).model_paths


def fill_model(template: str, model: str) -> str:
    """A path with the name of a model as one segment."""
    return template.replace("{model}", quote(model, safe="@"))


def split_query(url: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """A URL without its query, and the parameters of the query."""
    address, _, query = url.partition("?")
    return address, tuple(parse_qsl(query, keep_blank_values=True))


def check_url(protocol: str, url: str, path: str = "", setting: str = "url") -> None:
    """Raises `WrongSetting` if no request can be made with this URL."""
    if (reason := _find_fault(url)) is not None:
        raise WrongSetting(setting, reason)
    if protocol not in CODECS:
        return
    http = CODECS[protocol].http
    if path:
        if not path.startswith("/") or not _is_plain_path(path):
            reason = "must be a path such as /chat/completions, without a query"
            raise WrongSetting("path", reason)
        if not http.paths:
            raise WrongSetting(
                "path", f"is not possible with {protocol}, whose paths name the model"
            )
    setting, ending = ("path", path) if path else (setting, urlsplit(url).path.rstrip("/"))
    if path and any(urlsplit(url).path.rstrip("/").endswith(end) for end in _endpoints(http)):
        raise WrongSetting("path", "is not possible with a url that ends in an endpoint already")
    for name, codec in CODECS.items():
        for endpoint in _endpoints(codec.http):
            own = name == protocol and endpoint == _endpoints(codec.http)[0]
            if ending.endswith(endpoint) and not own:
                raise WrongSetting(setting, f"ends in {endpoint}, which is an endpoint of {name}")
    if _METHOD.search(ending):
        raise WrongSetting(setting, "names a model: leave out /models and what follows it")


def _find_fault(url: str) -> str | None:
    """Why a URL cannot be used, without the URL itself, which may contain a password."""
    if not url.isascii():
        return (
            "has characters that a URL cannot have: write the host in its ASCII form (xn--...), "
            "and encode other characters (%C3%BC)"
        )
    if any(character <= " " or character == "\x7f" for character in url):
        return "has spaces or characters that a URL cannot have"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"is not a URL: {error}"
    if parts.scheme not in ("http", "https"):
        return "must begin with http:// or https://"
    if not parts.hostname or port == 0 or "\\" in url:
        return "names no valid host and port"
    if parts.username is not None or parts.password is not None:
        return "must not contain a user or password; put the key into the variable of key_env"
    if parts.fragment or url.endswith("#"):
        return "must not have a fragment"
    if any(part in (".", "..") for part in parts.path.split("/")):
        return "must not have `.` or `..` in its path"
    if not _is_plain_path(parts.path):
        return "has a path that cannot be right: `//`, `{`, `}`, or an encoded `/` or `.`"
    return None


def _is_plain_path(path: str) -> bool:
    lowered = path.lower()
    return (
        re.fullmatch(r"[!$%&'()*+,./0-9:;=@A-Z_a-z~-]*", path) is not None
        and "//" not in path
        and not any(code in lowered for code in ("%2f", "%5c", "%2e", "%00", "%0d", "%0a"))
        and not any(part in (".", "..") for part in path.split("/"))
    )


def read_query(query: Mapping[str, str] | str) -> tuple[tuple[str, str], ...]:
    """The parameters of the setting `query`: a table, or a text such as `api-version=1`."""
    if isinstance(query, str):
        return tuple(parse_qsl(query.removeprefix("?"), keep_blank_values=True))
    return tuple(query.items())


def read_headers(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The headers of the setting `headers`, with lower-case names; raises `WrongSetting`."""
    for name, value in headers.items():
        _check_name("headers", name)
        if not _VALUE.fullmatch(value):
            raise WrongSetting("headers", f"has a value for {name} that a header cannot have")
    return tuple((name.lower(), value.strip()) for name, value in headers.items())


def read_auth(text: str) -> tuple[str, str]:
    """The header of `auth_header` and the prefix of its value: `api-key`, `Authorization: Bearer`.

    `Authorization` without a scheme gets `Bearer`, because the header requires one.
    """
    name, colon, prefix = (part.strip() for part in text.partition(":"))
    _check_name("auth_header", name)
    if not _VALUE.fullmatch(prefix):
        raise WrongSetting(
            "auth_header", "must be a header such as api-key or Authorization: Bearer"
        )
    if name.lower() == "authorization" and not colon:
        prefix = "Bearer"
    return name.lower(), f"{prefix} " if prefix else ""


def _check_name(setting: str, name: str) -> None:
    if not _TOKEN.fullmatch(name):
        raise WrongSetting(setting, f"has a name that a header cannot have: {name!r}")
    if name.lower() in CONNECTION_HEADERS:
        raise WrongSetting(setting, f"cannot set {name}, which the HTTP client sets itself")


def secret_parameters(query: Iterable[tuple[str, str]]) -> list[str]:
    """The values of query parameters that are secrets."""
    return [value for name, value in query if is_secret(name) or name.lower() in SECRET_PARAMETERS]
