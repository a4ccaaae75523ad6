"""Questions of runs to the people who watch them, over the socket and over the API."""

import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import aiohttp
import orjson
import pytest

from servers import scripted_upstream, weft_serve
from summarisers import bodies, says, tool_calls

SERVER = Path(__file__).parent.parent / "agent" / "mcp_server.py"
ENDS = ("message_complete", "interrupted", "error")
SECONDS = 60
KEYS = ("first-key", "second-key")


@pytest.fixture(scope="module")
def upstream():
    with scripted_upstream() as running:
        yield running


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return tmp_path_factory.mktemp("config")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, upstream, config):
    flags = (f"--upstream=mock=openai-chat:{upstream.url}", f"--mcp={sys.executable} {SERVER}")
    folder = tmp_path_factory.mktemp("questions")
    with weft_serve(folder, *flags, XDG_CONFIG_HOME=str(config)) as running:
        yield running


@pytest.fixture(scope="module")
def keyed(tmp_path_factory, upstream):
    flags = (f"--upstream=mock=openai-chat:{upstream.url}",)
    folder = tmp_path_factory.mktemp("keyed")
    environ = {"WEFT_API_KEYS": ",".join(KEYS), "XDG_CONFIG_HOME": str(folder)}
    with weft_serve(folder, *flags, MOCK_API_KEY="x", **environ) as running:
        yield running


class Tab:
    def __init__(self, socket):
        self._socket = socket

    async def send(self, type, thread, **fields):
        await self._socket.send_json({"type": type, "thread": thread, **fields})

    async def say(self, thread, text):
        await self.send("say", thread, text=text, model="m")

    async def until(self, *types):
        frames = []
        while not frames or frames[-1]["type"] not in types:
            frames.append(await self._socket.receive_json(timeout=SECONDS))
        return frames

    async def next(self, *types):
        return (await self.until(*types))[-1]


def talk(gateway, work, number=1, key=None):
    @asynccontextmanager
    async def tabs():
        headers = {} if key is None else {"x-api-key": key}
        async with aiohttp.ClientSession(headers=headers) as session:
            yield [Tab(await session.ws_connect(gateway.url + "/ws")) for _ in range(number)]

    async def run():
        async with tabs() as opened:
            return await work(*opened)

    return asyncio.run(run())


def call_api(gateway, path, body=None, key=None):
    headers = {"content-type": "application/json", **({"x-api-key": key} if key else {})}
    data = None if body is None else orjson.dumps(body)
    try:
        with urlopen(Request(gateway.url + path, data, headers), timeout=SECONDS) as answer:
            return answer.status, orjson.loads(answer.read())
    except HTTPError as error:
        return error.code, orjson.loads(error.read())


async def api(*args, **options):
    return await asyncio.to_thread(call_api, *args, **options)


def results(gateway, thread, key=None):
    """The results of the calls in a thread, and the texts of the user."""
    _, view = call_api(gateway, f"/api/thread?thread={quote(thread)}", key=key)
    parts = [(row["role"], part) for row in view["rows"] for part in row["parts"]]
    calls = [part["content"] for _, part in parts if part["type"] == "result"]
    return calls, [p["text"] for role, p in parts if role == "user" and p["type"] == "text"]


def add(upstream, *calls):
    """The model adds numbers with the tool of the MCP server, then says that it is done."""
    turns = [tool_calls([(f"c{n}", "add", {"a": n, "b": 1})]) for n in calls]
    upstream.then(*turns, says("done"))


def test_every_tab_shows_the_question_and_the_first_answer_counts(gateway, upstream):
    add(upstream, 41)

    async def ask(first, second):
        await second.send("watch", "asked")
        await first.say("asked", "add them")
        question = await first.next("question")
        same = await second.next("question")
        await second.send("watch", "asked")  # a reload
        joined = (await second.next("watching"))["frames"]
        waiting = (await second.next("runs"))["runs"]
        listed = await api(gateway, "/api/questions")
        of_thread = await api(gateway, "/api/questions?thread=asked")
        wrong = await api(
            gateway, "/api/answer", {"thread": "asked", "id": question["id"], "answer": "yes"}
        )
        answer = {"thread": "asked", "id": question["id"], "answer": "once"}
        answers = [await api(gateway, "/api/answer", answer) for _ in range(2)]
        rest = await first.until(*ENDS)
        return question, same, joined, waiting, listed, of_thread, wrong, answers, rest

    question, same, joined, waiting, listed, of_thread, wrong, answers, rest = talk(gateway, ask, 2)
    shown = {key: question[key] for key in ("kind", "tool", "server", "input", "thread")}
    assert shown == {
        "kind": "permission",
        "tool": "add",
        "server": "demo",
        "input": {"a": 41, "b": 1},
        "thread": "asked",
    }
    assert same == question
    assert [f["id"] for f in joined if f["type"] == "question"] == [question["id"]]
    assert [run["waiting"] for run in waiting if run["thread"] == "asked"] == [True]
    assert [q["id"] for q in listed[1]["questions"]] == [question["id"]]
    assert of_thread[1] == listed[1]
    assert (wrong[0], wrong[1]["error"]["place"]) == (400, "answer")
    assert [status for status, _ in answers] == [200, 409]
    (answered,) = [frame for frame in rest if frame["type"] == "answered"]
    assert (answered["id"], answered["answer"]) == (question["id"], "once")
    assert results(gateway, "asked")[0] == ["42"]
    assert call_api(gateway, "/api/questions")[1] == {"questions": []}


