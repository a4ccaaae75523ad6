"""Plans the answer to a text from the page: which model answers, and whether the thread fits.

A thread keeps its model: without a choice, the model that answered last answers again. A send that
would compact the thread is not started: the caller gets the figures first, and has to say yes.
"""

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from weft.agent import Agent, Compaction, Confirm, ContextUse
from weft.client import OFFLINE, OFFLINE_MODEL, ModelClient, Provider, Route, find_route
from weft.demo.tools import demo_tools
from weft.errors import Refused, WeftError
from weft.history import Row
from weft.model import JsonObject, Origin
from weft.thread import Thread, open as open_thread
from weft.tokens import counter_for

from .api_call import ApiCall
from .api_views import Change, brief_json, count_once
from .errors import public_message
from .runs import Start, is_unanswered
from .state import State

PACE_SECONDS = 0.02
"""Between the pieces of the offline model, which would otherwise all come at once."""
NO_PROTOCOL = ""
"""The agent speaks every protocol, and has no credentials of its own to pass through."""
LISTED_ROWS = 30
TOKENIZER = "o200k"


class ModelChoice(Struct, frozen=True):
    """The model that a thread goes on with; `reason` says why it cannot be used."""

    name: str | None = None
    reason: str | None = None


class Plan(Struct, frozen=True, kw_only=True):
    """A run ready to begin, unless there is a `question` that has to be answered first."""

    call: ApiCall
    thread: Thread
    route: Route
    start: Start
    question: JsonObject | None = None

    def make_agent(self, confirm: Callable[[Confirm], Awaitable[bool]]) -> Agent:
        """The agent that answers; `confirm` is asked before it compacts the thread."""
        compaction = None if self.start.compact is False else Compaction(confirm=confirm)
        return make_agent(self.call, self.thread, self.route, compaction)


def plan_run(call: ApiCall) -> Plan:
    """Read a `say` or `retry` frame; raises `Refused` and changes nothing if it cannot be done."""
    text = None if call.fields.get("type") == "retry" else call.text("text")
    compact = call.flag_or_none("compact")
    request = call.text_or_none("request")
    thread_name, branch = call.place()
    call.state.runs.refuse_if_running(thread_name, branch)
    name = call.text_or_none("model") or default_model(call)
    route = usable_route(call.state, name)
    thread = writable_thread(call, is_retry=text is None)  # last: it creates a new thread
    head = thread.compile().head
    start = Start(
        thread=thread.name,
        branch=thread.current,
        model=name,
        base=head,
        scope=_scope(call),
        text=text,
        request=request,
        compact=compact,
        served_by=(route.provider.name, route.model),
    )
    plan = Plan(call=call, thread=thread, route=route, start=start)
    if compact is not None or head is None:
        return plan
    use = make_agent(call, thread, route, Compaction()).context_use(text)
    if use is None or not use.is_over:
        return plan
    question = compaction_question(call, thread, route, use)
    return Plan(
        call=call,
        thread=thread,
        route=route,
        start=start,
        question={
            "thread": thread.name,
            "branch": thread.current,
            "request": request,
            "retry": text is None,
            "model": name,
            **question,
        },
    )


def make_agent(call: ApiCall, thread: Thread, route: Route, compaction: Compaction | None) -> Agent:
    """The page's agent in a thread."""
    return Agent(
        thread,
        model=route.model,
        provider=route.provider,
        tools=demo_tools(call.store, call.threads),
        pace=PACE_SECONDS,
        catalog=call.state.catalog,
        compaction=compaction,
    )


def writable_thread(call: ApiCall, *, is_retry: bool) -> Thread:
    """The thread to write to, created if it is new; a branch that is named must exist.

    A retry needs a thread that ends in a question.
    """
    if call.record() is None and not is_retry:
        return open_thread(call.store, call.new_name, checkpoints=True, scope=call.scope)
    found = call.thread()
    thread = open_thread(call.store, found.name, checkpoints=True, branch=found.current)
    if is_retry and not is_unanswered(thread.compile().messages):
        raise Refused("the last message is answered; there is nothing to retry", param="type")
    return thread


