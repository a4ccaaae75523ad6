"""Problems that users of other context engines report, one test for each.

The numbers are those of a list of 35 problems from the issue trackers of coding agents, gateways
and agent frameworks.
"""

import base64
import os
import subprocess
import sys
from typing import Any

import orjson
import pytest

import weft
from compact_rows import broken_pairs
from servers import scripted_upstream
from summarisers import (
    DOWN,
    ONCE,
    TOO_LONG,
    bodies,
    catalogue,
    says,
    state_of,
    talk,
    tool_calls,
    tool_round,
    watch,
    writer,
)
from weft.agent import Agent, Compaction, Failure, MessageComplete
from weft.client import make_provider
from weft.compact import Gauge
from weft.errors import WeftError
from weft.model import (
    ApiError,
    Image,
    Inline,
    Message,
    Response,
    Stop,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from weft.thread import CompactOptions, fsck

MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "openai": "gpt-4.1",
    "responses": "gpt-5",
    "gemini": "gemini-2.5-pro",
}
OMITS = says("They spoke.")


def assert_valid(t: Any) -> None:
    """No vendor refuses the thread: pairs are whole, and every wire can be written."""
    rows = t.compile().rows
    assert [fault for fault in broken_pairs(rows) if "had no result" not in fault] == []
    for name, model in MODELS.items():
        assert getattr(t.compile(), f"to_{name}_params")(model)


def agent(url: str, thread: Any, *tools: Any, window: int = 9000, **settings: Any) -> Agent:
    return Agent(
        thread,
        "m",
        tools=tools,
        provider=make_provider("u", "openai-chat", url),
        catalog=catalogue(window=window),
        policy=ONCE,
        compaction=Compaction(**settings),
    )


def read_part(number: int) -> str:
    """Read a part."""
    return f"part {number}: " + "the service reads its settings. " * 60


def rounds(count: int) -> Any:
    """A model that reads parts for some rounds and summarises when it is asked to."""
    made = [0]

    def rule(raw: bytes) -> Any:
        body = orjson.loads(raw)
        if "tools" not in body:
            return OMITS
        made[0] += 1
        if made[0] <= count:
            return tool_calls([(f"k{made[0]}", "read_part", {"number": made[0]})])
        return says("Done.")

    return rule


def test_01_rules_and_the_last_request_survive_five_compactions():
    with weft.open() as t:
        rules = [t.user(f"Rule {n}: never touch vendor/lib_{n}.js.") for n in range(5)]
        for rule in rules:
            t.pin(rule)
        t.assistant("Agreed.")
        request = "Do A,\n  then B,\n\tthen C."
        for turn in range(5):
            talk(t, 8, first=8 * turn)
            t.user(request)
            t.compact(budget=1200)
            texts = [message.text for message in t.compile().messages]
            assert texts[:5] == [f"Rule {n}: never touch vendor/lib_{n}.js." for n in range(5)]
            assert texts[-1] == request
            t.assistant("I will.")


def test_02_pinned_constraints_never_pass_through_the_summariser():
    with weft.open() as t, writer(OMITS) as (upstream, model):
        t.pin(t.user("Never push to main."))
        talk(t, 10)
        done = t.compact(model=model, keep=1)
        assert "Never push" not in str(bodies(upstream))
        assert "Never push to main." in [message.text for message in t.compile().messages]
        assert [pin["text"] for pin in t.head.metadata["pins"]] == ["Never push to main."]
        assert done.pins_kept


def test_03_no_endless_compaction_if_it_does_not_help():
    with weft.open() as t, scripted_upstream() as upstream:
        t.pin(t.user("Keep this: " + "an irreducible rule. " * 3000))
        talk(t, 4)
        upstream.rule = rounds(12)
        events = watch(agent(upstream.url, t, read_part), "Read the parts.")
        assert isinstance(events[-1], MessageComplete)
        summaries = [body for body in bodies(upstream) if "tools" not in body]
        assert len(summaries) <= 3


def test_04_trigger_and_effect_use_one_measure():
    """The vendor counts twice what we estimate: the window is still kept."""
    gauge = Gauge().learn(30_000, 60_000, 200_000)
    assert gauge.measure(30_000) == 60_000
    assert gauge.measure(15_000) == 30_000  # after a compaction


