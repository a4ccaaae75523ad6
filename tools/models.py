"""Write the prices and limits of models: run `make models`.

Prices, their start dates and tiers come from the installed `genai-prices`, which is a development
dependency. Output limits and a second opinion on windows come from LiteLLM's table. That table is
only in LiteLLM's large wheel, so what Weft needs of it is kept in `tools/limits.json`:

    python tools/models.py                        writes the two files below
    python tools/models.py --litellm FILE.whl     first reads the limits of another LiteLLM

- `src/weft/catalog/models.json`: the data of the package.
- `docs/reference/windows.md`: the models whose windows the two sources disagree on.

`genai-prices` recognises a model by patterns such as `starts with claude-opus-4-6`, which
`claude-opus-4-60` matches too. The package data has names instead: those in the patterns, and those
in LiteLLM's table. For each name it records which version suffixes (`SUFFIXES`) the patterns take.
"""

import argparse
import json
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any

from genai_prices.data import providers as PROVIDERS
from genai_prices.types import (
    ClauseAnd,
    ClauseContains,
    ClauseEndsWith,
    ClauseEquals,
    ClauseOr,
    ClauseRegex,
    ClauseStartsWith,
    ModelInfo,
    ModelPrice,
    Provider,
    StartDateConstraint,
    TieredPrices,
    TimeOfDateConstraint,
)

from weft.catalog import split_version

ROOT = Path(__file__).parents[1]
DATA = ROOT / "src" / "weft" / "catalog" / "models.json"
REPORT = ROOT / "docs" / "reference" / "windows.md"
LIMITS = Path(__file__).with_name("limits.json")

SUFFIXES = {
    "d": ("-20260105",),
    "D": ("-2026-01-05",),
    "@": ("@20260105", "@default", "@latest"),
    "l": ("-latest",),
    "n": ("-001",),
    "p": ("-preview", "-preview-01-05", "-preview-01-2026"),
    "v": ("-v1", "-v1:0"),
    "V": ("-v2", "-v2:0"),
}
"""The kinds of version suffixes, and names that must all match. `weft.catalog` reads the letters.

- `d`, `D`, `l`: a date or `latest`, of every vendor
- `@`: the same after an `@` (Vertex)
- `n`, `p`: a revision or a preview (Google)
- `v`, `V`: the first or a later revision (Bedrock), with or without a date before it
"""

SUFFIXES_OF = {"anthropic": "dD@lv", "aws": "dvV", "google": "dD@lnp"}
"""The kinds that occur in a vendor's names; of other vendors only dates and `latest`."""

LEFT_OUT = re.compile(
    r"avian|doubleword|elevenlabs|huggingface_.*|openai-decisions|quicksilverpro|typesafe|voyageai"
)
"""Providers without models that write text, and resellers that no spelling of a name points to."""

HOSTS = frozenset({"cerebras", "cloudflare", "fireworks"})
"""Vendors that serve other makers' models: a bare name is not theirs."""

LAST_MAKERS = frozenset({"cursor", "databricks"})
"""Vendors with names of their own that also serve other makers' models under the makers' names."""

PRICE_FIELDS = {
    "input_mtok": "input",
    "output_mtok": "output",
    "cache_read_mtok": "cached",
    "cache_write_mtok": "written",
    "cache_write_1h_mtok": "written_1h",
}
"""The names of prices per million tokens, there and in `weft.catalog.Price`."""

PRICE_PER_THOUSAND = {"requests_kcount": "request", "web_searches_kcount": "search"}

NEEDED_UNITS = frozenset({"output_reasoning_mtok", "output_citation_mtok"})
"""Units of text models that `weft.catalog.Price` does not have: a price without them is wrong."""

LITELLM_PREFIXES = {
    "azure": "azure",
    "azure_ai": "azure",
    "bedrock": "aws",
    "cerebras": "cerebras",
    "cloudflare": "cloudflare",
    "cohere": "cohere",
    "databricks": "databricks",
    "deepseek": "deepseek",
    "fireworks_ai": "fireworks",
    "gemini": "google",
    "github_copilot": "github-copilot",
    "groq": "groq",
    "minimax": "minimax",
    "mistral": "mistral",
    "moonshot": "moonshotai",
    "novita": "novita",
    "perplexity": "perplexity",
    "together_ai": "together",
    "vertex_ai": "google",
    "xai": "x-ai",
    "zai": "zai",
}
"""The provider for the first part of a LiteLLM name such as `xai/grok-4`."""

