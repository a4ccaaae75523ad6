"""Runs over the page's socket belong to the server, not to the tab that started them."""

import asyncio
import time
from contextlib import asynccontextmanager
from urllib.parse import quote
from urllib.request import urlopen

import aiohttp
import orjson
import pytest
from msgspec import structs

import weft.thread
from servers import post, weft_serve
from slow_upstream import CUT_TEXT, HELD_TEXT, REASON, slow_upstream, tool_call
from weft.model import Message, Origin, Text, Usage

MODEL = "scripted-model"
ENDS = ("message_complete", "interrupted", "error")
SECONDS = 60


@pytest.fixture(scope="module")
def upstream():
    with slow_upstream() as running:
        yield running


@pytest.fixture(autouse=True)
def _closed_gate(upstream):
    upstream.gate.clear()
    upstream.summary = None


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, upstream):
    with weft_serve(
        tmp_path_factory.mktemp("runs"), f"--upstream=mock=anthropic:{upstream.url}"
    ) as running:
        yield running


class Tab:
    """One connection to the socket."""

    def __init__(self, socket):
        self._socket = socket

    async def send(self, type, thread=None, **fields):
        frame = {"type": type, "thread": thread, **fields}
        await self._socket.send_json({key: val for key, val in frame.items() if val is not None})

    async def say(self, thread, text, **fields):
        await self.send("say", thread, text=text, **{"model": MODEL, **fields})

    async def until(self, *types):
        """The frames up to the first of these types."""
        frames = []
        while not frames or frames[-1]["type"] not in types:
            frames.append(await self._socket.receive_json(timeout=SECONDS))
        return frames

    async def next(self, *types):
        return (await self.until(*types))[-1]

    async def close(self):
        await self._socket.close()


@asynccontextmanager
async def tabs(url, number=1):
    async with aiohttp.ClientSession() as session:
        yield [Tab(await session.ws_connect(url + "/ws")) for _ in range(number)]


def talk(gateway, work, number=1):
    """Run a conversation of so many tabs."""

    async def run():
        async with tabs(gateway.url, number) as opened:
            return await work(*opened)

    return asyncio.run(run())


def read(gateway, path):
    with urlopen(gateway.url + path, timeout=SECONDS) as answer:
        return orjson.loads(answer.read())


def show(gateway, thread):
    return read(gateway, f"/api/thread?thread={quote(thread)}")


def texts(gateway, thread):
    rows = show(gateway, thread)["rows"]
    return [
        (row["role"], " ".join(part["text"] for part in row["parts"] if part["type"] == "text"))
        for row in rows
    ]