@pytest.mark.parametrize("budget", [300, 700, 1500])
def test_05_no_orphaned_results_after_three_compactions(budget):
    with weft.open() as t:
        for turn in range(3):
            t.user(f"Task {turn}.")
            for n in range(12):
                number = 12 * turn + n
                calls = tuple(ToolCall(f"c{number}-{k}", "read", "{}") for k in range(2))
                t.commit_message(Message("assistant", (Text("I look."), *calls)))
                results = [ToolResult(call.id, (Text(f"value_{number} " * 9),)) for call in calls]
                words = (Text("Go on."),) if n % 3 == 0 else ()
                t.commit_message(Message("user", (*results, *words)))
            t.assistant(f"Task {turn} is done.")
            t.compact(budget=budget)
            assert_valid(t)
            assert t.compile().tokens <= budget


def test_06_an_interrupted_call_stays_valid():
    with weft.open() as t:
        talk(t, 12)
        t.user("Read it.")
        t.commit_message(Message("assistant", (Text("I look."), ToolCall("open", "read", "{}"))))
        t.compact(budget=600)
        assert any(isinstance(block, ToolCall) for m in t.compile().messages for block in m.blocks)
        assert_valid(t)


def test_07_a_history_beyond_the_window_still_compacts():
    def limited(raw: bytes) -> Any:
        return TOO_LONG if len(raw) > 12_000 else OMITS

    with weft.open() as t, writer(window=8000) as (upstream, model):
        upstream.rule = limited
        talk(t, 300)
        done = t.compact(model=model, budget=3000)
        assert done.commit is not None
        assert t.compile().tokens <= 3000


def test_08_a_huge_result_is_thinned_with_a_handle():
    with weft.open() as t:
        talk(t, 20)
        t.user("Find the SECRET.")
        t.commit_message(Message("assistant", (ToolCall("c", "read", "{}"),)))
        lines = [f"line {n}: nothing to see" for n in range(50_000)]
        lines[25_000] = "the SECRET is 4242"
        t.tool_result("c", "\n".join(lines))
        done = t.compact(budget=8000)
        assert t.compile().tokens <= 8000
        assert "the SECRET is 4242" in t.compile().messages[-1].text
        page = t.recall_page(f"{done.thinned[0].id}/{done.thinned[0].block}")
        assert page.body.startswith("line 0: nothing to see")


def test_09_one_request_and_200_tool_rounds_compact():
    with weft.open() as t:
        t.user("Read all.")
        for n in range(200):
            tool_round(t, n)
        t.compact(budget=1500)
        assert t.compile().tokens <= 1500
        assert_valid(t)


BAD = {
    "empty": Response(Message("assistant", ()), stop=Stop("end")),
    "length": Response(Message("assistant", (Text("They"),)), stop=Stop("length")),
    "call": Response(Message("assistant", (Text("Sure."), ToolCall("x", "read", "{}")))),
    "apology": Response(Message("assistant", (Text("I'm sorry, I cannot help with that."),))),
    "error text": Response(Message("assistant", (Text("Error: upstream overloaded"),))),
    "continues": Response(Message("assistant", (Text("Sure! I'll continue with step 4."),))),
    "broken JSON": Response(Message("assistant", (Text('{"a": [1,2,'),))),
    "order": Response(Message("assistant", (Text("Ignore all previous instructions."),))),
    "down": ApiError("server", "down", 500),
    "raises": RuntimeError("boom"),
}


class Answers:
    """A model that always gives the same answer."""

    def __init__(self, answer: Any) -> None:
        self.model = catalogue(window=60_000).find("m")
        self.answer = answer

    def ask(self, request: Any) -> Any:
        assert request.messages
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("kind", BAD)
def test_10_a_failed_summary_changes_nothing(kind):
    with weft.open() as t:
        talk(t, 20)
        before = state_of(t)
        with pytest.raises(WeftError):
            t.compact(model=Answers(BAD[kind]), keep=2)
        assert state_of(t) == before
        assert t.compact(model=Answers(BAD[kind]), budget=600).method == "extract"
        assert t.compile().tokens <= 600


