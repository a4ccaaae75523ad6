"""`auto_compact`: a live session continues when its window is full, with any summariser."""

import threading
import time
from contextlib import closing

import orjson
import pytest
from msgspec import structs

import weft
from servers import Scripted, post, scripted_upstream, weft_serve
from weft.catalog import load_catalog
from weft.client import CompactionSettings, Provider
from weft.gateway import RequestLocation, SessionCompactor
from weft.store import open_store

WINDOW = 6000
HEADERS = {"x-session-id": "work", "content-type": "application/json"}


def size(body):
    """The tokens of a request, as an upstream that takes four characters for one counts them."""
    return len(orjson.dumps(body["messages"])) // 4


class Vendor:
    """An upstream of the Messages API with a window; `summary` answers requests for summaries."""

    def __init__(self, window=WINDOW, summary=None):
        self.window = window
        self.summary = summary
        self.sizes = []
        self.refused = 0
        self.asked_for_summary = 0
        self.bodies = []

    def __call__(self, raw):
        body = orjson.loads(raw)
        if body["model"] == "sum":
            self.asked_for_summary += 1
            return self.summary()
        if size(body) > self.window:
            self.refused += 1
            message = f"prompt is too long: {size(body)} tokens > {self.window} maximum"
            error = {
                "type": "error",
                "error": {"type": "invalid_request_error", "message": message},
            }
            return Scripted(orjson.dumps(error), status=400, kind="application/json")
        self.sizes.append(size(body))
        self.bodies.append(body)
        return answer(f"Answer {len(self.sizes)}.", size(body))


def answer(text, tokens):
    message = {
        "id": f"msg_{time.monotonic_ns()}",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": tokens, "output_tokens": 10},
    }
    return Scripted(orjson.dumps(message), kind="application/json")


def config(folder, *lines, window=WINDOW):
    path = folder / "weft.toml"
    model = f'[[model]]\nmatch = "m"\nwindow = {window}\noutput = 500\n'
    path.write_text("\n".join([*lines, model, '[[model]]\nmatch = "sum"\nwindow = 20000\n']))
    return f"--config={path}"


class Client:
    """A client that sends its whole conversation with every request."""

    def __init__(self, url, protocol="anthropic"):
        self.url, self.protocol = url, protocol
        self.messages = []

    def say(self, content):
        self.messages.append({"role": "user", "content": content})
        return self.send()

    def send(self):
        path = "/v1/messages" if self.protocol == "anthropic" else "/v1/chat/completions"
        body = {"model": "m", "max_tokens": 500, "messages": self.messages}
        status, _, data = post(self.url + path, body, HEADERS)
        if status == 200:
            parsed = orjson.loads(data)
            content = (
                parsed["content"]
                if self.protocol == "anthropic"
                else parsed["choices"][0]["message"]["content"]
            )
            self.messages.append({"role": "assistant", "content": content})
        return status


def question(number):
    return f"Question {number}: what does src/part_{number}.py do? " + "It reads settings. " * 60


@pytest.fixture
def vendor():
    with scripted_upstream() as upstream:
        upstream.rule = vendor = Vendor()
        vendor.url, vendor.upstream = upstream.url, upstream
        yield vendor


def serve(folder, vendor, *lines, window=WINDOW):
    flag = config(folder, *lines, window=window)
    return weft_serve(folder, flag, f"--upstream=up=anthropic:{vendor.url}")


@pytest.mark.parametrize("protocol", ["anthropic", "chat"])
def test_a_session_continues_beyond_the_window(tmp_path, vendor, protocol):
    with serve(tmp_path, vendor, "auto_compact = true") as gateway:
        client = Client(gateway.url, protocol)
        assert {client.say(question(n)) for n in range(40)} == {200}
        assert vendor.refused == 0
        with weft.open(gateway.store, thread=weft.threads(gateway.store)[0].name) as t:
            assert list(t.branches()) == ["main"]
            folds = [info for info in t.log() if info.kind == "compact"]
            assert folds
            assert all(info.metadata["method"] == "extract" for info in folds)
            assert "Question 0:" in t.recall("src/part_0.py")[0].text
            assert t.compile().messages[-1].text == "Answer 40."
    # Between two compactions the sent conversation only grows: the vendor's cache keeps working.
    drops = sum(b < a for a, b in zip(vendor.sizes, vendor.sizes[1:], strict=False))
    assert drops == len(folds)
    assert len(client.messages) == 80


