"""The settings of a gateway: one frozen value, made from flags, a file and the environment.

Flags override the file, and the file overrides the environment. Nothing else in the gateway reads
them: `read_settings` takes the environment as an argument, and its result is passed down.

    # weft.toml
    port = 8787
    store = "threads.db"
    keys = ["sha256:<64 digits>"]      # hashes of the clients' keys; required unless on loopback
    volatile_system = ["^Current time:"]  # system blocks that are not compared
    thinking = "reasoning_content"     # or reasoning, reasoning_text, hidden: for Chat clients
    record_wait = 0.05                 # seconds an answer waits for the store before the journal
    auto_compact = true                # compact a session's thread before its window overflows
    mcp = ["uvx mcp-server-time"]      # MCP servers (commands or URLs) for the page's agent
    agent = "claude"                   # the page may let Claude Code answer, in the folder
    agent_dir = "/home/me/project"     # `agent_dir`

    [[key]]                            # the keys of one client; `weft keys new alice` makes one
    name = "alice"                     # its threads belong to this name, so keys can be replaced
    hashes = ["sha256:<64 digits>"]

    [[upstream]]
    name = "anthropic"
    protocol = "anthropic"
    url = "https://api.anthropic.com"
    key_env = "ANTHROPIC_API_KEY"      # which variable holds the key (default: NAME_API_KEY)
    models = ["claude-*"]
    system = "auto"                    # auto, inline, demote, merge
    cache = "auto"                     # auto: add breakpoints if there are none (Anthropic); keep
    thinking = "reasoning"             # for this upstream; overrides the one above
    pass_through = false               # true: forward the client's own key if none is configured
    demote-interleaved-system-to-user = false    # the same as system = "demote"

    [[model]]                          # a row of the catalogue; overrides the built-in ones
    match = "house-model*"             # a pattern for model names
    upstream = "*"                     # a pattern for upstream names
    window = 32_000                    # all fields: `weft.catalog.Model`
    output = 4096
    inline_system = "never"            # or anywhere: are later system messages allowed?

    [aliases]                          # clients that insist on a model name get another model
    "claude-*" = "openai/gpt-5"        # a name or a pattern, and the model that answers

    [compaction]                       # `weft.client.CompactionSettings`
    model = "gpt-5-mini"               # writes the summaries; without one, extracts are made
    timeout = 60

    [limits]                           # all limits: `LimitSettings` below
    first_byte_seconds = 600
    idle_seconds = 300

If no upstream is configured, the hosts of Anthropic, OpenAI and Google are used, with the keys of
the environment, or on loopback with the client's own credentials. A variable named by `key_env`
must be set; without `key_env`, the key is optional.
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from ipaddress import ip_address
from math import isfinite, nan
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, ValidationError, convert, field, structs

from weft.agent import load_claude_sdk, permissions_path
from weft.catalog import Catalog, load_catalog, read_tables
from weft.client import (
    Alias,
    CallLimits,
    CompactionSettings,
    Provider,
    UpstreamTable,
    check_upstreams,
    config_error,
    load_toml,
    read_aliases,
    read_upstreams,
)
from weft.codec import ThinkingMember
from weft.errors import ConfigError
from weft.store import JOURNAL_SUFFIX, companion_path
from weft.thread import LOCAL_SCOPE

SPARE_FILES = 64
"""Open files that are not connections: the store, its journal, the page."""
WEEK = 7 * 24 * 3600.0
Seconds = Annotated[float, Meta(gt=0, le=WEEK)]
Count = Annotated[int, Meta(gt=0)]


class LimitSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[limits]` table of the config file; every member is optional."""

    connect_seconds: Seconds = 10.0
    first_byte_seconds: Seconds = 600.0
    idle_seconds: Seconds = 300.0
    total_seconds: Seconds = 3600.0
    acquire_seconds: Seconds = 10.0
    upstream_connections: Count = 4096
    answer_bytes: Count = 32 * 1024 * 1024
    connections: Count = 10_000
    requests: Count = 4096
    requests_per_key: Count | None = None
    header_seconds: Seconds = 60.0
    body_seconds: Seconds = 120.0
    write_seconds: Seconds = 60.0
    drain_seconds: Annotated[float, Meta(ge=0, le=WEEK)] = 10.0

    def __post_init__(self) -> None:
        if self.requests >= self.connections:
            raise ValueError(
                f"`requests` ({self.requests}) must be smaller than `connections` "
                f"({self.connections}), so that a full gateway can still answer"
            )

    def slots_per_key(self, keys: int) -> int:
        """How many requests one of so many keys may have at the same time.

        By default half of `requests`, so that one key cannot take all of them.
        """
        if self.requests_per_key is not None:
            return self.requests_per_key
        return self.requests if keys < 2 else max(1, self.requests // 2)

    def within(self, files: int) -> "LimitSettings":
        """These limits, reduced to fit a process that may open this many files.

        A request needs two files: its client's connection and its upstream's.
        """
        if self.connections + self.requests + SPARE_FILES <= files:
            return self
        connections = max(2, min(self.connections, (files - SPARE_FILES) * 5 // 9))
        requests = max(1, min(self.requests, connections * 4 // 5))
        return structs.replace(self, connections=connections, requests=requests)

    def for_calls(self) -> CallLimits:
        """The limits of upstream calls."""
        return CallLimits(
            acquire=self.acquire_seconds,
            connect=self.connect_seconds,
            first_byte=self.first_byte_seconds,
            idle=self.idle_seconds,
            total=self.total_seconds,
            answer_bytes=self.answer_bytes,
            connections=self.upstream_connections,
        )


AgentName = Literal["claude"]
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8787
DEFAULT_STORE = "~/.local/share/weft/weft.db"
MAX_BODY = 64 * 1024 * 1024
PING_SECONDS = 15.0

ZERO_ALLOWED = ("port", "drain_seconds", "record_wait", "retries")
"""Numbers that may be 0: any free port, no time to drain, no wait for the store, no retries."""
SCOPE_LENGTH = 16
"""How many characters of a key's hash are the scope of its threads, if the key has no name."""
SCOPE_PREFIX = 6
"""How many characters of a scope are in the names of its threads; also in the log."""

RECORD_WAIT = 0.05
"""How long an answer waits for the store, in seconds, before its record goes to the journal."""
VOLATILE_SYSTEM = (r"^x-anthropic-billing-header:[^\n]*\Z",)
"""System blocks to ignore in comparisons: Claude Code changes this one with every request.

A block with more text after this line is compared, because the text is the system prompt of a
client that joins its blocks. Without it, two conversations of different people could look equal.
"""

_HASH = re.compile(r"sha256:([0-9a-f]{64})")
_TRUSTED_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_KEY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HASH_SCOPE = re.compile(rf"[0-9a-f]{{{SCOPE_LENGTH}}}")


class KeyTable(Struct, frozen=True, forbid_unknown_fields=True):
    """A `[[key]]` table: the keys of one client, and what they have in common.

    - `name`: in the log and the metrics. The threads of the client belong to it.
    - `hashes`: the hashes of its keys. Two are valid at once while one replaces the other.
    - `scope`: whose threads it takes over: the hash of a key that had no name, or `local` for those
      of a server without keys.
    - `record`: false if its exchanges are not recorded.
    """

    name: str
    hashes: tuple[str, ...]
    scope: str | None = None
    record: bool = True


class ClientKey(Struct, frozen=True):
    """A key of a client: what the log calls it, the scope of its threads, whether to record."""

    name: str
    scope: str
    record: bool = True


class ConfigFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The config file; every member is optional."""

    host: str | None = None
    port: int | None = None
    store: str | None = None
    record: bool | None = None
    record_unstored: bool = True
    trusted_hosts: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    key: tuple[KeyTable, ...] = ()
    max_body: Count | None = None
    ping_seconds: Annotated[float, Meta(gt=0)] | None = None
    limits: LimitSettings = LimitSettings()
    volatile_system: tuple[str, ...] | None = None
    record_wait: float | None = None
    thinking: ThinkingMember = "reasoning_content"
    pass_through_paths: bool | tuple[str, ...] | None = None
    auto_compact: bool | None = None
    compaction: CompactionSettings = CompactionSettings()
    upstream: tuple[UpstreamTable, ...] = ()
    model: tuple[dict[str, Any], ...] = ()
    aliases: dict[str, str] = field(default_factory=dict[str, str])
    offer_import: bool = True
    mcp: tuple[str, ...] = ()
    agent: AgentName | None = None
    agent_dir: str | None = None
    agent_program: str | None = None

    def __repr__(self) -> str:
        return f"ConfigFile({self.host}:{self.port})"  # it may have keys and a password


class Settings(Struct, frozen=True, kw_only=True):
    """The settings of a gateway. `keys` holds hashes; the keys themselves are never stored.

    `record_unstored` says whether answers are recorded that the client asked the vendor not to
    store (`store: false` of Responses). `trusted_hosts` are the names under which a reverse proxy
    serves the page. `named_keys` are those of `keys` that have a name, by hash.

    `sample` says whether an empty store gets the sample thread; a store that the user named never
    gets it. `offer_import` says whether `weft serve` may ask to import the sessions of clients.

    `agent` is the agent that the page may use besides Weft's own, `agent_dir` the folder in which
    it works, and `agent_program` its binary.

    `mcp` are the MCP servers whose tools the page's agent may use. `permissions` is the file with
    the tools that are always allowed.
    """

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    store: str = DEFAULT_STORE
    record: bool = True
    record_unstored: bool = True
    trusted_hosts: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    named_keys: Mapping[str, ClientKey] = field(default_factory=dict[str, ClientKey])
    providers: tuple[Provider, ...] = ()
    aliases: tuple[Alias, ...] = ()
    catalog: Catalog = field(default_factory=load_catalog)
    max_body: int = MAX_BODY
    ping_seconds: float = PING_SECONDS
    limits: LimitSettings = LimitSettings()
    record_wait: float = RECORD_WAIT
    thinking: ThinkingMember = "reasoning_content"
    journal: Path | None = None
    volatile: tuple[re.Pattern[str], ...] = tuple(map(re.compile, VOLATILE_SYSTEM))
    pass_through_paths: bool | tuple[str, ...] | None = None
    offline_pace: float = 0.0
    sample: bool = False
    auto_compact: bool = False
    compaction: CompactionSettings = CompactionSettings()
    offer_import: bool = True
    mcp: tuple[str, ...] = ()
    permissions: Path | None = None
    agent: AgentName | None = None
    agent_dir: str | None = None
    agent_program: str | None = None

    def __repr__(self) -> str:
        return f"Settings({self.host}:{self.port})"  # the URL of the store may have a password

    @property
    def loopback(self) -> bool:
        """Whether only programs on this machine can reach the server."""
        return is_loopback(self.host)

    @property
    def clients(self) -> int:
        """How many clients have keys."""
        return len({self.client_key(digest).scope for digest in self.keys})

    def client_key(self, digest: str) -> ClientKey:
        """The client that a configured key belongs to, by the key's hash."""
        named = self.named_keys.get(digest)
        return named or ClientKey(digest[:SCOPE_PREFIX], digest[:SCOPE_LENGTH])


class Flags(Struct, frozen=True, kw_only=True):
    """The flags of the command line; `None` means not given."""

    host: str | None = None
    port: int | None = None
    store: str | None = None
    config: str | None = None
    upstreams: Sequence[str] = field(default_factory=list[str])
    pass_through: Sequence[str] = field(default_factory=list[str])
    aliases: Sequence[str] = field(default_factory=list[str])
    record: bool | None = None
    sample: bool = False
    auto_compact: bool | None = None
    mcp: Sequence[str] = field(default_factory=list[str])
    agent: AgentName | None = None
    agent_dir: str | None = None
    agent_program: str | None = None

    def __repr__(self) -> str:
        return f"Flags({self.host}:{self.port})"  # the URL of the store may have a password


def read_settings(flags: Flags, environ: Mapping[str, str]) -> Settings:
    """The settings; raises a `ConfigError` that names the wrong flag, member or variable."""
    file = read_config(flags.config) if flags.config is not None else ConfigFile()
    keys = frozenset((*map(_read_hash, file.keys), *_read_keys(environ.get("WEFT_API_KEYS", ""))))
    named_keys = _read_named_keys(file.key, keys)
    store = _first(flags.store, file.store, environ.get("WEFT_STORE"), None)
    settings = Settings(
        host=_read_host(_first(flags.host, file.host, environ.get("WEFT_HOST"), DEFAULT_HOST)),
        port=_read_port(_first(flags.port, file.port, environ.get("WEFT_PORT"), DEFAULT_PORT)),
        store=store or _expand(DEFAULT_STORE),
        sample=flags.sample and store is None,
        record=_first(flags.record, file.record, None, True),
        record_unstored=file.record_unstored,
        trusted_hosts=frozenset(map(_read_trusted_host, file.trusted_hosts)),
        keys=keys | named_keys.keys(),
        named_keys=named_keys,
        providers=_pass_through(
            read_upstreams(flags.upstreams, file.upstream, environ, base_urls=False),
            flags.pass_through,
        ),
        aliases=read_aliases(flags.aliases, file.aliases),
        offer_import=file.offer_import,
        catalog=load_catalog(models=file.model),
        max_body=_first(file.max_body, None, None, MAX_BODY),
        ping_seconds=_first(file.ping_seconds, None, None, PING_SECONDS),
        limits=file.limits,
        thinking=file.thinking,
        pass_through_paths=file.pass_through_paths,
        record_wait=_read_record_wait(file.record_wait, environ),
        journal=companion_path(store or _expand(DEFAULT_STORE), JOURNAL_SUFFIX, environ),
        volatile=_read_patterns(file.volatile_system),
        offline_pace=_read_seconds("WEFT_OFFLINE_PACE", environ),
        auto_compact=_first(flags.auto_compact, file.auto_compact, None, False),
        compaction=file.compaction,
        mcp=(*flags.mcp, *file.mcp),
        permissions=permissions_path(environ),
        agent=_first(flags.agent, file.agent, None, None),
        agent_dir=_first(flags.agent_dir, file.agent_dir, None, None),
        agent_program=_first(flags.agent_program, file.agent_program, None, None),
    )
    if settings.mcp and not settings.loopback:
        raise ConfigError("mcp: tools run on this machine, so `host` must be a loopback address")
    if settings.agent is not None:
        _check_agent(settings)
    if settings.auto_compact and not settings.record:
        raise ConfigError("auto_compact needs recorded sessions: remove it, or set `record = true`")
    if not settings.loopback and not settings.keys:
        raise ConfigError(
            f"host {settings.host!r} can be reached by others, so callers need keys: "
            "set WEFT_API_KEYS, or `keys` or `[[key]]` in the config"
        )
    return settings


def _check_agent(settings: Settings) -> None:
    """Raises `ConfigError` if the page cannot or must not use the agent."""
    if not settings.loopback:
        raise ConfigError("agent: it runs on this machine, so `host` must be a loopback address")
    if not settings.record:
        raise ConfigError("agent: it needs a recorded conversation: set `record = true`")
    if settings.agent_dir is None:
        raise ConfigError("agent: set --agent-dir (`agent_dir`) to the folder in which it works")
    if not Path(settings.agent_dir).is_dir():
        raise ConfigError(f"agent_dir: there is no folder {settings.agent_dir!r}")
    load_claude_sdk()


def read_config(path: str) -> ConfigFile:
    """Read the config file; raises a `ConfigError` that names the file and the wrong member."""
    members = load_toml(path)
    try:
        file = convert(members, ConfigFile)
        _check_numbers(file)
        read_tables(file.model, "")
    except (ValidationError, ConfigError) as error:
        raise config_error(path, error) from None
    check_upstreams(path, file.upstream)
    return file


def _check_numbers(table: Struct) -> None:
    """Raises `ConfigError` for a size or time that is not finite and above 0, such as -5 or nan."""
    for name, value in structs.asdict(table).items():
        if isinstance(value, Struct):
            _check_numbers(value)
        elif name in ZERO_ALLOWED or not isinstance(value, int | float):
            continue
        elif not isfinite(value) or (value <= 0 and not isinstance(value, bool)):
            raise ConfigError(f"`{name}` must be a number above 0, not {value}")


def hash_keys(text: str) -> list[str]:
    """The hashes of comma-separated keys."""
    return [hash_key(key.strip()) for key in text.split(",") if key.strip()]


def hash_key(key: str) -> str:
    """The SHA-256 hash of a caller's key; the key itself is never stored."""
    return sha256(key.encode()).hexdigest()


def is_loopback(host: str) -> bool:
    """Whether a host is `localhost` or a loopback address; other names are not looked up."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _read_keys(text: str) -> list[str]:
    keys = hash_keys(text)
    if text.strip() and not keys:
        raise ConfigError("WEFT_API_KEYS is set, but it contains no key")
    return keys


def _pass_through(providers: tuple[Provider, ...], names: Sequence[str]) -> tuple[Provider, ...]:
    """The upstreams, with `pass_through` set for those that `--pass-through` names."""
    configured = {provider.name for provider in providers}
    for name in names:
        if name not in configured:
            raise ConfigError(f"--pass-through {name!r}: no upstream has this name")
    return tuple(
        structs.replace(provider, pass_through=provider.pass_through or provider.name in names)
        for provider in providers
    )


def _read_patterns(patterns: Sequence[str] | None) -> tuple[re.Pattern[str], ...]:
    compiled: list[re.Pattern[str]] = []
    for pattern in VOLATILE_SYSTEM if patterns is None else patterns:
        try:
            compiled.append(re.compile(pattern))
        except re.error as error:
            raise ConfigError(
                f"volatile_system: {pattern!r} is not a regular expression: {error}"
            ) from None
    return tuple(compiled)


def _read_hash(text: str) -> str:
    match = _HASH.fullmatch(text.strip().lower())
    if match is None:
        raise ConfigError('the hash of a key is not of the form "sha256:<64 hex digits>"')
    return match[1]


def check_key_name(name: str) -> None:
    """Raises `ConfigError` for a name that a key cannot have."""
    if _KEY_NAME.fullmatch(name) is None or _HASH_SCOPE.fullmatch(name) or name == LOCAL_SCOPE:
        raise ConfigError(
            f"key {name!r}: a name has letters, digits, `.`, `_` and `-`, at most 64, begins with "
            f"a letter or digit, and is neither {LOCAL_SCOPE!r} nor {SCOPE_LENGTH} hexadecimal "
            "digits"
        )


def _read_named_keys(tables: Sequence[KeyTable], unnamed: frozenset[str]) -> dict[str, ClientKey]:
    """The keys with names, by hash; raises `ConfigError`."""
    keys: dict[str, ClientKey] = {}
    for table in tables:
        name = table.name
        check_key_name(name)
        if name in (key.name for key in keys.values()):
            raise ConfigError(f"key {name!r} has two tables: list both hashes in one")
        if not table.hashes:
            raise ConfigError(f"key {name!r} has no hashes: `weft keys new {name}` makes one")
        client = ClientKey(name, _read_scope(table), table.record)
        scopes = {key.scope for key in keys.values()} | {each[:SCOPE_LENGTH] for each in unnamed}
        if client.scope in scopes:
            raise ConfigError(f"key {name!r} has the same scope as another key")
        for digest in map(_read_hash, table.hashes):
            if digest in keys or digest in unnamed:
                raise ConfigError(f"key {name!r}: one of its hashes is also in another place")
            keys[digest] = client
    return keys


def _read_scope(table: KeyTable) -> str:
    if table.scope is None or table.scope == LOCAL_SCOPE:
        return table.scope or table.name
    try:
        return _read_hash(table.scope)[:SCOPE_LENGTH]
    except ConfigError:
        raise ConfigError(
            f"key {table.name!r}: `scope` is {LOCAL_SCOPE!r} or the hash of a key that had no name"
        ) from None


def _first(flag: Any, file: Any, environ: Any, default: Any) -> Any:
    return next((value for value in (flag, file, environ) if value not in (None, "")), default)


def default_store() -> str:
    """The path of the default store. A missing folder is created only for this store."""
    return _expand(DEFAULT_STORE)


def _expand(path: str) -> str:
    return str(Path(path).expanduser())


def _read_host(text: str) -> str:
    """The host in lower case, without the brackets that URLs put around IPv6 addresses."""
    host = text.strip().lower()
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def _read_trusted_host(text: str) -> str:
    """A host with an optional port, as a browser writes it into `Origin`."""
    host = text.strip().lower()
    if _TRUSTED_HOST.fullmatch(host) is None:
        raise ConfigError(
            f"trusted_hosts: {text!r} is not a host name with an optional port, such as "
            "agents.example.com or agents.example.com:8443"
        )
    return host.removesuffix(":443").removesuffix(":80")


def _read_port(value: int | str) -> int:
    try:
        port = int(value)
    except ValueError:
        raise ConfigError(f"port {value!r} is not a number") from None
    if not 0 <= port <= 65535:
        raise ConfigError(f"port {port} is not between 0 and 65535")
    return port


def _read_record_wait(file: float | None, environ: Mapping[str, str]) -> float:
    name = "record_wait" if file is not None else "WEFT_RECORD_WAIT"
    value = _first(file, environ.get("WEFT_RECORD_WAIT"), None, RECORD_WAIT)
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3600:
        raise ConfigError(f"{name}={value!r} is not a number of seconds from 0 to 3600")
    return seconds


def _read_seconds(variable: str, environ: Mapping[str, str]) -> float:
    text = environ.get(variable, "0")
    try:
        seconds = float(text)
    except ValueError:
        seconds = nan
    if not isfinite(seconds) or seconds < 0:
        raise ConfigError(f"{variable}={text!r} is not a number of seconds")
    return seconds
