"""Plans a run for the page: which model answers, and whether the thread fits its window.

A thread keeps its model: if the user chooses none, the model that answered last answers again. A
run that would compact the thread does not start: the user sees the figures first, and decides.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from time import monotonic

from msgspec import Struct, structs

from weft.agent import (
    Agent,
    ClaudeAgent,
    ClaudeOptions,
    Compaction,
    Confirm,
    ContextUse,
    MessageCounts,
    Permissions,
    configured_compaction,
)
from weft.client import (
    OFFLINE,
    OFFLINE_MODEL,
    SAME_MODEL,
    ModelClient,
    Provider,
    Route,
    find_route,
    is_secret,
    summary_client,
)
from weft.demo import demo_tools
from weft.errors import Refused, WeftError
from weft.history import Row, is_visible
from weft.model import JsonObject, Message, Origin
from weft.thread import CompiledContext, Thread, open as open_thread
from weft.tokens import counter_for

from .api_call import ApiCall
from .api_media import read_attached
from .auth import name_in_scope
from .errors import public_message
from .listings import ModelListing
from .runs import OWN_AGENT, Run, RunAgent, RunSpec, is_unanswered
from .state import State
from .thread_views import Change, ThreadView, brief_json, count_once

PACE_SECONDS = 0.02
"""The pause between two pieces of the offline model's answer, which it has at once."""
NO_PROTOCOL = ""
"""The page speaks no vendor's protocol, so it has no credentials to pass through."""
LISTED_ROWS = 30
"""How many of the messages that a compaction would remove are listed."""
RECORD_SECONDS = 5.0
"""How long the end of a stopped run waits for the record of its last exchange."""
TOKENIZER = "o200k"
REPORT_ROWS = 64
"""For how many rows after a report its token count is still used."""


class ModelChoice(Struct, frozen=True):
    """The model that continues a thread; `reason` says why it cannot, None if it can."""

    name: str | None = None
    reason: str | None = None


class Plan(Struct, frozen=True, kw_only=True):
    """A run that is ready to start, unless the user must answer `question` first.

    `messages` are the messages of the thread, and `reported` is their size in tokens as the model
    reported it.
    """

    call: ApiCall
    thread: Thread
    route: Route
    spec: RunSpec
    messages: tuple[Message, ...] = ()
    reported: int | None = None
    question: JsonObject | None = None

    def make_agent(self, run: Run) -> RunAgent:
        """The agent that answers.

        It asks the watchers of the run before it compacts the thread, and before it runs a tool.
        """
        if self.spec.agent != OWN_AGENT:
            return make_claude_agent(self, run)
        is_off = self.spec.compact is False
        compaction = None if is_off else page_compaction(self.call, run.confirm)
        memory = self.call.state.permissions.of(self.call.scope)
        permissions = memory.with_ask(run.questions.ask_permission)
        agent = make_agent(self.call, self.thread, self.route, compaction, permissions)
        agent.measure(self.messages, self.call.state.views.counts(self.spec.model), self.reported)
        return agent


def plan_run(call: ApiCall) -> Plan:
    """Plan the run for a `say` or `retry` frame; raises `Refused` if it cannot be run."""
    is_retry = call.fields.get("type") == "retry"
    attached = () if is_retry else read_attached(call)
    text = None if is_retry else read_text(call)
    compact = call.flag_or_none("compact")
    request = call.text_or_none("request")
    thread_name, branch = call.thread_and_branch()
    call.state.runs.refuse_if_running(thread_name, branch)
    name = call.text_or_none("model") or default_model(call)
    agent = read_agent(call)
    # Another agent may bring credentials of its own.
    route = (
        usable_route(call.state, name) if agent == OWN_AGENT else find_model_route(call.state, name)
    )
    thread = writable_thread(call, is_retry=text is None)  # last: it creates a new thread
    if call.text_or_none("agent") is not None:
        call.store.describe_thread(thread.name, agent=agent)
    head = thread.compile().head
    spec = RunSpec(
        thread=thread.name,
        branch=thread.current,
        model=name,
        base=head,
        scope=_scope(call),
        text=text,
        request=request,
        compact=compact,
        served_by=(route.provider.name, route.model),
        attached=attached,
        agent=agent,
    )
    plan = Plan(call=call, thread=thread, route=route, spec=spec)
    if head is None or agent != OWN_AGENT:
        return plan
    view = call.state.views.read(call.store, thread.name, thread.current, bytes.fromhex(head))
    measuring = make_agent(call, thread, route, page_compaction(call))
    measured = measure_thread(call, measuring, route, name, view)
    plan = structs.replace(plan, messages=measured.messages, reported=measured.reported)
    usage = measuring.context_use(text, attached)
    if compact is not None or usage is None or not usage.is_over:
        return plan
    question = compaction_question(call, thread, route, usage)
    return structs.replace(
        plan,
        question={
            "thread": thread.name,
            "branch": thread.current,
            "request": request,
            "retry": text is None,
            "model": name,
            **question,
        },
    )


