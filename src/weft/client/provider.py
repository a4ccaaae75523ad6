"""An upstream as a record: URL, protocol, key and policies.

Code never compares provider names: differences between upstreams are fields here. `key` is a
secret, so `repr` leaves it out.
"""

import re
from urllib.parse import urlsplit

from msgspec import Struct, structs

from weft import exact_json
from weft.catalog import Catalog, Model
from weft.checked import checked_function
from weft.codec import CODECS, CachePolicy, SystemPolicy, Target, ThinkingMember, verbatim
from weft.errors import ConfigError
from weft.model import JsonObject, Origin

_UPSTREAM_SPEC = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)=(?P<protocol>[a-z-]+):(?P<url>https?://\S+)"
)

VERSIONS = ("/v1", "/v1beta")
"""API versions that a path may begin with, and that a base URL may end with."""

OPENAI_HOSTS = frozenset({"api.openai.com"})
OPENAI_DOMAINS = (".api.openai.com", ".openai.azure.com", ".cognitiveservices.azure.com")
"""https://learn.microsoft.com/azure/ai-foundry/openai/reference"""


class Provider(Struct, frozen=True, kw_only=True):
    """A configured server that answers requests; the gateway calls it an *upstream*.

    - `models`: patterns of the model names that it serves; empty if unknown.
    - `vendor`: the vendor whose models it serves.
    - `keyed`: whether it needs a key.
    - `stream_members`: members that are added to streamed requests.
    - `thinking_members`: members that are added to requests for models with `thinking = "effort"`.
    - `system`: the policy for later system messages.
    - `cache`: `auto` adds cache breakpoints to a request without any, `keep` does not.
    - `pass_through`: whether the gateway may forward a client's own credentials to it.
    - `thinking`: the member in which Chat Completions clients get its thinking; `None` for the
      gateway's setting.
    """

    name: str
    protocol: str
    base_url: str = ""
    key: str | None = None
    keyed: bool = False
    vendor: str = ""
    models: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    stream_members: JsonObject = {}
    thinking_members: JsonObject = {}
    system: SystemPolicy = "auto"
    cache: CachePolicy = "auto"
    pass_through: bool = False
    thinking: ThinkingMember | None = None

    def __repr__(self) -> str:
        return f"Provider({self.name}={self.protocol}:{self.base_url})"

    def url(self, path: str) -> str:
        """The URL of a path like `/v1/messages`; a version in the base URL replaces the path's."""
        base = self.base_url.rstrip("/")
        version = "/" + path.split("/")[1]
        if version in VERSIONS and base.endswith(VERSIONS):
            path = path.removeprefix(version)
        return base + path

    @property
    def at_vendor(self) -> bool:
        """Whether it is the server of the protocol's own vendor: the exact host, over TLS."""
        vendor = CODECS[self.protocol].http.vendor if self.protocol in CODECS else None
        if vendor is None:
            return False
        url = urlsplit(self.base_url)
        return (url.scheme, url.hostname, url.port or 443) == (
            "https",
            urlsplit(vendor.url).hostname,
            443,
        )

    @property
    def at_openai(self) -> bool:
        """Whether OpenAI's own models are served here: by OpenAI or by Azure."""
        host = urlsplit(self.base_url).hostname or ""
        return host in OPENAI_HOSTS or host.endswith(OPENAI_DOMAINS)

    def with_host_defaults(self, model: Model) -> Model:
        """The model, with this host's values for the fields that the catalogue leaves open.

        Servers other than OpenAI's may support only the older form of its protocol.
        """
        is_openai = self.at_openai or model.vendor == "openai"
        changes: dict[str, bool | str] = {}
        if model.developer is None:
            changes["developer"] = is_openai
        if model.system_parts is None:
            changes["system_parts"] = is_openai or bool(model.vendor)
        if model.max_tokens_field is None:
            changes["max_tokens_field"] = "max_completion_tokens" if is_openai else "max_tokens"
        return structs.replace(model, **changes) if changes else model

    def origin(self, model: str) -> Origin:
        """The origin of answers that this provider gives with that model."""
        return Origin(self.protocol, self.name, model)

    def target(self, catalog: Catalog, model: str) -> Target:
        """The target of a request to this model, with this upstream's policies."""
        row = self.with_host_defaults(catalog.find(model, self.name))
        return Target(row, self.system, self.cache, verbatim, provider=self.name)

    def write_body(self, body: JsonObject, model: Model, *, streams: bool) -> bytes:
        """The bytes to send to this model; the caller's own members win over the added ones."""
        members = dict(self.stream_members) if streams else {}
        if model.thinking == "effort":
            members.update(self.thinking_members)
        return exact_json.dumps({**members, **body})

    def auth_headers(self) -> dict[str, str]:
        """The key in the header that this protocol uses; empty without a key."""
        if self.key is None:
            return {}
        auth = CODECS[self.protocol].http.auth
        return {auth.header: auth.prefix + self.key}


OFFLINE = Provider(name="weft", protocol="offline", models=("weft-offline*",), vendor="weft")
"""The provider of the offline model: deterministic, without network or key."""


def read_provider(spec: str) -> Provider:
    """The provider for a text of the form `NAME=PROTOCOL:URL`; raises `ConfigError`."""
    match = _UPSTREAM_SPEC.fullmatch(spec.strip())
    if match is None:
        raise ConfigError(f"upstream {spec!r} is not of the form NAME=PROTOCOL:URL")
    return make_provider(match["name"], match["protocol"], match["url"])


@checked_function
def make_provider(
    name: str,
    protocol: str,
    url: str,
    *,
    key: str | None = None,
    models: tuple[str, ...] = (),
    system: SystemPolicy = "auto",
    cache: CachePolicy = "auto",
    pass_through: bool = False,
    thinking: ThinkingMember | None = None,
    place: str = "url",
) -> Provider:
    """A provider with its protocol's defaults; raises `ConfigError` for a bad protocol or URL.

    `place` is the setting that the URL comes from, for the text of the error.
    """
    if protocol not in CODECS:
        protocols = ", ".join(CODECS)
        raise ConfigError(
            f"upstream {name!r}: unknown protocol {protocol!r}; use one of {protocols}"
        )
    if (fault := find_url_fault(url)) is not None:
        raise ConfigError(f"upstream {name!r}: {place} {fault}")
    http = CODECS[protocol].http
    return Provider(
        name=name,
        protocol=protocol,
        base_url=url,
        key=key,
        models=models,
        headers=http.headers,
        stream_members=http.stream_members,
        thinking_members=http.thinking_members,
        system=system,
        cache=cache,
        pass_through=pass_through,
        thinking=thinking,
    )


def find_url_fault(url: str) -> str | None:
    """Why a base URL cannot be used, without the URL itself, which may contain a password."""
    if not url.isascii() or any(character <= " " or character == "\x7f" for character in url):
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
    if parts.query or parts.fragment or url.endswith(("?", "#")):
        return "must not have a query or fragment"
    if any(part in (".", "..") for part in parts.path.split("/")):
        return "must not have `.` or `..` in its path"
    return None
