"""`weft models`: the models whose prices and limits are known, and where the figures come from."""

import argparse
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from weft.catalog import KnownModel, Price, find_known, known_models, load_catalog, sources
from weft.catalog.known import ALIASES

from .common import print_json
from .console import print_error
from .main import RawFormatter

COLUMNS = ("vendor", "model", "window", "output", "in", "out", "cached", "written", "1h")

NEAR_NAMES = 3
"""How many similar names a message lists at most."""

EPILOG = """Prices are today's, in dollars per million tokens: input, output, input read from the
cache, input written to it for five minutes, and for an hour. `+` marks higher prices of large
requests; --json has them, with the prices of other days, of batches and of service tiers.

A model is known by its exact name, in the spellings of the vendors, Bedrock, Vertex and OpenRouter.
Any other model has no price: its cost is shown as $?. A [[model]] table in weft.toml adds one."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = RawFormatter
    parser.epilog = EPILOG
    parser.add_argument(
        "words",
        nargs="*",
        metavar="NAME",
        help="list only this model, or models with all of these words in their names",
    )
    parser.add_argument("--vendor", metavar="NAME", help="list only the models of one vendor")
    parser.add_argument("--config", metavar="FILE", help="a TOML file with [[model]] tables")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    words = " ".join(args.words).split()
    vendor = None if args.vendor is None else vendor_id(args.vendor)
    rows = [*own_rows(args.config, words, vendor), *shipped_rows(words, vendor)]
    source = sources()
    if args.json:
        about = {"prices": source.prices, "limits": source.limits, "date": source.date}
        print_json({**about, "models": rows})
        return 0
    if not rows:
        name = f" {' '.join(words)!r}" if words else ""
        of_vendor = "" if args.vendor is None else f" of the vendor {args.vendor!r}"
        print_error(
            f"weft: no model{name}{of_vendor} is known, so it has no price"
            f"{near_names(words, vendor)}; a [[model]] table in weft.toml adds one"
        )
        return 0
    print_table([COLUMNS, *map(cells, rows)])
    print(f"\nPrices: {source.prices}. Limits: {source.limits}. Read on {source.date}.")
    return 0


def vendor_id(name: str) -> str:
    """The id of a vendor that is named in any case, or by another of its names."""
    lower = name.strip().lower()
    return ALIASES.get(lower, lower)


def near_names(words: Sequence[str], vendor: str | None) -> str:
    """Vendors or models with similar names, for a message."""
    from difflib import get_close_matches

    models = known_models()
    ids: dict[str, set[str]] = {}
    for model in models:
        ids.setdefault(model.vendor, set()).add(model.id)
    if vendor is not None and vendor not in ids:
        similar = get_close_matches(vendor, ids, n=NEAR_NAMES)
    else:
        names = ids[vendor] if vendor is not None else set[str]().union(*ids.values())
        similar = get_close_matches("-".join(words).lower(), sorted(names), n=NEAR_NAMES)
    return f" (similar: {', '.join(similar)})" if similar else ""


def shipped_rows(words: Sequence[str], vendor: str | None) -> Iterator[dict[str, Any]]:
    """The known models that the words select. A whole name selects the model that it means."""
    exact = find_known(words[0], vendor or "") if len(words) == 1 else None
    if exact is not None and vendor in (None, exact.vendor):
        yield to_row(exact, time.time())
        return
    now = time.time()
    for model in known_models():
        text = f"{model.vendor} {model.id} {' '.join(model.names)}".lower()
        if vendor in (None, model.vendor) and all(word.lower() in text for word in words):
            yield to_row(model, now)
    for row in load_catalog().rows:  # Weft's own models
        name, owner = row.match.rstrip("*"), str(row.fields.get("vendor", ""))
        is_selected = all(word.lower() in f"{owner} {name}" for word in words)
        if "price" in row.fields and not row.own and vendor in (None, owner) and is_selected:
            yield to_row(KnownModel(**known_fields(row.fields), id=name, vendor=owner), now)


def known_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a row of the catalogue."""
    price = msgspec.convert(fields["price"], Price)
    return {"price": price, "window": fields.get("window"), "output": fields.get("output")}


def to_row(model: KnownModel, now: float) -> dict[str, Any]:
    return {
        "vendor": model.vendor,
        "id": model.id,
        "names": model.names,
        "window": model.window,
        "output": model.output,
        "price": price_json(model.price.at(now)),
        "dated": [price_json(price) for price in model.price.dated],
        "variants": [price_json(variant) for variant in model.price.variants],
    }


def price_json(price: msgspec.Struct) -> dict[str, Any]:
    """A price without the fields that it does not set, and without those of other requests."""
    fields = msgspec.to_builtins(price, builtin_types=())
    left_out = ("dated", "variants") if isinstance(price, Price) else ()
    return {
        name: value
        for name, value in fields.items()
        if value is not None and name not in left_out and (value or name in ("input", "output"))
    }


def own_rows(
    config: str | os.PathLike[str] | None, words: Sequence[str], vendor: str | None
) -> Iterator[dict[str, Any]]:
    """The rows of weft.toml that set a price or a limit, by their patterns."""
    if config is None or vendor is not None:
        return
    for row in load_catalog(config).rows:
        figures = {name: row.fields.get(name) for name in ("window", "output", "price")}
        selected = all(word.lower() in row.match.lower() for word in words)
        if row.own and selected and any(value is not None for value in figures.values()):
            yield {"vendor": os.fspath(config), "id": row.match, "names": [], **figures}


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    price = cast("dict[str, Any]", row["price"] or {})
    rates = [price.get(name) for name in ("input", "output", "cached", "written", "written_1h")]
    mark = "+" if price.get("tiers") else ""
    prices = ["" if rate is None else f"{rate:g}{mark}" for rate in rates]
    limits = ["" if row[name] is None else f"{row[name]:,}" for name in ("window", "output")]
    return (row["vendor"], row["id"], *limits, *prices)


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print columns: texts to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        texts = [
            cell.ljust(width) if number < 2 else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(texts).rstrip())