def read_agent(call: ApiCall) -> str:
    """The agent that a frame chooses; raises `Refused` if this server does not allow it."""
    name = call.text_or_none("agent") or OWN_AGENT
    is_allowed = name == call.state.settings.agent and call.state.url is not None
    if name != OWN_AGENT and not is_allowed:
        message = f"this server was not started with --agent {name}"
        raise Refused(message, param="agent", status=403)
    return name


def make_claude_agent(plan: Plan, run: Run) -> ClaudeAgent:
    """Claude Code for a run; it gets the caller's key and no other secret."""
    call, state = plan.call, plan.call.state
    options = ClaudeOptions(
        model=plan.spec.model,
        folder=state.settings.agent_dir,
        program=state.settings.agent_program,
        key=call.key,
        scope=call.caller.scope,
        suffix=name_in_scope(call.caller, ""),
        env={name: "" for name in os.environ if is_secret(name)},  # the server's own secrets
    )

    async def wait_recorded() -> None:
        """Wait until the exchanges of the thread are recorded, also one that was cut off."""
        deadline = monotonic() + RECORD_SECONDS
        while any(each.thread == plan.spec.thread for each in state.live_feed):
            if monotonic() > deadline:
                return
            await asyncio.sleep(RECORD_SECONDS / 100)

    memory = state.permissions.of(call.scope)
    return ClaudeAgent(
        plan.thread,
        state.url or "",
        options,
        permission=memory.with_ask(run.questions.ask_permission),
        ask_user=run.questions.ask_user,
        sessions=state.claude_sessions,
        wait_recorded=wait_recorded,
        catalog=state.catalog,
    )


def read_text(call: ApiCall) -> str:
    """The text of a `say` frame; it may be empty if files are attached."""
    if call.fields.get("attach") and call.fields.get("text") == "":
        return ""
    return call.text("text")


def make_agent(
    call: ApiCall,
    thread: Thread,
    route: Route,
    compaction: Compaction | None,
    permissions: Permissions | None = None,
) -> Agent:
    """The agent that answers in a thread for the page."""
    return Agent(
        thread,
        model=route.model,
        provider=route.provider,
        tools=[*demo_tools(call.store, call.visible_threads), *call.state.tool_servers],
        pace=PACE_SECONDS,
        catalog=call.state.catalog,
        compaction=compaction,
        permission=permissions,
    )


def page_compaction(
    call: ApiCall, confirm: Callable[[Confirm], Awaitable[bool]] | None = None
) -> Compaction:
    """How the page's agent compacts: as the `[compaction]` table says.

    If no upstream has the model of the table, the agent's own model writes the summaries.
    """
    settings = call.state.settings.compaction
    if settings.model is None or settings.model == SAME_MODEL:
        return configured_compaction(settings, confirm=confirm)
    try:
        route = usable_route(call.state, settings.model)
    except Refused:
        return configured_compaction(settings, confirm=confirm)
    client = summary_client(route, call.state.catalog, settings.retries)
    return configured_compaction(settings, client, confirm)


