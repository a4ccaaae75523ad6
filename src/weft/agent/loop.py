"""The loop: ask the model, run what it calls, ask again, until it has nothing more to call.

The flow is one generator. It reads and writes the thread, and yields whatever must be done outside:
`Ask` a model, `Run` a tool, `Tell` whoever watches. `Agent.run` drives it over the network; another
driver could as well, because the flow knows none.

Compaction by the agent itself (`compact`) happens between its turn and the results of that turn:
other calls of the turn keep their results, unless the range took the call. Then the thread goes on
by itself. The turn that follows holds results, a reminder and a checkpoint, and no word that the
user did not say. Compaction by the engine happens before any request that the window would not
hold (`auto_compact`).
"""

import asyncio
import os
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Self, cast

import orjson
from msgspec import Struct, structs

from weft.catalog import Catalog, load_catalog
from weft.client import (
    LOOP,
    OFFLINE_MODEL,
    HttpClient,
    Provider,
    RetryPolicy,
    SentBody,
    ask,
    find_upstream,
    stream,
)
from weft.compact import (
    COMPACT_TOOL,
    RECALL_TOOL,
    Answer,
    SystemMessage,
    validate_compact_input,
)
from weft.errors import (
    ConfigError,
    StepLimit,
    StoreError,
    ThreadError,
    UpstreamError,
    UpstreamFailed,
)
from weft.function_tools import read_tools
from weft.model import (
    ApiError,
    Checkpoint,
    Delta,
    Event,
    Fold,
    JsonObject,
    Loss,
    Message,
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
)
from weft.thread import (
    RECALL_TOKENS,
    Attachment,
    Media,
    SentRequest,
    Thread,
    answer_for,
    ask_within,
    no_answer_within,
    open as open_thread,
    read_attachments,
)

from .auto_compact import Compaction, Confirm, ContextUse, Keeper, Sum
from .events import (
    AgentEvent,
    Failure,
    LossReport,
    MessageComplete,
    Tell,
    TextDelta,
    ThinkingDelta,
    ToolEnd,
    ToolStart,
    UsageReport,
    readable_losses,
)
from .params import ResponseFormat, fit_choice, merge_params, read_options
from .tools import Outcome, call_tool

STEPS = 50
BAD_GATEWAY = 502
STOPPED = "stopped"
AUTO = Compaction()
FORCED = 3
"""How often room is made for one request that its model says is too long."""

COMPACTED_NOTE = "The thread was compacted as you asked ({line}). Go on with the task."


class Ask(Struct, frozen=True):
    """Ask the model; answered with `Answered` or `Unanswered`.

    `head` is the commit that was compiled for it.
    """

    request: Request
    head: str | None

    @property
    def name(self) -> str:
        """Tells the words of this answer from those of another."""
        return (self.head or "")[:12]


class Answered(Struct, frozen=True):
    """A model's answer, and the bytes that it was sent."""

    response: Response
    letter: SentRequest


class Unanswered(Struct, frozen=True):
    """The error that came instead of an answer, and what had arrived of one before it."""

    error: ApiError
    partial: Response


class Run(Struct, frozen=True):
    """Run the tools of these calls, at the same time if possible.

    Answered with an `Outcome` for each, in the order of the calls. Whoever runs them emits a
    `ToolEnd` as each one ends.
    """

    calls: tuple[ToolCall, ...]


Flow = Generator[Ask | Run | Sum | Tell | Confirm, Any, None]


class AgentAnswer(str):
    """The text of an answer, with the losses of meaning of its run: what the model was not sent."""

    losses: tuple[Loss, ...]

    def __new__(cls, text: str, losses: Iterable[Loss] = ()) -> Self:
        answer = super().__new__(cls, text)
        answer.losses = tuple(losses)
        return answer

    @property
    def loss_lines(self) -> list[str]:
        """One line for each kind of loss."""
        return readable_losses(self.losses)