def last_origin(rows: Sequence[Row]) -> Origin | None:
    """Which model answered last."""
    answers = (row.message.origin for row in reversed(rows) if row.message.role == "assistant")
    return next((origin for origin in answers if origin is not None and origin.model), None)


def choose_model(state: State, rows: Sequence[Row]) -> ModelChoice:
    """The model that answered last in these rows, and why it cannot answer again, if so."""
    origin = last_origin(rows)
    if origin is None or origin.model is None:
        return ModelChoice()
    name = origin.model
    if any(provider.name == origin.provider for provider in state.providers):
        name = _spell(state, name, origin.provider)
    return ModelChoice(name, check_model(state, name))


def _spell(state: State, model: str, upstream: str | None) -> str:
    """A name that leads to this upstream: the plain one if that is enough."""
    try:
        is_enough = find_model_route(state, model).provider.name == upstream
    except Refused:
        is_enough = False
    return model if is_enough else f"{upstream}/{model}"


def check_model(state: State, name: str) -> str | None:
    """Why no configured upstream can serve a model; None if one can."""
    try:
        route = usable_route(state, name)
    except Refused as error:
        return error.message
    provider = route.provider
    known = state.catalog.vendor_of(route.model)
    is_served = (provider.name, route.model) in state.runs.served
    if provider is OFFLINE or is_served or (known and known == provider.vendor):
        return None
    if state.listings.lacks(provider, route.model):
        return f"the upstream {provider.name!r} does not list {route.model!r}"
    return None


def find_model_route(state: State, name: str) -> Route:
    """The upstream for a model that the page names; raises `Refused`."""
    return find_route(name, NO_PROTOCOL, state.providers, state.catalog, pays=False)


def usable_route(state: State, name: str) -> Route:
    """The same, for an upstream that has its key."""
    route = find_model_route(state, name)
    if _lacks_key(route.provider):
        what = f"the upstream {route.provider.name!r} has no API key configured"
        raise Refused(what, param="model")
    return route


def _lacks_key(provider: Provider) -> bool:
    return provider.keyed and provider.key is None


def default_model(call: ApiCall) -> str:
    """The thread's own model; the offline model if none has answered yet."""
    if call.record() is None:
        return OFFLINE_MODEL
    choice = choose_model(call.state, call.thread().compile().rows)
    if choice.reason is not None:
        raise Refused(f"choose another model: {choice.reason}", param="model")
    return choice.name or OFFLINE_MODEL


def context_json(call: ApiCall, thread: Thread | None, model: str) -> JsonObject:
    """How full the window of a model is with this thread, by the counter that starts compaction."""
    try:
        route = find_model_route(call.state, model)
    except Refused:  # its window is known all the same
        route = Route(OFFLINE, model)
    if thread is None:
        return {"model": model, "tokens": 0, "window": call.state.catalog.find(model).window}
    use = make_agent(call, thread, route, Compaction()).context_use()
    if use is None:
        return {"model": model, "tokens": 0, "window": 0}
    return {"model": model, "tokens": use.tokens, "window": use.window, "limit": use.limit}


def compaction_question(call: ApiCall, thread: Thread, route: Route, use: ContextUse) -> JsonObject:
    """What a send would compact: figures, and the messages that would go."""
    facts: JsonObject = {
        "tokens": use.tokens,
        "window": use.window,
        "limit": use.limit,
        "after": use.target,
    }
    compiled = thread.compile()
    scale = compiled.tokens / max(1, use.tokens)  # the planner counts with another counter
    asker = ModelClient(route.provider, route.model, call.state.catalog)
    try:
        result = thread.compact(model=asker, budget=int(use.target * scale), preview=True)
    except WeftError as error:
        return {**facts, "problem": public_message(error)}
    change = Change(compiled.rows, result.rows)
    saved = result.tokens_before - result.tokens_after
    count = count_once(counter_for(TOKENIZER).message)
    return {
        **facts,
        "after": max(0, use.tokens - int(saved / scale)) if scale else use.target,
        "messages": len(change.removed),
        "removed": [brief_json(row, count) for row in change.removed[:LISTED_ROWS]],
        "requests": result.requests,
        "cost": result.cost,
    }


def _scope(call: ApiCall) -> str | None:
    record = call.record()
    return call.scope if record is None else record.scope
