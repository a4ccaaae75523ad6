"""Model lookup: which upstream serves a model name.

`find_route` uses the first of these rules that finds an upstream:

1. the offline model, by its name;
2. an upstream named before a slash (`openai/gpt-5`);
3. the only configured upstream, with the name unchanged;
4. an upstream whose `models` patterns match;
5. an upstream of the vendor that the catalogue lists the model under;
6. an upstream that speaks the caller's protocol, unless the model belongs to another vendor.

Aliases come before all rules: a name that matches the pattern of one is replaced by its model.

If a rule finds several, the one that speaks the caller's protocol wins: it needs no translation.

Upstreams come from the command line and a config file. If none is configured, they are Anthropic,
OpenAI and Google, with the keys of the environment, which is an argument here. Programs that ask a
model themselves (`weft.Agent`, `t.compact(model=...)`, `weft chat`) also read the base-URL
variables of the vendors' SDKs. The gateway does not: those variables often point at the gateway,
and it would call itself.
"""

import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct, ValidationError, convert, field, structs

from weft.catalog import Catalog
from weft.codec import CODECS, CachePolicy, SystemPolicy, ThinkingMember, Vendor
from weft.errors import ConfigError, Refused
from weft.model import Origin

from .address import WrongSetting
from .provider import OFFLINE, SPEC_FORM, Provider, hide_query, make_provider, split_spec

WEEK = 7 * 24 * 3600
"""The longest time limit, in seconds."""

NAME_LIMIT = 500
"""The longest model name, in characters. Real names have at most about a hundred."""


class Route(Struct, frozen=True, gc=False):
    """The upstream that answers, and the name of the model there."""

    provider: Provider
    model: str

    @property
    def origin(self) -> Origin:
        """The origin of its answers."""
        return self.provider.origin(self.model)


class Alias(Struct, frozen=True):
    """Another name for a model: requests for names that match `pattern` go to `model`."""

    pattern: str
    model: str

    @property
    def is_exact(self) -> bool:
        """Whether the pattern matches only one name: it has no wildcards."""
        return not set(self.pattern) & set("*?[")


def find_route(
    model: str,
    protocol: str,
    providers: Sequence[Provider],
    catalog: Catalog,
    *,
    has_credentials: bool = True,
    aliases: Sequence[Alias] = (),
) -> Route:
    """The upstream for a model name that was asked for in this protocol.

    `has_credentials` is whether the caller sent its own credentials for the vendor of its protocol.
    Raises `Refused`: with 400 for an invalid name, with 404 if no upstream serves the model.
    """
    check_name(model)
    model = resolve_alias(model, aliases)
    if _matches(OFFLINE, model):
        return Route(OFFLINE, model)
    by_name: Mapping[str, Provider] = {provider.name: provider for provider in providers}
    prefix, _, upstream_model = model.partition("/")
    if (
        upstream_model
        and prefix in by_name
        and _has_key(by_name[prefix], protocol, has_credentials)
    ):
        return Route(by_name[prefix], upstream_model)
    if len(providers) == 1:
        return Route(providers[0], model)
    vendor = catalog.vendor_of(model)
    by_pattern = [provider for provider in providers if _matches(provider, model)]
    by_vendor = [provider for provider in providers if vendor and provider.vendor == vendor]
    by_protocol = [
        provider
        for provider in providers
        if provider.protocol == protocol and (not vendor or provider.vendor in ("", vendor))
    ]
    for candidates in (by_pattern, by_vendor, by_protocol):
        with_key = [
            provider for provider in candidates if _has_key(provider, protocol, has_credentials)
        ]
        if with_key:
            return Route(_prefer_protocol(with_key, protocol), model)
    raise Refused(
        f"no upstream serves the model {model!r}: set its vendor's API key, "
        "or start with --upstream NAME=PROTOCOL:URL",
        param="model",
        status=404,
        type="not_found_error",
    )


def resolve_alias(model: str, aliases: Sequence[Alias]) -> str:
    """The model that an alias stands for, or the name itself if no alias matches.

    An exact name wins, then the longest pattern. The result is not looked up again, so
    `claude-* = claude-opus-4-6` is no loop.
    """
    matching = [alias for alias in aliases if _matches_alias(alias, model)]
    best = max(matching, key=lambda alias: (alias.is_exact, len(alias.pattern)), default=None)
    return model if best is None else best.model


