"""The agent loop: ask the model, run the tools it calls, ask again, until it calls no more tools.

The loop is one generator without I/O (`converse`). It reads and writes the thread, and yields what
must be done outside: `Ask` a model, `Run` tools, `Emit` an event. `Agent.run` drives it over the
network.

When the model calls `compact`, the thread is compacted before the results of that turn are
committed. Other calls of the turn keep their results, unless the compacted range contains the call.
The next turn has the results, a reminder and a checkpoint, and no text that the user did not write.
Automatic compaction happens before a request that would not fit the window (`auto_compact`).
"""

import asyncio
import os
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from contextvars import copy_context
from functools import partial
from time import monotonic, time
from typing import Any, Literal, Protocol, Self, cast

from msgspec import Struct, structs

from weft import exact_json
from weft.catalog import Catalog, Price, load_catalog
from weft.checked import checked_class
from weft.client import (
    AGENT_RETRY,
    OFFLINE_MODEL,
    HttpClient,
    ModelClient,
    Provider,
    Retry,
    RetryPolicy,
    SentBody,
    ask,
    find_upstream,
    stream,
)
from weft.codec import error_of
from weft.compact import (
    COMPACT_CONTEXT_TOOL,
    COMPACT_TOOL,
    RECALL_TOOL,
    Answer,
    SystemMessage,
    validate_compact_input,
)
from weft.errors import (
    ConfigError,
    NotFound,
    RunLimit,
    StepLimit,
    StoreError,
    ThreadError,
    UpstreamError,
    UpstreamFailed,
    WrongAnswer,
)
from weft.function_tools import FunctionTool, read_tools
from weft.history import STOP_REASON, add_times, encode_call
from weft.model import (
    ApiError,
    Checkpoint,
    Delta,
    Event,
    Fold,
    JsonObject,
    Loss,
    Message,
    Origin,
    Params,
    Reminder,
    Request,
    Response,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Usage,
    is_system,
    texts,
)
from weft.thread import (
    RECALL_TOKENS,
    Asker,
    Attachment,
    Media,
    SentRequest,
    Thread,
    ask_within,
    error_answer,
    open as open_thread,
    read_attachments,
    timeout_answer,
    usage_cost,
)

from .auto_compact import (
    AskSummary,
    AutoCompactor,
    Compaction,
    Confirm,
    ContextUse,
    MessageCounts,
)
from .events import (
    AgentEvent,
    Emit,
    Failure,
    LossReport,
    MessageComplete,
    TextDelta,
    ThinkingDelta,
    ToolEnd,
    ToolStart,
    UsageReport,
    readable_losses,
)
from .open_calls import INTERRUPTED, NOT_RUN, OpenCall, OpenTurn, find_open_turn
from .params import (
    ResponseFormat,
    fit_choice,
    merge_params,
    read_limit,
    read_params,
)
from .tools import (
    AskPermission,
    Outcome,
    Permissions,
    ToolRequest,
    call_tool,
    check_permission,
    convert,
    find_tool,
    read_arguments,
    read_permission,
)
from .turn import inside_turn, turn

DEFAULT_STEPS = 50
BAD_GATEWAY = 502
STOPPED = "stopped"
"""The reason of a stopped answer, if its task was cancelled without a message."""
DEFAULT_COMPACTION = Compaction()
FORCED_COMPACTIONS = 3
"""How often one request is compacted again because the model says that it is too long."""

STEPS_PLACE = "steps"
RETRY_SUBTYPE = "api_retry"
DENIED = "the user did not allow this call"

REMOVED = "the {what} was removed from the branch while {when}"
COMPACTED_NOTE = "The thread was compacted as you asked ({line}). Go on with the task."


class Ask(Struct, frozen=True):
    """Ask the model; answered with `Answered` or `Unanswered`.

    `head` is the commit that was compiled for it.
    """

    request: Request
    head: str | None

    @property
    def block_prefix(self) -> str:
        """A prefix for the ids of this answer's blocks."""
        return (self.head or "")[:12]


class Answered(Struct, frozen=True):
    """A model's answer, and the request body that it answers.

    `first_token` is the number of seconds until the answer began, `seconds` until it was complete.
    """

    response: Response
    sent: SentRequest
    first_token: float | None = None
    seconds: float | None = None


class TimedFold(Fold):
    """A `Fold` that measures how long its answer takes, from the request on."""

    def __init__(self, origin: Origin | None) -> None:
        super().__init__(origin)
        self._asked_at = monotonic()
        self.first_token: float | None = None

    def send(self, event: Event) -> None:
        super().send(event)
        if self.first_token is None and self.has_content:
            self.first_token = self.seconds

    @property
    def seconds(self) -> float:
        """The time since the request."""
        return monotonic() - self._asked_at


class Unanswered(Struct, frozen=True):
    """The error that came instead of an answer, and the part that had arrived before it."""

    error: ApiError
    partial: Response


class Run(Struct, frozen=True):
    """Run the tools of these calls, in parallel if possible.

    Answered with an `Outcome` for each, in the order of the calls. The driver records when a call
    starts and its result when it ends, beside the commit `answer`, and emits a `ToolEnd`.
    `numbers` are the positions of the calls in that answer.
    """

    calls: tuple[ToolCall, ...]
    numbers: tuple[int, ...]
    answer: str


class Decide(Struct, frozen=True):
    """Ask whether a call runs again that had started; answered with a `bool`."""

    call: OpenCall


RunFlow = Generator[Ask | Run | AskSummary | Emit | Confirm | Decide, Any, None]
Repeat = Callable[[OpenCall], bool | Awaitable[bool]]
"""Decides whether a call that had started when the run was interrupted runs again."""


class ToolSource(Protocol):
    """An object with tools, such as an MCP server."""

    tools: tuple[FunctionTool, ...]


AgentTool = Callable[..., Any] | FunctionTool | ToolSource


