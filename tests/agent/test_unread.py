"""Results that the model has not read reach it, and a failing summariser blocks no run.

The upstream is a real server with its own context window. It refuses requests that are too long, as
a vendor does.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import pytest

import weft
from servers import Scripted, Upstream, scripted_upstream
from summarisers import DOWN, ONCE, TOO_LONG, catalogue, refuses, says, tool_calls, watch
from weft.agent import Agent, Compaction, Failure, MessageComplete, ToolEnd
from weft.client import ModelClient, RetryPolicy, make_provider
from weft.compact import SystemMessage
from weft.thread import fsck
from weft.tokens import counter_for

REQUEST = "Read the files and report the SECRET value."


def is_summary(body: dict[str, Any]) -> bool:
    return "tools" not in body


def size(body: dict[str, Any]) -> int:
    """The tokens of a request, as a vendor that takes four characters for one counts them."""
    return len(orjson.dumps(body["messages"])) // 4


def read_file(path: str) -> str:
    """Read a file."""
    stem = path.split(".")[0]
    lines = [f"def handler_{stem}_{n}(req): return process_{n}(req)" for n in range(40)]
    return "\n".join([f"# {path}", *lines])


def big_file(path: str) -> str:
    """Read a big file."""
    lines = [f"filler line {n} of the big file, nothing to see" for n in range(900)]
    lines[450] = f"the SECRET value of {path} is 4242"
    return "\n".join([f"FIRST line of {path}", *lines, f"LAST line of {path}"])


class Model:
    """A model behind a window: it reads files for some rounds, then ends."""

    def __init__(self, window: int, calls: list[tuple[str, dict[str, Any]]], summary: Any) -> None:
        self.window = window
        self.calls = calls
        self.summary = summary
        self.rounds = 0
        self.asked: list[dict[str, Any]] = []
        self.summaries: list[dict[str, Any]] = []
        self.refused = 0

    def __call__(self, raw: bytes) -> Scripted:
        body = orjson.loads(raw)
        if is_summary(body):
            self.summaries.append(body)
            return self.summary(body) if callable(self.summary) else self.summary
        if size(body) > self.window:
            self.refused += 1
            return TOO_LONG
        self.asked.append(body)
        number = self.rounds
        self.rounds += 1
        if number < len(self.calls):
            name, arguments = self.calls[number]
            return tool_calls([(f"k{number}", name, arguments)])
        return says("FINAL answer")


@contextmanager
def working(
    window: int, calls: list[tuple[str, dict[str, Any]]], summary: Any, **compaction: Any
) -> Iterator[tuple[Agent, Model, Upstream]]:
    """An agent in front of such a model."""
    with weft.open() as thread, scripted_upstream() as upstream:
        model = Model(window, calls, summary)
        upstream.rule = model
        agent = Agent(
            thread,
            "m",
            [read_file, big_file],
            system="You report.",
            provider=make_provider("u", "openai-chat", upstream.url),
            catalog=catalogue(window=window, output=1000),
            policy=ONCE,
            compaction=Compaction(**compaction),
        )
        yield agent, model, upstream


def results_of(body: dict[str, Any]) -> list[str]:
    """The texts of the results behind the last answer in a request."""
    texts: list[str] = []
    for message in body["messages"]:
        if message["role"] == "assistant":
            texts = []
        elif message["role"] == "tool":
            content = message["content"]
            parts = content if isinstance(content, list) else [{"text": content}]
            texts.append("\n".join(part["text"] for part in parts))
    return texts


def failures_of(events: list[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, Failure)]


SUMMARISERS: dict[str, Callable[[dict[str, Any]], Scripted]] = {
    "good": lambda _: says("Several files were read with read_file."),
    "down": lambda _: DOWN,
    "refuses the request": lambda _: refuses(400, "nope"),
    "no key": lambda _: refuses(401, "no such key"),
    "always too long": lambda _: TOO_LONG,
    "empty": lambda _: says(""),
    "declines": lambda _: says("", stop="content_filter"),
    "cut off": lambda _: says("word " * 400, stop="length"),
    "verbose": lambda _: says("They went on and on. " * 800),
    "invents": lambda _: says("It is all in src/nowhere.py."),
    "calls a tool": lambda _: tool_calls([("x", "read_file", {"path": "a.py"})]),
    "breaks off": lambda _: Scripted(b'data: {"id":"c1","choices":[{"ind', cut=True),
    "garbage": lambda _: Scripted(b"<html>gateway</html>", kind="text/html"),
}


@pytest.mark.parametrize("kind", SUMMARISERS)
def test_the_run_ends_and_no_request_is_refused_with_any_summariser(kind: str) -> None:
    calls = [("read_file", {"path": f"mod{n}.py"}) for n in range(12)]
    with working(6000, calls, SUMMARISERS[kind]) as (agent, model, _):
        events = watch(agent, REQUEST)
        assert failures_of(events) == []
        assert isinstance(events[-1], MessageComplete)
        assert model.refused == 0
        assert len(model.asked) == len(calls) + 1
        for number, body in enumerate(model.asked[1:]):
            [result] = results_of(body)
            assert result == read_file(f"mod{number}.py")


@pytest.mark.parametrize("kind", ["good", "down"])
def test_a_result_of_more_than_half_the_room_is_sent_once_in_full(kind: str) -> None:
    calls = [("read_file", {"path": f"mod{n}.py"}) for n in range(9)]
    calls.append(("big_file", {"path": "KEYFILE"}))
    with working(16_000, calls, SUMMARISERS[kind]) as (agent, model, _):
        events = watch(agent, REQUEST)
        assert failures_of(events) == []
        [result] = results_of(model.asked[-1])
        if kind == "good":
            assert result == big_file("KEYFILE")
        else:  # an extract keeps most of the tokens that both share
            assert big_file("KEYFILE").startswith(result[:500])
            assert "recall(" in result
        assert REQUEST in str(model.asked[-1])


@pytest.mark.parametrize("kind", ["good", "down", "cut off"])
@pytest.mark.parametrize("before", [0, 12])
def test_a_result_larger_than_the_window_is_thinned_before_it_is_sent(
    kind: str, before: int
) -> None:
    calls = [("read_file", {"path": f"mod{n}.py"}) for n in range(before)]
    calls.append(("big_file", {"path": "KEYFILE"}))
    with working(6000, calls, SUMMARISERS[kind]) as (agent, model, _):
        events = watch(agent, REQUEST)
        assert failures_of(events) == []
        assert model.refused == 0
        [text] = results_of(model.asked[-1])
        assert len(text) < len(big_file("KEYFILE"))
        assert text.startswith("FIRST line of KEYFILE\n")
        assert "LAST line of KEYFILE" in text
        assert "the SECRET value of KEYFILE is 4242" in text  # a line that matches the task
        handle = text.rpartition('recall("')[2].partition('"')[0]
        assert read_pages(agent.thread, handle) == big_file("KEYFILE")


def read_pages(thread: Any, handle: str) -> str:
    """All that `recall` gives for a handle, page by page, without what it says about itself."""
    pages: list[str] = []
    offset = 0
    while True:
        page = thread.recall_page(handle, offset=offset)
        pages.append(page.body)
        if page.next is None:
            return "".join(pages)
        assert page.next > offset
        offset = page.next


def test_three_big_results_in_a_row_are_each_read() -> None:
    calls = [("big_file", {"path": f"F{n}"}) for n in range(3)]
    with working(6000, calls, SUMMARISERS["good"]) as (agent, model, _):
        assert failures_of(watch(agent, REQUEST)) == []
        for number, body in enumerate(model.asked[1:]):
            [text] = results_of(body)
            assert f"the SECRET value of F{number} is 4242" in text


def test_recalled_text_is_bounded_and_read() -> None:
    calls = [("read_file", {"path": f"mod{n}.py"}) for n in range(10)]
    calls.append(("recall", {"query": "handler"}))
    with working(6000, calls, SUMMARISERS["good"]) as (agent, model, _):
        events = watch(agent, REQUEST)
        assert failures_of(events) == []
        [ended] = [e for e in events if isinstance(e, ToolEnd) and e.id == "k10"]
        assert counter_for("estimate").text(ended.content) <= 1500
        assert results_of(model.asked[-1]) == [ended.content]
        assert "handler_mod" in ended.content


def test_a_large_recall_is_bounded_and_can_be_continued() -> None:
    with working(200_000, [("recall", {"query": "needle"})], DOWN) as (agent, _, _):
        thread = agent.thread
        for n in range(20):
            thread.user(f"read big file {n}")
            thread.assistant(f"ok {n}")
            thread.user("log: " + f"needle data line {n}\n" * 4000)
            thread.assistant("seen")
        thread.compact(keep=1)
        [answer] = [event for event in watch(agent, "Recall it.") if isinstance(event, ToolEnd)]
        assert not answer.is_error
        assert counter_for("o200k").text(answer.content) <= 2600
        assert "needle data line" in answer.content
        assert "offset" in answer.content


def test_a_hung_summariser_times_out_and_the_run_continues() -> None:
    calls = [("read_file", {"path": f"mod{n}.py"}) for n in range(12)]
    hung = Scripted(*[b": wait\n\n"] * 600, pause=0.1)
    with working(6000, calls, lambda _: hung, timeout=0.3) as (agent, model, _):
        events = watch(agent, REQUEST)
        assert failures_of(events) == []
        assert len(model.asked) == len(calls) + 1
        fell = [
            e for e in events if isinstance(e, SystemMessage) and e.subtype == "compact_fallback"
        ]
        assert "0.3 seconds" in fell[0].data["compact_error"]


class Hung:
    """A summariser of the caller's own that never answers."""

    def __init__(self) -> None:
        self.model = catalogue(window=6000, output=1000).find("m")

    def ask(self, _: Any) -> Any:
        time.sleep(20)
        raise AssertionError("nobody waits for this")