def _matches_alias(alias: Alias, model: str) -> bool:
    return alias.pattern == model or fnmatchcase(model, alias.pattern)


def read_aliases(specs: Sequence[str], table: Mapping[str, str]) -> tuple[Alias, ...]:
    """The aliases of the command line (`PATTERN=MODEL`) and of a table; raises `ConfigError`.

    An alias of the command line replaces one of the table with the same pattern.
    """
    models_by_pattern = dict(table)
    for spec in specs:
        pattern, equals, model = spec.partition("=")
        if not equals:
            raise ConfigError(f"alias {spec!r} is not of the form PATTERN=MODEL")
        models_by_pattern[pattern.strip()] = model.strip()
    for pattern, model in models_by_pattern.items():
        if not pattern or not model:
            raise ConfigError(f"alias {pattern!r} = {model!r}: neither may be empty")
        for name in (pattern, model):
            try:
                check_name(name)
            except Refused as refused:
                raise ConfigError(f"alias {pattern!r}: {refused.message}") from None
    return tuple(Alias(pattern, model) for pattern, model in models_by_pattern.items())


def check_name(model: str) -> None:
    """Raises `Refused` for a model name with control characters, or one that is too long.

    Model names end up in URLs, logs and terminals.
    """
    if len(model) > NAME_LIMIT:
        raise Refused(f"the model name has more than {NAME_LIMIT} characters", param="model")
    if any(character < " " or "\x7f" <= character <= "\x9f" for character in model):
        raise Refused(f"the model name {model!r} has control characters", param="model")


def _has_key(provider: Provider, protocol: str, has_credentials: bool) -> bool:
    """Whether requests can be authenticated: with the configured key, the caller's own, or none."""
    return (
        provider.has_key
        or not provider.keyed
        or (has_credentials and provider.protocol == protocol)
    )


def _matches(provider: Provider, model: str) -> bool:
    return any(fnmatchcase(model, pattern) for pattern in provider.models)


def _prefer_protocol(providers: Sequence[Provider], protocol: str) -> Provider:
    """The first that speaks the caller's protocol, or else the first of all."""
    return next((p for p in providers if p.protocol == protocol), providers[0])


def list_vendors() -> list[tuple[str, Vendor]]:
    """All protocols with a vendor, in the order in which the vendors' own servers are tried.

    If a vendor has two protocols, the one whose upstream has the vendor's own name comes first.
    """
    vendors = [
        (protocol, vendor)
        for protocol, codec in CODECS.items()
        if (vendor := codec.http.vendor) is not None
    ]
    return sorted(vendors, key=lambda entry: entry[1].upstream_name != entry[1].catalog_name)