class AgentAnswer(str):
    """The text of an answer, with the losses, usage and cost of its run.

    - `losses`: each change of a request that may affect the answer (not of level `form`): what was
      dropped, changed, added or moved. Empty if there was none.
    - `usage`: the tokens of all requests of the run, as the vendor reported them.
    - `cost`: dollars of the run; None if the catalogue has no price.
    """

    losses: tuple[Loss, ...]
    usage: Usage
    cost: float | None
    _format: ResponseFormat | None

    def __new__(
        cls,
        text: str,
        losses: Iterable[Loss] = (),
        *,
        usage: Usage | None = None,
        cost: float | None = None,
        format: ResponseFormat | None = None,
    ) -> Self:
        answer = super().__new__(cls, text)
        answer.losses = tuple(losses)
        answer.usage = usage or Usage()
        answer.cost = cost
        answer._format = format
        return answer

    @property
    def parsed(self) -> Any:
        """The answer as `response_format` asked for it: an object of the class, or JSON.

        Raises `WrongAnswer` if the model wrote something else.
        """
        try:
            value = exact_json.loads_as_floats(str.encode(self))
            return convert(value, self._format) if isinstance(self._format, type) else value
        except ValueError as error:
            raise WrongAnswer(f"the answer does not fit response_format: {error}") from error

    @property
    def loss_lines(self) -> list[str]:
        """One line for each kind of loss."""
        return readable_losses(self.losses)


class RunLimits(Struct, frozen=True):
    """The most that one run may use; None for no limit. The cost is in dollars."""

    tokens: float | None = None
    cost: float | None = None


class RunState:
    """What one run has used so far, its limits, and the hints that wait for it."""

    def __init__(
        self,
        steps: int,
        limits: RunLimits | None = None,
        price: Price | None = None,
        hints: deque[str] | None = None,
    ) -> None:
        self.steps = steps
        self.hints: deque[str] = deque() if hints is None else hints
        self._limits = limits or RunLimits()
        self._price = price
        self._tokens = 0
        self._cost: float | None = None

    def add(self, usage: Usage) -> UsageReport:
        """Count an answer; returns its tokens, and the cost of the run with it."""
        input, output = usage.input or 0, usage.output or 0
        self._tokens += input + output
        if self._price is not None:
            self._cost = (self._cost or 0.0) + usage_cost(usage, self._price)
        return UsageReport(
            input,
            output,
            cached=usage.cached,
            written=usage.written,
            reasoning=usage.reasoning,
            cost=self._cost,
        )

    def limit_failure(self) -> Failure | None:
        """The failure that ends the run, if it has used up a limit."""
        tokens, dollars = self._limits.tokens, self._limits.cost
        if tokens is not None and self._tokens >= tokens:
            text = f"the run used {self._tokens:,} tokens; token_limit is {tokens:,}"
            return Failure(text, place="token_limit")
        if dollars is not None and self._cost is not None and self._cost >= dollars:
            text = f"the run cost ${self._cost:.4f}; cost_limit is ${dollars:g}"
            return Failure(text, place="cost_limit")
        return None


