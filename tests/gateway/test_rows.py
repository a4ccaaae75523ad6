"""The rows of a thread for the page: windows, new rows, and the parts of a message."""

from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import orjson
import pytest

import weft.thread
from servers import weft_serve
from weft.model import Message, Text, ToolCall, ToolResult, Usage

SECONDS = 60


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    with weft_serve(tmp_path_factory.mktemp("rows")) as running:
        yield running


def read(gateway, path="/api/rows", **query):
    with urlopen(f"{gateway.url}{path}?{urlencode(query)}", timeout=SECONDS) as reply:
        return orjson.loads(reply.read())


def refusal(gateway, path="/api/rows", **query):
    with pytest.raises(HTTPError) as refused:
        read(gateway, path, **query)
    with refused.value as reply:
        return reply.code, orjson.loads(reply.read())["error"]["place"]


def texts(view):
    return [part["text"] for row in view["rows"] for part in row["parts"] if "text" in part]


def fill(gateway, thread, count):
    with weft.thread.open(gateway.store, thread) as opened, opened.batch():
        return [opened.user(f"message {number}").id for number in range(count)]


@pytest.fixture(scope="module")
def ids(gateway):
    """The rows of a thread."""
    return fill(gateway, "window", 250)


@pytest.mark.parametrize(
    ("query", "first", "count"),
    [
        ({}, 150, 100),  # the end
        ({"count": 10}, 240, 10),
        ({"from": 0, "count": 5}, 0, 5),
        ({"from": 248}, 248, 2),
        ({"from": 1000}, 1000, 0),
        ({"around": 7, "count": 20}, 0, 20),
        ({"around": 100, "count": 20}, 90, 20),
        ({"around": 249, "count": 20}, 230, 20),
        ({"count": 100_000}, 0, 250),  # at most 500 rows
    ],
)
def test_a_window_of_rows(gateway, ids, query, first, count):
    if "around" in query:
        query = {**query, "around": ids[query["around"]]}
    view = read(gateway, thread="window", **query)
    assert (view["first"], view["total"], len(view["rows"])) == (first, 250, count)
    assert [row["id"] for row in view["rows"]] == ids[first : first + count]


def test_only_new_rows_are_sent(gateway):
    fill(gateway, "grows", 3)
    before = read(gateway, thread="grows")
    same = read(gateway, thread="grows", since=before["head"])
    assert (same["rows"], same["appended"], same["first"]) == ([], True, 3)
    with weft.thread.open(gateway.store, "grows") as thread:
        thread.user("the fourth")
    after = read(gateway, thread="grows", since=before["head"])
    assert (texts(after), after["first"], after["total"]) == (["the fourth"], 3, 4)


def test_a_call_is_sent_again_when_its_result_arrives(gateway):
    call = Message("assistant", (ToolCall("c1", "Bash", '{"command": "ls"}'),))
    with weft.thread.open(gateway.store, "calls") as thread:
        thread.user("look")
        id = thread.commit_message(call).id
        before = read(gateway, thread="calls")
        thread.commit_message(Message("user", (ToolResult("c1", (Text("a.py"),)),)))
    (part,) = before["rows"][1]["parts"]
    assert (part["main"], part["result"]) == ("ls", None)
    after = read(gateway, thread="calls", since=before["head"])
    (updated,) = after["updated"]
    assert updated["id"] == id
    assert updated["parts"][0]["result"] == {"content": "a.py", "length": 4, "is_error": False}
    assert after["rows"][0]["parts"] == [{"type": "result", "call_id": "c1", "merged": True}]


@pytest.mark.parametrize("change", ["pin", "undo", "edit", "compact"])
def test_a_change_of_earlier_rows_is_not_treated_as_new_rows(gateway, change):
    name = f"changed-{change}"
    ids = fill(gateway, name, 40)
    before = read(gateway, thread=name)
    with weft.thread.open(gateway.store, name) as thread:
        if change == "pin":
            thread.pin(ids[3])
        elif change == "undo":
            thread.undo()
        elif change == "edit":
            thread.edit(ids[3], "other words")
        else:
            thread.compact(budget=100)
        compiled = [message.text for message in thread.compile().messages]
    after = read(gateway, thread=name, since=before["head"])
    assert after["appended"] is False
    assert len(after["rows"]) == len(compiled)
    if change == "compact":
        assert after["rows"][0]["fold"]["dropped"] > 0
        assert after["summary"] == after["rows"][0]["id"]


