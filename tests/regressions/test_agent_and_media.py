"""Regression tests for agents, attachments and commits."""

import asyncio
import os
import shutil
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest

import weft
from anthropic_answers import call, streamed
from servers import Scripted, Upstream, scripted_upstream
from summarisers import says
from weft.agent import Agent, Failure, MessageComplete, ToolEnd, skip_note
from weft.client import make_provider
from weft.errors import ConfigError
from weft.model import Format, Params, Reasoning, ToolChoice

ROOT = Path(__file__).parents[2]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


@pytest.fixture
def upstream():
    with scripted_upstream() as opened:
        opened.then(streamed("Hi."))
        yield opened


@pytest.fixture
def thread():
    with weft.open() as opened:
        yield opened


def make_agent(thread: weft.Thread, upstream: Upstream, **options: Any) -> Agent:
    provider = make_provider("u", "anthropic", upstream.url)
    return Agent(thread, "claude-sonnet-4-5", provider=provider, **options)


def bodies(upstream: Upstream) -> list[Any]:
    return [orjson.loads(request["body"]) for request in upstream.requests]


def watch(agent: Agent, text: str | None, **options: Any) -> list[Any]:
    async def collect() -> list[Any]:
        return [event async for event in agent.run(text, **options)]

    return asyncio.run(collect())


# the thread's setup and the agent's arguments --------------------------------------------------


def test_an_agent_sends_the_parameters_of_the_threads_setup(thread, upstream):
    params = Params(
        temperature=0.2,
        max_tokens=7777,
        stop=("END",),
        tool_choice=ToolChoice("none"),
        reasoning=Reasoning("on", budget=2000),
        n=3,
    )
    thread.setup(params=params)
    make_agent(thread, upstream, tools=[weather]).send("hi")
    [body] = bodies(upstream)
    assert body["max_tokens"] == 7777
    assert body["stop_sequences"] == ["END"]
    assert body["tool_choice"] == {"type": "none"}
    assert body["thinking"]["budget_tokens"] == 2000
    assert "n" not in body


def test_the_agents_arguments_override_the_setup(thread, upstream):
    thread.setup(params=Params(temperature=0.2, max_tokens=77, stop=("END",)))
    make_agent(thread, upstream, temperature=0.5, max_tokens=88, params=Params(top_k=5)).send("hi")
    [body] = bodies(upstream)
    assert (body["temperature"], body["max_tokens"], body["top_k"]) == (0.5, 88, 5)
    assert body["stop_sequences"] == ["END"]


def test_a_changed_setup_is_used_in_the_next_run(thread, upstream):
    agent = make_agent(thread, upstream)
    agent.send("hi")
    thread.setup(params=Params(max_tokens=55))
    agent.send("again")
    assert [body["max_tokens"] for body in bodies(upstream)] == [64000, 55]


def test_effort_and_response_format_reach_the_vendor(thread):
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5"}
    choice = {"index": 0, "delta": {"role": "assistant", "content": "{}"}, "finish_reason": "stop"}
    frame = b"data: %b\n\ndata: [DONE]\n\n" % orjson.dumps({**chunk, "choices": [choice]})
    with scripted_upstream() as upstream:
        upstream.then(Scripted(frame))
        provider = make_provider("u", "openai-chat", upstream.url)
        agent = Agent(
            thread, "gpt-5", provider=provider, effort="low", response_format=SCHEMA, max_tokens=9
        )
        agent.send("hi")
        [body] = bodies(upstream)
    assert body["reasoning_effort"] == "low"
    assert body["max_completion_tokens"] == 9
    assert body["response_format"]["type"] == "json_schema"
    assert body["response_format"]["json_schema"]["schema"] == SCHEMA


class Place(msgspec.Struct):
    city: str