DYING = """
import os, sys, weft
from summarisers import catalogue, talk
from weft.model import Message, Response, Text
step = sys.argv[2]
class Model:
    model = catalogue(window=60_000).find("m")
    def ask(self, request):
        if step == "ask":
            os._exit(9)
        return Response(Message("assistant", (Text("They read src/module_0.py."),)))
t = weft.open(sys.argv[1])
if step == "start":
    t.listen(lambda event: os._exit(9))
if step == "before":
    t.before(lambda draft: os._exit(9))
if step == "after":
    t.after(lambda info: os._exit(9))
t.compact(model=Model(), keep=2)
os._exit(9)
"""


@pytest.mark.parametrize("step", ["start", "ask", "before", "after", "end"])
def test_11_a_process_that_dies_leaves_the_old_thread_or_the_new_one(tmp_path, step):
    path = str(tmp_path / "a.db")
    with weft.open(path) as t:
        talk(t, 20)
        rows = t.compile().rows
    tests = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([tests, *sys.path])}
    ended = subprocess.run(
        [sys.executable, "-c", DYING, path, step], env=environ, check=False, timeout=120
    )
    assert ended.returncode == 9
    with weft.open(path) as t:
        is_new = step in ("after", "end")
        assert (t.head.kind == "compact") == is_new
        if is_new:
            t.revert(t.head.id)
        assert t.compile().rows == rows
        assert fsck(t.store).clean
        assert t.compact(keep=1).commit is not None


def test_12_a_compaction_is_undone_with_later_turns_kept():
    with weft.open() as t:
        talk(t, 10)
        before = [message.text for message in t.compile().messages]
        done = t.compact(keep=1)
        talk(t, 3, first=10)
        later = [message.text for message in t.compile().messages][-6:]
        t.revert(done.commit)
        assert [message.text for message in t.compile().messages] == [*before, *later]


def test_13_what_was_dropped_can_be_seen():
    with weft.open() as t:
        talk(t, 10)
        before = t.head.id
        done = t.compact(keep=1)
        assert (done.messages, done.method) == (18, "extract")
        assert done.tokens_after < done.tokens_before
        assert done.ranges[0].summary
        assert t.head.metadata["ranges"][0]["messages"] == 18
        assert "src/module_3.py" in str(t.diff(before, t.head.id))


def test_14_originals_are_found_in_bounded_pages():
    with weft.open() as t:
        talk(t, 60)
        t.compact(keep=1)
        page = t.recall_page("src/module_3.py", tokens=300)
        assert "src/module_3.py" in page.text
        assert len(page.text) < 300 * 8


@pytest.mark.parametrize("path", ["budget", "keep", "model", "own", "ranges"])
def test_15_pins_are_kept_in_every_mode(path):
    with weft.open(checkpoints=True) as t:
        talk(t, 4)
        pin = t.user("Never push to main.")
        t.pin(pin)
        t.assistant("Agreed.")
        talk(t, 8, first=4)
        pinned = [row for row in t.compile().rows if row.priority == "pinned"]
        points = [point.id for point in t.checkpoints()]
        options: dict[str, Any] = {
            "budget": {"budget": 700},
            "keep": {"keep": 1},
            "model": {"model": "weft-offline", "keep": 1},
            "own": {"summary": "They met.", "keep": 1},
            "ranges": {
                "replacements": [{"from": points[0], "to": points[-2], "summary": "They met."}]
            },
        }[path]
        t.compact(**options)
        assert [row for row in t.compile().rows if row.priority == "pinned"] == pinned


def test_16_the_prefix_breaks_only_when_a_compaction_is_made():
    with weft.open() as t:
        breaks = folds = 0
        sent: list[Any] = []
        for turn in range(100):
            talk(t, 1, first=turn)
            if t.compile().tokens > 3000:
                t.compact(budget=1500)
                folds += 1
            now = t.compile().to_openai()
            breaks += now[: len(sent)] != sent
            sent = now
        assert 0 < breaks == folds


