"""An upstream as a record: URL, protocol, key and policies.

Code never compares provider names: differences between upstreams are fields here. `key` is a
secret, so `repr` leaves it out.
"""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from msgspec import Struct, structs

from weft import exact_json
from weft.catalog import Catalog, Model
from weft.checked import checked_function
from weft.codec import CODECS, CachePolicy, SystemPolicy, Target, ThinkingMember, verbatim
from weft.errors import ConfigError
from weft.model import JsonObject, Origin

from .address import (
    WrongSetting,
    check_url,
    fill_model,
    find_model_paths,
    join_address,
    read_auth,
    read_headers,
    read_query,
    split_query,
)
from .key_command import read_command
from .proxies import check_proxy

_UPSTREAM_SPEC = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)=(?P<protocol>[a-z-]+):(?P<url>https?://\S+)"
)

BEARER = ("authorization", "Bearer ")
"""The header of tokens: https://www.rfc-editor.org/rfc/rfc6750#section-2.1"""

OPENAI_HOSTS = frozenset({"api.openai.com"})
OPENAI_DOMAINS = (".api.openai.com", ".openai.azure.com", ".cognitiveservices.azure.com")
"""https://learn.microsoft.com/azure/ai-foundry/openai/reference"""


class Provider(Struct, frozen=True, kw_only=True):
    """A configured server that answers requests; the gateway calls it an *upstream*.

    - `base_url`: its URL without a query; `path`, `query`: what requests add to it (`address`).
    - `key_command`: the command that prints its key; empty if the key is `key`, or there is none.
    - `auth`: the header of the key and the prefix of its value, if they are not the protocol's.
    - `headers`: headers that the protocol needs; those of a request win over them.
    - `proxy`: the URL of its proxy; `none` for none; `None` for the one of the environment.
    - `own_headers`: headers of every request to this upstream; they win over all others.
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
    - `default`: whether it gets the requests of its protocol that name no model.
    """

    name: str
    protocol: str
    base_url: str = ""
    key: str | None = None
    keyed: bool = False
    vendor: str = ""
    models: tuple[str, ...] = ()
    path: str = ""
    query: tuple[tuple[str, str], ...] = ()
    key_command: tuple[str, ...] = ()
    auth: tuple[str, str] | None = None
    headers: tuple[tuple[str, str], ...] = ()
    own_headers: tuple[tuple[str, str], ...] = ()
    proxy: str | None = None
    stream_members: JsonObject = {}
    thinking_members: JsonObject = {}
    system: SystemPolicy = "auto"
    cache: CachePolicy = "auto"
    pass_through: bool = False
    thinking: ThinkingMember | None = None
    default: bool = False

    def __repr__(self) -> str:
        return f"Provider({self.name}={self.protocol}:{self.base_url})"

    def url(self, path: str) -> str:
        """The address of a path like `/v1/messages`; `address` has the rules."""
        return join_address(self.protocol, self.base_url, self.path, self.query, path)

    @property
    def has_key(self) -> bool:
        """Whether a key is configured; the one of the client is not used then."""
        return bool(self.key or self.key_command)

    def write_for_server(self, path: str, body: bytes) -> tuple[str, bytes]:
        """The path and body for this server of a request to the protocol's vendor.

        They differ for a cloud that names the model in the path: it refuses it in the body.
        """
        paths = find_model_paths(self.protocol, self.base_url, self.path)
        http = CODECS[self.protocol].http
        bare, mark, query = path.partition("?")
        if paths is None or bare not in (*http.paths, http.count_path):
            return path, body
        members: JsonObject = {**paths.members, **exact_json.loads(body)}
        template = paths.count
        if bare != http.count_path:
            template = paths.stream if members.get("stream") else paths.answer
        model = str(members.get("model", ""))
        if "{model}" in template:
            del members["model"]
        filled = fill_model(template, model)
        return http.version + filled + mark + query, exact_json.dumps(members)

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
        """The key in the header of this upstream; empty without a key, or with a `key_command`."""
        if self.key is None or self.key_command:
            return {}
        vendor = CODECS[self.protocol].http.auth
        header, prefix = self.auth or (vendor.header, vendor.prefix)
        return {header: prefix + self.key}

    def token_headers(self, token: str) -> dict[str, str]:
        """A token that the `key_command` printed, in the header of this upstream."""
        header, prefix = self.auth or BEARER
        return {header: prefix + token}


OFFLINE = Provider(name="weft", protocol="offline", models=("weft-offline*",), vendor="weft")
"""The provider of the offline model: deterministic, without network or key."""


SPEC_FORM = "is not of the form NAME=PROTOCOL:URL"


def split_spec(spec: str) -> tuple[str, str, str]:
    """The name, protocol and URL of a text `NAME=PROTOCOL:URL`; raises `ConfigError`."""
    match = _UPSTREAM_SPEC.fullmatch(spec.strip())
    if match is None:
        raise ConfigError(f"upstream {hide_query(spec)!r} {SPEC_FORM}")
    return match["name"], match["protocol"], match["url"]


def hide_query(text: str) -> str:
    """A text for an error, without what follows a `?`, or a password before an `@`."""
    return re.sub(r"//[^/\s]*@", "//...@", text.partition("?")[0])


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
    path: str = "",
    query: Mapping[str, str] | str = "",
    headers: Mapping[str, str] | None = None,
    auth_header: str | None = None,
    key_command: tuple[str, ...] | str = (),
    proxy: str | None = None,
    default: bool = False,
    place: str = "url",
) -> Provider:
    """A provider with its protocol's defaults; raises `ConfigError` for a bad protocol or URL.

    The arguments are the settings of `[[upstream]]` in `weft.toml`. `place` is the setting that
    the URL comes from, for the text of the error.
    """
    if "/" in name:
        raise ConfigError(
            f"upstream {name!r}: a name has no `/`, because UPSTREAM/MODEL addresses its models"
        )
    if protocol not in CODECS:
        choices = f"unknown protocol {protocol!r}; use one of {', '.join(CODECS)}"
        wrong = WrongSetting("protocol", f"is not known: {choices}")
        raise ConfigError(f"upstream {name!r}: {choices}") from wrong
    base_url, url_query = split_query(url)
    try:
        check_url(protocol, url, path, place)
        own_query = dict(url_query) | dict(read_query(query))
        own_headers = read_headers(headers or {})
        auth = None if auth_header is None else read_auth(auth_header)
        command = read_command(key_command)
        checked_proxy = None if proxy is None else check_proxy(proxy)
    except WrongSetting as wrong:
        raise ConfigError(f"upstream {name!r}: {wrong}") from wrong
    http = CODECS[protocol].http
    return Provider(
        name=name,
        protocol=protocol,
        base_url=base_url,
        path=path.rstrip("/"),
        query=tuple(own_query.items()),
        key=key,
        key_command=command,
        auth=auth,
        models=models,
        headers=http.headers,
        own_headers=own_headers,
        proxy=checked_proxy,
        stream_members=http.stream_members,
        thinking_members=http.thinking_members,
        system=system,
        cache=cache,
        pass_through=pass_through,
        thinking=thinking,
        default=default,
    )
