"""The catalogue's values and how a name finds its row."""

import os
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Annotated, Any, Literal, cast

from msgspec import Meta, Struct, ValidationError, convert, field

from weft.errors import ConfigError

from .names import Version, plain_name, read_version, version_of

SHIPPED = os.path.join(os.path.dirname(__file__), "catalog.toml")
DEFAULT_OUTPUT = 8192
DEFAULT_WINDOW = 128_000
MOST_FOUND = 1000

Tokens = Annotated[int, Meta(gt=0)]


class Price(Struct, frozen=True, kw_only=True):
    """Dollars per million tokens."""

    input: float
    output: float
    cached: float | None = None
    written: float | None = None


def cost(price: Price, *, input: int, output: int, cached: int = 0, written: int = 0) -> float:
    """What an answer cost, in dollars.

    `input` counts all input, as `Usage` does: what was read from the cache or written to it is
    taken out of it, so that no token is paid twice. Where the row has no price of its own for
    those, they cost what any input costs.
    """
    fresh = max(0, input - cached - written)
    rate_cached = price.input if price.cached is None else price.cached
    rate_written = price.input if price.written is None else price.written
    millions = fresh * price.input + cached * rate_cached + written * rate_written
    return (millions + output * price.output) / 1_000_000


class Model(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of one model behind one upstream.

    `inline_system` says where a system message may stand after the first: `anywhere` the vendor's
    placement law allows, only `after_user`, or `never`. `prefill` is whether the list may end with
    the assistant. `output` is the most tokens it writes in one answer. `signed_calls` is whether a
    call must carry the signature of its thinking, `media_results` whether a tool's result may hold
    media, `custom_tools` whether it takes tools of free text where its wire has them, `temperature`
    whether it lets a caller choose one, `one_sampler` whether it then refuses a `top_p` beside it,
    `stop` whether it can be told where to stop, `json_beside_tools` whether it answers in JSON
    where tools are offered, `json_named` whether it does so only where somebody speaks of JSON.

    Servers that speak OpenAI's protocols differ in three things: `max_tokens_field` is the name of
    the limit of output, `developer` whether they know that role, `system_parts` whether a system
    message of Chat may be a list of parts. Where no row says it, the host decides
    (`Provider.settle`).

    How hard to think it can be told where `effort` says so, by OpenAI in these of its `efforts`,
    where not in all. `budget` is the least and the most tokens of thinking that it can be told,
    none where it does not think; `always_thinks`, that it cannot be told not to.
    """

    name: str = ""
    vendor: str = ""
    window: Tokens = DEFAULT_WINDOW
    output: Tokens = DEFAULT_OUTPUT
    inline_system: Literal["anywhere", "after_user", "never"] = "anywhere"
    prefill: bool = True
    tokenizer: Literal["o200k", "cl100k", "estimate"] = "estimate"
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] | None = None
    developer: bool | None = None
    system_parts: bool | None = None
    thinking: Literal["none", "budget", "adaptive", "effort"] = "none"
    signed_calls: bool = False
    media_results: bool = True
    custom_tools: bool = False
    temperature: bool = True
    one_sampler: bool = False
    stop: bool = True
    effort: bool = True
    efforts: tuple[str, ...] | None = None
    budget: tuple[int, int] | None = None
    always_thinks: bool = False
    json_beside_tools: bool = True
    json_named: bool = False
    price: Price | None = None


class CatalogRow(Struct, frozen=True, kw_only=True):
    """One `[[model]]` table: which models it is about, and what it says of them.

    `match` is a pattern of names, `upstream` one of deployments. With `below`, the row is only
    about models whose name states a lower version. `own` rows are the user's and win over ours.
    """

    match: str
    upstream: str
    fields: dict[str, Any]
    below: Version | None = None
    own: bool = False

    def applies(self, names: Sequence[str], upstream: str) -> bool:
        """Whether the row is about a model with these spellings behind that upstream."""
        if not fnmatchcase(upstream, self.upstream):
            return False
        if not any(fnmatchcase(name, self.match) for name in names):
            return False
        if self.below is None:
            return True
        version = version_of(names[-1])
        return version is not None and version < self.below

    @property
    def rank(self) -> tuple[bool, bool, int]:
        """Of several rows that apply, the one with the highest rank wins."""
        return self.own, self.upstream != "*", len(self.match)


class Catalog(Struct, frozen=True):
    """All rows, in file order; `found` and `vendors` are what was answered so far."""

    rows: tuple[CatalogRow, ...]
    found: dict[tuple[str, str], Model] = field(default_factory=dict[tuple[str, str], Model])
    vendors: dict[str, str] = field(default_factory=dict[str, str])

    def find(self, name: str, upstream: str = "") -> Model:
        """The model of that name, in any spelling, behind that upstream.

        Rows that match more closely win, and the user's own rows win over the shipped ones.
        """
        model = self.found.get((name, upstream))
        if model is None:
            if len(self.found) >= MOST_FOUND:
                self.found.clear()  # callers may ask for any name
            model = self.found[name, upstream] = self._look_up(name, upstream)
        return model

    def vendor_of(self, name: str) -> str:
        """The vendor that serves a model under this very name, or `""`.

        An aggregator's spelling (`anthropic/claude-opus-4.6`) names a model of Anthropic's that
        Anthropic itself does not serve under that name: no request and no key may go there for it.
        """
        vendor = self.vendors.get(name)
        if vendor is None:
            if len(self.vendors) >= MOST_FOUND:
                self.vendors.clear()
            vendor = self.vendors[name] = str(self._fields((name,), "").get("vendor", ""))
        return vendor

    def with_models(self, *rows: Mapping[str, Any]) -> "Catalog":
        """This catalogue and rows of one's own; raises `ConfigError` naming the wrong key."""
        return Catalog(self.rows + read_tables(rows, "models"))

    def _look_up(self, name: str, upstream: str) -> Model:
        names = (name, plain_name(name))
        return convert({**self._fields(names, upstream), "name": name}, Model)

    def _fields(self, names: Sequence[str], upstream: str) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for row in sorted(self.rows, key=lambda row: row.rank):
            if row.applies(names, upstream):
                fields.update(row.fields)
        return fields


_added: tuple[CatalogRow, ...] = ()
"""Rows that the program added for all of the process."""


def add_models(*rows: Mapping[str, Any]) -> None:
    """Add rows to the catalogue that everything in this process uses from now on.

    A row has the keys of a `[[model]]` table: `match`, perhaps `upstream` and `below`, and any
    field of `Model`. Raises `ConfigError` naming the wrong key, and then adds none.
    """
    global _added
    _added += read_tables(rows, "add_models")
    _default.cache_clear()


def load_catalog(
    path: str | os.PathLike[str] | None = None, models: Iterable[Mapping[str, Any]] = ()
) -> Catalog:
    """The shipped catalogue, what the program added, and rows of the user's own, which win.

    `path` is a TOML file with `[[model]]` tables, such as `weft.toml`; `models` are the same
    tables as dicts. Raises `ConfigError` naming the file and the key that is wrong.
    """
    rows: tuple[CatalogRow, ...] = ()
    if path is not None:
        if not isinstance(path, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"path must be a file's path, not {type(path).__name__}")
        try:
            text = _read(path)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the catalogue {str(path)!r} cannot be read: {error}") from None
        rows = read_rows(text, str(path))
    rows += read_tables(models, "models")
    return Catalog(_default().rows + rows) if rows else _default()


def read_rows(text: str, where: str, *, own: bool = True) -> tuple[CatalogRow, ...]:
    """The `[[model]]` tables of a TOML text; raises `ConfigError` naming the wrong key."""
    import tomllib  # slow to import, and most processes read one small file

    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where} is not TOML: {error}") from None
    return read_tables(table.get("model", []), where, own=own)