@checked_class(eager=("__init__", "context_use"))
class Agent:
    """A loop over a thread and a model: sends the thread, runs the tools that the model calls, and
    repeats until the model calls no more tools."""

    def __init__(
        self,
        thread: Thread,
        model: str = OFFLINE_MODEL,
        tools: Sequence[AgentTool] = (),
        system: str | None = None,
        provider: Provider | str | None = None,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        steps: int = DEFAULT_STEPS,
        pace: float = 0.0,
        catalog: Catalog | None = None,
        policy: RetryPolicy = AGENT_RETRY,
        compaction: Compaction | None = DEFAULT_COMPACTION,
        temperature: float | None = None,
        max_tokens: int | None = None,
        tool_choice: ToolChoice | str | None = None,
        effort: str | None = None,
        response_format: ResponseFormat | None = None,
        params: Params | None = None,
        parallel_tools: bool = True,
        tool_timeout: float | None = None,
        permission: Permissions | AskPermission | Literal["allow"] | None = None,
        token_limit: int | None = None,
        cost_limit: float | None = None,
    ) -> None:
        """Raises `ConfigError` if there is no upstream for the model, or an argument is wrong.

        Weft chooses the vendor by the model's name and reads the vendor's key from the environment
        (`OPENAI_API_KEY`, and `OPENAI_BASE_URL` if it is set). `provider` selects the provider
        instead: a `Provider`, or the name of a protocol (`"openai-chat"`). `base_url` and `api_key`
        set another server and key, as in the vendors' SDKs.

        Requests have the parameters of the thread's setup (`Thread.setup`). These arguments
        override them:

        - `temperature`, `max_tokens` (of one answer), `effort` (how much to think: `"low"`,
          `"medium"`, `"high"`, or another level that the model supports);
        - `tool_choice`: `"auto"`, `"none"`, `"any"`, or a tool's name. A choice that forces a call
          only applies to the first request of a run;
        - `response_format`: `"json"`, a JSON schema, a pydantic model, or any class with fields
          (`msgspec.Struct`, dataclass, `TypedDict`);
        - `params`: a `Params` with anything else (`top_p`, `stop`, `seed`, ...).

        `compaction` configures automatic compaction. With `None` it is off, and requests have no
        `compact` and `recall` tools and no checkpoints.

        `tools` are functions, tools made with `weft.tool`, and MCP servers (`weft.McpServer`).
        Calls of one turn run at the same time: async tools in the event loop, others in threads.
        `parallel_tools=False` runs them one after the other. A call that takes longer than
        `tool_timeout` seconds fails.

        `permission` decides on the tools of MCP servers and tools made with `ask=True`: a function
        that gets a `ToolRequest` and answers `"once"`, `"thread"`, `"always"` or `"deny"`, a
        `Permissions` object that remembers the answers in a file, or `"allow"`. Without it these
        tools are refused. Other functions always run.

        A run ends with `StepLimit` after `steps` requests, and with `RunLimit` after it has used
        `token_limit` tokens (input and output of all its requests) or `cost_limit` dollars.

        `system` is the system prompt, if the thread has no messages yet. `catalog` replaces the
        default catalogue of models. `policy` says how failed requests are repeated. `pace` is the
        delay in seconds between two pieces of an answer by the offline model.
        """
        self._catalog = catalog or load_catalog()
        route = find_upstream(
            model,
            os.environ,
            self._catalog,
            provider=provider,
            base_url=base_url,
            api_key=api_key,
        )
        self.thread = thread
        self.model = route.model
        self.provider = route.provider
        self.tools = read_tools(tools)
        self._tool_timeout = read_limit("tool_timeout", tool_timeout)
        self._format: ResponseFormat | None = response_format
        self._permissions = read_permission(permission)
        self._params = read_params(
            params,
            temperature=temperature,
            max_tokens=max_tokens,
            tool_choice=tool_choice,
            effort=effort,
            response_format=response_format,
        )
        self._parallel = parallel_tools
        self._compaction = compaction
        self._compacts = compaction is not None
        self._check_names()
        self.steps = steps
        self._price = self._catalog.find(self.model, self.provider.name).price
        self._limits = RunLimits(
            read_limit("token_limit", token_limit), read_limit("cost_limit", cost_limit)
        )
        if cost_limit is not None and self._price is None:
            raise ConfigError(
                f"cost_limit: the catalogue has no price for {self.model!r}; add one to weft.toml"
            )
        self._hints: deque[str] = deque()
        self._system = system
        self._pace = pace
        self._policy = policy
        self._compactor = self._make_compactor(compaction)
        self._thread_events: list[SystemMessage] = []
        self._handle: Thread | None = None

    async def run(
        self,
        text: str | None,
        *,
        attach: Attachment | Iterable[Attachment] | None = None,
        repeat: Repeat | None = None,
    ) -> AsyncIterator[AgentEvent]:
        """Send a text and yield the events of the run, up to `MessageComplete` or `Failure`.

        Only one run of a branch is active in a process: another one waits until it has ended.

        `attach` are paths of files that are sent with the text, as for `Thread.user`.

        With `None` the thread goes on without a new message: calls that were interrupted are
        finished (`repeat`: see `resume`), and the model is asked again. The same text again,
        after an attempt to answer it failed or was stopped, is a retry too and is not repeated in
        the thread. An answer that fails, or that is stopped while it streams (the task is cancelled
        or the iterator closed), is kept as an attempt: see `Thread.attempts`.
        """
        attached = await asyncio.to_thread(read_attachments, attach)
        if text is None and attached:
            raise ThreadError("a retry sends no text, so it cannot attach files")
        if text is not None and not text.strip() and not attached:
            raise ThreadError("the text is empty; pass None to ask the model again")
        state = RunState(self.steps, self._limits, self._price, self._hints)
        answer: Any = None
        reported: set[Loss] = set()
        lock = f"run of {self.thread.name}\0{self.thread.current}"
        async with turn(self.thread.store, self._turn_key(), lock), HttpClient() as http:
            flow = self._flow(text, state, attached)
            while (step := await asyncio.to_thread(_advance, flow, answer)) is not None:
                answer = None
                match step:
                    case Emit(event):
                        yield event
                    case AskSummary(request):
                        retries: asyncio.Queue[Retry] = asyncio.Queue()
                        summary = asyncio.create_task(self._ask_summary(http, request, retries))
                        async with aclosing(read_retries(summary, retries)) as new_retries:
                            async for retry in new_retries:
                                yield SystemMessage(RETRY_SUBTYPE, retry.data())
                        answer = await summary
                    case Confirm() | Decide():
                        answer = await self._ask_person(step, repeat)
                    case Run(calls):
                        outcomes: dict[int, Outcome] = {}
                        async with aclosing(self._run_tools(step)) as running:
                            async for index, outcome in running:
                                outcomes[index] = outcome
                                id = calls[index].id
                                yield ToolEnd(id, outcome.text, outcome.is_error)
                        answer = [outcomes[index] for index in range(len(calls))]
                    case Ask():
                        fold = TimedFold(self.provider.origin(self.model))
                        bodies: list[SentBody] = []
                        try:
                            streaming = self._ask(http, step, fold, bodies, reported)
                            async with aclosing(streaming) as events:
                                async for event in events:
                                    yield event
                        except UpstreamError as error:
                            fold.error = ApiError("server", str(error), BAD_GATEWAY)
                        except (asyncio.CancelledError, GeneratorExit) as stop:
                            await self._record_stopped(fold, step, str(stop) or STOPPED)
                            raise
                        if fold.error is None:
                            answer = self._answered(fold, step, bodies)
                        else:
                            answer = Unanswered(fold.error, fold.response())

    def hint(self, text: str) -> None:
        """Send the model a text while it works; may be called from any OS thread.

        The text becomes a user message before the next request of the run. If the model has
        finished by then, the run continues with it. Without a run it waits for the next one.
        """
        if not text.strip():
            raise ThreadError("the hint is empty")
        self._hints.append(text)

    def take_hints(self) -> list[str]:
        """Remove the hints that were not sent yet, and return them."""
        hints = list(self._hints)
        self._hints.clear()
        return hints

    def send(
        self, text: str | None, *, attach: Attachment | Iterable[Attachment] | None = None
    ) -> AgentAnswer:
        """Send a text and wait for the text of the last answer.

        The answer is a `str`. Its `losses` list the changes of the requests that may affect the
        answer, `usage` and `cost` are those of the whole run, and `parsed` is the object that
        `response_format` asked for.

        With `None` the model is asked again, as by `retry`. Raises `UpstreamFailed` with the
        upstream's status if the model gave no answer, `StepLimit` if it used up its steps, and
        `RunLimit` if it reached another limit.

        If an event loop is already running, as in a notebook, this call runs in a worker thread and
        blocks until the answer is complete; `asend` does not block. `attach` are files to send with
        the text.
        """
        return run_blocking(lambda: self.asend(text, attach=attach))

    def retry(self) -> AgentAnswer:
        """Ask the model again after a failed or stopped run; the question is not repeated.

        If the run ended while its tools ran, this is `resume`.
        """
        return self.send(None)

    def open_calls(self) -> tuple[OpenCall, ...]:
        """The calls of the last answer that have no result, because their run was interrupted."""
        turn = find_open_turn(self._agent_handle())
        if turn is None:
            return ()
        return tuple(self._open_call(turn, number) for number in turn.calls)

    def resume(self, repeat: Repeat | None = None) -> AgentAnswer:
        """Go on after a run that was killed, cancelled or stopped while its tools ran.

        For each call without a result in the thread (`open_calls`):

        - If it has ended, its stored result is used. It never runs again.
        - If it never started, it runs now.
        - If it has started without a result, it may have had an effect. It runs again if its tool
          is `repeatable`, or if `repeat` returns true for it. Otherwise its result is an error that
          says that it was interrupted.

        Then the model is asked. Without such calls this is `retry`.
        """
        return run_blocking(lambda: self.aresume(repeat))

    async def aresume(self, repeat: Repeat | None = None) -> AgentAnswer:
        """`resume` for async code and notebooks."""
        return await self._collect(self.run(None, repeat=repeat))

    async def asend(
        self, text: str | None, *, attach: Attachment | Iterable[Attachment] | None = None
    ) -> AgentAnswer:
        """`send` for async code and notebooks: `await agent.asend("...")`."""
        return await self._collect(self.run(text, attach=attach))

    async def _collect(self, events: AsyncIterator[AgentEvent]) -> AgentAnswer:
        """The answer of a run."""
        losses: list[Loss] = []
        usage, dollars = Usage(), None
        async for event in events:
            match event:
                case LossReport():
                    losses += event.losses
                case UsageReport():
                    usage, dollars = add_usage(usage, event), event.cost
                case Failure(message, status, place):
                    if place == STEPS_PLACE:
                        raise StepLimit(message)
                    if status is None:
                        raise RunLimit(message)
                    raise UpstreamFailed(message, status=status)
                case _:
                    pass
        last = self.thread.compile().messages[-1]
        answer = "".join(block.text for block in last.blocks if isinstance(block, Text))
        return AgentAnswer(answer, losses, usage=usage, cost=dollars, format=self._format)

    def context_use(
        self, text: str | None = None, attached: tuple[Media, ...] = ()
    ) -> ContextUse | None:
        """How full the model's window would be if this text were sent, with its files; None without
        compaction."""
        if self._compactor is None:
            return None
        messages = self._agent_handle().compile().sendable
        if text is not None:
            messages = (*messages, Message("user", (Text(text), *attached)))
        return self._compactor.use(messages)

    def measure(
        self,
        messages: Sequence[Message],
        counts: MessageCounts | None = None,
        reported: int | None = None,
    ) -> ContextUse | None:
        """How full the model's window would be with these messages; None without compaction.

        `counts` is a cache of token counts by `id(message)`. Messages in it are not counted again,
        and new counts are added to it.

        `reported` is the size of a request with these messages as the model reported it. From then
        on, the agent adds an estimate of later messages to this size to decide when to compact.
        """
        if self._compactor is None:
            return None
        if counts is not None:
            self._compactor.counts = counts
        if reported is not None:
            self._compactor.measure(messages)
            self._compactor.learn_size(reported)
        return self._compactor.use(messages)

    def _flow(
        self, text: str | None, state: "RunState", attached: tuple[Media, ...] = ()
    ) -> RunFlow:
        """The generator of one run: `converse` with this agent's tools and parameters."""
        handle = self._agent_handle()
        if self._system is not None and not handle.compile().messages:
            handle.system(self._system)
        offered = self._offered_tools()
        names = {tool.name for tool in offered}
        is_first = True

        def build_request() -> Ask:
            context = handle.compile()
            messages = context.sendable_to(self.provider.protocol)
            if not self._compacts:
                messages = without_checkpoints(messages)
            params = merge_params(context.setup.params, self._params)
            params = fit_choice(params, names, is_first=is_first)
            return Ask(Request(self.model, messages, tools=offered, params=params), context.head)

        def next_request() -> Ask:
            nonlocal is_first
            ask = build_request()
            is_first = False
            return ask

        if self._compactor is not None:
            self._compactor.live_request = lambda: build_request().request
        thread_events, compactor = self._thread_events, self._compactor
        return converse(
            handle,
            text,
            next_request,
            state,
            thread_events,
            compactor,
            attached,
            self._open_call,
        )

    def _offered_tools(self) -> tuple[Tool, ...]:
        """The tools of a request: `compact` and `recall`, unless off, and the caller's."""
        compaction_tools = [COMPACT_TOOL.to_tool(), RECALL_TOOL.to_tool()] if self._compacts else []
        if self._compaction is not None and self._compaction.compact_context:
            compaction_tools.append(COMPACT_CONTEXT_TOOL.to_tool())
        return tuple(compaction_tools + [tool.definition for tool in self.tools.values()])

    def _check_names(self) -> None:
        """Raise `ConfigError` for duplicate tool names, or a choice of an unknown tool."""
        names = [tool.name for tool in self._offered_tools()]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(
                    f"the name {name!r} is used by a compaction tool; rename your tool, or turn"
                    " compaction off with compaction=None"
                )
        choice = self._params.tool_choice
        if choice is not None and choice.kind == "tool" and choice.name not in names:
            available = ", ".join(names) or "none"
            raise ConfigError(f"tool_choice: no tool {choice.name!r}; the tools are: {available}")

    def _turn_key(self) -> Hashable:
        """What runs that must not interleave have in common: store, thread and branch."""
        store = self.thread.store
        return store.address or id(store), self.thread.name, self.thread.current

    def _open_call(self, turn: OpenTurn, number: int) -> OpenCall:
        call = turn.calls[number]
        tool = self.tools.get(call.name)
        state = "ended" if number in turn.results else "waiting"
        if number in turn.started and number not in turn.results:
            state = "started"
        is_repeatable = tool is not None and tool.repeatable
        return OpenCall(call.id, call.name, call.arguments, state, is_repeatable)

    async def _run_tools(self, run: Run) -> AsyncGenerator[tuple[int, Outcome]]:
        """The index and outcome of each call when it ends; a failed call does not stop others."""
        if not self._parallel:
            for index in range(len(run.calls)):
                yield index, await self._run_recorded(run, index)
            return
        tasks = {
            asyncio.ensure_future(self._run_recorded(run, index)): index
            for index in range(len(run.calls))
        }
        pending = set(tasks)
        cancelled = Outcome("the tool was cancelled", is_error=True)
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(done, key=tasks.__getitem__):
                    yield tasks[task], cancelled if task.cancelled() else task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run_recorded(self, run: Run, index: int) -> Outcome:
        """Run one call; its start and its result are stored beside the answer."""
        call = run.calls[index]
        answer, number = bytes.fromhex(run.answer), run.numbers[index]
        thread = self._agent_handle()

        def record(result: ToolResult | None = None) -> None:
            entry = encode_call(answer, number, time(), result)
            thread.store.add_attempt(thread.name, entry)

        with inside_turn(self._turn_key()):
            outcome = await self._run_tool(call, partial(asyncio.to_thread, record))
        # Shielded: a stop that comes now must not lose a result that exists.
        await asyncio.shield(asyncio.to_thread(record, outcome.to_result(call)))
        return outcome

    async def _run_tool(
        self, call: ToolCall, record_start: Callable[[], Awaitable[None]]
    ) -> Outcome:
        """Run one call, if its arguments are valid and it is allowed."""
        tool = find_tool(self.tools, call.name)
        if isinstance(tool, Outcome):
            return tool
        arguments = read_arguments(tool, call.arguments)
        if isinstance(arguments, Outcome):
            return arguments
        if tool.ask:
            request = ToolRequest(
                call.id, call.name, read_input(call.arguments), self.thread.name, tool.server
            )
            if not await check_permission(self._permissions, request):
                return Outcome(DENIED, is_error=True)
        await record_start()
        return await call_tool(tool, arguments, self._tool_timeout)

    def _make_compactor(self, compaction: Compaction | None) -> AutoCompactor | None:
        if compaction is None:
            return None
        model = self._catalog.find(self.model, self.provider.name)
        return AutoCompactor(
            model, compaction, self._offered_tools(), self._summary_model(compaction)
        )

    def _summary_model(self, compaction: Compaction) -> Asker | None:
        """The model that writes summaries; `None` for the agent's own."""
        if not isinstance(compaction.by, str):
            return compaction.by
        policy = self._summary_policy(compaction)
        route = find_upstream(compaction.by, os.environ, self._catalog)
        return ModelClient(route.provider, route.model, self._catalog, policy=policy)

    def _summary_policy(self, compaction: Compaction) -> RetryPolicy:
        if compaction.retries is None:
            return self._policy
        return structs.replace(self._policy, attempts=1 + compaction.retries)

    async def _ask_summary(
        self, http: HttpClient, request: Request, retries: "asyncio.Queue[Retry]"
    ) -> Answer:
        """Ask for a part of a summary: the configured summary model, or the agent's own."""
        settings = DEFAULT_COMPACTION if self._compactor is None else self._compactor.settings
        seconds = settings.timeout
        by = None if self._compactor is None else self._compactor.summariser
        if isinstance(by, ModelClient):
            loop = asyncio.get_running_loop()

            def report(retry: Retry) -> None:
                with suppress(RuntimeError):  # the run ended while its summary model waited
                    loop.call_soon_threadsafe(retries.put_nowait, retry)

            by = by.with_on_retry(report)
        if by is not None:
            return await asyncio.to_thread(ask_within, by, request, seconds)
        try:
            async with asyncio.timeout(seconds):
                return await ask(
                    http,
                    self.provider,
                    request,
                    catalog=self._catalog,
                    policy=self._summary_policy(settings),
                    on_retry=retries.put_nowait,
                )
        except TimeoutError:
            return timeout_answer(seconds or 0.0)
        except Exception as error:  # the caller's provider may raise anything
            # The run goes on without this summary: an extract replaces it.
            return error_answer(error)

    async def _record_stopped(self, fold: Fold, ask: Ask, reason: str) -> None:
        """Record the part of a stopped answer that had arrived, as an attempt.

        The reason is the message that the task was cancelled with, if it had one. The write runs
        in a worker thread and is shielded: a cancellation must not wait for a locked store, and a
        second one must not lose the attempt.
        """
        thread = self._agent_handle()
        record = partial(thread.record_attempt, fold.response(), reason=reason, at=ask.head)
        with suppress(StoreError):  # the cancellation must reach the caller in any case
            await asyncio.shield(asyncio.to_thread(record))

    async def _record_retry(self, retry: Retry, ask: Ask) -> None:
        """Record a request that failed and is sent again, as an attempt."""
        message = f"{retry.reason}; asked again after {retry.delay_text}"
        error = error_of(UpstreamFailed(message, status=retry.status or BAD_GATEWAY))
        thread = self._agent_handle()
        with suppress(StoreError):  # the answer may still come
            await asyncio.to_thread(thread.record_attempt, None, error=error, at=ask.head)

    async def _ask_person(self, question: Confirm | Decide, repeat: Repeat | None) -> bool:
        """Whether to compact, or to run an interrupted call again."""
        if isinstance(question, Confirm):
            confirm = self._compactor.settings.confirm if self._compactor is not None else None
            return confirm is None or await confirm(question)
        call = question.call
        if call.repeatable or repeat is None:
            return call.repeatable
        answer = repeat(call)
        return bool(await answer if isinstance(answer, Awaitable) else answer)

    def _agent_handle(self) -> Thread:
        """A handle on the caller's branch, with checkpoints if compaction is on."""
        if self._handle is None or self._handle.current != self.thread.current:
            self._handle = open_thread(
                self.thread.store,
                self.thread.name,
                self._compacts,
                branch=self.thread.current,
            )
            self._handle.listen(self._thread_events.append)
            self._handle.listen(self.thread.emit)
        return self._handle

    async def _ask(
        self, http: HttpClient, ask: Ask, fold: Fold, bodies: list[SentBody], reported: set[Loss]
    ) -> AsyncGenerator[LossReport | SystemMessage | TextDelta | ThinkingDelta]:
        """Send the request, fold the answer, and yield its text as it arrives.

        Each request body that is sent is added to `bodies`. Retries are recorded and reported while
        they happen. Losses of meaning are reported before the text, but not those in `reported`:
        they repeat in every request of a run. Losses of form are not reported.
        """
        retries: asyncio.Queue[Retry] = asyncio.Queue()
        events = stream(
            http,
            self.provider,
            ask.request,
            catalog=self._catalog,
            policy=self._policy,
            pace=self._pace,
            on_body=bodies.append,
            on_retry=retries.put_nowait,
        )
        first = asyncio.create_task(_next_event(events))
        async with aclosing(read_retries(first, retries)) as new_retries:
            async for retry in new_retries:
                await self._record_retry(retry, ask)
                yield SystemMessage(RETRY_SUBTYPE, retry.data())
        event = await first
        if bodies:  # the body is complete before the first event
            losses = (loss for loss in bodies[-1].losses if loss.level != "form")
            new_losses = tuple(dict.fromkeys(loss for loss in losses if loss not in reported))
            reported.update(new_losses)
            if new_losses:
                yield LossReport(self.model, new_losses)
        while event is not None:
            fold.send(event)
            if (delta := read_delta(event, ask.block_prefix)) is not None:
                yield delta
            event = await _next_event(events)

    def _answered(self, fold: TimedFold, ask: Ask, bodies: Sequence[SentBody]) -> Answered:
        """The whole answer with the body that was sent for it."""
        request = SentRequest(bodies[-1].body, self.provider.protocol, self.model, ask.head)
        return Answered(fold.response(), request, fold.first_token, fold.seconds)