class Agent:
    """A model that works in a thread with tools."""

    def __init__(
        self,
        thread: Thread,
        model: str = OFFLINE_MODEL,
        tools: Sequence[Callable[..., Any]] = (),
        system: str | None = None,
        provider: Provider | str | None = None,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        steps: int = STEPS,
        pace: float = 0.0,
        catalog: Catalog | None = None,
        policy: RetryPolicy = LOOP,
        compaction: Compaction | None = AUTO,
        temperature: float | None = None,
        max_tokens: int | None = None,
        tool_choice: ToolChoice | str | None = None,
        effort: str | None = None,
        response_format: ResponseFormat | None = None,
        params: Params | None = None,
        parallel_tools: bool = True,
    ) -> None:
        """Raises `ConfigError` if there is no upstream for the model, or an argument is wrong.

        The model's name finds its vendor and the vendor's key in the environment
        (`OPENAI_API_KEY`, and `OPENAI_BASE_URL` if it is set). `provider` names one instead
        (`"openai-chat"`), `base_url` and `api_key` another server and key, as in the vendors' SDKs.

        Requests carry the parameters of the thread's setup (`Thread.setup`). These arguments are
        used above them:

        - `temperature`, `max_tokens` (of one answer), `effort` (how much to think: `"low"`,
          `"medium"`, `"high"`, or another word that the model knows);
        - `tool_choice`: `"auto"`, `"none"`, `"any"`, or a tool's name. A choice that forces a call
          holds for the first request of a run;
        - `response_format`: `"json"`, a JSON schema, a pydantic model, or any class with fields
          (`msgspec.Struct`, dataclass, `TypedDict`);
        - `params`: a `Params` with anything else (`top_p`, `stop`, `seed`, ...).

        `compaction` says how old turns are folded when the model's window fills. With `None` they
        are not, and requests have no `compact` and `recall` tools and no checkpoints.

        Calls of one turn run at the same time: async tools in the event loop, others in threads.
        `parallel_tools=False` runs them one after the other.
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
        self._params = read_options(
            params,
            temperature=temperature,
            max_tokens=max_tokens,
            tool_choice=tool_choice,
            effort=effort,
            response_format=response_format,
        )
        self._parallel = parallel_tools
        self._compacts = compaction is not None
        self._check_names()
        self.steps = steps
        self._system = system
        self._pace = pace
        self._policy = policy
        self._keeper = self._make_keeper(compaction)
        self._heard: list[SystemMessage] = []
        self._desk: Thread | None = None

    async def run(
        self, text: str | None, *, attach: Attachment | Iterable[Attachment] | None = None
    ) -> AsyncIterator[AgentEvent]:
        """Send a text and yield the events of the run, up to `MessageComplete` or `Failure`.

        `attach` are paths of files that go with the text, as for `Thread.user`.

        With `None` the model is asked again with the thread as it is: a retry. The same text again,
        after an attempt to answer it failed or was stopped, is a retry too and is not repeated in
        the thread. An answer that fails, or that is stopped while it streams (the task is cancelled
        or the iterator closed), is kept as an attempt: see `Thread.attempts`.
        """
        attached = await asyncio.to_thread(read_attachments, attach)
        if text is None and attached:
            raise ThreadError("files go with a text: there is none, since the model is asked again")
        if text is not None and not text.strip() and not attached:
            raise ThreadError("there is no text to send; None asks the model again")
        flow = self._flow(text, attached)
        answer: Any = None
        reported: set[Loss] = set()
        async with HttpClient() as http:
            while (step := await asyncio.to_thread(_advance, flow, answer)) is not None:
                answer = None
                match step:
                    case Tell(event):
                        yield event
                    case Sum(request):
                        answer = await self._sum_up(http, request)
                    case Confirm():
                        answer = await self._confirm(step)
                    case Run(calls):
                        outcomes: dict[int, Outcome] = {}
                        async with aclosing(self._run_tools(calls)) as running:
                            async for index, outcome in running:
                                outcomes[index] = outcome
                                id = calls[index].id
                                yield ToolEnd(id, outcome.text, outcome.is_error)
                        answer = [outcomes[index] for index in range(len(calls))]
                    case Ask():
                        folding = Fold(self.provider.origin(self.model))
                        sent: list[SentBody] = []
                        try:
                            async for event in self._ask(http, step, folding, sent, reported):
                                yield event
                        except UpstreamError as error:
                            folding.error = ApiError("server", str(error), BAD_GATEWAY)
                        except (asyncio.CancelledError, GeneratorExit) as stop:
                            await self._record_stopped(folding, step, str(stop) or STOPPED)
                            raise
                        if folding.error is None:
                            answer = self._answered(folding, step, sent)
                        else:
                            answer = Unanswered(folding.error, folding.response())

    def send(
        self, text: str | None, *, attach: Attachment | Iterable[Attachment] | None = None
    ) -> AgentAnswer:
        """Send a text and wait for the text of the last answer.

        The answer is a `str`. Its `losses` are what the model could not be sent in this run.

        With `None` the model is asked again, as by `retry`. Raises `UpstreamFailed` with the
        upstream's status if the model gave no answer, and `StepLimit` if it used up its steps.

        If an event loop is running (a notebook), the run gets a thread and a loop of its own and
        this call blocks; `asend` does not. `attach` are files that go with the text.
        """
        return run_apart(lambda: self.asend(text, attach=attach))

    def retry(self) -> AgentAnswer:
        """Ask the model again after a failed or stopped run; the question is not repeated."""
        return self.send(None)

    async def asend(
        self, text: str | None, *, attach: Attachment | Iterable[Attachment] | None = None
    ) -> AgentAnswer:
        """`send` for async code and notebooks: `await agent.asend("...")`."""
        losses: list[Loss] = []
        async for event in self.run(text, attach=attach):
            if isinstance(event, LossReport):
                losses += event.losses
            if isinstance(event, Failure) and event.status is None:
                raise StepLimit(event.message)
            if isinstance(event, Failure):
                raise UpstreamFailed(event.message, status=event.status or BAD_GATEWAY)
        last = self.thread.compile().messages[-1]
        words = "".join(block.text for block in last.blocks if isinstance(block, Text))
        return AgentAnswer(words, losses)

    def context_use(self, text: str | None = None) -> ContextUse | None:
        """How full the model's window would be if this text were sent; None without compaction."""
        if self._keeper is None:
            return None
        messages = self._sit_down().compile().sendable
        if text is not None:
            messages = (*messages, Message("user", (Text(text),)))
        return self._keeper.use(messages)

    def _flow(self, text: str | None, attached: tuple[Media, ...] = ()) -> Flow:
        desk = self._sit_down()
        if self._system is not None and not desk.compile().messages:
            desk.system(self._system)
        offered = self._offered()
        names = {tool.name for tool in offered}
        asked: list[str | None] = []

        def ask() -> Ask:
            context = desk.compile()
            messages = context.sendable
            if not self._compacts:
                messages = without_checkpoints(messages)
            params = merge_params(context.setup.params, self._params)
            params = fit_choice(params, names, is_first=not asked)
            asked.append(context.head)
            return Ask(Request(self.model, messages, tools=offered, params=params), context.head)

        return converse(desk, text, ask, self.steps, self._heard, self._keeper, attached)

    def _offered(self) -> tuple[Tool, ...]:
        """The tools of compaction, unless it is off, and the caller's."""
        own = [COMPACT_TOOL.to_tool(), RECALL_TOOL.to_tool()] if self._compacts else []
        return tuple(own + [tool.definition for tool in self.tools.values()])

    def _check_names(self) -> None:
        """Refuse names that a model could not tell apart, and a choice of a tool that is not
        there."""
        names = [tool.name for tool in self._offered()]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(
                    f"the name {name!r} belongs to a tool of compaction; rename your tool, or turn"
                    " compaction off with compaction=None"
                )
        choice = self._params.tool_choice
        if choice is not None and choice.kind == "tool" and choice.name not in names:
            known = ", ".join(names) or "none"
            raise ConfigError(f"tool_choice: there is no tool {choice.name!r}; there are: {known}")

    async def _run_tools(self, calls: Sequence[ToolCall]) -> AsyncGenerator[tuple[int, Outcome]]:
        """The index and outcome of each call, as it ends; one that fails disturbs no other."""
        if not self._parallel:
            for index, call in enumerate(calls):
                yield index, await call_tool(self.tools, call.name, call.arguments)
            return
        tasks = {
            asyncio.ensure_future(call_tool(self.tools, call.name, call.arguments)): index
            for index, call in enumerate(calls)
        }
        waiting = set(tasks)
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(done, key=tasks.__getitem__):
                    stopped = Outcome("the tool was cancelled", is_error=True)
                    yield tasks[task], stopped if task.cancelled() else task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _make_keeper(self, compaction: Compaction | None) -> Keeper | None:
        if compaction is None:
            return None
        model = self._catalog.find(self.model, self.provider.name)
        return Keeper(model, compaction, self._offered())

    async def _sum_up(self, http: HttpClient, request: Request) -> Answer:
        """Ask for a part of a summary: the model that is set for it, else our own."""
        settings = AUTO if self._keeper is None else self._keeper.settings
        seconds = settings.timeout
        if settings.by is not None:
            return await asyncio.to_thread(ask_within, settings.by, request, seconds)
        try:
            async with asyncio.timeout(seconds):
                return await ask(
                    http, self.provider, request, catalog=self._catalog, policy=self._policy
                )
        except TimeoutError:
            return no_answer_within(seconds or 0.0)
        except Exception as error:  # whatever a summariser does, the run goes on
            return answer_for(error)

    async def _record_stopped(self, folding: Fold, ask: Ask, reason: str) -> None:
        """Keep what had arrived of an answer that nobody waits for any more.

        The reason is the message that the task was cancelled with, if it had one.

        The thread is written in a thread of its own and shielded: whoever cancelled the run must
        not wait for a locked store, and a second cancellation must not lose the attempt.
        """
        thread = self._sit_down()
        record = partial(thread.record_attempt, folding.response(), reason=reason, at=ask.head)
        with suppress(StoreError):  # the stop itself must get through
            await asyncio.shield(asyncio.to_thread(record))

    async def _confirm(self, question: Confirm) -> bool:
        confirm = self._keeper.settings.confirm if self._keeper is not None else None
        return confirm is None or await confirm(question)

    def _sit_down(self) -> Thread:
        """A handle of our own where the caller's stands, with the checkpoints of compaction."""
        if self._desk is None or self._desk.current != self.thread.current:
            self._desk = open_thread(
                self.thread.store,
                self.thread.name,
                self._compacts,
                branch=self.thread.current,
            )
            self._desk.listen(self._heard.append)
        return self._desk

    async def _ask(
        self, http: HttpClient, ask: Ask, folding: Fold, sent: list[SentBody], reported: set[Loss]
    ) -> AsyncIterator[LossReport | TextDelta | ThinkingDelta]:
        """Fold the answer, and yield its text as it arrives.

        Losses of meaning that are not in `reported` come first. The same ones repeat in every
        request of a run. Losses of form would only be noise here.
        """
        arriving = stream(
            http,
            self.provider,
            ask.request,
            catalog=self._catalog,
            policy=self._policy,
            pace=self._pace,
            on_body=sent.append,
        )
        is_first = True
        async for event in arriving:
            if is_first and sent:  # the body is complete before the first event
                losses = (loss for loss in sent[-1].losses if loss.level == "meaning")
                fresh = tuple(dict.fromkeys(loss for loss in losses if loss not in reported))
                reported.update(fresh)
                if fresh:
                    yield LossReport(self.model, fresh)
            is_first = False
            folding.send(event)
            if (shown := show_delta(event, ask.name)) is not None:
                yield shown

    def _answered(self, folding: Fold, ask: Ask, sent: Sequence[SentBody]) -> Answered:
        """The whole answer with the one body that left for it."""
        letter = SentRequest(sent[-1].body, self.provider.protocol, self.model, ask.head)
        return Answered(folding.response(), letter)