def test_a_thread_at_an_earlier_commit(gateway):
    ids = fill(gateway, "past", 5)
    read(gateway, thread="past")
    assert texts(read(gateway, thread="past", until=ids[1])) == ["message 0", "message 1"]
    assert read(gateway, thread="past", until="start")["total"] == 0
    assert read(gateway, thread="past")["total"] == 5


def test_client_context_is_separate_from_typed_text(gateway):
    text = "<system-reminder>be kind</system-reminder>\nhello **you**"
    with weft.thread.open(gateway.store, "typed") as thread:
        thread.user(text)
    reminder, typed = read(gateway, thread="typed")["rows"][0]["parts"]
    assert (reminder["type"], reminder["name"]) == ("injected", "system-reminder")
    assert reminder["text"] == "<system-reminder>be kind</system-reminder>"
    assert typed["html"] == "<p>hello <strong>you</strong></p>\n"


def test_a_long_result_is_truncated_and_can_be_read_in_full(gateway):
    result = "x" * 50_000
    with weft.thread.open(gateway.store, "long-result") as thread:
        thread.commit_message(Message("assistant", (ToolCall("c", "Bash", "{}"),)))
        thread.commit_message(Message("user", (ToolResult("c", (Text(result),)),)))
    (part,) = read(gateway, thread="long-result")["rows"][0]["parts"]
    assert (len(part["result"]["content"]), part["result"]["length"]) == (20_000, 50_000)
    assert read(gateway, "/api/result", thread="long-result", call="c") == {"content": result}
    assert refusal(gateway, "/api/result", thread="long-result", call="d") == (404, "call")
    assert refusal(gateway, "/api/result", thread="nobody", call="c") == (404, "thread")


def test_a_thread_that_does_not_exist_yet_is_empty(gateway):
    view = read(gateway, thread="new one")
    assert (view["name"], view["new"], view["total"], view["rows"]) == ("new one", True, 0, [])


@pytest.mark.parametrize(
    ("query", "status", "place"),
    [
        ({}, 400, "thread"),
        ({"thread": "errors", "from": "-1"}, 400, "from"),
        ({"thread": "errors", "from": "x"}, 400, "from"),
        ({"thread": "errors", "count": "0"}, 400, "count"),
        ({"thread": "errors", "around": "00" * 20}, 404, "around"),
        ({"thread": "errors", "until": "xyz"}, 400, "until"),
        ({"thread": "errors", "since": "xyz"}, 400, "since"),
        ({"thread": "errors", "branch": "none"}, 404, "branch"),
    ],
)
def test_a_wrong_query_is_refused_with_its_field(gateway, query, status, place):
    with weft.thread.open(gateway.store, "errors") as thread:
        thread.user("one")
    assert refusal(gateway, **query) == (status, place)


@pytest.mark.parametrize(("format", "end"), [("html", "html"), ("markdown", "md")])
def test_a_thread_is_downloaded_as_a_document(gateway, format, end):
    with weft.thread.open(gateway.store, "to <send>") as thread:
        thread.user("Is **this** <script>alert(1)</script> safe?")
    query = urlencode({"thread": "to <send>", "format": format})
    with urlopen(f"{gateway.url}/api/export?{query}", timeout=SECONDS) as reply:
        body = reply.read().decode()
        # The browser must not show it: it would be a page of this server.
        assert reply.headers["content-type"] == "application/octet-stream"
        assert reply.headers["content-disposition"].startswith("attachment; ")
        assert reply.headers["content-disposition"].endswith(f".{end}")
    assert "safe?" in body
    assert format == "markdown" or "<script" not in body
    assert refusal(gateway, "/api/export", thread="to <send>", format="exe") == (400, "format")


def test_merged_messages_have_their_time_and_usage(gateway):
    with weft.thread.open(gateway.store, "merged") as main:
        main.user("Which one?")
        main.branch("side")
        with weft.thread.open(gateway.store, "merged", branch="side") as side:
            answer = Message("assistant", (Text("The other one."),))
            side.commit_message(answer, usage=Usage(input=7, output=3))
            created = side.head.created.timestamp()
        main.user("Both are fine.")  # so that the merge has a commit of its own
        main.merge("side")
    rows = read(gateway, thread="merged")["rows"]
    (row,) = (row for row in rows if row["role"] == "assistant")
    assert row["created"] == pytest.approx(created)
    assert row["usage"] == {"input": 7, "output": 3, "cached": None, "cost": None}