LITELLM_PROVIDERS = {
    "anthropic": "anthropic",
    "bedrock": "aws",
    "bedrock_converse": "aws",
    "cohere_chat": "cohere",
    "deepseek": "deepseek",
    "openai": "openai",
    "vertex_ai-language-models": "google",
}
"""The provider for the `litellm_provider` of a name without such a part."""

ADDED_LIMITS: dict[str, list[int | None]] = {
    "claude-2": [None, 4096],
    "claude-3-5-haiku": [None, 8192],
    "claude-3-7-sonnet": [None, 64_000],
    "claude-3-opus": [None, 4096],
    "claude-fable-5-2": [None, 128_000],
    "claude-mythos-5-2": [None, 128_000],
    "claude-opus-4-0": [None, 32_000],
    "claude-opus-4-1": [None, 32_000],
    "claude-sonnet-4-0": [None, 64_000],
    "claude-sonnet-4": [None, 64_000],
    "claude-opus-4": [None, 32_000],
    "gemini-1.5-flash": [None, 8192],
    "gemini-1.5-pro": [None, 8192],
    "gemini-2.0-flash": [None, 8192],
    "gemini-2.0-flash-lite": [None, 8192],
    "gemini-4-argon": [None, 65_536],
}
"""Limits of models that LiteLLM's table does not have, or no longer.

https://platform.claude.com/docs/en/about-claude/models/overview,
https://ai.google.dev/gemini-api/docs/models
"""

BEDROCK_REGIONS = ("us", "eu", "apac", "au", "jp", "ca", "in", "us-gov", "global")
"""https://docs.aws.amazon.com/bedrock/latest/userguide/inference-profiles-support.html"""

ROUNDED = 0.05
"""Windows that differ by less are one window, once rounded: 1,000,000 and 1,048,576."""


def read_litellm(wheel: Path) -> dict[str, Any]:
    """The limits in LiteLLM's table, by provider of `genai-prices` and name."""
    with zipfile.ZipFile(wheel) as archive:
        table = json.loads(archive.read("litellm/model_prices_and_context_window_backup.json"))
    models: dict[str, dict[str, list[int | None]]] = {}
    for name, row in sorted(table.items()):
        if row.get("mode") not in ("chat", "responses", "completion"):
            continue
        prefix, slash, rest = name.lower().partition("/")
        provider = LITELLM_PREFIXES.get(prefix) if slash else None
        if provider is None:
            provider, rest = LITELLM_PROVIDERS.get(row.get("litellm_provider")), name.lower()
        if provider is None or (provider == "aws" and "/" in rest):  # a region's own endpoint
            continue
        limits = [_whole(row.get("max_input_tokens")), _whole(row.get("max_output_tokens"))]
        models.setdefault(provider, {})[rest] = limits
    found = re.search(r"litellm-([\d.]+)-", wheel.name)
    return {"source": f"litellm {found[1] if found else '?'}", "models": models}


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def make_data(limits: dict[str, Any], date: str) -> tuple[dict[str, Any], list[list[Any]]]:
    """The package data, and the rows of the report."""
    prices: list[dict[str, Any]] = []
    vendors: dict[str, list[dict[str, Any]]] = {}
    report: list[list[Any]] = []
    everywhere = _names_everywhere(limits["models"])
    for provider in PROVIDERS:
        if LEFT_OUT.fullmatch(provider.id):
            continue
        known = limits["models"].get(provider.id, {})
        names = _names(provider, known, everywhere)
        rows: list[dict[str, Any]] = []
        for model in provider.models:
            price = _price(model, date)
            if price is None or not names.get(model.id):
                continue
            if price not in prices:
                prices.append(price)
            row = {"id": model.id, "price": prices.index(price)}
            row |= _limits(model, names[model.id], known, limits["models"], provider.id, report)
            rows.append(row | {"names": _without_versions(names[model.id])})
        vendors[provider.id] = rows
    data = {
        "prices_from": f"genai-prices {version('genai-prices')}",
        "limits_from": limits["source"],
        "date": date,
        "makers": sorted(
            (
                one.id
                for one in PROVIDERS
                if one.model_match is not None and vendors.get(one.id) and one.id not in HOSTS
            ),
            key=LAST_MAKERS.__contains__,
        ),
        "fallbacks": {
            one.id: [other for other in one.fallback_model_providers if vendors.get(other)]
            for one in PROVIDERS
            if one.fallback_model_providers
        },
        "prices": prices,
        "vendors": {vendor: rows for vendor, rows in vendors.items() if rows},
    }
    return data, report


