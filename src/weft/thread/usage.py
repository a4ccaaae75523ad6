"""The tokens of a thread's answers, as their vendors reported them, and their cost.

An answer counts once, even if several branches have it. Undone answers and failed attempts are not
counted. The cost comes from the prices of the catalogue; answers of models without a price count as
`unpriced`.

The reports also correct Weft's own counts (`calibrate`). A report has the real number of tokens up
to a commit. The tokens that were added or removed after that commit are estimated. If a large
conversation was compacted since the report, the estimate of the removed messages is scaled by the
report's ratio of real to estimated tokens. Reports come with answers, or from
`Thread.record_usage`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from weft.catalog import Catalog, Price, cost, load_catalog
from weft.errors import ThreadError
from weft.history import View, decode_entries
from weft.ids import Id
from weft.model import Origin, Usage
from weft.store import Step, Store

from .handle import Handle

UNKNOWN = "unknown"
"""The model of a report that names none."""


class AnswerCost(Struct, frozen=True, kw_only=True):
    """The tokens of one answer, and its cost in dollars (`None` if its model has no price).

    `turn` is the commit of the user's message that it answers; `None` if there is none before it.
    `input` counts all input tokens, including those that were read from the cache (`cached`) or
    written to it (`written`).
    """

    commit: str
    turn: str | None
    created: float
    model: str
    input: int
    output: int
    cached: int
    written: int
    cost: float | None


class UsageTotal(Struct, frozen=True, kw_only=True):
    """Tokens and dollars of several answers.

    `cost` is None if no answer has a price; `unpriced` counts the answers without one.
    """

    answers: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0
    cost: float | None = None
    unpriced: int = 0

    def to_dict(self) -> dict[str, int | float | None]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


def total_usage(costs: Iterable[AnswerCost]) -> UsageTotal:
    """The total of several answers."""
    answers = list(costs)
    prices = [answer.cost for answer in answers if answer.cost is not None]
    return UsageTotal(
        answers=len(answers),
        input=sum(answer.input for answer in answers),
        output=sum(answer.output for answer in answers),
        cached=sum(answer.cached for answer in answers),
        cost=sum(prices) if prices else None,
        unpriced=len(answers) - len(prices),
    )


def price_usage(
    usage: Usage, model: str, catalog: Catalog, *, upstream: str = "", at: float | None = None
) -> float | None:
    """The cost of an answer in dollars; None if the catalogue has no price for its model.

    `upstream` is the upstream that served it, `at` the time of the request (default: now).
    """
    price = catalog.find(model, upstream).price
    return None if price is None else usage_cost(usage, price, at)


def usage_cost(usage: Usage, price: Price, at: float | None = None) -> float:
    """The cost of an answer in dollars, with what only the vendor's own record says (`raw`):

    how much was written to the cache for an hour, web searches, and whether it was a batch, in fast
    mode, or of a service tier that has prices of its own.
    """
    raw = usage.raw or {}
    record: Mapping[str, Any] = raw.get("anthropic") or {}
    lifetimes: object = record.get("cache_creation")
    tools: object = record.get("server_tool_use")
    return cost(
        price,
        input=usage.input or 0,
        output=usage.output or 0,
        cached=usage.cached or 0,
        written=usage.written or 0,
        written_1h=_count(lifetimes, "ephemeral_1h_input_tokens"),
        searches=_count(tools, "web_search_requests"),
        at=at,
        when=_request_kind(raw) if price.variants else None,
    )


def _count(record: object, name: str) -> int:
    value = cast("Mapping[str, object]", record).get(name) if isinstance(record, Mapping) else None
    return value if isinstance(value, int) and value > 0 else 0


def _request_kind(raw: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """How the request was processed, in the words of `weft.catalog.Price.variants`.

    Anthropic reports a batch as a service tier, OpenAI and Anthropic report the tier and the speed.
    """
    kind: dict[str, str] = {}
    for record in raw.values():
        for name in ("service_tier", "speed"):
            value = record.get(name)
            if isinstance(value, str):
                kind[name] = value
    if kind.get("service_tier") == "batch":
        kind["processing"] = "batch"
    return kind


def read_costs(
    store: Store,
    thread: str,
    catalog: Catalog | None = None,
    histories: Mapping[Id, Sequence[Step]] | None = None,
) -> list[AnswerCost]:
    """The answers of all branches of a thread, oldest first.

    `catalog` has the prices; by default it is Weft's own. `histories` are the histories of heads
    that the caller has already read.
    """
    answers: dict[Id, AnswerCost] = {}
    heads = list(store.refs(thread).values())
    visited: set[Id] = set()
    while heads:
        head = heads.pop()
        if head in visited:
            continue
        steps = (histories or {}).get(head) or store.walk(thread, head)
        turn: str | None = None
        searched = 0  # how many of the steps were searched for the user's messages
        model, upstream = UNKNOWN, ""
        for index, step in enumerate(steps):
            commit = step.commit
            visited.add(commit.id)
            if len(commit.parents) > 1:
                heads += [parent for parent in commit.parents[1:] if parent not in visited]
            if commit.usage is None:
                continue
            origin = _origin_of(step)
            if origin is not None:
                model, upstream = origin.model or model, origin.provider or ""
            if commit.id not in answers:
                turn = _last_user_message(steps[searched : index + 1]) or turn
                searched = index + 1
                catalog = catalog or load_catalog()
                answers[commit.id] = _answer_cost(step, turn, (model, upstream), catalog)
    return sorted(answers.values(), key=lambda answer: answer.created)


def _last_user_message(steps: Sequence[Step]) -> str | None:
    """The newest of these commits that appends a message of the user."""
    for step in reversed(steps):
        is_append = step.commit.kind == "append"
        if is_append and any(message.role == "user" for message in decode_entries(step)):
            return step.commit.id.hex()
    return None


def _origin_of(step: Step) -> Origin | None:
    origins = (message.origin for message in decode_entries(step))
    return next((origin for origin in origins if origin is not None and origin.model), None)


def _answer_cost(
    step: Step, turn: str | None, served_by: tuple[str, str], catalog: Catalog
) -> AnswerCost:
    """`served_by` are the model and the upstream."""
    model, upstream = served_by
    usage = msgspec.json.decode(step.commit.usage or b"{}", type=Usage)
    return AnswerCost(
        commit=step.commit.id.hex(),
        turn=turn,
        created=step.commit.created,
        model=model,
        input=usage.input or 0,
        output=usage.output or 0,
        cached=usage.cached or 0,
        written=usage.written or 0,
        cost=price_usage(usage, model, catalog, upstream=upstream, at=step.commit.created),
    )


NEARBY = 64
"""How many of the newest commits are searched for a report."""

LARGE_CONTEXT = 20_000
"""Above this many tokens, the estimate of removed messages is scaled by the report's ratio.