@pytest.mark.parametrize(
    ("response_format", "kind"),
    [
        ("json", "json"),
        ({"type": "json_object"}, "json"),
        (SCHEMA, "schema"),
        ({"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}, "schema"),
        (Format("schema", SCHEMA, "x"), "schema"),
        (Place, "schema"),
    ],
    ids=["word", "openai-object", "schema", "openai-schema", "format", "class"],
)
def test_a_response_format_is_accepted_in_every_common_form(thread, response_format, kind):
    with scripted_upstream() as upstream:
        upstream.then(says("{}"))
        provider = make_provider("u", "openai-chat", upstream.url)
        Agent(thread, "gpt-5", provider=provider, response_format=response_format).send(
            "JSON, please"
        )
        [body] = bodies(upstream)
    sent = body["response_format"]
    assert sent["type"] == {"json": "json_object", "schema": "json_schema"}[kind]
    if kind == "schema":
        assert sent["json_schema"]["name"]
        assert sent["json_schema"]["schema"]["properties"] == SCHEMA["properties"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("temperature", "hot"),
        ("temperature", float("nan")),
        ("temperature", -1),
        ("max_tokens", 0),
        ("max_tokens", "many"),
        ("effort", ""),
        ("tool_choice", 3),
        ("tool_choice", "no_such_tool"),
        ("response_format", 3),
        ("params", {"temperature": 1}),
    ],
)
def test_an_error_names_the_wrong_argument(thread, option, value):
    with pytest.raises(ConfigError, match=f"^{option}: "):
        Agent(thread, **{option: value})


def test_a_forced_call_applies_only_to_the_first_request(thread, upstream):
    upstream.then(streamed(call("t1", "weather", city="Rome"), stop="tool_use"), streamed("Sunny."))
    agent = make_agent(thread, upstream, tools=[weather], tool_choice="weather")
    assert agent.send("look") == "Sunny."
    first, second = bodies(upstream)
    assert first["tool_choice"] == {"type": "tool", "name": "weather"}
    assert second.get("tool_choice", {"type": "auto"}) == {"type": "auto"}


def test_a_recorded_tool_choice_is_omitted_if_the_agent_lacks_the_tool(thread, upstream):
    thread.setup([{"name": "Bash"}], Params(tool_choice=ToolChoice("tool", "Bash")))
    make_agent(thread, upstream, tools=[weather]).send("hi")
    assert "tool_choice" not in bodies(upstream)[0]


# without compaction ----------------------------------------------------------------------------


def test_without_compaction_no_tools_and_no_checkpoints_are_sent(thread, upstream):
    upstream.then(streamed(call("t1", "weather", city="Rome"), stop="tool_use"), streamed("Sunny."))
    make_agent(thread, upstream, tools=[weather], compaction=None).send("look")
    for request in upstream.requests:
        assert b"checkpoint" not in request["body"]
        assert [t["name"] for t in orjson.loads(request["body"])["tools"]] == ["weather"]
    assert not thread.checkpoints()


def test_checkpoints_of_earlier_runs_are_not_sent_without_compaction(thread, upstream):
    make_agent(thread, upstream).send("first")
    assert thread.checkpoints()
    make_agent(thread, upstream, compaction=None).send("second")
    assert b"checkpoint" in upstream.requests[0]["body"]
    assert b"checkpoint" not in upstream.requests[1]["body"]
    assert "tools" not in bodies(upstream)[1]


def test_without_compaction_a_custom_tool_may_be_named_recall(thread, upstream):
    def recall(query: str) -> str:
        """Looks into a notebook."""
        return "mine: " + query

    upstream.then(streamed(call("t1", "recall", query="x"), stop="tool_use"), streamed("Done."))
    events = watch(make_agent(thread, upstream, tools=[recall], compaction=None), "look")
    assert [event.content for event in events if isinstance(event, ToolEnd)] == ["mine: x"]
    with pytest.raises(ConfigError, match="'recall'"):
        make_agent(thread, upstream, tools=[recall])


# parallel tools --------------------------------------------------------------------------------


def test_calls_of_one_turn_run_concurrently(thread, upstream):
    met = threading.Barrier(2)
    meeting: list[asyncio.Event] = []

    def sync_tool(name: str) -> str:
        """Waits for the other."""
        met.wait(timeout=60)
        return name

    async def async_tool(name: str) -> str:
        """Waits for the other."""
        if not meeting:
            meeting.append(asyncio.Event())
            await asyncio.wait_for(meeting[0].wait(), 20)
        else:
            meeting[0].set()
        return name

    calls = [
        call("a1", "async_tool", name="one"),
        call("s1", "sync_tool", name="two"),
        call("s2", "sync_tool", name="three"),
        call("a2", "async_tool", name="four"),
    ]
    upstream.then(streamed(*calls, stop="tool_use"), streamed("Done."))
    events = watch(make_agent(thread, upstream, tools=[sync_tool, async_tool]), "go")
    ended = {e.id: (e.content, e.is_error) for e in events if isinstance(e, ToolEnd)}
    assert ended == {
        "a1": ("one", False),
        "s1": ("two", False),
        "s2": ("three", False),
        "a2": ("four", False),
    }
    results = bodies(upstream)[1]["messages"][-1]["content"]
    ids = [part["tool_use_id"] for part in results if part["type"] == "tool_result"]
    assert ids == ["a1", "s1", "s2", "a2"]


def test_a_tool_that_fails_or_cancels_itself_does_not_affect_others(thread, upstream):
    def failing() -> str:
        """Fails."""
        raise RuntimeError("no")

    async def cancelling() -> str:
        """Gives up."""
        raise asyncio.CancelledError

    calls = [call("1", "failing"), call("2", "weather", city="Rome"), call("3", "cancelling")]
    upstream.then(streamed(*calls, stop="tool_use"), streamed("Done."))
    events = watch(make_agent(thread, upstream, tools=[failing, weather, cancelling]), "go")
    ended = {e.id: (e.content, e.is_error) for e in events if isinstance(e, ToolEnd)}
    assert ended == {
        "1": ("RuntimeError: no", True),
        "2": ("sunny in Rome", False),
        "3": ("the tool was cancelled", True),
    }
    assert isinstance(events[-1], MessageComplete)


def test_tools_run_sequentially_if_configured(thread, upstream):
    order: list[str] = []

    async def step(name: str) -> str:
        """Takes its time."""
        order.append(f"{name} begins")
        await asyncio.sleep(0.01)
        order.append(f"{name} ends")
        return name

    calls = [call("1", "step", name="a"), call("2", "step", name="b")]
    upstream.then(streamed(*calls, stop="tool_use"), streamed("Done."))
    make_agent(thread, upstream, tools=[step], parallel_tools=False).send("go")
    assert order == ["a begins", "a ends", "b begins", "b ends"]


def test_stopping_a_run_stops_its_tools(thread, upstream):
    begun, stopped = threading.Event(), list[str]()

    async def slow() -> str:
        """Never ends."""
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append("slow")
            raise
        return ""

    upstream.then(streamed(call("1", "slow"), stop="tool_use"))
    agent = make_agent(thread, upstream, tools=[slow])

    async def main() -> None:
        async def follow() -> None:
            async for _ in agent.run("go"):
                pass

        task = asyncio.create_task(follow())
        assert await asyncio.to_thread(begun.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert stopped == ["slow"]


# event loops -----------------------------------------------------------------------------------


def test_send_works_inside_a_running_event_loop_and_asend_is_awaited(thread, upstream):
    agent = make_agent(thread, upstream)

    async def notebook() -> tuple[str, str]:
        return agent.send("one"), await agent.asend("two")

    assert asyncio.run(notebook()) == ("Hi.", "Hi.")


def test_a_failed_run_is_retried_without_repeating_the_question(thread, upstream):
    down = Scripted(b'{"error":{"message":"no"}}', status=400, kind="application/json")
    upstream.then(down, streamed("Hi."))
    agent = make_agent(thread, upstream)

    async def main() -> str:
        with pytest.raises(weft.UpstreamFailed):
            await agent.asend("Delete the file")
        return await agent.asend(None)

    assert asyncio.run(main()) == "Hi."
    assert [message.role for message in thread.compile().messages] == ["user", "assistant"]


def test_a_pydantic_model_is_a_parameter_of_a_tool(thread, upstream):
    pydantic = pytest.importorskip("pydantic")
    inner = pydantic.create_model("Point", x=(int, ...), y=(int, ...))
    shape = pydantic.create_model("Box", at=(inner, ...), size=(int, 1))

    def area(box) -> str:
        """The area of a box."""
        return f"{type(box).__name__} {box.at.x} {box.size}"

    area.__annotations__["box"] = shape
    upstream.then(
        streamed(
            call("1", "area", box={"at": {"x": 3, "y": 4}}),
            call("2", "area", box={"at": {"x": "left"}}),
            stop="tool_use",
        ),
        streamed("Done."),
    )
    events = watch(make_agent(thread, upstream, tools=[area], compaction=None), "go")
    ended = {e.id: (e.content, e.is_error) for e in events if isinstance(e, ToolEnd)}
    assert ended["1"] == ("Box 3 1", False)
    assert ended["2"][1]
    assert "at.x\n  Input should be a valid integer" in ended["2"][0]
    assert ended["2"][0].endswith("at `$.box`")
    [tool] = bodies(upstream)[0]["tools"]
    box = tool["input_schema"]["properties"]["box"]
    assert box["properties"]["at"]["properties"]["x"]["type"] == "integer"
    assert "$ref" not in str(tool)


def test_a_type_without_a_schema_is_refused_with_a_clear_error(thread):
    class Engine:
        pass

    def start(engine: Any) -> str:
        return str(engine)

    start.__annotations__["engine"] = Engine
    with pytest.raises(ConfigError, match=r"'start'.*Engine.*pydantic") as refused:
        Agent(thread, tools=[start])
    assert "schema_hook" not in str(refused.value)


def test_a_failure_is_still_an_event(thread, upstream):
    upstream.then(Scripted(b"{}", status=400, kind="application/json"))
    assert isinstance(watch(make_agent(thread, upstream), "hi")[-1], Failure)


# files from paths ------------------------------------------------------------------------------

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)
PDF = b"%PDF-1.7\n"
WAV = b"RIFF\x00\x00\x00\x00WAVEfmt "
MP3 = b"ID3\x04"


@pytest.fixture
def folder(tmp_path):
    for name, data in {
        "a.png": PNG,
        "photo.txt": b"\xff\xd8\xff\xe0" + bytes(4),
        "b.pdf": PDF,
        "c.md": "# Grüße".encode(),
        "d.wav": WAV,
        "e.mp3": MP3,
        "w.bin": b"RIFF\x00\x00\x00\x00WEBPVP8 ",
        "fake.png": b"only words",
        "z.zip": b"PK\x03\x04\x00\x00\x00\xff",
        "empty.png": b"",
    }.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "kind", "media"),
    [
        ("a.png", "image", "image/png"),
        ("photo.txt", "image", "image/jpeg"),
        ("w.bin", "image", "image/webp"),
        ("b.pdf", "document", "application/pdf"),
        ("c.md", "document", "text/plain"),
        ("d.wav", "audio", "audio/wav"),
        ("e.mp3", "audio", "audio/mpeg"),
    ],
)
def test_a_file_type_is_detected_from_its_content(thread, folder, name, kind, media):
    thread.user("What is this?", attach=[folder / name])
    [message] = thread.compile().messages
    text, block = message.blocks
    assert text.text == "What is this?"
    assert block.__struct_config__.tag == kind
    assert block.source.media_type == media
    assert thread.head.message == "dialogue: What is this?"


