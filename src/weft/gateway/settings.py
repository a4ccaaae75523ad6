"""One frozen value that says how a gateway runs; made from flags, a file and the environment.

Flags overrule the file, the file overrules the environment. Nothing else in the gateway reads
either: `read_settings` takes the environment as an argument, and what it returns is passed down.

    # weft.toml
    port = 8787
    store = "threads.db"
    keys = ["sha256:5e88..."]          # who may call; needed on a host that others can reach

    [[upstream]]
    name = "anthropic"
    protocol = "anthropic"
    url = "https://api.anthropic.com"
    key_env = "ANTHROPIC_API_KEY"      # which variable holds the key (default: NAME_API_KEY)
    models = ["claude-*"]
    system = "auto"                    # auto, inline, demote, merge
    demote-interleaved-system-to-user = false    # the same as system = "demote"

Without any upstream of one's own, the addresses of Anthropic, OpenAI and Google stand ready: with
the key of the environment, or with the caller's own credentials.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from msgspec import Struct, ValidationError, convert, field, structs

from weft.client import HOMES, Provider, make_provider, read_provider
from weft.codec import SystemPolicy
from weft.errors import ConfigError

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8787
DEFAULT_STORE = "~/.local/share/weft/weft.db"
MAX_BODY = 64 * 1024 * 1024
PING_SECONDS = 15.0

_HASH = re.compile(r"sha256:([0-9a-f]{64})")

STANDING = (
    ("anthropic", "anthropic", "ANTHROPIC_API_KEY", "anthropic"),
    ("openai", "openai-responses", "OPENAI_API_KEY", "openai"),
    ("openai-chat", "openai-chat", "OPENAI_API_KEY", "openai"),
    ("gemini", "gemini", "GEMINI_API_KEY", "google"),
)
"""Name, protocol, key variable and vendor of the upstreams that need no configuration."""


class UpstreamTable(Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[upstream]]` of the file; `demote` is the old name of one policy, as a switch."""

    name: str
    protocol: str
    url: str
    key_env: str | None = None
    models: tuple[str, ...] = ()
    system: SystemPolicy = "auto"
    demote: bool = field(default=False, name="demote-interleaved-system-to-user")


class ConfigFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The file, whole; every member may be absent."""

    host: str | None = None
    port: int | None = None
    store: str | None = None
    record: bool | None = None
    keys: tuple[str, ...] = ()
    max_body: int | None = None
    ping_seconds: float | None = None
    upstream: tuple[UpstreamTable, ...] = ()


class Settings(Struct, frozen=True, kw_only=True):
    """How a gateway runs. `keys` are hashes; the keys themselves are never kept.

    `sample` is whether an empty store gets the sample thread: never one that somebody named.
    """

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    store: str = DEFAULT_STORE
    record: bool = True
    keys: frozenset[str] = frozenset()
    providers: tuple[Provider, ...] = ()
    max_body: int = MAX_BODY
    ping_seconds: float = PING_SECONDS
    offline_pace: float = 0.0
    sample: bool = False

    @property
    def loopback(self) -> bool:
        """Whether only programs on this machine can reach us."""
        return is_loopback(self.host)


class Flags(Struct, frozen=True, kw_only=True):
    """What the command line said; `None` is "nothing"."""

    host: str | None = None
    port: int | None = None
    store: str | None = None
    config: str | None = None
    upstreams: Sequence[str] = field(default_factory=list[str])
    record: bool | None = None
    sample: bool = False


def read_settings(flags: Flags, environ: Mapping[str, str]) -> Settings:
    """The settings; raises `ConfigError` that names the flag, file member or variable."""
    file = read_config(flags.config) if flags.config is not None else ConfigFile()
    keys = frozenset((*map(_read_hash, file.keys), *hash_keys(environ.get("WEFT_API_KEYS", ""))))
    store = _first(flags.store, file.store, environ.get("WEFT_STORE"), None)
    settings = Settings(
        host=_first(flags.host, file.host, environ.get("WEFT_HOST"), DEFAULT_HOST),
        port=_read_port(_first(flags.port, file.port, environ.get("WEFT_PORT"), DEFAULT_PORT)),
        store=store or _home(DEFAULT_STORE),
        sample=flags.sample and store is None,
        record=_first(flags.record, file.record, None, True),
        keys=keys,
        providers=_read_providers(flags.upstreams, file.upstream, environ),
        max_body=_first(file.max_body, None, None, MAX_BODY),
        ping_seconds=_first(file.ping_seconds, None, None, PING_SECONDS),
        offline_pace=_read_seconds("WEFT_OFFLINE_PACE", environ),
    )
    if not settings.loopback and not settings.keys:
        raise ConfigError(
            f"host {settings.host!r} can be reached by others, so callers need keys: "
            "set WEFT_API_KEYS, or `keys` in the config"
        )
    return settings


def read_config(path: str) -> ConfigFile:
    """The file's members; raises `ConfigError` naming the file and the place in it."""
    try:
        table = tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise ConfigError(f"the config {path!r} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the config {path!r} is not TOML: {error}") from None
    try:
        return convert(table, ConfigFile)
    except ValidationError as error:
        raise ConfigError(f"the config {path!r}: {error}") from None


def hash_keys(text: str) -> list[str]:
    """The hashes of keys that are separated by commas."""
    return [hash_key(key.strip()) for key in text.split(",") if key.strip()]


def hash_key(key: str) -> str:
    """What is kept of a caller's key."""
    return sha256(key.encode()).hexdigest()


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine's own; an unknown name is not."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _read_hash(text: str) -> str:
    match = _HASH.fullmatch(text.strip().lower())
    if match is None:
        raise ConfigError('a key in `keys` is not of the form "sha256:<64 hex digits>"')
    return match[1]


def _read_providers(
    specs: Sequence[str], tables: Sequence[UpstreamTable], environ: Mapping[str, str]
) -> tuple[Provider, ...]:
    named = [
        make_provider(
            table.name,
            table.protocol,
            table.url,
            key=_secret(environ, table.key_env or key_variable(table.name)),
            models=table.models,
            system="demote" if table.demote else table.system,
        )
        for table in tables
    ]
    for spec in specs:
        provider = read_provider(spec)
        key = _secret(environ, key_variable(provider.name))
        named.append(structs.replace(provider, key=key))
    names = [provider.name for provider in named]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two upstreams are named {name!r}")
    return tuple(named) or tuple(
        structs.replace(
            make_provider(name, protocol, HOMES[protocol], key=_secret(environ, variable)),
            keyed=True,
            vendor=vendor,
        )
        for name, protocol, variable, vendor in STANDING
    )


def key_variable(name: str) -> str:
    """The variable that holds the key of an upstream of this name."""
    return re.sub(r"[^A-Za-z0-9]", "_", name).upper() + "_API_KEY"


def _secret(environ: Mapping[str, str], variable: str) -> str | None:
    return environ.get(variable) or None


def _first(flag: Any, file: Any, environ: Any, default: Any) -> Any:
    return next((value for value in (flag, file, environ) if value not in (None, "")), default)


def _home(path: str) -> str:
    return str(Path(path).expanduser())


def _read_port(value: int | str) -> int:
    try:
        port = int(value)
    except ValueError:
        raise ConfigError(f"port {value!r} is not a number") from None
    if not 0 <= port <= 65535:
        raise ConfigError(f"port {port} is not between 0 and 65535")
    return port


def _read_seconds(variable: str, environ: Mapping[str, str]) -> float:
    text = environ.get(variable, "0")
    try:
        return max(0.0, float(text))
    except ValueError:
        raise ConfigError(f"{variable}={text!r} is not a number of seconds") from None