async def read_retries(
    request: "asyncio.Task[Any]", retries: "asyncio.Queue[Retry]"
) -> AsyncGenerator[Retry]:
    """The retries of a request as they happen, until its task is done.

    If the caller stops reading, the task is cancelled.
    """
    try:
        while not request.done():
            next_retry = asyncio.create_task(retries.get())
            try:
                await asyncio.wait((request, next_retry), return_when=asyncio.FIRST_COMPLETED)
            finally:
                next_retry.cancel()
                await asyncio.wait((next_retry,))
            if not next_retry.cancelled():
                yield next_retry.result()
        while not retries.empty():
            yield retries.get_nowait()
    finally:
        request.cancel()
        await asyncio.wait((request,))
        if not request.cancelled():
            request.exception()  # asyncio logs failures that nobody retrieves


async def _next_event(events: AsyncIterator[Event]) -> Event | None:
    return await anext(events, None)


def read_delta(event: Event, block_prefix: str) -> TextDelta | ThinkingDelta | None:
    """The text in an event as an agent event; None if it has none."""
    match event:
        case Delta(index, "text", text):
            return TextDelta(f"{block_prefix}-{index}", text)
        case Delta(index, "thinking", text):
            return ThinkingDelta(f"{block_prefix}-{index}", text)
        case _:
            return None