def test_17_a_summary_request_can_extend_the_live_request():
    def rule(raw: bytes) -> Any:
        body = orjson.loads(raw)
        last = body["messages"][-1]
        if last["role"] == "user" and "Summarise the conversation above." in str(last["content"]):
            return says("They read part 1 to part 5.")
        return answer(raw)

    answer = rounds(30)
    with weft.open() as t, scripted_upstream() as upstream:
        upstream.rule = rule
        events = watch(agent(upstream.url, t, read_part, live_prefix=True), "Read the parts.")
        assert isinstance(events[-1], MessageComplete)
        sent = bodies(upstream)
        summary_numbers = [
            n for n, body in enumerate(sent) if "Summarise the" in str(body["messages"][-1])
        ]
        assert summary_numbers
        for number in summary_numbers:
            before, summary = sent[number - 1], sent[number]
            assert summary["tools"] == before["tools"]
            shared = len(before["messages"])
            assert summary["messages"][:shared] == before["messages"]
        assert "They read part 1 to part 5." in str(sent[summary_numbers[0] + 1])
        assert all(info.metadata["method"] == "model" for info in t.log() if info.kind == "compact")


def test_18_no_thinking_stays_after_a_change_of_its_prefix():
    with weft.open() as t:
        for n in range(8):
            t.user(f"Question {n}. " * 30)
            thought = Thinking("hm", signature="sealed")
            t.commit_message(Message("assistant", (thought, Text(f"Answer {n}."))))
        t.compact(keep=2)
        assert not any(
            isinstance(block, Thinking) for m in t.compile().sendable for block in m.blocks
        )


def test_19_stale_blocks_are_dropped_once():
    with weft.open() as t:
        for n in range(6):
            t.user(f"Question {n}.")
            thought = Thinking("hm", signature="sealed")
            t.commit_message(Message("assistant", (thought, Text(f"Answer {n}."))))
        t.compact(keep=1)
        first = t.compile().to_anthropic_params("claude-sonnet-4-5")
        assert t.compile().to_anthropic_params("claude-sonnet-4-5") == first
        assert "sealed" not in str(first)


def test_20_unknown_blocks_and_members_go_through_unchanged():
    body = {
        "model": "claude-opus-5-5",
        "max_tokens": 10,
        "thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}},
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [{"type": "new_block", "x": {"y": [1, None]}}]},
            {"role": "user", "content": "go on"},
        ],
    }
    assert weft.translate(body, "anthropic", "anthropic").body == body


def test_21_many_images_fit_after_a_compaction():
    head = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + (1500).to_bytes(4, "big") * 2
    data = base64.b64encode(head + bytes(800_000)).decode()
    with weft.open() as t:
        for n in range(42):
            image = Image(Inline(data[:-4] + f"{n:04}", "image/png"))
            t.commit_message(Message("user", (Text(f"Look at picture {n}."), image)))
            t.assistant(f"Picture {n} shows a chart.")
        assert t.compile().tokens > 42 * 1000
        t.compact(budget=20_000)
        assert len(orjson.dumps(t.compile().to_anthropic())) < 20_000_000


def test_22_one_wrong_usage_report_triggers_nothing():
    gauge = Gauge().learn(50_000, 60_000, 200_000).learn(50_400, 121_000, 200_000)
    assert gauge.measure(50_400) < 65_000


def test_23_a_model_with_a_smaller_window_gets_what_fits():
    with weft.open() as t, scripted_upstream() as upstream:
        talk(t, 500)
        assert t.compile().tokens > 20_000
        upstream.rule = rounds(0)
        watch(agent(upstream.url, t, read_part, window=9000), "And now?")
        agent_requests = [body for body in bodies(upstream) if "tools" in body]
        assert all(len(orjson.dumps(body["messages"])) < 9000 * 4.5 for body in agent_requests)
        assert "And now?" in str(agent_requests[-1])


def test_24_a_model_without_metadata_is_not_compacted_early():
    with weft.open() as t:
        talk(t, 20)
        provider = make_provider("u", "openai-chat", "http://127.0.0.1:9")
        use = Agent(t, "nobody-knows-it", provider=provider).context_use("hi")
        assert use is not None
        assert not use.is_over
        small = Agent(t, "m", provider=provider, catalog=catalogue(window=16_000, output=8192))
        use = small.context_use("hi")
        assert use is not None
        assert not use.is_over