def test_answers_are_valid_for_a_call_a_thread_or_always(gateway, upstream, config):
    async def ask(tab, thread, answers):
        """Answer the questions of a run; returns how many there were."""
        await tab.say(thread, "add them")
        for number in range(len(answers) + 1):
            frame = await tab.next("question", *ENDS)
            if frame["type"] in ENDS:
                return number
            await tab.send("answer", thread, id=frame["id"], answer=answers[number])
        raise AssertionError("too many questions")

    def questions(thread, *answers, calls=(1, 2)):
        add(upstream, *calls)
        return talk(gateway, lambda tab: ask(tab, thread, answers))

    assert questions("once", "once", "deny") == 2
    assert results(gateway, "once")[0] == ["2", "the user did not allow this call"]
    assert questions("held", "thread") == 1
    assert questions("held") == 0
    assert questions("other", "always") == 1
    assert questions("another") == 0
    saved = orjson.loads((config / "weft" / "permissions.json").read_bytes())
    assert saved == {"allow": ["demo/add"]}
    assert call_api(gateway, "/api/permissions")[1] == {"always": ["demo/add"]}
    assert call_api(gateway, "/api/forget", {"tool": "demo/add"})[0] == 200
    assert questions("another", "deny", "deny") == 2
    assert call_api(gateway, "/api/permissions")[1] == {"always": []}


def test_a_question_waits_until_its_run_is_stopped(gateway, upstream):
    upstream.then(tool_calls([("c1", "fail", {})]))

    async def stop(tab):
        await tab.say("stopped", "fail please")
        question = await tab.next("question")
        await tab.send("interrupt", "stopped")
        frames = await tab.until(*ENDS)
        await tab.send("answer", "stopped", id=question["id"], answer="once")
        return question, frames, await tab.next("error")

    question, frames, late = talk(gateway, stop)
    (answered,) = [frame for frame in frames if frame["type"] == "answered"]
    assert (answered["id"], answered["answer"]) == (question["id"], None)
    assert frames[-1]["type"] == "interrupted"
    assert "nothing runs" in late["message"]


def test_a_hint_reaches_the_agent_before_its_next_request(gateway, upstream):
    upstream.then(tool_calls([("c1", "fail", {})]), says("noted"))

    async def tell(tab):
        await tab.send("watch", "told")
        await tab.say("told", "fail please")
        question = await tab.next("question")
        await tab.say("told", "hurry")
        queued = (await tab.next("queue"))["queue"]
        await tab.send("hint", "told", id=queued[0]["id"])
        frames = await tab.until("queue")
        while not frames[-1]["queue"] or "hint" not in frames[-1]["queue"][0]:
            frames += await tab.until("queue")
        await tab.send("answer", "told", id=question["id"], answer="once")
        rest = await tab.until(*ENDS)
        refused = await api(gateway, "/api/hint", {"thread": "told", "text": "too late"})
        return queued, rest, refused

    queued, rest, refused = talk(gateway, tell)
    assert [text["text"] for text in queued] == ["hurry"]
    delivered = [frame["html"] for frame in rest if frame["type"] == "user_message"]
    assert delivered == ["<p>hurry</p>\n"]
    assert [frame["queue"] for frame in rest if frame["type"] == "queue"][-1] == []
    assert results(gateway, "told")[1] == ["fail please", "hurry"]
    last = bodies(upstream)[-1]["messages"]
    assert "tool" in [message["role"] for message in last]
    assert "hurry" in str(last[-1])
    assert len(bodies(upstream)) == 2
    assert refused[0] == 409


def test_one_caller_cannot_see_or_answer_the_questions_of_another(keyed, upstream):
    first, second = KEYS
    search = tool_calls([("c1", "search_threads", {"words": "secret"})])

    def ask(key, answer):
        upstream.then(search, says("done"))

        async def run(tab):
            await tab.say("mine", "search please")
            question = await tab.next("question", *ENDS)
            if question["type"] in ENDS:
                return None
            other = next(each for each in KEYS if each != key)
            visible = await api(keyed, "/api/questions", key=other)
            body = {"thread": question["thread"], "id": question["id"], "answer": "once"}
            stolen = await api(keyed, "/api/answer", body, key=other)
            await tab.send("answer", "mine", id=question["id"], answer=answer)
            await tab.until(*ENDS)
            return visible[1]["questions"], stolen[0]

        return talk(keyed, run, key=key)

    assert ask(first, "always") == ([], 409)
    assert ask(first, "always") is None
    assert ask(second, "deny") == ([], 409)


def test_an_agent_that_is_not_configured_is_refused(gateway):
    async def choose(tab):
        await tab.send("say", "unasked", text="hello", model="m", agent="claude")
        return await tab.next("error", "started")

    refused = talk(gateway, choose)
    assert (refused["scope"], refused["place"]) == ("frame", "agent")
    assert "--agent claude" in refused["message"]
    assert call_api(gateway, "/api/models")[1]["agents"] == ["weft"]
    names = [line["name"] for line in call_api(gateway, "/api/threads")[1]["threads"]]
    assert "unasked" not in names