def test_the_second_of_two_equal_compactions_changes_nothing(gateway):
    with weft.thread.open(gateway.store, "again") as thread, thread.batch():
        for number in range(12):
            thread.user(f"Question {number} about src/file_{number}.py and PORT=80{number}?")
            thread.assistant(f"src/file_{number}.py raises Error{number}. We use option {number}.")
    body = orjson.dumps({"thread": "again", "keep": 3})
    headers = {"Content-Type": "application/json"}
    replies = []
    for _ in range(2):
        request = Request(f"{gateway.url}/api/compact", body, headers)
        with urlopen(request, timeout=SECONDS) as reply:
            replies.append(orjson.loads(reply.read()))
    first, second = replies
    assert first["commit"] is not None
    assert second["commit"] is None
    assert second["message"].startswith(f"nothing to compact: {first['after']:,} tokens")


QUESTION = "Please say a long sentence about many things."
LIMITED = {
    "/v1/messages": (
        {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 2},
        "max_tokens",
    ),
    "/v1/chat/completions": (
        {"messages": [{"role": "user", "content": QUESTION}], "max_completion_tokens": 2},
        "length",
    ),
    "/v1/responses": ({"input": QUESTION, "max_output_tokens": 2}, "max_output_tokens"),
}


@pytest.mark.parametrize("path", LIMITED)
def test_a_row_says_why_an_answer_ended_early(gateway, path):
    body, reason = LIMITED[path]
    headers = {"content-type": "application/json"}
    for members in (body, {**body, next(reversed(body)): 2000}):
        data = orjson.dumps({"model": "weft-offline", **members})
        with urlopen(Request(f"{gateway.url}{path}", data, headers), timeout=SECONDS) as reply:
            reply.read()
            thread = reply.headers["x-weft-thread"]
        rows = read(gateway, thread=thread)["rows"]
        stops = {row["role"]: row["stop"] for row in rows}
        assert stops == {"user": None, "assistant": reason if members is body else None}


def test_a_row_says_why_an_agents_answer_ended_early(gateway):
    with weft.thread.open(gateway.store, "limited-agent") as thread:
        thread.setup(params=weft.Params(max_tokens=2))
        weft.Agent(thread).send(QUESTION)
    rows = read(gateway, thread="limited-agent")["rows"]
    assert [row["stop"] for row in rows if row["role"] == "assistant"] == ["length"]


def test_a_long_thread_is_first_answered_with_its_last_rows(gateway):
    with weft.thread.open(gateway.store, "very long") as thread, thread.batch():
        for number in range(1250):
            thread.user(f"question {number}")
            thread.assistant(f"answer {number}")
        thread.commit_message(Message("assistant", (ToolCall("late", "Bash", "{}"),)))
        thread.tool_result("late", "done")
    part = read(gateway, thread="very long", count=40, quick=1)
    whole = read(gateway, thread="very long", count=40)
    again = read(gateway, thread="very long", count=40, quick=1)  # the thread is compiled now
    assert (part["part"], whole["part"], again["part"]) == (True, False, False)
    assert again == whole
    for row, estimated in zip(whole["rows"], part["rows"], strict=True):
        assert 0 < estimated.pop("tokens") < 3 * row.pop("tokens")
    assert {**part, "part": False} == whole  # nothing was compacted, so the positions are right
    with weft.thread.open(gateway.store, "very long") as thread:
        thread.fork("other").compact(budget=2000)
    assert not read(gateway, thread="very long", branch="other", count=500, quick=1)["part"]
    with weft.thread.open(gateway.store, "very long") as thread:
        thread.branch("copy", "other")
    view = read(gateway, thread="very long", branch="copy", count=40, quick=1)
    whole = read(gateway, thread="very long", branch="copy", count=40)
    assert view["part"]
    assert view["total"] > whole["total"] > 40
    assert [row["id"] for row in view["rows"]] == [row["id"] for row in whole["rows"]]
    assert not read(gateway, thread="window", quick=1)["part"]  # not long