def show_delta(event: Event, name: str) -> TextDelta | ThinkingDelta | None:
    """The words in an event, for whoever watches; None where it has none."""
    match event:
        case Delta(index, "text", text):
            return TextDelta(f"{name}-{index}", text)
        case Delta(index, "thinking", text):
            return ThinkingDelta(f"{name}-{index}", text)
        case _:
            return None


def converse(
    thread: Thread,
    text: str | None,
    ask: Callable[[], Ask],
    steps: int,
    heard: list[SystemMessage],
    keeper: Keeper | None = None,
    attached: tuple[Media, ...] = (),
) -> Flow:
    """What the user said, and every turn until the model has nothing more to call.

    Without a text the turns start from the thread as it is.

    `heard` is where the thread's own events are put by whoever listens to it. A `keeper` keeps
    the thread within the model's window, and makes room where the model says it was not.
    """
    if text is None:
        check_unanswered(thread)
    elif not is_retry(thread, text, attached):
        thread.user(text, attach=attached)
    for _ in range(steps):
        if keeper is not None:
            yield from keeper.keep(thread, heard, False)
        answered = yield from ask_once(thread, ask)
        for _ in range(FORCED):
            if keeper is None or not is_too_long(answered):
                break
            if not (yield from keeper.keep(thread, heard, True)):
                break
            answered = yield from ask_once(thread, ask)
        if isinstance(answered, Unanswered):
            yield Tell(Failure(answered.error.message, status=answered.error.status))
            return
        answer = answered.response
        thread.commit_message(answer.message, usage=answer.usage, sent=answered.letter)
        if keeper is not None:
            keeper.learn(answer.usage)
        if answer.usage is not None:
            yield Tell(report_usage(answer.usage))
        calls = [block for block in answer.message.blocks if isinstance(block, ToolCall)]
        if not calls:
            yield Tell(MessageComplete(answer.stop.kind if answer.stop else "end"))
            return
        tokens = None if keeper is None else keeper.recall_tokens
        yield from run_calls(thread, calls, heard, tokens)
    yield Tell(Failure(f"the limit of {steps} steps was reached; ask again to go on"))