def test_attached_files_reach_all_four_vendors(thread, folder):
    thread.user("What is this?", attach=[str(folder / "a.png"), folder / "b.pdf", folder / "c.md"])
    c = thread.compile()
    written = {
        "anthropic": c.to_anthropic_params(model="claude-sonnet-4-5"),
        "chat": c.to_openai_params(model="gpt-5"),
        "responses": c.to_responses_params(model="gpt-5"),
        "gemini": c.to_gemini_params(model="gemini-2.5-pro"),
    }
    for params in written.values():
        assert not [loss for loss in params.losses if loss.level != "form"]
    kinds = [part["type"] for part in written["anthropic"]["messages"][0]["content"]]
    assert kinds == ["text", "image", "document", "document"]
    kinds = [part["type"] for part in written["chat"]["messages"][0]["content"]]
    assert kinds == ["text", "image_url", "file", "text"]
    kinds = [part["type"] for part in written["responses"]["input"][0]["content"]]
    assert kinds == ["input_text", "input_image", "input_file", "input_file"]
    parts = written["gemini"]["contents"][0]["parts"]
    assert [part["inlineData"]["mimeType"] for part in parts[1:]] == [
        "image/png",
        "application/pdf",
        "text/plain",
    ]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none.png", "there is no file"),
        ("fake.png", "is not image/png: it contains text"),
        ("z.zip", "has an unsupported type"),
        ("empty.png", "is empty"),
        (".", "is a folder"),
    ],
)
def test_a_file_that_cannot_be_attached_is_named_and_nothing_is_committed(
    thread, folder, name, words
):
    with pytest.raises(weft.ThreadError, match=rf"^attach\[1\].*{words}"):
        thread.user("look", attach=[folder / "a.png", folder / name])
    assert thread.head is None