def writable_thread(call: ApiCall, *, is_retry: bool) -> Thread:
    """The thread to write to, created if it is new; a named branch must exist.

    For a retry, the last message must be unanswered.
    """
    if call.thread_record() is None and not is_retry:
        return open_thread(call.store, call.scoped_name, checkpoints=True, scope=call.scope)
    existing = call.thread()
    thread = open_thread(call.store, existing.name, checkpoints=True, branch=existing.current)
    if is_retry and not is_unanswered(thread.compile().messages):
        raise Refused("the last message is answered; there is nothing to retry", param="type")
    return thread


def last_origin(rows: Sequence[Row]) -> Origin | None:
    """Which model answered last."""
    answers = (row.message.origin for row in reversed(rows) if row.message.role == "assistant")
    return next((origin for origin in answers if origin is not None and origin.model), None)


def choose_model(state: State, rows: Sequence[Row]) -> ModelChoice:
    """The model that answered last in these rows, and whether it can answer again."""
    origin = last_origin(rows)
    if origin is None or origin.model is None:
        return ModelChoice()
    name = origin.model
    if any(provider.name == origin.provider for provider in state.providers):
        name = _qualify(state, name, origin.provider)
    reason = check_model(state, name)
    names = [] if reason is None else served_names(state, state.listings.with_model(name))
    if len(names) == 1:
        return ModelChoice(names[0])
    if names:
        reason = f"several upstreams serve it, as {', '.join(names)}"
    return ModelChoice(name, reason)


def served_names(state: State, listings: Iterable[ModelListing]) -> list[str]:
    """The names under which the listed models can be asked for.

    A model that its own name does not lead to is named with its upstream: `openai/gpt-5`.
    """
    names = dict.fromkeys(
        _qualify(state, model, listing.upstream) for listing in listings for model in listing.models
    )
    return [name for name in names if check_model(state, name) is None]


def _qualify(state: State, model: str, upstream: str | None) -> str:
    """A model name that is routed to this upstream, with the upstream as prefix if needed."""
    try:
        is_routed = find_model_route(state, model).provider.name == upstream
    except Refused:
        is_routed = False
    return model if is_routed else f"{upstream}/{model}"


def check_model(state: State, name: str) -> str | None:
    """Why no configured upstream can serve a model; None if one can."""
    try:
        route = usable_route(state, name)
    except Refused as error:
        return error.message
    provider = route.provider
    vendor = state.catalog.vendor_of(route.model)
    is_served = (provider.name, route.model) in state.runs.served
    if provider is OFFLINE or is_served or (vendor and vendor == provider.vendor):
        return None
    if state.listings.lacks_model(provider, route.model):
        return f"the upstream {provider.name!r} does not list {route.model!r}"
    return None


def find_model_route(state: State, name: str) -> Route:
    """The upstream for a model name; raises `Refused` if there is none."""
    return find_route(name, NO_PROTOCOL, state.providers, state.catalog, has_credentials=False)


def usable_route(state: State, name: str) -> Route:
    """The upstream for a model name; raises `Refused` if there is none, or its key is missing."""
    route = find_model_route(state, name)
    if _lacks_key(route.provider):
        message = f"the upstream {route.provider.name!r} has no API key configured"
        raise Refused(message, param="model")
    return route


def _lacks_key(provider: Provider) -> bool:
    return provider.keyed and not provider.has_key


def default_model(call: ApiCall) -> str:
    """The thread's own model; the offline model if none has answered yet."""
    if call.thread_record() is None:
        return OFFLINE_MODEL
    choice = choose_model(call.state, call.thread().compile().rows)
    if choice.reason is not None:
        raise Refused(f"choose another model: {choice.reason}", param="model")
    return choice.name or OFFLINE_MODEL