def ask_once(
    thread: Thread, ask: Callable[[], Ask]
) -> Generator[Ask, Answered | Unanswered, Answered | Unanswered]:
    """Ask the model; an answer that fails is kept as an attempt at the commit that was sent."""
    question = ask()
    answered = yield question
    if isinstance(answered, Unanswered):
        thread.record_attempt(answered.partial, error=answered.error, at=question.head)
    return answered


def check_unanswered(thread: Thread) -> None:
    """Raise `ThreadError` where there is nothing that a model could be asked again."""
    messages = [m for m in thread.compile().messages if not is_system(m)]
    if not messages:
        raise ThreadError("the thread is empty: there is no question to ask again")
    last = messages[-1]
    if last.role == "assistant" and not any(isinstance(b, ToolCall) for b in last.blocks):
        raise ThreadError("the last question is answered already; send a text to go on")


def is_retry(thread: Thread, text: str, attached: tuple[Media, ...] = ()) -> bool:
    """Whether the thread ends with this very turn, and answering it failed or was stopped."""
    head = thread.head
    if head is None or not any(a.commit == head.id for a in thread.attempts(head)):
        return False
    last = thread.compile().messages[-1]
    said = tuple(b for b in last.blocks if not isinstance(b, Checkpoint | Reminder))
    return last.role == "user" and said == ((Text(text), *attached) if text.strip() else attached)