def converse(
    thread: Thread,
    text: str | None,
    next_request: Callable[[], Ask],
    state: "RunState",
    thread_events: list[SystemMessage],
    compactor: AutoCompactor | None = None,
    attached: tuple[Media, ...] = (),
    describe_call: "DescribeCall | None" = None,
) -> RunFlow:
    """Commit the user's text, then run turns until the model calls no more tools.

    Without a text the thread's last message is answered. `next_request` compiles the thread to a
    request. `state` has the limits and hints of the run. `thread_events` collects the thread's
    own events. The `compactor` runs when the window is full, or when the model says so.
    """
    open_turn = find_open_turn(thread)
    if open_turn is not None:
        finish = end_open_turn if text is not None else resume_open_turn
        yield from finish(thread, open_turn, describe_call, thread_events, compactor)
    if text is None:
        check_unanswered(thread)
    elif not is_retry(thread, text, attached):
        thread.user(text, attach=attached)
    for _ in range(state.steps):
        yield from add_hints(thread, state)
        if (failure := state.limit_failure()) is not None:
            yield Emit(failure)
            return
        if compactor is not None:
            yield from compactor.run(thread, thread_events, force=False)
        answered = yield from ask_once(thread, next_request())
        for _ in range(FORCED_COMPACTIONS):
            if compactor is None or not is_too_long(answered):
                break
            if not (yield from compactor.run(thread, thread_events, force=True)):
                break
            answered = yield from ask_once(thread, next_request())
        if isinstance(answered, Unanswered):
            yield Emit(Failure(answered.error.message, status=answered.error.status))
            return
        answer = answered.response
        stop = None if answer.stop is None else answer.stop.abnormal_reason
        metadata = None if stop is None else {STOP_REASON: stop}
        usage = add_times(answer.usage, answered.first_token, answered.seconds)
        committed = thread.commit_message(
            answer.message, metadata=metadata, usage=usage, sent=answered.sent
        )
        if compactor is not None:
            compactor.learn(answer.usage)
        if answer.usage is not None:
            yield Emit(state.add(answer.usage))
        calls = [block for block in answer.message.blocks if isinstance(block, ToolCall)]
        if not calls and state.hints:
            continue
        if not calls:
            yield Emit(MessageComplete(answer.stop.kind if answer.stop else "end"))
            return
        yield from run_calls(thread, dict(enumerate(calls)), committed.id, thread_events, compactor)
    reason = f"the limit of {state.steps} steps was reached; ask again to continue"
    yield Emit(Failure(reason, place=STEPS_PLACE))


