"""Usage and cost per turn, thread, model and day: the API and `weft stats` agree."""

import json
import subprocess
import sys
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

import weft.thread
from servers import SECONDS
from weft.model import Message, Origin, Text, Usage

PRICED = "claude-sonnet-4-6"  # $3 in, $15 out, $0.30 cached per million tokens, of any size


def read(url, **query):
    with urlopen(f"{url}/api/usage?{urlencode(query)}", timeout=SECONDS) as reply:
        return json.load(reply)


def answer(thread, model, **usage):
    message = Message("assistant", (Text("answer"),), origin=Origin("anthropic", model=model))
    thread.commit_message(message, usage=Usage(**usage))


@pytest.fixture(scope="module")
def filled(gateway):
    with weft.thread.open(gateway.store, "spent") as thread:
        thread.user("one")
        answer(thread, PRICED, input=1_000_000, output=100_000)
        answer(thread, PRICED, input=2_000_000, output=0, cached=1_000_000)
        thread.branch("side")
        thread.user("two")
        answer(thread, "no-such-model", input=7, output=3)
    with weft.thread.open(gateway.store, "spent", branch="side") as thread:
        thread.user("three")
        answer(thread, PRICED, input=100, output=0)
    with weft.thread.open(gateway.store, "other") as thread:
        thread.user("x")
        answer(thread, PRICED, input=1_000_000, output=0)
    with weft.thread.open(gateway.store, "silent") as thread:
        thread.user("nobody answers")
    return gateway


def test_a_thread_is_added_up_by_turn_model_and_day_and_branches_count_once(filled):
    usage = read(filled.url, thread="spent")
    first = 3 + 1.5 + (3 + 0.3)
    assert usage["total"]["answers"] == 4
    assert usage["total"]["input"] == 3_000_107
    assert usage["total"]["cost"] == pytest.approx(first + 0.0003)
    assert usage["total"]["unpriced"] == 1
    assert [turn["answers"] for turn in usage["turns"]] == [2, 1, 1]
    assert usage["turns"][0]["cost"] == pytest.approx(first)
    models = {row["model"]: row for row in usage["models"]}
    assert models["no-such-model"]["cost"] is None
    assert models[PRICED]["answers"] == 3
    assert sum(row["answers"] for row in usage["days"]) == 4


def test_all_threads_are_added_up(filled):
    usage = read(filled.url)
    assert [row["thread"] for row in usage["threads"]] == ["spent", "other"]  # dearest first
    assert usage["total"]["answers"] == 5
    assert "turns" not in usage
    assert read(filled.url, thread="silent")["total"]["answers"] == 0
    assert read(filled.url, thread="no such thread")["total"]["cost"] is None


def test_weft_stats_prints_the_same_numbers(filled):
    words = ["-c", "from weft.cli import entry; entry()", "stats", "--thread", "spent", "--json"]
    options = ["--store", str(filled.store)]
    done = subprocess.run([sys.executable, *words, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["usage"] == read(filled.url, thread="spent")["total"]


def test_a_new_answer_is_counted(filled):
    before = read(filled.url, thread="other")["total"]["answers"]
    with weft.thread.open(filled.store, "other") as thread:
        answer(thread, PRICED, input=10, output=10)
    assert read(filled.url, thread="other")["total"]["answers"] == before + 1


def gauge(url, thread, model=PRICED):
    query = urlencode({"thread": thread, "model": model})
    with urlopen(f"{url}/api/composer?{query}", timeout=SECONDS) as reply:
        return json.load(reply)["context"]


def test_the_gauge_uses_reported_usage(gateway):
    with weft.thread.open(gateway.store, "gauged") as thread:
        first = thread.user("a short question")
        assert gauge(gateway.url, "gauged")["source"] == "estimate"
        # The client's tools are in the report, and not in the thread.
        answer(thread, PRICED, input=50_000, output=1_000)
        shown = gauge(gateway.url, "gauged")
        assert (shown["tokens"], shown["source"]) == (51_000, "reported")
        assert shown["estimate"] < 10_000
        assert shown["tokens"] < shown["limit"] < shown["window"]
        assert gauge(gateway.url, "gauged", f"a/{PRICED}")["tokens"] == 51_000  # by its upstream
        assert gauge(gateway.url, "gauged", "gpt-5")["source"] == "estimate"  # another model
        thread.user("words and more words " * 400)
        assert 52_000 < gauge(gateway.url, "gauged")["tokens"] < 54_000
        thread.edit(first, "another question")  # the report is about another conversation now
        assert gauge(gateway.url, "gauged")["source"] == "estimate"


def test_a_message_is_counted_once_for_the_gauge(tmp_path):
    """Each commit would count a thread of 20,000 messages again, which takes a second."""
    with weft.thread.open(tmp_path / "weft.db", "t") as thread:
        agent = weft.Agent(thread, "weft-offline", compaction=weft.Compaction())
        messages = [Message("user", (Text(f"message {n}"),)) for n in range(10)]
        counts = {}
        before = agent.measure(messages, counts).tokens
        assert len(counts) == 10
        counts.update({key: (message, count + 1) for key, (message, count) in counts.items()})
        assert agent.measure(messages, counts).tokens == before + 10  # taken from `counts`


def test_a_wrong_offset_is_refused(filled):
    for offset in ("x", "9999"):
        with pytest.raises(HTTPError) as error:
            read(filled.url, offset=offset)
        assert error.value.code == 400
        error.value.close()