def test_it_is_off_by_default(tmp_path, vendor):
    with serve(tmp_path, vendor) as gateway:
        client = Client(gateway.url)
        statuses = [client.say(question(n)) for n in range(30)]
        assert statuses[-1] == 400
        with weft.open(gateway.store, thread=weft.threads(gateway.store)[0].name) as t:
            assert [info for info in t.log() if info.kind == "compact"] == []


def test_a_window_smaller_than_the_catalogue_says(tmp_path, vendor):
    with serve(tmp_path, vendor, "auto_compact = true", window=100_000) as gateway:
        client = Client(gateway.url)
        assert {client.say(question(n)) for n in range(30)} == {200}
        assert vendor.refused >= 1


def test_a_tool_result_that_does_not_fit_is_thinned_before_it_is_sent(tmp_path, vendor):
    with serve(tmp_path, vendor, "auto_compact = true") as gateway:
        client = Client(gateway.url)
        for n in range(8):
            client.say(question(n))
        client.say("Find the SECRET value.")
        call = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}
        client.messages[-1] = {"role": "assistant", "content": [call]}
        lines = [f"line {n} of the file, nothing to see here" for n in range(2000)]
        lines[1000] = "the SECRET value is 4242"
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "\n".join(lines)}
        assert client.say([result]) == 200
        sent = orjson.dumps(vendor.bodies[-1]["messages"]).decode()
        assert "the SECRET value is 4242" in sent
        assert "Shortened:" in sent
        assert "Find the SECRET value." in sent
        assert vendor.refused == 0


@pytest.mark.parametrize("protocol", ["anthropic", "chat"])
def test_a_first_request_of_user_messages_is_compacted_too(tmp_path, vendor, protocol):
    with serve(tmp_path, vendor, "auto_compact = true") as gateway:
        client = Client(gateway.url, protocol)
        client.messages = [{"role": "user", "content": question(n)} for n in range(40)]
        assert client.say("Compare them.") == 200
        assert compactions(gateway)
        assert (vendor.refused, len(vendor.bodies)) == (0, 1)


@pytest.mark.parametrize("protocol", ["anthropic", "chat"])
def test_an_edit_of_a_question_that_failed_is_sent_with_its_retry(tmp_path, vendor, protocol):
    error = orjson.dumps({"type": "error", "error": {"type": "api_error", "message": "down"}})
    with serve(tmp_path, vendor) as gateway:
        vendor.upstream.rule = lambda _: Scripted(error, status=400, kind="application/json")
        client = Client(gateway.url, protocol)
        assert client.say("My password is 4242. What is this?") == 400
        with weft.open(gateway.store, thread=weft.threads(gateway.store)[0].name) as t:
            t.edit(t.head, text="What is this?")
        vendor.upstream.rule = vendor
        assert client.send() == 200
        assert "What is this?" in str(vendor.bodies[-1]["messages"])
        assert "4242" not in str(vendor.bodies[-1]["messages"])