def is_too_long(answered: Answered | Unanswered) -> bool:
    """Whether a model says that its window is too small for what it was asked."""
    return isinstance(answered, Unanswered) and answered.error.kind in (
        "context_length",
        "too_large",
    )


def run_calls(
    thread: Thread,
    calls: Sequence[ToolCall],
    heard: list[SystemMessage],
    recall_tokens: int | None,
) -> Flow:
    """Run the calls of one turn and commit their results as the next.

    Without `recall_tokens` there is no compaction, and its two tools are unknown. Compaction comes
    last, behind the results of the same turn.
    """
    own = () if recall_tokens is None else (COMPACT_TOOL.name, RECALL_TOOL.name)
    outcomes: dict[str, Outcome] = {}
    reminder: str | None = None
    gone: set[str] = set()
    foreign = tuple(call for call in calls if call.name not in own)
    for call in foreign:
        yield Tell(ToolStart(call.id, call.name, read_input(call.arguments)))
    if foreign:
        done: list[Outcome] = yield Run(foreign)
        outcomes.update(zip((call.id for call in foreign), done, strict=True))
    ours = [call for call in calls if call.name in own]
    for call in sorted(ours, key=lambda call: call.name == COMPACT_TOOL.name):
        yield Tell(ToolStart(call.id, call.name, read_input(call.arguments)))
        if call.name == COMPACT_TOOL.name:
            outcome, dropped = yield from compact(thread, call, heard)
            if not outcome.is_error:
                gone |= {call.id, *dropped}
                reminder = COMPACTED_NOTE.format(line=outcome.text)
        else:
            outcome = recall(thread, call.arguments, recall_tokens or RECALL_TOKENS)
        yield Tell(ToolEnd(call.id, outcome.text, outcome.is_error))
        outcomes[call.id] = outcome
    results = {
        call.id: ToolResult(
            call.id,
            (Text(outcomes[call.id].text),),
            is_error=outcomes[call.id].is_error or None,
            name=call.name,
        )
        for call in calls
    }
    kept = [results[call.id] for call in calls if call.id not in gone]
    thread.tool_results(kept, reminder=reminder)