def add_hints(thread: Thread, state: "RunState") -> Generator[Emit, None, None]:
    """Commit the hints that arrived while the model worked, as user messages."""
    while state.hints:
        text = state.hints.popleft()
        thread.user(text)
        yield Emit(SystemMessage("hint", {"content": text}))


def ask_once(
    thread: Thread, request: Ask
) -> Generator[Ask, Answered | Unanswered, Answered | Unanswered]:
    """Ask the model; record a failed answer as an attempt at the commit that was sent."""
    answered = yield request
    if isinstance(answered, Unanswered):
        thread.record_attempt(answered.partial, error=answered.error, at=request.head)
    elif not is_on_branch(thread, request.head):
        reason = REMOVED.format(what="question", when="the model answered")
        with suppress(NotFound):  # `gc` may have removed the commit too
            thread.record_attempt(answered.response, reason=reason, at=request.head)
        raise ThreadError(reason)
    return answered


def is_on_branch(thread: Thread, commit: str | None) -> bool:
    """Whether the branch still has this commit: another program may have undone it."""
    head = thread.head
    if commit is None or (head is not None and head.id == commit):
        return True
    if head is None:
        return False
    commit_id = bytes.fromhex(commit)
    return commit_id in thread.store.read_depths(thread.name, bytes.fromhex(head.id), [commit_id])