def test_a_file_that_is_too_large_is_refused(thread, tmp_path):
    large = tmp_path / "large.png"
    with large.open("wb") as file:
        file.write(PNG)
        file.truncate(21 * 2**20)
    with pytest.raises(weft.ThreadError, match="larger than the 20 MB"):
        thread.user("look", attach=[large])


@pytest.mark.parametrize("attached", [3, [3], ["https://example.org/a.png"]])
def test_a_value_that_is_not_a_path_is_refused_with_its_index(thread, attached):
    with pytest.raises(weft.ThreadError, match=r"^attach"):
        thread.user("look", attach=attached)


def test_an_agent_sends_files_and_a_retry_does_not_repeat_them(thread, upstream, folder):
    down = Scripted(b'{"error":{"message":"no"}}', status=400, kind="application/json")
    upstream.then(down, streamed("A cat."))
    agent = make_agent(thread, upstream)
    with pytest.raises(weft.UpstreamFailed):
        agent.send("What is this?", attach=[folder / "a.png"])
    assert agent.send("What is this?", attach=[folder / "a.png"]) == "A cat."
    assert [message.role for message in thread.compile().messages] == ["user", "assistant"]
    [texts] = bodies(upstream)[1]["messages"]
    assert [part["type"] for part in texts["content"]][:2] == ["text", "image"]