In a smaller context, a vendor's hidden prompt is a large part of the difference, and would distort
the ratio.
"""

USAGE_MEMBERS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("prompt_tokens",), "completion_tokens"),
    (("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"), "output_tokens"),
    (("promptTokenCount",), "candidatesTokenCount"),
)
"""The names of input tokens, which are added up, and of output tokens, by vendor.

The first name must be present.
"""


class Calibration(Struct, frozen=True):
    """The tokens to add to an estimate, and the report that they come from (`api:100+50`)."""

    correction: int
    source: str


def read_usage(usage: Usage | Mapping[str, object]) -> Usage:
    """A vendor's report; raises `ThreadError` if it has no known member."""
    if isinstance(usage, Usage):
        return usage
    for input_names, output_name in USAGE_MEMBERS:
        if input_names[0] in usage:
            counts = [usage.get(name) for name in input_names]
            output_tokens = usage.get(output_name)
            input_tokens = sum(tokens for tokens in counts if isinstance(tokens, int))
            return Usage(
                input=input_tokens,
                output=output_tokens if isinstance(output_tokens, int) else 0,
            )
    members = ", ".join(map(str, usage)) or "no members"
    raise ThreadError(f"a usage report with {members} matches no supported vendor")


def calibrate(handle: Handle, view: View) -> Calibration | None:
    """The correction from the nearest earlier report; `None` if there is none nearby."""
    if view.head is None:
        return None
    for step in reversed(handle.store.walk(handle.name, view.head, limit=NEARBY)):
        if step.commit.usage is None:
            continue
        usage = msgspec.json.decode(step.commit.usage, type=Usage)
        if usage.input is not None and usage.output is not None:
            estimate = handle.view(step.commit.id).tokens(handle.count)
            source = f"api:{usage.input}+{usage.output}"
            reported = usage.input + usage.output
            correction = reported - estimate
            removed = max(0, estimate - view.tokens(handle.count))
            if removed and estimate >= LARGE_CONTEXT:
                correction -= round(removed * (reported / estimate - 1))
            return Calibration(correction, source)
    return None