def check_unanswered(thread: Thread) -> None:
    """Raise `ThreadError` if the thread has no message that waits for an answer."""
    messages = [m for m in thread.compile().messages if not is_system(m)]
    if not messages:
        raise ThreadError("the thread is empty: there is nothing to retry")
    last = messages[-1]
    if last.role == "assistant" and not any(isinstance(b, ToolCall) for b in last.blocks):
        raise ThreadError("the last message is already answered; send a text to continue")


def is_retry(thread: Thread, text: str, attached: tuple[Media, ...] = ()) -> bool:
    """Whether the thread ends with this turn, and an attempt to answer it failed or was stopped."""
    head = thread.head
    if head is None or not any(attempt.commit == head.id for attempt in thread.attempts(head)):
        return False
    last = thread.compile().messages[-1]
    last_blocks = tuple(b for b in last.blocks if not isinstance(b, Checkpoint | Reminder))
    new_blocks = (Text(text), *attached) if text.strip() else attached
    return last.role == "user" and last_blocks == new_blocks


def is_too_long(answered: Answered | Unanswered) -> bool:
    """Whether the model says that the request does not fit its window."""
    return isinstance(answered, Unanswered) and answered.error.kind in (
        "context_length",
        "too_large",
    )


DescribeCall = Callable[[OpenTurn, int], OpenCall]


def end_open_turn(
    thread: Thread,
    turn: OpenTurn,
    describe_call: DescribeCall | None,  # noqa: ARG001 - the parameters of `resume_open_turn`
    thread_events: list[SystemMessage],  # noqa: ARG001
    compactor: AutoCompactor | None,  # noqa: ARG001
) -> RunFlow:
    """Commit the results of an interrupted turn without running anything, before a new message."""
    results = [
        turn.results.get(number) or unfinished_result(call, started=number in turn.started)
        for number, call in turn.calls.items()
    ]
    for result in results:
        text = "".join(texts(result.content))
        yield Emit(ToolEnd(result.call_id, text, bool(result.is_error)))
    thread.tool_results(results)


def resume_open_turn(
    thread: Thread,
    turn: OpenTurn,
    describe_call: DescribeCall | None,
    thread_events: list[SystemMessage],
    compactor: AutoCompactor | None,
) -> RunFlow:
    """Finish an interrupted turn: use stored results, run what is safe, and commit the results."""
    results = dict(turn.results)
    for number, call in turn.calls.items():
        if number in results or number not in turn.started:
            continue
        open_call = None if describe_call is None else describe_call(turn, number)
        if open_call is None or not (yield Decide(open_call)):
            results[number] = unfinished_result(call, started=True)
    yield from run_calls(thread, turn.calls, turn.answer, thread_events, compactor, results)


def unfinished_result(call: ToolCall, *, started: bool) -> ToolResult:
    """The result of a call that was interrupted, or that never ran."""
    text = INTERRUPTED if started else NOT_RUN
    return Outcome(text, is_error=True).to_result(call)