def _names_everywhere(known: dict[str, dict[str, Any]]) -> set[str]:
    """The names that any vendor has: one may write a dated name where another has a pattern."""
    patterns = (model.match for provider in PROVIDERS for model in provider.models)
    names = {name for pattern in patterns for name in _written_names(pattern)}
    names |= {name for table in known.values() for name in table}
    return {name for name in names if "/" not in name}


def _names(
    provider: Provider, known: Iterable[str], everywhere: set[str]
) -> dict[str, dict[str, str]]:
    """The exact names of each model (by its id), and which suffixes each name takes.

    A name that only others have must begin like a pattern: `us-gov.anthropic.claude-opus-5` ends
    like Google's `claude-opus-5`, but is not its name.
    """
    candidates = {name for model in provider.models for name in _written_names(model.match)}
    candidates |= {model.id.lower() for model in provider.models} | set(known)
    if provider.id == "aws":
        candidates |= set(_bedrock_names(candidates))
    found: dict[str, dict[str, str]] = {}
    for name in sorted(candidates | everywhere):
        model = provider.find_model(name)
        if model is not None:
            starts = (*_written_names(model.match), *_texts(model.match))
            if name not in candidates and not name.startswith(starts):
                continue
            kinds = [
                kind
                for kind in SUFFIXES_OF.get(provider.id, "dDl")
                if all(provider.find_model(name + ending) is model for ending in SUFFIXES[kind])
            ]
            found.setdefault(model.id, {})[name] = "".join(kinds)
    return found


def _without_versions(names: dict[str, str]) -> dict[str, str]:
    """The names without those that are another name with a suffix."""
    return {
        name: kinds
        for name, kinds in names.items()
        if not any(_is_version(name, base, names[base]) for base in names)
    }


def _is_version(name: str, base: str, kinds: str) -> bool:
    """Whether a name is another name with a suffix that is allowed there."""
    version = split_version(name)
    return version is not None and version[0] == base and set(version[1]) <= set(kinds)


def _written_names(clause: Any) -> Iterator[str]:
    """The names that a pattern is made of. A pattern for a part of a name is not a name."""
    match clause:
        case ClauseOr(or_=clauses) | ClauseAnd(and_=clauses):
            for inner in clauses:
                yield from _written_names(inner)
        case ClauseRegex(regex=regex):
            plain = re.match(r"\^([a-z0-9./-]+?)(?:\[-@\]|-)?\\d", regex.replace("\\.", "."))
            if plain is not None:
                yield plain[1]
        case ClauseEquals(equals=text) if text.strip():
            yield text.lower()
        case (
            ClauseStartsWith(starts_with=text)
            | ClauseContains(contains=text)
            | ClauseEndsWith(ends_with=text)
        ):
            plain = re.sub(r"[-@/](?:20\d\d)?$", "", text.lower())
            if re.search(r"\d", plain) and not re.search(r"-v$", plain):
                yield plain
        case _:
            pass


def _texts(clause: Any) -> Iterator[str]:
    """The texts that names begin with, contain or end with."""
    match clause:
        case ClauseOr(or_=clauses) | ClauseAnd(and_=clauses):
            for inner in clauses:
                yield from _texts(inner)
        case (
            ClauseStartsWith(starts_with=text)
            | ClauseContains(contains=text)
            | ClauseEndsWith(ends_with=text)
        ):
            yield text.lower()
        case _:
            pass