def weft_command(*args: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")}
    return subprocess.run(
        [sys.executable, "-c", "from weft.cli import entry; entry()", *args],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        env={**environment, **variables},
        check=False,
    )


def test_weft_chat_attaches_files_by_option_and_command(folder):
    store = str(folder / "chat.db")
    options = ["chat", "--store", store, "-t", "default", "-a", str(folder / "a.png")]
    done = weft_command(*options, "What is this?")
    assert done.returncode == 0, done.stderr
    lines = f"/attach {folder / 'none.png'}\n/attach {folder / 'b.pdf'}\nAnd this?\nAnd now?\n"
    done = weft_command("chat", "--store", store, "-c", stdin=lines)
    assert "there is no file" in done.stdout
    with weft.open(store) as thread:
        asked = [m for m in thread.compile().messages if m.role == "user"]
    kinds = [[b.__struct_config__.tag for b in m.blocks] for m in asked]
    assert kinds == [
        ["text", "image", "checkpoint"],
        ["text", "document", "checkpoint"],
        ["text", "checkpoint"],
    ]


def test_weft_chat_names_a_file_that_is_missing(tmp_path):
    done = weft_command("chat", "--store", str(tmp_path / "c.db"), "-a", "none.png", "hi")
    assert done.returncode == 1
    assert "there is no file 'none.png'" in done.stderr


# what commit takes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"content_type": "dialogue", "role": "user", "text": "x", "images": []}, "'images'"),
        ({"content_type": "dialogue", "role": "assistan", "text": "x"}, "role.*'assistan'"),
        ({"content_type": "artifact", "content": "x", "langauge": "c"}, "did you mean 'language'"),
        ({"content_type": "note", "text": "x"}, "content_type: 'note' is unknown.*freeform"),
    ],
    ids=["member", "role", "misspelt", "type"],
)
def test_unknown_members_roles_and_types_of_a_dict_are_refused(thread, content, words):
    with pytest.raises(weft.ThreadError, match=words):
        thread.commit(content)
    assert thread.head is None