class Raising(Hung):
    """A summariser of the caller's own that raises what no protocol knows."""

    def ask(self, _: Any) -> Any:
        raise RuntimeError("the socket died")


@pytest.mark.parametrize(
    ("by", "timeout", "why"),
    [(Hung, 0.2, "0.2 seconds"), (Raising, 60, "the socket died")],
)
def test_a_custom_summariser_that_hangs_or_raises_blocks_nothing(
    by: Any, timeout: float, why: str
) -> None:
    calls = [("read_file", {"path": f"mod{n}.py"}) for n in range(12)]
    with working(6000, calls, DOWN, by=by(), timeout=timeout) as (agent, model, _):
        events = watch(agent, REQUEST)
        assert failures_of(events) == []
        assert len(model.asked) == len(calls) + 1
        fell = [
            e for e in events if isinstance(e, SystemMessage) and e.subtype == "compact_fallback"
        ]
        assert why in fell[0].data["compact_error"]
        folds = [info for info in agent.thread.log() if info.kind == "compact"]
        assert "extract" in str(folds[-1].message)


def test_the_agent_can_compact_its_thread_without_writing_the_summary() -> None:
    with scripted_upstream() as upstream, weft.open() as t:
        for n in range(30):
            t.user(f"Question {n} about src/part_{n}.py: " + "what does it do? " * 20)
            t.assistant(f"src/part_{n}.py parses invoice {n}. " * 20)

        def answer(body: bytes) -> Scripted:
            request = orjson.loads(body)
            if is_summary(request):
                return says("They went through the parts of the project and what each one does.")
            if any(message["role"] == "tool" for message in request["messages"]):
                return says("Done.")
            return tool_calls([("call_1", "compact_context", {})])

        upstream.rule = answer
        settings = Compaction(compact_context=True)
        agent = Agent(
            t,
            "m",
            provider=make_provider("u", "openai-chat", upstream.url),
            catalog=catalogue(),
            compaction=settings,
            policy=ONCE,
        )
        before = t.compile().tokens
        events = watch(agent, "Shorten this, then go on.")
        [end] = [event for event in events if isinstance(event, ToolEnd)]
        assert not end.is_error
        assert "tokens" in end.content
        assert isinstance(events[-1], MessageComplete)
        bodies = [orjson.loads(sent["body"]) for sent in upstream.requests]
        offered = [tool["function"]["name"] for tool in bodies[0]["tools"]]
        assert "compact_context" in offered
        assert size(bodies[-1]) < size(bodies[0]) / 2
        assert t.compile().tokens < before / 2
        assert fsck(t.store).clean