def wait(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


SETTINGS = ("auto_compact = true", '[compaction]\nmodel = "sum"\ntimeout = 2\nretries = 0')


def await_summary(vendor):
    """If the window is nearly full, wait until the first summary is asked for."""
    room = WINDOW - 500
    if vendor.sizes[-1] + 10 > room * 0.85:
        wait(lambda: vendor.asked_for_summary)


def compactions(gateway):
    with weft.open(gateway.store, thread=weft.threads(gateway.store)[0].name) as t:
        return [info for info in t.log() if info.kind == "compact"]


def test_a_model_writes_the_summary_while_the_session_continues(tmp_path, vendor):
    vendor.summary = lambda: answer("The user asked about src/part_0.py and other files.", 100)
    with serve(tmp_path, vendor, *SETTINGS) as gateway:
        client = Client(gateway.url)
        number = 0
        while vendor.asked_for_summary == 0:
            assert client.say(question(number)) == 200
            await_summary(vendor)
            number += 1
            assert number < 30
        wait(lambda: compactions(gateway))
        assert client.say("And now?") == 200
        sent = orjson.dumps(vendor.bodies[-1]["messages"]).decode()
        assert "The user asked about src/part_0.py" in sent
        assert [info.metadata["method"] for info in compactions(gateway)] == ["model"]
        with weft.open(gateway.store, thread=weft.threads(gateway.store)[0].name) as t:
            assert list(t.branches()) == ["main"]


def hang(released):
    def summary():
        released.wait(60)
        return answer("Too late.", 10)

    return summary


@pytest.mark.parametrize("kind", ["hangs", "fails", "apologises"])
def test_a_broken_summariser_does_not_block_a_request(tmp_path, vendor, kind):
    released = threading.Event()
    error = orjson.dumps({"type": "error", "error": {"type": "api_error", "message": "down"}})
    vendor.summary = {
        "hangs": hang(released),
        "fails": lambda: Scripted(error, status=500, kind="application/json"),
        "apologises": lambda: answer("I'm sorry, I cannot help with that.", 10),
    }[kind]
    try:
        with serve(tmp_path, vendor, *SETTINGS) as gateway:
            client = Client(gateway.url)
            for n in range(40):
                assert client.say(question(n)) == 200
                await_summary(vendor)
            assert vendor.asked_for_summary
            assert vendor.refused == 0
            assert compactions(gateway)
            with weft.open(gateway.store, thread=weft.threads(gateway.store)[0].name) as t:
                assert list(t.branches()) == ["main"]
                assert t.compile().messages[-1].text == "Answer 40."
    finally:
        released.set()


def background_log(store, capsys, vendor, texts, branch="main", target=0.5):
    """What is logged about the background summary of a thread that nearly fills its window."""
    with weft.open(store) as t:
        for number, text in enumerate(texts):
            t.user(text)
            t.assistant(f"Answer {number}.")
        name = t.name
    catalog = load_catalog()
    upstream = Provider(name="up", protocol="anthropic", base_url=vendor.url, models=("sum",))
    settings = CompactionSettings(model="sum", retries=0, timeout=60, target=target)
    compactor = SessionCompactor(settings, store, catalog, (upstream,))
    model = structs.replace(catalog.find("claude-sonnet-4-5"), window=WINDOW, output=500)
    location = RequestLocation("e", "", True, name, branch, "", None, b"", b"")
    compactor.after_answer(location, model, WINDOW, 1000)
    for worker in threading.enumerate():
        if worker.name == "weft-compact":
            worker.join(60)
    lines = [orjson.loads(line) for line in capsys.readouterr().err.splitlines()]
    return [{k: v for k, v in line.items() if k not in ("at", "event", "thread")} for line in lines]


def test_a_background_summary_logs_only_a_change_or_a_failure(tmp_path, capsys, vendor):
    def wrong_key():
        error = {"type": "error", "error": {"type": "authentication_error", "message": "no"}}
        return Scripted(orjson.dumps(error), status=401, kind="application/json")

    def summary():
        return answer("The user asked about src/part_0.py and other files.", 100)

    questions = [question(number) for number in range(30)]
    rows = [
        (wrong_key, {"texts": questions}),
        (summary, {"texts": questions}),
        # 5,000 tokens: more than 85% of the window, but less than the target.
        (summary, {"texts": questions[:14], "target": 0.99}),
        (summary, {"texts": ["One long text. " * 1700]}),  # one turn: there are no old turns
        (summary, {"texts": questions, "branch": "gone"}),
    ]
    logs = []
    for number, (vendor.summary, options) in enumerate(rows):
        with closing(open_store(tmp_path / f"{number}.db")) as store:
            logs.append(background_log(store, capsys, vendor, **options))
    assert logs == [
        [{"outcome": "compacted", "method": "extract", "failed_steps": ["model"]}],
        [{"outcome": "compacted", "method": "model"}],
        [],
        [{"outcome": "failed", "error": "BudgetExceeded"}],
        [{"outcome": "failed", "error": "NotFound"}],
    ]


def test_a_compaction_committed_during_an_upstream_call_makes_no_second_branch(tmp_path, vendor):
    started, released = threading.Event(), threading.Event()
    with serve(tmp_path, vendor) as gateway:
        client = Client(gateway.url)
        for n in range(4):
            client.say(question(n))
        direct = vendor.__call__

        def slow(raw):
            started.set()
            assert released.wait(60)
            return direct(raw)

        vendor.upstream.rule = slow
        asking = threading.Thread(target=client.say, args=("And now?",))
        asking.start()
        assert started.wait(60)
        with weft.open(gateway.store, thread=weft.threads(gateway.store)[0].name) as t:
            t.compact(keep=1)
        released.set()
        asking.join(60)
        vendor.upstream.rule = vendor
        with weft.open(gateway.store, thread=weft.threads(gateway.store)[0].name) as t:
            assert list(t.branches()) == ["main"]
            texts = [message.text for message in t.compile().messages]
            assert "Summary of earlier messages" in texts[0]
            assert texts[-2:] == ["And now?", "Answer 5."]
        assert client.say("Go on.") == 200
        assert "Summary of earlier messages" in str(vendor.bodies[-1]["messages"])
