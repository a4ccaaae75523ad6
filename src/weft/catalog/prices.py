"""Prices per million tokens, and the cost of one answer.

A price may change with the date of the request or the hour of the day (`dated`), with the size of
the prompt (`tiers`), and with the kind of request (`variants`): a batch, a service tier, fast mode.
The rules are those of `genai-prices`, where the prices come from:
https://github.com/pydantic/genai-prices
"""

import time
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Annotated

from msgspec import Meta, Struct, structs

Hours = Annotated[str, Meta(pattern=r"^\d\d:\d\d-\d\d:\d\d$")]
"""A part of each day in UTC, such as `16:30-00:30`."""

RATES = ("input", "output", "cached", "written", "written_1h")


class PriceTier(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The prices of a request whose input has more than `above` tokens, for all its tokens.

    A price that is None does not change.
    """

    above: int
    input: float | None = None
    output: float | None = None
    cached: float | None = None
    written: float | None = None
    written_1h: float | None = None


class Price(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dollars per million tokens.

    - `cached`: input that is read from the prompt cache. None: it costs as much as other input.
    - `written`: input that is written to the cache. None: the same.
    - `written_1h`: input that is written to the cache for an hour. None: as much as `written`.
    - `request`: dollars for each request; `search`: dollars for each web search.
    - `tiers`: other prices for large requests.
    - `dated`: other prices from a day on or at some hours. The last one that applies is used.
    - `variants`: other prices for batches, service tiers and fast mode.
    """

    input: float
    output: float
    cached: float | None = None
    written: float | None = None
    written_1h: float | None = None
    request: float = 0.0
    search: float = 0.0
    tiers: tuple[PriceTier, ...] = ()
    dated: tuple["DatedPrice", ...] = ()
    variants: tuple["PriceVariant", ...] = ()

    def at(self, moment: float, when: Mapping[str, str] | None = None) -> "Price":
        """The price of a request at that time (seconds since 1970).

        `when` describes the request, in the words of `variants`: `{"processing": "batch"}`.
        """
        if not self.dated and not (when and self.variants):
            return self
        instant = datetime.fromtimestamp(moment, UTC)
        price = next(
            (
                other
                for other in reversed(self.dated)
                if _applies(other.since, other.hours, instant)
            ),
            self,
        )
        for variant in reversed(self.variants if when else ()):  # the first one wins
            if (
                _applies(variant.since, variant.hours, instant)
                and variant.when.items() <= (when or {}).items()
            ):
                price = _with_variant(price, variant)
        return price

    def rate(self, name: str, input: int) -> float | None:
        """One of `RATES` for a request with that many input tokens."""
        for tier in reversed(self.tiers):
            if input > tier.above and (rate := getattr(tier, name)) is not None:
                return rate
        return getattr(self, name)


class DatedPrice(Price, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A price from a day on (UTC), or at some hours of each day."""

    since: date | None = None
    hours: Hours | None = None


class PriceVariant(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The prices that differ for a request with these properties; None: the same price."""

    when: dict[str, str]
    since: date | None = None
    hours: Hours | None = None
    input: float | None = None
    output: float | None = None
    cached: float | None = None
    written: float | None = None
    written_1h: float | None = None
    request: float | None = None
    search: float | None = None
    tiers: tuple[PriceTier, ...] = ()


def cost(
    price: Price,
    *,
    input: int,
    output: int,
    cached: int = 0,
    written: int = 0,
    written_1h: int = 0,
    searches: int = 0,
    at: float | None = None,
    when: Mapping[str, str] | None = None,
) -> float:
    """The cost of one answer in dollars, at the prices of the time `at` (default: now).

    `input` counts all input, as `Usage` does. The tokens that were read from the cache (`cached`)
    or written to it (`written`) are subtracted from it, so that no token is charged twice.
    `written_1h` is the part of `written` that is kept for an hour. `when` is as in `Price.at`.
    """
    if price.dated or (when and price.variants):
        price = price.at(time.time() if at is None else at, when)
    input_rate = price.rate("input", input) or 0.0
    cached_rate = price.rate("cached", input)
    written_rate = price.rate("written", input)
    written_rate = input_rate if written_rate is None else written_rate
    hour_rate = price.rate("written_1h", input)
    written_1h = min(written_1h, written)
    dollars = max(0, input - cached - written) * input_rate
    dollars += cached * (input_rate if cached_rate is None else cached_rate)
    dollars += (written - written_1h) * written_rate
    dollars += written_1h * (written_rate if hour_rate is None else hour_rate)
    dollars += output * (price.rate("output", input) or 0.0)
    return dollars / 1_000_000 + price.request + searches * price.search


def _applies(since: date | None, hours: str | None, instant: datetime) -> bool:
    if since is not None and instant.date() < since:
        return False
    if hours is None:
        return True
    start, _, end = hours.partition("-")
    now = f"{instant:%H:%M}"
    return start <= now < end if start <= end else now >= start or now < end


def _with_variant(price: Price, variant: PriceVariant) -> Price:
    """The price with a variant's rates; a rate that the variant sets takes its tiers from there."""
    changed = {
        name: rate
        for name in (*RATES, "request", "search")
        if (rate := getattr(variant, name)) is not None
    }
    tiers: dict[int, dict[str, float]] = {}
    for source, names in ((price.tiers, [*{*RATES} - {*changed}]), (variant.tiers, [*changed])):
        for tier in source:
            row = {name: rate for name in names if (rate := getattr(tier, name)) is not None}
            if row:
                tiers.setdefault(tier.above, {}).update(row)
    merged = tuple(PriceTier(above=above, **tiers[above]) for above in sorted(tiers))
    return structs.replace(price, **changed, tiers=merged)