class UpstreamTable(Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[upstream]]` of a config file.

    `demote-interleaved-system-to-user = true` is the same as `system = "demote"`. The settings of
    the address and of the key are explained at `weft.client.address` and `weft.client.key_command`.
    """

    name: str
    protocol: str
    url: str
    path: str = ""
    query: dict[str, str] | str = ""
    headers: dict[str, str] = {}
    auth_header: str | None = None
    key_env: str | None = None
    key_command: tuple[str, ...] | str = ()
    proxy: str | None = None
    models: tuple[str, ...] = ()
    system: SystemPolicy = "auto"
    cache: CachePolicy = "auto"
    pass_through: bool = False
    default: bool = False
    thinking: ThinkingMember | None = None
    demote: bool = field(default=False, name="demote-interleaved-system-to-user")

    def provider(self, key: str | None) -> Provider:
        """The upstream that the table describes; raises `ConfigError`."""
        if self.key_env is not None and self.key_command:
            wrong = WrongSetting("key_command", "cannot be combined with key_env: use one of them")
            raise ConfigError(f"upstream {self.name!r}: {wrong}") from wrong
        return make_provider(
            self.name,
            self.protocol,
            self.url,
            key=key,
            models=self.models,
            system="demote" if self.demote else self.system,
            cache=self.cache,
            pass_through=self.pass_through,
            thinking=self.thinking,
            path=self.path,
            query=self.query,
            headers=self.headers,
            auth_header=self.auth_header,
            key_command=self.key_command,
            proxy=self.proxy,
            default=self.default,
        )


def read_spec(spec: str) -> UpstreamTable:
    """An upstream of the command line: `NAME=PROTOCOL:URL`, then settings such as `path=/chat`.

    `headers.NAME=VALUE` and `query.NAME=VALUE` set one header or parameter. Raises `ConfigError`.
    """
    try:
        first, *words = shlex.split(spec.strip())
    except ValueError:  # an open quotation mark, or nothing at all
        raise ConfigError(f"upstream {hide_query(spec)!r} {SPEC_FORM}") from None
    name, protocol, url = split_spec(first)
    table: dict[str, Any] = {"name": name, "protocol": protocol, "url": url}
    for word in words:
        key, equals, value = word.partition("=")
        group, dot, member = key.partition(".")
        if not equals or group not in SPEC_KEYS or bool(dot) != (group in SPEC_TABLES):
            keys = ", ".join(key + ".NAME" * (key in SPEC_TABLES) for key in SPEC_KEYS)
            raise ConfigError(f"upstream {name!r}: {key!r} is not KEY=VALUE with a KEY of: {keys}")
        if dot:
            table.setdefault(group, {})[member] = value
        else:
            table[group] = value
    try:
        return convert(table, UpstreamTable, strict=False)
    except ValidationError as error:
        problem, _, location = str(error).removesuffix("`").partition(" - at `$")
        text = problem if not location else _describe_problem(problem, location.strip("."), "")
        raise ConfigError(f"upstream {name!r}: {text}") from None


SPEC_TABLES = ("headers", "query")
SPEC_KEYS = (
    *("path", "query", "headers", "auth_header", "key_command", "key_env", "proxy"),
    *("system", "cache", "pass_through", "default", "thinking"),
)
"""Settings of `[[upstream]]` that may follow the URL on the command line."""


def read_upstreams(
    specs: Sequence[str],
    tables: Sequence[UpstreamTable],
    environ: Mapping[str, str],
    *,
    base_urls: bool,
) -> tuple[Provider, ...]:
    """The configured upstreams, or else the vendors' own servers; raises `ConfigError`.

    `base_urls` says whether the base-URL variables of the vendors' SDKs are used.
    """
    every_table = (*tables, *map(read_spec, specs))
    providers = [table.provider(_table_key(table, environ)) for table in every_table]
    names = [provider.name for provider in providers]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two upstreams are named {name!r}")
    if providers:
        return tuple(providers)
    return tuple(
        _vendor_provider(protocol, vendor, environ, base_urls=base_urls)
        for protocol, vendor in list_vendors()
    )


def find_upstream(
    model: str,
    environ: Mapping[str, str],
    catalog: Catalog,
    *,
    provider: Provider | str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
) -> Route:
    """The upstream for a model, from the arguments of a Python program; raises `ConfigError`.

    `provider` is a `Provider`, or the name of a protocol (`openai-chat`). With `base_url` and no
    `provider`, the model's vendor decides the protocol; a model that the catalogue does not know is
    asked for by Chat Completions, which most servers speak, and gets no key from the environment.
    """
    if isinstance(provider, Provider):
        if base_url is not None or api_key is not None:
            raise ConfigError(
                "a `Provider` has its own base_url and key: leave out base_url= and api_key="
            )
        return Route(provider, model)
    try:
        check_name(model)
        if provider is None and base_url is None and api_key is None:
            providers = read_upstreams((), (), environ, base_urls=True)
            return find_route(model, "", providers, catalog, has_credentials=False)
    except Refused as refused:
        raise ConfigError(_no_route_message(model, refused)) from None
    vendor_entry = _named_vendor(provider) if provider is not None else _vendor_of(model, catalog)
    if vendor_entry is None:
        if base_url is None:
            raise ConfigError(
                f"the vendor of model {model!r} is not known: pass provider= or base_url="
            )
        return Route(make_provider("custom", "openai-chat", base_url, key=api_key), model)
    protocol, vendor = vendor_entry
    chosen = _vendor_provider(
        protocol, vendor, environ, base_urls=True, base_url=base_url, key=api_key
    )
    if chosen.keyed and not chosen.has_key:
        raise ConfigError(
            f"{vendor.upstream_name} needs a key: set {vendor.key_variable}, or pass api_key="
        )
    return Route(chosen, model)


def read_tables(path: str) -> tuple[UpstreamTable, ...]:
    """The upstreams of a config file, without the gateway's settings; raises `ConfigError`."""
    try:
        tables = convert(load_toml(path).get("upstream", []), tuple[UpstreamTable, ...])
    except ValidationError as error:
        raise config_error(path, error, "upstream") from None
    check_upstreams(path, tables)
    return tables


def check_upstreams(path: str, tables: Sequence[UpstreamTable]) -> None:
    """Raises `ConfigError`, with the line in the file, for a setting that cannot be right."""
    for index, table in enumerate(tables):
        try:
            table.provider(None)
        except ConfigError as error:
            wrong = error.__cause__
            key = wrong.setting if isinstance(wrong, WrongSetting) else ""
            line = _find_line(Path(path).read_text(), "upstream", index, key)
            raise ConfigError(f"the config {path!r}, line {line}: {error}") from None


TOML_TYPES = {  # by msgspec's name of a type
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}


def config_error(path: str, error: Exception, table: str = "") -> ConfigError:
    """The error for a wrong value in a config file: the file, the line, the key and its table.

    `table` is the table that was read, if it was not the whole file.
    """
    if not isinstance(error, ValidationError):
        return ConfigError(f"the config {path!r}: {error}")
    # msgspec's text is like "Expected `str`, got `int` - at `$.upstream[0].url`".
    problem, _, location = str(error).removesuffix("`").partition(" - at `$")
    steps = re.findall(r"[^.\[\]]+", f"{table}{location}")
    names = [step for step in steps if not step.isdigit()]
    index = next((int(digits) for digits in re.findall(r"\[(\d+)\]", location)), 0)
    field = re.search(r"field `(.+?)`?$", problem)
    if field is not None:  # an unknown or missing key: the location is its table
        key = field[1]
    else:
        key = names.pop() if names and not location.endswith("[...]") else ""
    table_name = ".".join(names)
    line = _find_line(Path(path).read_text(), table_name, index, key)
    where = f"in [{table_name}]" if table_name else "at the top level"
    at_line = f", line {line}" if line else ""
    return ConfigError(f"the config {path!r}{at_line}: {_describe_problem(problem, key, where)}")


def _describe_problem(problem: str, key: str, where: str) -> str:
    """A problem that msgspec found, in the terms of TOML."""
    if problem.startswith("Object contains unknown field"):
        return f"unknown key {key!r} {where}"
    if problem.startswith("Object missing required field"):
        return f"the key {key!r} is missing {where}"
    subject = f"the key {key!r} {where}".strip() if key else f"a value {where}"
    wrong_type = re.fullmatch(r"Expected `(.+?)`, got `(.+?)`?", problem)
    if wrong_type is None:
        return f"{subject} has a wrong value: {problem[:1].lower()}{problem[1:]}"
    expected, actual = wrong_type[1], wrong_type[2]
    types = [TOML_TYPES.get(kind, kind) for kind in expected.split(" | ") if kind != "null"]
    return f"{subject} must be {' or '.join(types)}, not {TOML_TYPES.get(actual, actual)}"


def _find_line(text: str, table: str, index: int, key: str) -> int:
    """The line of a key in a table, else the line of the table, else 0.

    `index` is the number of the table among the `[[table]]`s of this name.
    """
    current_table, table_count, header_line = "", 0, 0
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[\[?\s*([^\]]+?)\s*\]", line):
            current_table = header[1]
            table_count += current_table == table
            if current_table == (table or key) and table_count in (0, index + 1):
                header_line = number
        elif current_table == table and (table_count == index + 1 or not table):
            name = re.match(r"""\s*["']?([^"'=]+?)["']?\s*=""", line)
            if name and name[1] == key:
                return number
    return header_line


def load_toml(path: str) -> dict[str, Any]:
    """The members of a config file; raises a `ConfigError` that names the file."""
    try:
        return tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise ConfigError(f"the config {path!r} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the config {path!r} is not TOML: {error}") from None


class CompactionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[compaction]` table of the config file; every member is optional.

    - `model`: the model that writes summaries; `same` is the session's own. Without one, a gateway
      replaces old turns with extracts, and an agent's own model writes its summaries.
    - `timeout`, `retries`: seconds for one summary request, and how often it is repeated.
    - `target`: how much of the space for the conversation is used after an automatic compaction.
    - `reserve`: tokens of the window kept free for answers.
    - `prompt`: the instructions for the summary.
    """

    model: str | None = None
    timeout: Annotated[float, Meta(gt=0, le=WEEK)] | None = None
    retries: Annotated[int, Meta(ge=0, le=10)] | None = None
    target: Annotated[float, Meta(gt=0, lt=1)] | None = None
    reserve: Annotated[int, Meta(gt=0)] | None = None
    prompt: str | None = None


SAME_MODEL = "same"
"""The setting `model = "same"`: the model of the session writes its summaries."""


def read_compaction(path: str | None) -> CompactionSettings:
    """The `[compaction]` table of a config file; raises a `ConfigError` that names the file."""
    if path is None:
        return CompactionSettings()
    table = load_toml(path).get("compaction", {})
    try:
        return convert(table, CompactionSettings)
    except ValidationError as error:
        raise config_error(path, error, "compaction") from None


def key_variable(name: str) -> str:
    """The variable that holds the key of an upstream of this name."""
    return re.sub(r"[^A-Za-z0-9]", "_", name).upper() + "_API_KEY"


_PRINTABLE = re.compile(r"[\x21-\x7e]+")


def read_key(environ: Mapping[str, str], variable: str) -> str | None:
    """The key in a variable, `None` if it is not set; raises `ConfigError` if it is not usable."""
    key = environ.get(variable, "").strip()
    if key and not _PRINTABLE.fullmatch(key):
        raise ConfigError(f"{variable} is not an API key: it has spaces or unprintable characters")
    return key or None


def _table_key(table: UpstreamTable, environ: Mapping[str, str]) -> str | None:
    """The key of a configured upstream. A variable that the file names must be set."""
    if table.key_command:
        return None
    key = read_key(environ, table.key_env or key_variable(table.name))
    if table.key_env is not None and key is None:
        raise ConfigError(
            f"upstream {table.name!r}: key_env names the variable {table.key_env}, which is not set"
        )
    return key


def _vendor_provider(
    protocol: str,
    vendor: Vendor,
    environ: Mapping[str, str],
    *,
    base_urls: bool,
    base_url: str | None = None,
    key: str | None = None,
) -> Provider:
    """The vendor's own server; `base_url` and `key` win over the variables of the environment."""
    env_url = environ.get(vendor.url_variable, "").strip() if base_urls else ""
    url_setting = "base_url" if base_url is not None else vendor.url_variable
    url = base_url or env_url or vendor.url
    provider = make_provider(
        vendor.upstream_name,
        protocol,
        url,
        key=key or read_key(environ, vendor.key_variable),
        place=url_setting,
    )
    return structs.replace(provider, keyed=provider.at_vendor, vendor=vendor.catalog_name)


def _named_vendor(name: str) -> tuple[str, Vendor]:
    vendors = list_vendors()
    for protocol, vendor in vendors:
        if name in (vendor.upstream_name, protocol):
            return protocol, vendor
    names = ", ".join(vendor.upstream_name for _, vendor in vendors)
    raise ConfigError(f"no provider {name!r}: use one of {names}, or pass a `Provider`")


def _vendor_of(model: str, catalog: Catalog) -> tuple[str, Vendor] | None:
    name = catalog.vendor_of(model)
    return next((entry for entry in list_vendors() if entry[1].catalog_name == name), None)


def _no_route_message(model: str, refused: Refused) -> str:
    if refused.status != 404:
        return refused.message
    variables = ", ".join(dict.fromkeys(vendor.key_variable for _, vendor in list_vendors()))
    return (
        f"no API key for the model {model!r}: set {variables} (its vendor's), "
        f"or pass provider= and base_url=; {OFFLINE.models[0].rstrip('*')!r} needs none"
    )