def compact(
    thread: Thread, call: ToolCall, heard: list[SystemMessage]
) -> Generator[Tell, None, tuple[Outcome, Sequence[str]]]:
    """The agent's own compaction: its one line, and the open calls that the range took."""
    heard.clear()
    try:
        ranges = validate_compact_input(call.arguments)
        result = thread.compact(ranges, call_id=call.id, trigger="tool")
    except ThreadError as error:
        return Outcome(str(error), is_error=True), ()
    for event in heard:
        yield Tell(event)
    return Outcome(str(result)), result.dropped_calls


def recall(thread: Thread, arguments: str, tokens: int = RECALL_TOKENS) -> Outcome:
    """The originals that the model asks for, in the words they were said, at most so many tokens
    at once."""
    given = read_input(arguments)
    query = given.get("query") if isinstance(given, dict) else None
    if not isinstance(query, str) or not query.strip():
        return Outcome("query: is missing; give words of the original, or its id", is_error=True)
    offset = given.get("offset") if isinstance(given, dict) else None
    if isinstance(offset, str) and offset.isdecimal():
        offset = int(offset)
    if offset is not None and (isinstance(offset, bool) or not isinstance(offset, int)):
        return Outcome("offset: must be a whole number", is_error=True)
    try:
        page = thread.recall_page(query, tokens=tokens, offset=offset or 0)
    except ThreadError as error:
        return Outcome(str(error), is_error=True)
    return Outcome(page.text or f"nothing here has the words {query!r}")


def read_input(arguments: str) -> JsonObject | str:
    """The arguments as an object, or the text where they are none."""
    try:
        value: Any = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        return arguments
    return cast(JsonObject, value) if isinstance(value, dict) else arguments


def report_usage(usage: Usage) -> UsageReport:
    """What an answer cost, for whoever watches."""
    return UsageReport(
        usage.input or 0,
        usage.output or 0,
        cached=usage.cached,
        written=usage.written,
        reasoning=usage.reasoning,
    )


def without_checkpoints(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages as a model sees them that cannot compact: nothing in them refers to that."""
    found: list[Message] = []
    for message in messages:
        kept = tuple(block for block in message.blocks if not isinstance(block, Checkpoint))
        if len(kept) == len(message.blocks):
            found.append(message)
        elif kept:
            found.append(structs.replace(message, blocks=kept))
    return tuple(found)


def run_apart(work: Callable[[], Coroutine[Any, Any, AgentAnswer]]) -> AgentAnswer:
    """Run a coroutine to its end: in this thread, or in another if a loop is running in this one.

    `asyncio.run` refuses the second, and the running loop cannot be waited for from inside it.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    with ThreadPoolExecutor(1, thread_name_prefix="weft-agent") as pool:
        context = copy_context()
        return pool.submit(context.run, lambda: asyncio.run(work())).result()


def _advance(flow: Flow, answer: Any) -> Ask | Run | Sum | Tell | Confirm | None:
    """One step of the flow; None at its end. A `StopIteration` may not cross into a future."""
    try:
        return flow.send(answer)
    except StopIteration:
        return None