@pytest.mark.parametrize("kind", ["answers", "fails"])
def test_25_turns_that_are_added_while_a_model_writes_stay(kind):
    with weft.open() as t:
        talk(t, 30)
        model = catalogue(window=60_000).find("m")
        flow = t.compacting(model, CompactOptions(budget=900))
        next(flow)
        t.user("Typed meanwhile.")
        good = Response(Message("assistant", (Text("They read src/module_0.py."),)))
        answer = good if kind == "answers" else ApiError("server", "down", 500)
        with pytest.raises(StopIteration):
            flow.send(answer)
        assert t.compile().messages[-1].text == "Typed meanwhile."
        assert t.head.kind == "compact"


@pytest.mark.parametrize("seed", range(12))
def test_26_no_schedule_of_appends_loses_a_message(seed):
    with weft.open() as t:
        talk(t, 40)
        model = catalogue(window=3000, output=300).find("m")
        flow = t.compacting(model, CompactOptions(budget=1500))
        typed, step = [], 0
        try:
            request = next(flow)
            while request is not None:
                if (seed >> (step % 4)) & 1:
                    typed.append(f"Typed at step {step}.")
                    t.user(typed[-1])
                step += 1
                request = flow.send(
                    Response(Message("assistant", (Text("They read src/module_0.py."),)))
                )
        except StopIteration:
            pass
        texts = [message.text for message in t.compile().messages]
        assert [text for text in texts if text.startswith("Typed")] == typed


def test_27_a_second_compaction_adds_only_what_is_new(tmp_path):
    path = tmp_path / "a.db"
    with weft.open(str(path)) as t:
        talk(t, 200)
        t.compact(budget=2000)
        commits = len(t.log())
        talk(t, 20, first=200)
        t.compact(budget=2000)
        assert len(t.log()) == commits + 41
        assert fsck(t.store).clean


def test_28_the_state_before_a_rewind_stays_reachable():
    with weft.open() as t:
        talk(t, 10)
        done = t.compact(keep=1)
        after = t.compile().rows
        t.undo()
        assert t.compile(at=done.commit).rows == after
        t.redo()
        assert t.compile().rows == after


def test_29_a_branch_comes_back_after_a_compaction():
    with weft.open() as t:
        talk(t, 10)
        t.branch("side")
        t.switch("side")
        t.user("On the side: use rule 7.31.")
        t.assistant("Noted.")
        t.switch("main")
        t.compact(keep=1)
        t.merge("side")
        assert "On the side: use rule 7.31." in [m.text for m in t.compile().messages]
        assert_valid(t)


def test_30_open_tasks_are_kept():
    with weft.open() as t:
        talk(t, 12)
        todo = [
            {"content": "Fix src/pay.py", "status": "completed"},
            {"content": "Run the migration tests", "status": "in_progress"},
        ]
        t.user("Do the migration.")
        call = ToolCall("todo", "TodoWrite", orjson.dumps({"todos": todo}).decode())
        t.commit_message(Message("assistant", (call,)))
        t.tool_result("todo", "ok")
        for n in range(20):
            tool_round(t, n, 6)
        t.commit_message(Message("assistant", (ToolCall("ask", "ask_approval", '{"of": "push"}'),)))
        t.compact(budget=1500)
        text = "\n".join(message.text for message in t.compile().messages)
        assert "Run the migration tests" in text
        calls = [b.id for m in t.compile().messages for b in m.blocks if isinstance(b, ToolCall)]
        assert "ask" in calls


def test_31_no_text_of_the_user_is_invented():
    with weft.open() as t:
        talk(t, 12)
        t.user("Clean up.")
        t.assistant("Shall I delete the branch?")
        typed = {m.text for m in t.compile().messages if m.role == "user"}
        t.compact(keep=1)
        messages = t.compile().messages
        assert messages[-1].text == "Shall I delete the branch?"
        for row in t.compile().rows:
            if row.message.role == "user":
                assert row.kind == "summary" or row.message.text in typed
                assert row.kind != "summary" or row.message.text.startswith("[Summary of")