def run_calls(
    thread: Thread,
    calls: Mapping[int, ToolCall],
    answer: str,
    thread_events: list[SystemMessage],
    compactor: AutoCompactor | None,
    known_results: Mapping[int, ToolResult] | None = None,
) -> RunFlow:
    """Run the calls of one turn and commit their results as the next.

    `calls` are by their position in the commit `answer`. Calls with known results do not run.
    Without a `compactor` compaction is off, and `compact` and `recall` are unknown tools. `compact`
    runs last, after the other tools of the turn.
    """
    built_in = built_in_tools(compactor)
    results_by_number = dict(known_results or {})
    outcomes: dict[int, Outcome] = {}  # by the position of the call: two calls may have one id
    reminder: str | None = None
    removed_calls: set[str] = set()
    open_calls = {n: call for n, call in calls.items() if n not in results_by_number}
    user_calls = {n: call for n, call in open_calls.items() if call.name not in built_in}
    for call in user_calls.values():
        yield Emit(ToolStart(call.id, call.name, read_input(call.arguments)))
    if user_calls:
        run = Run(tuple(user_calls.values()), tuple(user_calls), answer)
        user_outcomes: list[Outcome] = yield run
        outcomes.update(zip(user_calls, user_outcomes, strict=True))
    built_in_calls = [(n, call) for n, call in open_calls.items() if call.name in built_in]
    compact_last = sorted(built_in_calls, key=lambda item: item[1].name == COMPACT_TOOL.name)
    for number, call in compact_last:
        yield Emit(ToolStart(call.id, call.name, read_input(call.arguments)))
        if call.name == COMPACT_TOOL.name:
            outcome, dropped_calls = yield from compact(thread, call, thread_events)
            if not outcome.is_error:
                removed_calls |= {call.id, *dropped_calls}
                reminder = COMPACTED_NOTE.format(line=outcome.text)
        elif call.name == COMPACT_CONTEXT_TOOL.name and compactor is not None:
            outcome = yield from compact_context(thread, compactor, thread_events)
        else:
            tokens = RECALL_TOKENS if compactor is None else compactor.recall_tokens
            outcome = recall(thread, call.arguments, tokens)
        yield Emit(ToolEnd(call.id, outcome.text, outcome.is_error))
        outcomes[number] = outcome
    results_by_number |= {
        number: each.to_result(calls[number]) for number, each in outcomes.items()
    }
    results = [
        results_by_number[number] for number, call in calls.items() if call.id not in removed_calls
    ]
    if not is_on_branch(thread, answer):
        raise ThreadError(REMOVED.format(what="call", when="its tool ran"))
    thread.tool_results(results, reminder=reminder)


def compact(
    thread: Thread, call: ToolCall, thread_events: list[SystemMessage]
) -> Generator[Emit, None, tuple[Outcome, Sequence[str]]]:
    """Run the model's `compact` call; returns its result and the open calls that it removed."""
    thread_events.clear()
    try:
        ranges = validate_compact_input(call.arguments)
        result = thread.compact(ranges, call_id=call.id, trigger="tool")
    except ThreadError as error:
        return Outcome(str(error), is_error=True), ()
    for event in thread_events:
        yield Emit(event)
    return Outcome(str(result)), result.dropped_calls


def built_in_tools(compactor: AutoCompactor | None) -> tuple[str, ...]:
    """The names of the tools that work on the thread itself."""
    if compactor is None:
        return ()
    names = (COMPACT_TOOL.name, RECALL_TOOL.name)
    return (*names, COMPACT_CONTEXT_TOOL.name) if compactor.settings.compact_context else names


def compact_context(
    thread: Thread, compactor: AutoCompactor, thread_events: list[SystemMessage]
) -> Generator[Any, Any, Outcome]:
    """Run the model's `compact_context` call: another request writes the summary."""
    result = yield from compactor.run_now(thread, thread_events)
    if result is None:
        return Outcome("the thread was not compacted; go on with it as it is", is_error=True)
    if result.commit is None:
        return Outcome("there is nothing to compact yet")
    return Outcome(str(result))


def recall(thread: Thread, arguments: str, tokens: int = RECALL_TOKENS) -> Outcome:
    """Run the model's `recall` call; returns original messages, at most `tokens` at once."""
    input = read_input(arguments)
    members = input if isinstance(input, dict) else {}
    query, filters = members.get("query"), dict[str, str]()
    for name in ("path", "since", "until"):
        value = members.get(name)
        if value is not None and not isinstance(value, str):
            return Outcome(f"{name}: must be a text", is_error=True)
        if value is not None and value.strip():
            filters[name] = value
    if query in (None, "") and "path" in filters:
        query = filters["path"]
    if not isinstance(query, str) or not query.strip():
        return Outcome("query: is missing; pass words of the original, or its id", is_error=True)
    offset = members.get("offset")
    if isinstance(offset, str) and offset.isdecimal():
        offset = int(offset)
    if offset is not None and (isinstance(offset, bool) or not isinstance(offset, int)):
        return Outcome("offset: must be a whole number", is_error=True)
    try:
        page = thread.recall_page(query, tokens=tokens, offset=offset or 0, **filters)
    except ThreadError as error:
        return Outcome(str(error), is_error=True)
    return Outcome(page.text or f"no message contains {query!r}")


def read_input(arguments: str) -> JsonObject | str:
    """The arguments as an object; the text itself if it is not one."""
    try:
        value: Any = exact_json.loads_as_floats(arguments or "{}")
    except exact_json.JSONDecodeError:
        return arguments
    return cast(JsonObject, value) if isinstance(value, dict) else arguments


def add_usage(usage: Usage, report: UsageReport) -> Usage:
    """The usage of a run with one more answer."""

    def total(count: int | None, other_count: int | None) -> int | None:
        return count if other_count is None else (count or 0) + other_count

    return Usage(
        total(usage.input, report.input),
        total(usage.output, report.output),
        total(usage.cached, report.cached),
        total(usage.written, report.written),
        total(usage.reasoning, report.reasoning),
    )


def without_checkpoints(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages without checkpoints, for a model that has no `compact` tool."""
    stripped: list[Message] = []
    for message in messages:
        blocks = tuple(block for block in message.blocks if not isinstance(block, Checkpoint))
        if len(blocks) == len(message.blocks):
            stripped.append(message)
        elif blocks:
            stripped.append(structs.replace(message, blocks=blocks))
    return tuple(stripped)


def run_blocking(work: Callable[[], Coroutine[Any, Any, AgentAnswer]]) -> AgentAnswer:
    """Run a coroutine and wait for it, in a worker thread if this thread has a running event loop.

    `asyncio.run` refuses a second loop in one OS thread, and waiting inside the running loop would
    block it forever.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    with ThreadPoolExecutor(1, thread_name_prefix="weft-agent") as pool:
        context = copy_context()
        return pool.submit(context.run, lambda: asyncio.run(work())).result()


def _advance(flow: RunFlow, answer: Any) -> Ask | Run | AskSummary | Emit | Confirm | Decide | None:
    """One step of the flow; None at its end, because a future cannot raise `StopIteration`."""
    try:
        return flow.send(answer)
    except StopIteration:
        return None