def test_to_responses_keeps_the_reasoning_of_its_own_models(thread):
    reasoning = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Hm."}],
        "encrypted_content": "sealed",
    }
    texts = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Hi.", "annotations": []}],
    }
    thread.user("hello")
    answer = {"id": "resp_1", "object": "response", "model": "gpt-5", "status": "completed"}
    thread.assistant({**answer, "output": [reasoning, texts]})
    items = thread.compile().to_responses()
    assert [item.get("type", item.get("role")) for item in items] == [
        "user",
        "reasoning",
        "assistant",
    ]
    assert items[1] == reasoning


def test_the_docstring_of_to_anthropic_points_to_the_params():
    assert "to_anthropic_params" in (weft.CompiledContext.to_anthropic.__doc__ or "")


# metadata, commands, set-up --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"a": {1}}, "metadata.a"),
        ({"a": {"b": [0, datetime(2026, 1, 1, tzinfo=UTC)]}}, r"metadata.a.b\[1\]"),
        ({"a": {2: "x"}}, "a key of metadata.a"),
        ({"a": Path("x")}, "metadata.a"),
    ],
    ids=["set", "date", "number as key", "path"],
)
def test_metadata_that_is_not_json_is_refused_and_not_changed(thread, metadata, field):
    with pytest.raises(weft.ThreadError, match=field):
        thread.user("hi", metadata=metadata)
    assert thread.head is None


def test_metadata_with_a_cycle_is_refused(thread):
    endless: dict[str, Any] = {}
    endless["me"] = endless
    with pytest.raises(weft.ThreadError, match=r"metadata.*contains itself"):
        thread.user("hi", metadata=endless)


def test_commit_m_takes_the_text_as_in_git_and_note_the_note(tmp_path):
    store = str(tmp_path / "c.db")
    done = weft_command("commit", "--store", store, "-m", "one", "-m", "two", "--note", "why")
    assert done.returncode == 0, done.stderr
    with weft.open(store) as thread:
        assert thread.compile().messages[0].text == "one\n\ntwo"
        assert thread.head.message == "why"
    done = weft_command("edit", "--store", store, "HEAD", "-m", "three")
    assert done.returncode == 0, done.stderr
    done = weft_command("commit", "--store", store, "words", "-m", "others")
    assert done.returncode != 0
    assert "there are two texts" in done.stderr
    with weft.open(store) as thread:
        assert thread.compile().messages[0].text == "three"


def test_a_preview_asks_no_model_and_needs_no_key(tmp_path):
    store = str(tmp_path / "c.db")
    with weft.open(store) as thread:
        for number in range(6):
            thread.user(f"question {number} " + "word " * 50)
            thread.assistant(f"answer {number} " + "word " * 50)
        assert thread.compact(model="gpt-5", keep=1, preview=True).preview
    options = ["--store", store, "--model", "gpt-5", "--keep", "1"]
    done = weft_command("compact", *options, "--preview")
    assert done.returncode == 0, done.stderr
    done = weft_command("compact", *options)
    assert done.returncode != 0
    assert "API key" in done.stderr


@pytest.mark.parametrize("extra", ["postgres", "claude", "serve"])
def test_errors_about_a_missing_extra_say_how_to_install_it(extra):
    sources = ROOT / "src" / "weft"
    texts = [path.read_text() for path in sources.rglob("*.py")]
    assert any(f"pip install '.[{extra}]'" in text for text in texts)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_says_which_python_it_needs_and_replaces_an_old_venv(tmp_path):
    def fake(path: Path, body: str) -> str:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return str(path)

    def make(python: str) -> str:
        done = subprocess.run(
            ["make", "serve", f"PYTHON={python}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode != 0
        return done.stderr

    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    fake(tmp_path / ".venv" / "bin" / "python", "exit 1")  # one that is too old
    assert "needs Python 3.11 or newer" in make(fake(tmp_path / "old", "exit 1"))
    log = tmp_path / "log"
    make(fake(tmp_path / "new", f'test "$1" = -c && exit 0; echo "$@" >> {log}; exit 1'))
    assert log.read_text() == "-m venv --clear .venv\n"


def test_the_note_of_a_skipped_message_begins_with_its_symbol():
    assert skip_note("init").startswith("⏩ Skipping")
    assert "`⏩ Skipping" in (ROOT / "src" / "weft" / "web" / "system.js").read_text()