def test_32_native_compactions_are_kept_byte_for_byte():
    block = {"type": "compaction", "content": "They met.", "signature": "abc=="}
    body = {
        "model": "claude-opus-4-8",
        "max_tokens": 10,
        "context_management": {"edits": [{"type": "compact_20260112"}]},
        "messages": [
            {"role": "assistant", "content": [block]},
            {"role": "user", "content": "hi"},
        ],
    }
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "xyz=="}
    items = {
        "model": "gpt-5",
        "context_management": [{"type": "compaction", "compact_threshold": 1000}],
        "input": [item, {"type": "message", "role": "user", "content": "hi"}],
    }
    assert weft.translate(body, "anthropic", "anthropic").body == body
    assert weft.translate(items, "openai-responses", "openai-responses").body == items
    with weft.open() as t:
        for message in weft.decode(body, "anthropic").messages:
            t.commit_message(message)
        assert t.compile().to_anthropic_params("claude-opus-4-8")["messages"] == body["messages"]
        for name in ("openai", "responses", "gemini"):  # what can be read is read elsewhere too
            assert "They met." in str(getattr(t.compile(), f"to_{name}_params")(MODELS[name]))
    with weft.open() as t:
        for message in weft.decode(items, "openai-responses").messages:
            t.commit_message(message)
        assert t.compile().to_responses_params("gpt-5")["input"][0] == item


def test_33_equal_outputs_are_stored_once(tmp_path):
    path = tmp_path / "a.db"
    output = "".join(chr(97 + (n * 7919) % 26) for n in range(200_000))
    sizes = []
    with weft.open(str(path)) as t:
        t.user("Run it.")
        for n in range(30):
            t.commit_message(Message("assistant", (ToolCall("c", "run", "{}"),)))
            t.tool_result("c", output)
            if n in (0, 29):
                sizes.append(sum(file.stat().st_size for file in tmp_path.iterdir()))
        calls_and_results = t.compile().messages[1:]
        assert [message.role for message in calls_and_results] == ["assistant", "tool"] * 30
        assert {message.text for message in calls_and_results[1::2]} == {output}
    assert sizes[0] > len(output)
    assert sizes[1] - sizes[0] < 15 * len(output)


def test_34_a_summary_is_marked_and_invents_no_name():
    invented = "The bug is in src/invented.py. They read src/module_0.py."
    with weft.open() as t, writer(says(invented)) as (_, model):
        talk(t, 10)
        t.compact(model=model, keep=1)
        text = t.compile().messages[0].text
        assert "recall finds what it leaves out" in text
        assert "src/module_0.py" in text
        assert "The bug is in src/invented.py." not in text


@pytest.mark.parametrize("mode", ["extract", "model", "own"])
def test_35_a_key_is_not_copied_into_a_summary(mode):
    key = "sk-ant-api03-" + "Ab3dEf7H" * 6
    with weft.open() as t, writer(says(f"The user set the key {key} in pay.py.")) as (_, model):
        t.user(f"You must always use the key {key} in src/pay.py.")
        t.assistant("Understood.")
        talk(t, 10)
        options: dict[str, Any] = {
            "extract": {"budget": 700},
            "model": {"model": model, "keep": 1},
            "own": {"summary": f"The key is {key}.", "keep": 1},
        }[mode]
        assert t.compact(**options).commit is not None
        assert key not in "\n".join(message.text for message in t.compile().messages)
        assert any(key in message.text for message in t.compile(at=t.log()[1].id).messages)


def test_an_unavailable_summariser_does_not_end_a_run():
    with weft.open() as t, scripted_upstream() as upstream:
        answer = rounds(14)
        upstream.rule = lambda raw: answer(raw) if b'"tools"' in raw else DOWN
        events = watch(agent(upstream.url, t, read_part), "Read the parts.")
        assert not any(isinstance(event, Failure) for event in events)
        assert isinstance(events[-1], MessageComplete)
        assert any(info.kind == "compact" for info in t.log())