def test_compactions_that_the_model_asks_for_count_for_the_pause_after_failures() -> None:
    with scripted_upstream() as upstream, weft.open() as t:
        for n in range(60):
            t.user(f"Question {n} about src/part_{n}.py: " + "what does it do? " * 20)
            t.assistant(f"src/part_{n}.py parses invoice {n}. " * 20)
        summary_requests, turns = 0, 0

        def answer(body: bytes) -> Scripted:
            nonlocal summary_requests, turns
            if is_summary(orjson.loads(body)):
                summary_requests += 1
                return DOWN
            turns += 1
            if turns % 2:
                return tool_calls([(f"call_{turns}", "compact_context", {})])
            return says("Done.")

        upstream.rule = answer
        agent = Agent(
            t,
            "m",
            provider=make_provider("u", "openai-chat", upstream.url),
            catalog=catalogue(),
            compaction=Compaction(compact_context=True, failures=1, pause=1, retries=0),
            policy=ONCE,
        )
        counts: list[int] = []
        for _ in range(4):
            [end] = [e for e in watch(agent, "Shorten this.") if isinstance(e, ToolEnd)]
            assert not end.is_error
            counts.append(summary_requests)
        assert counts == [1, 1, 2, 2]  # every second compaction is skipped


@pytest.mark.parametrize("is_separate", [False, True])
@pytest.mark.parametrize("retries", [0, 2])
def test_the_settings_limit_the_retries_of_a_failed_summary_request(
    retries: int, is_separate: bool
) -> None:
    """The repeats are events, also if another model than the agent's own writes the summaries."""
    with scripted_upstream() as upstream, weft.open() as t:
        for n in range(30):
            t.user(f"Question {n} about src/part_{n}.py: " + "what does it do? " * 20)
            t.assistant(f"src/part_{n}.py parses invoice {n}. " * 20)
        upstream.rule = lambda body: DOWN if is_summary(orjson.loads(body)) else says("Done.")
        policy = RetryPolicy(attempts=5, statuses=frozenset({500}), first=0.01)
        provider, models = (
            make_provider("u", "openai-chat", upstream.url),
            catalogue(window=6000),
        )
        once = RetryPolicy(attempts=1 + retries, statuses=frozenset({500}), first=0.01)
        writer = ModelClient(provider, "m", models, policy=once) if is_separate else None
        agent = Agent(
            t,
            "m",
            provider=provider,
            catalog=models,
            compaction=Compaction(retries=retries, by=writer),
            policy=policy,
        )
        events = watch(agent, "Go on.")
        assert isinstance(events[-1], MessageComplete)
        reported = [event for event in events if getattr(event, "subtype", "") == "api_retry"]
        assert [event.data["attempt"] for event in reported] == list(range(1, 1 + retries))
        bodies = [orjson.loads(request["body"]) for request in upstream.requests]
        assert sum(map(is_summary, bodies)) == 1 + retries