def read_tables(tables: Any, where: str, *, own: bool = True) -> tuple[CatalogRow, ...]:
    """Rows from tables that a file or a program holds; raises `ConfigError`."""
    prefix = f"{where}: " if where else ""
    if isinstance(tables, str | Mapping) or not isinstance(tables, Iterable):
        raise ConfigError(f"{prefix}model must be a list of tables: [[model]]")
    rows = enumerate(cast("Iterable[Any]", tables))
    return tuple(_read_table(raw, f"{prefix}model[{number}]", own) for number, raw in rows)


def _read_table(raw: Any, where: str, own: bool) -> CatalogRow:
    if not isinstance(raw, Mapping):
        raise ConfigError(f"{where} must be a table with `match`")
    fields = dict(cast("Mapping[str, Any]", raw))
    match, upstream = fields.pop("match", None), fields.pop("upstream", "*")
    if not isinstance(match, str) or not match:
        raise ConfigError(f"{where} has no `match` pattern")
    if not isinstance(upstream, str):
        raise ConfigError(f"{where} ({match}): `upstream` must be a pattern of names")
    below = read_version(fields.pop("below", None), f"{where} ({match})")
    try:
        convert(fields, Model)
    except ValidationError as error:
        raise ConfigError(f"{where} ({match}): {error}") from None
    return CatalogRow(match=match, upstream=upstream, fields=fields, below=below, own=own)


@cache
def _default() -> Catalog:
    return Catalog(_shipped() + _added)


@cache
def _shipped() -> tuple[CatalogRow, ...]:
    return read_rows(_read(SHIPPED), "catalog.toml", own=False)


def _read(path: str | os.PathLike[str]) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