def _bedrock_names(names: Iterable[str]) -> Iterator[str]:
    """The same models in each region. Names of Claude may lack their maker in the patterns."""
    for name in names:
        plain = re.sub(rf"^(?:regional|{'|'.join(BEDROCK_REGIONS)})\.", "", name)
        plain = f"anthropic.{plain}" if plain.startswith("claude") else plain
        if re.match(r"[a-z]+\.", plain):
            yield plain
            yield from (f"{region}.{plain}" for region in BEDROCK_REGIONS)


def _price(model: ModelInfo, date: str) -> dict[str, Any] | None:
    """The prices as a table of `weft.catalog.Price`; None if it cannot express them.

    Its own rates are those of the day `date`. Those of other days are in `dated`.
    """
    dated = model.prices if isinstance(model.prices, list) else None
    first = model.prices if dated is None else dated[0].prices
    if not isinstance(first, ModelPrice):
        return None
    every = [first, *(item.prices for item in dated or ())]
    units = {unit for prices in every for unit in _units(prices)}
    if units & NEEDED_UNITS or (units and not units & {*PRICE_FIELDS, "requests_kcount"}):
        return None
    price = _rates(model.get_prices(datetime.fromisoformat(f"{date}T12:00:00+00:00")))
    if dated is not None:
        # The first one applies whenever no other one does, also if it has a constraint of its own.
        later = [_constraint(item.constraint) | _rates(item.prices) for item in dated[1:]]
        price["dated"] = [_rates(first), *later]
    variants = [
        {"when": variant.when} | _constraint(variant.constraint) | rates
        for variant in model.price_variants or ()
        if (rates := _rates(variant.prices, partial=True))
    ]
    return price | ({"variants": variants} if variants else {})


def _units(prices: ModelPrice) -> dict[str, Decimal | TieredPrices]:
    return {key: value for key, value in vars(prices).items() if value is not None}


def _rates(prices: ModelPrice, *, partial: bool = False) -> dict[str, Any]:
    """Dollars per million tokens, with tiers. Absent input and output cost nothing."""
    rates: dict[str, Any] = {} if partial else {"input": 0, "output": 0}
    tiers: dict[int, dict[str, float]] = {}
    for unit, value in _units(prices).items():
        if unit in PRICE_PER_THOUSAND and isinstance(value, Decimal):
            rates[PRICE_PER_THOUSAND[unit]] = _number(value / 1000)
        elif unit in PRICE_FIELDS:
            field = PRICE_FIELDS[unit]
            rates[field] = _number(value.base if isinstance(value, TieredPrices) else value)
            for tier in value.tiers if isinstance(value, TieredPrices) else ():
                tiers.setdefault(tier.start, {})[field] = _number(tier.price)
    if tiers:
        rates["tiers"] = [{"above": start} | tiers[start] for start in sorted(tiers)]
    elif partial and rates:
        rates["tiers"] = []
    return rates


def _number(value: Decimal) -> float | int:
    return int(value) if value == int(value) else float(value)


def _constraint(constraint: Any) -> dict[str, str]:
    match constraint:
        case StartDateConstraint(start_date=start):
            return {"since": start.isoformat()}
        case TimeOfDateConstraint(start_time=start, end_time=end):
            return {"hours": f"{start:%H:%M}-{end:%H:%M}"}
        case None:
            return {}
        case _:
            raise ValueError(f"unknown constraint: {constraint!r}")