def eventually(check):
    deadline = time.monotonic() + SECONDS
    while not (value := check()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
    return value


def test_a_run_continues_after_its_tab_is_closed(gateway, upstream):
    async def leave(tab):
        await tab.say("left", "HELD please")
        await tab.until("text_delta")

    talk(gateway, leave)
    assert show(gateway, "left")["running"]
    upstream.gate.set()
    eventually(lambda: not show(gateway, "left")["running"])
    answer = HELD_TEXT + "and the second half."
    assert texts(gateway, "left") == [("user", "HELD please"), ("assistant", answer)]


def test_a_tab_that_joins_later_gets_the_streamed_text_and_later_events(gateway, upstream):
    async def join(first, second):
        await first.say("joined", "HELD please")
        started = await first.next("started")
        await first.until("text_delta")
        await second.send("watch", "joined")
        state = await second.next("watching")
        upstream.gate.set()
        return started, state, await second.until(*ENDS)

    started, state, rest = talk(gateway, join, 2)
    streamed = [frame["text"] for frame in state["frames"] if frame["type"] == "text_delta"]
    assert (state["run"], state["base"], streamed) == (started["run"], None, [HELD_TEXT])
    later = "".join(frame["text"] for frame in rest if frame["type"] == "text_delta")
    assert later == "and the second half."
    assert rest[-1]["type"] == "message_complete"


def test_viewing_a_thread_runs_nothing(gateway):
    async def look(tab):
        await tab.send("watch", "untouched")
        return await tab.next("watching")

    state = talk(gateway, look)
    assert (state["run"], state["branch"]) == (None, "main")
    assert "untouched" not in [line["name"] for line in read(gateway, "/api/threads")["threads"]]


def test_a_second_text_in_a_running_thread_is_queued(gateway, upstream):
    async def both(first, second):
        await first.send("watch", "shared")
        await second.send("watch", "shared")
        await first.say("shared", "HELD first")
        await first.until("text_delta")
        await second.say("shared", "second", request="r2")
        queued = await second.next("queued")
        shown = await first.next("queue")
        await second.send("retry", "shared")
        retry = await second.next("error")
        await second.say("shared", "third")
        await second.next("queued")
        late = Tab(second._socket)
        await late.send("watch", "shared")
        joined = await late.next("watching")
        upstream.gate.set()
        for _ in range(3):
            await first.until("message_complete")
        return queued, shown, retry, joined

    queued, shown, retry, joined = talk(gateway, both, 2)
    assert (queued["request"], queued["position"]) == ("r2", 0)
    assert [text["text"] for text in shown["queue"]] == ["second"]
    assert (retry["scope"], "still being written" in retry["message"]) == ("frame", True)
    assert [text["text"] for text in joined["queue"]] == ["second", "third"]
    turns = [(role, text.removeprefix("An answer to: ")) for role, text in texts(gateway, "shared")]
    assert [role for role, _ in turns] == ["user", "assistant"] * 3
    assert [text for role, text in turns if role == "user"] == ["HELD first", "second", "third"]
    assert read(gateway, "/api/rows?thread=shared")["running"] is False


def test_a_queued_text_can_be_dropped_and_survives_its_tab(gateway, upstream):
    async def both(first, second):
        await first.send("watch", "dropped")
        await first.say("dropped", "HELD first")
        await first.until("text_delta")
        await second.say("dropped", "never mind")
        await second.next("queued")
        queue = (await first.next("queue"))["queue"]
        await second.say("dropped", "from a tab that closes")
        await second.next("queued")
        await second.close()
        await first.send("unqueue", "dropped", id=queue[0]["id"])
        await first.until("queue")
        await first.send("unqueue", "dropped", id=queue[0]["id"])
        gone = await first.next("error")
        upstream.gate.set()
        for _ in range(2):
            await first.until("message_complete")
        return gone

    gone = talk(gateway, both, 2)
    assert "not queued any more" in gone["message"]
    user_texts = [text for role, text in texts(gateway, "dropped") if role == "user"]
    assert user_texts == ["HELD first", "from a tab that closes"]


@pytest.mark.parametrize("end", ["stopped", "failed"])
def test_a_queued_text_is_sent_after_any_end_of_the_run_before_it(gateway, end):
    thread = f"queued-{end}"

    async def one(tab):
        await tab.send("watch", thread)
        if end == "stopped":
            await tab.say(thread, "HELD first")
            await tab.until("text_delta")
            await tab.say(thread, "next")
            await tab.next("queued")
            await tab.send("interrupt", thread)
            await tab.until("interrupted")
        else:
            await tab.say(thread, "SLOW 20 CUT")
            await tab.say(thread, "next")
            await tab.until("error")
        await tab.until("message_complete")

    talk(gateway, one)
    user_texts = [text for role, text in texts(gateway, thread) if role == "user"]
    assert len(user_texts) == 2
    assert user_texts[1] == "next"


def test_threads_run_concurrently_also_from_one_connection(gateway, upstream):
    async def work(tab):
        await tab.say("beside-a", "HELD one")
        await tab.until("text_delta")
        await tab.say("beside-b", "quick")
        while (end := await tab.next(*ENDS))["thread"] != "beside-b":
            pass
        upstream.gate.set()
        return end, await tab.next(*ENDS)

    ends = talk(gateway, work)
    assert [end["thread"] for end in ends] == ["beside-b", "beside-a"]


def test_any_tab_can_stop_a_run_and_gets_the_list_of_running_threads(gateway):
    async def stop(first, second):
        await second.send("watch", "elsewhere")
        await first.say("stopped-by-other", "HELD please")
        await first.until("text_delta")
        running = await second.next("runs")
        while not running["runs"]:
            running = await second.next("runs")
        await second.send("interrupt", "stopped-by-other")
        end = await first.next(*ENDS)
        over = await second.next("runs")
        return running["runs"], end, over["runs"]

    running, end, over = talk(gateway, stop, 2)
    assert [(line["thread"], line["model"]) for line in running] == [("stopped-by-other", MODEL)]
    assert end["type"] == "interrupted"
    assert over == []


def test_undo_and_redo_wait_for_the_end_of_a_run(gateway, upstream):
    async def run(tab):
        await tab.say("no-undo", "HELD please")
        await tab.until("text_delta")
        body = {"thread": "no-undo"}
        replies = [
            await asyncio.to_thread(post, gateway.url + path, body)
            for path in ("/api/undo", "/api/redo", "/api/delete")
        ]
        upstream.gate.set()
        await tab.until(*ENDS)
        return [status for status, _, _ in replies]

    assert talk(gateway, run) == [409, 409, 409]


def test_a_thread_is_renamed_deleted_and_restored(gateway):
    with weft.thread.open(str(gateway.store), "first name") as opened:
        opened.user("hello")

    def ask(path, **body):
        status, _, answer = post(f"{gateway.url}/api/{path}", body)
        return status, orjson.loads(answer)

    assert ask("rename", thread="first name", name="second")[1]["thread"] == "second"
    status, answer = ask("delete", thread="second")
    assert (status, answer["message"]) == (200, "Deleted second.")
    assert ask("delete", thread="second")[0] == 404
    assert "second" not in [record.name for record in weft.threads(str(gateway.store))]
    assert [row["name"] for row in read(gateway, "/api/deleted")["threads"]] == ["second"]
    assert ask("undelete", thread="second")[0] == 200
    assert ask("undelete", thread="second")[0] == 404
    assert read(gateway, "/api/deleted")["threads"] == []
    with weft.thread.open(str(gateway.store), "second") as opened:
        assert len(opened.compile()) == 1


def fill(gateway, thread, messages=60):
    """A thread that has outgrown the offline model's window of 32,000 tokens."""
    with weft.thread.open(str(gateway.store), thread) as opened:
        for number in range(messages):
            opened.user(f"question {number} about module_{number}.py " + "lorem ipsum dolor " * 130)
            opened.assistant(f"answer {number}: " + "consectetur adipiscing elit " * 130)


def commits(gateway, thread):
    return [commit["kind"] for commit in read(gateway, f"/api/log?thread={thread}")["commits"]]


def test_a_send_that_would_compact_asks_first_and_changes_nothing(gateway):
    fill(gateway, "long")
    before = show(gateway, "long")

    async def send(tab):
        await tab.say("long", "hello", model="weft-offline", request="r1")
        return await tab.next("compaction_required", *ENDS)

    asked = talk(gateway, send)
    assert asked["type"] == "compaction_required"
    assert (asked["request"], asked["model"], asked["window"]) == ("r1", "weft-offline", 32_000)
    assert asked["tokens"] > asked["limit"] > asked["after"] > 0
    assert asked["messages"] >= len(asked["removed"]) > 0
    assert show(gateway, "long")["head"] == before["head"]


@pytest.mark.parametrize(("compact", "is_compacted"), [(True, True), (False, False)])
def test_a_send_compacts_only_after_a_yes(gateway, compact, is_compacted):
    thread = f"long-{compact}"
    fill(gateway, thread)

    async def send(tab):
        await tab.say(thread, "hello", model="weft-offline", compact=compact)
        return await tab.next("compaction_required", *ENDS)

    assert talk(gateway, send)["type"] == "message_complete"
    assert ("compact" in commits(gateway, thread)) is is_compacted
    assert texts(gateway, thread)[-1][0] == "assistant"


def test_the_gauge_and_the_question_use_the_same_count(gateway):
    fill(gateway, "counted", 40)
    context = read(gateway, "/api/composer?thread=counted&model=weft-offline")["context"]

    async def send(tab):
        await tab.say("counted", "x", model="weft-offline")
        return await tab.next("compaction_required", *ENDS)

    asked = talk(gateway, send)
    assert (asked["window"], asked["limit"]) == (context["window"], context["limit"])
    assert 0 <= asked["tokens"] - context["tokens"] < 20


def test_the_question_uses_reported_usage_like_the_gauge(gateway):
    model = "claude-sonnet-4-5"

    def gauge():
        return read(gateway, f"/api/composer?thread=decided&model={model}")["context"]

    def answer(thread, tokens):
        origin = Origin("anthropic", model=model)
        message = Message("assistant", (Text("It is."),), origin=origin)
        thread.commit_message(message, usage=Usage(input=tokens, output=1_000))

    with weft.thread.open(gateway.store, "decided") as thread:
        thread.user("Is it?")
        answer(thread, 20_000)
        limit = gauge()["limit"]
        thread.user("And then?")
        answer(thread, limit - 2_000)
    assert gauge()["tokens"] == limit - 1_000

    async def send(tab):
        await tab.say("decided", "words and more words " * 600, model=model)  # it passes the mark
        return await tab.next("compaction_required", *ENDS)

    asked = talk(gateway, send)
    assert asked["type"] == "compaction_required"
    assert asked["limit"] == limit
    assert limit < asked["tokens"] < limit + 4_000


def test_a_failed_answer_can_be_retried_without_repeating_the_question(gateway):
    async def fail_and_retry(tab):
        await tab.say("retried", "REFUSED")
        failed = await tab.next(*ENDS)
        await tab.send("retry", "retried", model="weft-offline")
        frames = await tab.until(*ENDS)
        await tab.send("retry", "retried", model="weft-offline")
        return failed, frames, await tab.next("error")

    failed, frames, refused = talk(gateway, fail_and_retry)
    assert (failed["type"], REASON in failed["message"]) == ("error", True)
    assert frames[-1]["type"] == "message_complete"
    assert "user_message" not in [frame["type"] for frame in frames]
    assert [role for role, _ in texts(gateway, "retried")] == ["user", "assistant"]
    assert refused["message"] == "the last message is answered; there is nothing to retry"


def test_a_thread_keeps_its_model(gateway):
    async def talk_twice(tab):
        await tab.say("own-model", "hello")
        await tab.until(*ENDS)
        await tab.send("say", "own-model", text="again")  # no model is named
        return await tab.until(*ENDS)

    assert talk(gateway, talk_twice)[-1]["type"] == "message_complete"
    assert texts(gateway, "own-model")[-1] == ("assistant", "An answer to: again")
    assert show(gateway, "own-model")["model"] == MODEL


@pytest.mark.parametrize(
    ("text", "state", "arrived", "reason"),
    [
        ("REFUSED", "failed", "", REASON),
        ("CUT", "partial", CUT_TEXT, "broke off"),
        ("HELD stop", "partial", HELD_TEXT, "stopped"),
    ],
)
def test_a_truncated_answer_is_an_attempt_with_its_reason(gateway, text, state, arrived, reason):
    thread = f"attempt {text}"

    async def fail(tab):
        await tab.say(thread, text)
        if reason == "stopped":
            await tab.until("text_delta")
            await tab.send("interrupt", thread)
        return await tab.next(*ENDS)

    assert talk(gateway, fail)["type"] != "message_complete"
    view = show(gateway, thread)
    (attempt,) = view["attempts"]
    assert (attempt["state"], attempt["after"]) == (state, view["rows"][-1]["id"])
    assert "".join(part["text"] for part in attempt["parts"]) == arrived
    assert reason in attempt["reason"]
    assert [row["role"] for row in view["rows"]] == ["user"]
    assert view["unanswered"]


def test_a_run_stopped_during_a_question_is_an_attempt_too(gateway, upstream):
    fill(gateway, "asks", 14)
    long = "many words and more of them " * 800
    upstream.answers["GROW"] = lambda: tool_call(long, "calculate", {"expression": "6 * 7"})

    async def stop(tab):
        await tab.say("asks", "GROW", model="gpt-3.5-turbo")
        asked = await tab.next("compaction_question", *ENDS)
        await tab.send("interrupt", "asks")
        return asked, await tab.next(*ENDS)

    asked, end = talk(gateway, stop)
    assert (asked["type"], end["type"]) == ("compaction_question", "interrupted")
    (attempt,) = show(gateway, "asks")["attempts"]
    assert (attempt["state"], attempt["reason"]) == ("failed", "stopped")


def test_a_shutdown_keeps_the_streamed_text_of_its_runs(tmp_path, upstream):
    with weft_serve(tmp_path, f"--upstream=mock=anthropic:{upstream.url}") as gateway:

        async def leave(tab):
            await tab.say("shut-down", "HELD please")
            await tab.until("text_delta")

        talk(gateway, leave)
    with weft.thread.open(str(gateway.store), "shut-down") as thread:
        (attempt,) = thread.attempts()
    assert (attempt.state, attempt.text) == ("partial", HELD_TEXT)
    assert attempt.reason.message == "the server was shut down"


def test_a_caller_sees_and_stops_only_runs_of_its_key(tmp_path, upstream):
    flags = [f"--upstream=mock=anthropic:{upstream.url}"]
    with weft_serve(tmp_path, *flags, WEFT_API_KEYS="one,two") as gateway:

        async def both():
            async with aiohttp.ClientSession() as session:
                mine, other = [
                    Tab(await session.ws_connect(gateway.url + "/ws", headers={"x-api-key": key}))
                    for key in ("one", "two")
                ]
                await other.send("watch", "secret")
                await other.until("runs")
                await mine.send("watch", "secret")
                await mine.say("secret", "HELD please")
                started = await mine.next("started")
                await mine.until("text_delta")
                await other.send("interrupt", "secret")
                refused = await other.next("error")
                await other.send("watch", "secret")
                frames = [await other.next("watching"), await other.next("runs")]
                await mine.send("interrupt", "secret")
                await mine.until(*ENDS)
                return started, refused, frames

        started, refused, (watching, runs) = asyncio.run(both())
    assert started["thread"] == "secret"
    assert refused["message"] == "nothing runs in this thread"
    assert (watching["run"], runs["runs"]) == (None, [])


def test_every_model_of_the_upstreams_is_listed(gateway):
    listed = read(gateway, "/api/models")
    assert listed["models"] == ["scripted-model", "weft-offline"]
    assert listed["upstreams"] == [{"name": "mock", "models": 1, "error": None}]


def test_an_upstream_that_does_not_list_its_models_is_named_with_the_reason(tmp_path, upstream):
    flags = [
        f"--upstream=up=anthropic:{upstream.url}",
        "--upstream=down=anthropic:http://127.0.0.1:9",
    ]
    with weft_serve(tmp_path, *flags) as gateway:
        listed = read(gateway, "/api/models")
        assert listed["models"] == ["up/scripted-model", "weft-offline"]
        errors = {line["name"]: line["error"] for line in listed["upstreams"]}
        assert errors["up"] is None
        assert "cannot be reached" in errors["down"]


def test_a_thread_with_an_unavailable_model_asks_for_another(tmp_path):
    with weft_serve(tmp_path) as gateway:
        with weft.thread.open(str(gateway.store), "old") as thread:
            thread.user("hi")
            thread.assistant(
                {
                    "id": "m",
                    "type": "message",
                    "role": "assistant",
                    "model": "claude-sonnet-5",
                    "content": [{"type": "text", "text": "hello"}],
                    "stop_reason": "end_turn",
                    "stop_sequence": None,
                    "usage": {"input_tokens": 1, "output_tokens": 1},
                }
            )
        view = show(gateway, "old")
        assert view["model"] == "claude-sonnet-5"
        assert "no upstream serves the model 'claude-sonnet-5'" in view["problem"]

        async def send(tab):
            await tab.send("say", "old", text="go on")
            return await tab.next("error")

        refused = talk(gateway, send)
        assert (refused["place"], "choose another model" in refused["message"]) == ("model", True)
        assert show(gateway, "old")["head"] == view["head"]


def test_a_thread_with_an_unlisted_model_asks_for_another(gateway):
    async def talk_once(tab):
        await tab.say("unlisted", "hello", model="retired-model")
        return await tab.next(*ENDS)

    assert talk(gateway, talk_once)["type"] == "message_complete"  # a person may name any model
    read(gateway, "/api/models")
    assert show(gateway, "unlisted")["problem"] is None  # it has just answered

    with weft.thread.open(str(gateway.store), "unlisted") as thread:
        answer = thread.compile().messages[-1]
        retired = structs.replace(answer, origin=structs.replace(answer.origin, model="retired"))
        thread.commit_message(retired)
    view = show(gateway, "unlisted")
    assert view["model"] == "retired"
    assert view["problem"] == "the upstream 'mock' does not list 'retired'"


def test_a_thread_is_shown_as_it_was_at_a_commit(gateway):
    async def talk_twice(tab):
        for text in ("one", "two"):
            await tab.say("until", text)
            await tab.until(*ENDS)

    talk(gateway, talk_twice)
    log = read(gateway, "/api/log?thread=until")["commits"]
    first = log[-2]["id"]
    shown = read(gateway, f"/api/thread?thread=until&until={first}")
    assert [row["role"] for row in shown["rows"]] == ["user", "assistant"]
    assert read(gateway, "/api/thread?thread=until&until=start")["rows"] == []