def context_json(call: ApiCall, thread: Thread | None, model: str, view: ThreadView) -> JsonObject:
    """How much of a model's window the thread fills, tools included, and where compaction starts.

    If the model reported the size of its last request, `tokens` is that report and an estimate of
    what came after it (`source` is `reported`). Otherwise all of it is an estimate. Messages that
    were counted before are not counted again.
    """
    try:
        route = find_model_route(call.state, model)
    except Refused:  # the catalogue knows the model's window even if no upstream serves it
        route = Route(OFFLINE, model)
    if thread is None:
        return {"model": model, "tokens": 0, "window": call.state.catalog.find(model).window}
    agent = make_agent(call, thread, route, page_compaction(call))
    measured = measure_thread(call, agent, route, model, view)
    if measured.use is None:
        return {"model": model, "tokens": 0, "window": 0}
    return {
        "model": model,
        "tokens": measured.use.tokens,
        "estimate": measured.estimate,
        "source": "estimate" if measured.reported is None else "reported",
        "window": measured.use.window,
        "limit": measured.use.limit,
    }


class MeasuredThread(Struct, frozen=True):
    """How full a model's window is with the messages of a thread.

    `reported` is the number of tokens that the model reported; None if there is only an estimate.
    `use` is None if the agent does not compact.
    """

    messages: tuple[Message, ...]
    estimate: int
    reported: int | None
    use: ContextUse | None


def measure_thread(
    call: ApiCall, agent: Agent, route: Route, model: str, view: ThreadView
) -> MeasuredThread:
    """How full the model's window is, measured as the agent does before it compacts.

    The gauge of the page, the question before a send and the agent of a run all use this.
    """
    messages = CompiledContext(view.view, counter_for(TOKENIZER).message).sendable
    counts = call.state.views.counts(model)
    usage = agent.measure(messages, counts)
    estimate = 0 if usage is None else usage.tokens
    reported = reported_tokens(view, route.model, counts)
    if reported is not None and usage is not None:
        # No model can have read more than its window.
        reported = reported if reported <= usage.window else None
        usage = agent.measure(messages, counts, reported)
    return MeasuredThread(messages, estimate, reported, usage)


def reported_tokens(view: ThreadView, model: str, counts: MessageCounts) -> int | None:
    """The tokens that the model reported with its last answer, and an estimate of what follows.

    None if it has not reported lately, or earlier messages have changed since.
    """
    later_tokens = 0
    for row in reversed(view.rows[-REPORT_ROWS:]):
        facts = None if row.id is None else view.facts.get(row.id)
        usage = None if facts is None else facts.read_usage()
        if row.id is not None and usage is not None and usage.input and usage.output is not None:
            is_own = row.message.origin is not None and row.message.origin.model == model
            is_unchanged = view.view.at(row.id) is not None
            tokens = usage.input + usage.output + later_tokens
            return tokens if is_own and is_unchanged else None
        if is_visible(row):
            _, row_tokens = counts.get(id(row.message), (row.message, 0))
            later_tokens += row_tokens
    return None


def compaction_question(
    call: ApiCall, thread: Thread, route: Route, usage: ContextUse
) -> JsonObject:
    """What a run would compact: figures, and the messages that would be removed."""
    facts: JsonObject = {
        "tokens": usage.tokens,
        "window": usage.window,
        "limit": usage.limit,
        "after": usage.target,
    }
    compiled = thread.compile()
    scale = compiled.tokens / max(1, usage.tokens)  # the planner counts with another counter
    client = ModelClient(route.provider, route.model, call.state.catalog)
    try:
        result = thread.compact(model=client, budget=int(usage.target * scale), preview=True)
    except WeftError as error:
        return {**facts, "problem": public_message(error)}
    change = Change(compiled.rows, result.rows)
    saved = result.tokens_before - result.tokens_after
    count = count_once(counter_for(TOKENIZER).message)
    return {
        **facts,
        "after": max(0, usage.tokens - int(saved / scale)) if scale else usage.target,
        "messages": len(change.removed),
        "removed": [brief_json(row, count) for row in change.removed[:LISTED_ROWS]],
        "requests": result.requests,
        "cost": result.cost,
    }


def _scope(call: ApiCall) -> str | None:
    record = call.thread_record()
    return call.scope if record is None else record.scope