def _limits(
    model: ModelInfo,
    names: Iterable[str],
    known: dict[str, list[int | None]],
    everywhere: dict[str, dict[str, list[int | None]]],
    provider: str,
    report: list[list[Any]],
) -> dict[str, int]:
    """The window and the longest answer; a disagreement of the sources is added to the report."""
    found = [known[name] for name in [model.id.lower(), *names] if name in known]
    # An answer as long as the window is no limit of its own.
    found = [[read, None if read and (out or 0) >= read else out] for read, out in found]
    if not any(output for _, output in found):
        found += [ADDED_LIMITS[name] for name in names if name in ADDED_LIMITS]
    if not found:  # the same model elsewhere, without the maker: anthropic/claude-opus-4.6
        plain = re.sub(r"^.*[/.](?=[a-z])", "", model.id.lower()).replace(":free", "")
        spellings = (plain, plain.replace(".", "-") if plain.startswith("claude") else plain)
        found += [ADDED_LIMITS[name] for name in spellings if name in ADDED_LIMITS]
        found += [
            table[name]
            for maker in ("anthropic", "openai", "google", "x-ai", "deepseek", "mistral")
            for name in spellings
            if name in (table := everywhere.get(maker, {}))
        ]
    read = next((window for window, _ in found if window), None)
    written = next((output for _, output in found if output), None)
    window = choose_window(model.context_window, read, written)
    disagree = model.context_window and read and window[1]
    if disagree:
        report.append([provider, model.id, model.context_window, read, written, window[0]])
    if window[0] is not None and written is not None and written >= window[0]:
        written = None
    return {key: value for key, value in (("window", window[0]), ("output", written)) if value}


def choose_window(
    prices: int | None, limit: int | None, output: int | None
) -> tuple[int | None, bool]:
    """The window by `genai-prices` and by LiteLLM, and whether they disagree.

    LiteLLM's figure may be without the room for the answer. Of two figures of which one is rounded,
    the other is used; else the smaller one, because a context that is compacted too early is better
    than a request that is refused.
    """
    if prices is None or limit is None:
        return prices or limit, False
    if prices in (limit, limit + (output or 0)):
        return prices, False
    if abs(prices - limit) <= ROUNDED * max(prices, limit):
        return max(prices, limit, key=lambda size: len(str(size).rstrip("0"))), False
    return min(prices, limit), True


def encode(data: dict[str, Any]) -> str:
    """The package data, one model per line, so that a new version can be reviewed."""
    head = {key: value for key, value in data.items() if key not in ("prices", "vendors")}
    lines = [json.dumps(head, separators=(",", ":"))[:-1] + ',"prices":[']
    lines.append(",\n".join(_compact(price) for price in data["prices"]))
    lines.append('],"vendors":{')
    vendors = [
        f"{_compact(vendor)}:[\n" + ",\n".join(_compact(row) for row in rows) + "]"
        for vendor, rows in data["vendors"].items()
    ]
    return "\n".join([*lines, ",\n".join(vendors), "}}", ""])


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def encode_report(data: dict[str, Any], report: list[list[Any]]) -> str:
    """The page on windows that the sources disagree on."""
    lines = [
        "# Windows that the sources disagree on",
        "",
        "<!-- generated: make models -->",
        "",
        f"The window of a model comes from {data['prices_from']} and from {data['limits_from']}."
        " For the models below they differ by more than rounding and the room for the answer."
        " Weft uses the smaller figure, because a context that is compacted too early is better"
        " than a request that is refused. `window` in a [`[[model]]`](configuration.md#model) row"
        " sets another one.",
        "",
        "| vendor | model | genai-prices | LiteLLM input | LiteLLM output | used |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for vendor, model, *sizes in report:
        cells = " | ".join("" if size is None else f"{size:,}" for size in sizes)
        lines.append(f"| {vendor} | `{model}` | {cells} |")
    return "\n".join([*lines, ""])


def outputs(date: str) -> dict[Path, str]:
    """The generated files and their content."""
    data, report = make_data(json.loads(LIMITS.read_text()), date)
    return {DATA: encode(data), REPORT: encode_report(data, report)}


def main() -> int:
    parser = argparse.ArgumentParser(description="write the prices and limits of models")
    parser.add_argument("--litellm", type=Path, metavar="WHEEL", help="read its limits first")
    args = parser.parse_args()
    if args.litellm is not None:
        limits = read_litellm(args.litellm)
        models = [
            f"{_compact(vendor)}:{{\n"
            + ",\n".join(f"{_compact(name)}:{_compact(row)}" for name, row in rows.items())
            + "}"
            for vendor, rows in sorted(limits["models"].items())
        ]
        source = f'{{"source":{_compact(limits["source"])},"models":{{\n'
        LIMITS.write_text(source + ",\n".join(models) + "}}\n")
    for path, text in outputs(f"{datetime.now(UTC):%Y-%m-%d}").items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
