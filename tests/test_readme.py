"""Every code block of the README and the guides runs, and every link has a target.

Shell commands run in a folder with the files that they name. Small programs replace the clients, a
gateway replaces port 8787, and a scripted upstream replaces the vendor.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import orjson
import pytest

import weft
from claude_lines import SESSION, Session
from servers import SECRETS, Scripted, scripted_upstream, weft_serve
from weft.cli import COMMANDS, main
from weft.demo import ensure_sample
from weft.gateway import Flags, read_settings
from weft.store import open_store

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "guide").glob("*.md")),
    *sorted((ROOT / "docs" / "reference").glob("*.md")),
]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def blocks(language):
    return [
        pytest.param(text, id=f"{page.stem}-{number}")
        for page in PAGES
        for number, (language_found, text) in enumerate(FENCE.findall(page.read_text()))
        if language_found == language
    ]


def block(page, language, containing):
    """The one block of a page that has these words."""
    [text] = [
        text
        for language_found, text in FENCE.findall((ROOT / page).read_text())
        if language_found == language and containing in text
    ]
    return text


def test_every_code_block_is_run():
    known = {"", "python", "toml", "nginx"}  # nginx: tests/regressions/test_gateway_safety.py
    assert {language for page in PAGES for language, _ in FENCE.findall(page.read_text())} <= known


def test_python_blocks_are_typed_as_a_user_would_check_them(tmp_path):
    """pyright in strict mode, with the types of Weft and of the official SDKs."""
    for number, row in enumerate(blocks("python")):
        (tmp_path / f"block_{number}_{row.id.replace('-', '_')}.py").write_text(row.values[0])
    config = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT / "src")]}
    (tmp_path / "pyrightconfig.json").write_bytes(orjson.dumps(config))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "-p", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout


def responses_answer(text):
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    item["content"] = [{"type": "output_text", "text": text, "annotations": []}]
    done = {"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-5"}
    done |= {"status": "completed", "output": [item]}
    done["usage"] = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    place = {"output_index": 0, "content_index": 0, "item_id": "msg_1"}
    part = {"type": "output_text", "text": "", "annotations": []}
    return [
        {"type": "response.created", "response": {**done, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.content_part.added", **place, "part": part},
        {"type": "response.output_text.delta", **place, "delta": text},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": done},
    ]


def chat_answer(text):
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    delta = {"role": "assistant", "content": text}
    return [
        {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]


def anthropic_answer(text):
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    message |= {"stop_reason": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    start = {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}
    start["content_block"]["text"] = ""
    delta = {"type": "content_block_delta", "index": 0}
    delta["delta"] = {"type": "text_delta", "text": text}
    stop = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    return [
        {"type": "message_start", "message": message},
        start,
        delta,
        {"type": "content_block_stop", "index": 0},
        {**stop, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]


def answer(body):
    """A scripted vendor; the members of the body decide the protocol."""
    asked = orjson.loads(body)
    text = "The user asked what the modules do; each reads the configuration."
    if "input" in asked:
        events = responses_answer(text)
    elif "max_tokens" in asked:
        events = anthropic_answer(text)
    else:
        events = chat_answer(text)
    names = [f"event: {event['type']}\n" if "type" in event else "" for event in events]
    pieces = [
        name.encode() + b"data: " + orjson.dumps(event) + b"\n\n"
        for name, event in zip(names, events, strict=True)
    ]
    return Scripted(*pieces, *([b"data: [DONE]\n\n"] if "messages" in asked else []))


@pytest.fixture(scope="module")
def vendor():
    with scripted_upstream() as running:
        running.then()
        running.rule = answer
        yield running


@pytest.fixture
def environ(vendor):
    """A person's environment: keys, and base URLs that lead to the scripted vendor."""
    clean = {name: value for name, value in os.environ.items() if name not in SECRETS}
    return clean | {
        "OPENAI_API_KEY": "sk-test",
        "OPENAI_BASE_URL": f"{vendor.url}/v1",
        "ANTHROPIC_API_KEY": "sk-test",
        "ANTHROPIC_BASE_URL": vendor.url,
    }


def run_python(text, folder, environ):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", text],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("text", blocks("python"))
def test_a_python_block_runs(text, tmp_path, environ):
    keyless = {name: value for name, value in environ.items() if "API_KEY" not in name}
    run_python(text, tmp_path, keyless)


@pytest.mark.parametrize("model", ["gpt-5", "claude-sonnet-5"])
def test_the_agent_example_works_with_a_vendors_model(tmp_path, environ, model):
    text = block("README.md", "python", "weft.Agent(").replace("weft-offline", model)
    assert "each reads the configuration" in run_python(text, tmp_path, environ)


@pytest.mark.parametrize("model", ["gpt-5", "claude-sonnet-5"])
def test_the_compaction_example_works_with_a_vendors_model(tmp_path, environ, model):
    text = block("README.md", "python", "t.compact(model=").replace("weft-offline", model)
    assert f"request to {model}" in run_python(text, tmp_path, environ)


def test_the_agent_example_works_with_any_other_server(vendor):
    [line] = re.findall(r'`weft\.Agent\(t, "qwen3", base_url="([^"]+)"\)`', PAGES[0].read_text())
    assert line == "http://127.0.0.1:8000/v1"
    vendor.requests.clear()
    with weft.open() as t:
        weft.Agent(t, "qwen3", base_url=f"{vendor.url}/v1").send("hi")
        weft.Agent(t, "qwen3", base_url=vendor.url, provider="anthropic", api_key="k").send("hi")
    assert [request["path"] for request in vendor.requests] == [
        "/v1/chat/completions",
        "/v1/messages",
    ]
    assert vendor.requests[1]["headers"]["x-api-key"] == "k"


def test_the_plain_formats_have_no_losses_and_the_params_have():
    with weft.open() as t:
        t.user("hi")
        compiled = t.compile()
    for name in ("openai", "anthropic", "responses", "gemini"):
        assert not hasattr(getattr(compiled, f"to_{name}")(), "losses")
        assert hasattr(getattr(compiled, f"to_{name}_params")(model="m"), "losses")


CLIENTS = {
    "claude": "import anthropic\n"
    "client = anthropic.Anthropic(api_key='none', max_retries=0)\n"
    "said = [{'role': 'user', 'content': 'hi'}]\n"
    "print(client.messages.create(model='weft-offline', max_tokens=50, messages=said))\n",
    "gemini": "import os\nfrom google import genai\n"
    "options = genai.types.HttpOptions(base_url=os.environ['GOOGLE_GEMINI_BASE_URL'])\n"
    "client = genai.Client(api_key='none', http_options=options)\n"
    "print(client.models.generate_content(model='weft-offline', contents='hi').text)\n",
    "app.py": "import openai\n"
    "client = openai.OpenAI(api_key='none', max_retries=0)\n"
    "said = [{'role': 'user', 'content': 'hi'}]\n"
    "print(client.chat.completions.create(model='weft-offline', messages=said))\n",
}
"""Stand-ins for programs: each asks the gateway that its variables name."""

ROLLOUT = [
    {"type": "session_meta", "payload": {"id": "0199", "timestamp": "2026-02-11T10:00:00Z"}},
    {
        "type": "response_item",
        "payload": {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "hi"}],
        },
    },
    {
        "type": "response_item",
        "payload": {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Hello."}],
        },
    },
]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    with weft_serve(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture
def desk(tmp_path, environ):
    """A folder with all files that the shell lines name, and the environment to run them in."""
    programs = tmp_path / "bin"
    programs.mkdir()
    launch = "from weft.cli import entry; entry()"
    for name, code in {**CLIENTS, "weft": launch}.items():
        place = tmp_path / name if name.endswith(".py") else programs / name
        place.write_text(f"#!{sys.executable}\n{code}\n")
        place.chmod(0o700)
    (programs / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (programs / "python").chmod(0o700)
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    (tmp_path / "request.json").write_bytes(orjson.dumps(body))
    session = Session()
    session.user("first words")
    session.answer("msg_1", {"type": "text", "text": "Hello."})
    projects = tmp_path / ".claude" / "projects" / "-home-me-work"
    projects.mkdir(parents=True)
    (projects / f"{SESSION}.jsonl").write_bytes(session.data)
    lines = b"".join(orjson.dumps(row) + b"\n" for row in ROLLOUT)
    (tmp_path / "rollout-2026-02-11.jsonl").write_bytes(lines)
    (tmp_path / "weights.toml").write_text("length = 2.0\n")
    with weft.open(tmp_path / "store.db") as thread:
        for number in range(12):
            thread.user(f"What does src/module_{number}.py do?")
            thread.assistant(f"src/module_{number}.py reads the configuration number {number}.")
    known = {"HOME": str(tmp_path), "WEFT_STORE": str(tmp_path / "store.db")}
    known["PATH"] = f"{programs}:{os.environ['PATH']}"
    return tmp_path, {**environ, **known}


NOT_RUN = ("make ", "pip install ")
"""Lines that set up an environment of their own: see the Makefile and tests/test_install.py."""


@pytest.mark.parametrize("text", blocks(""))
def test_a_shell_block_runs(text, desk, gateway, vendor):
    folder, environ = desk
    if "weft commit log show" in text:  # the list of commands
        return
    known = {
        "http://127.0.0.1:8787": gateway.url,
        "http://127.0.0.1:8000": vendor.url,
        "SESSION": SESSION,
    }
    for line in text.splitlines():
        if not line.strip() or line.startswith(NOT_RUN):
            continue
        for old, new in known.items():
            line = line.replace(old, new)
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=folder,
            env=environ,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, (line, done.stderr)
        assert done.stdout.strip() or ">" in line, line


def test_the_client_commands_reach_the_gateway(desk, tmp_path_factory):
    with weft_serve(tmp_path_factory.mktemp("own")) as gateway:  # nobody else writes to its log
        run_clients(desk, gateway)
        gateway.await_lines(3)
    assert len(gateway.lines()) == 3


def run_clients(desk, gateway):
    folder, environ = desk
    for name, variable, path in (
        ("claude", "ANTHROPIC_BASE_URL", ""),
        ("gemini", "GOOGLE_GEMINI_BASE_URL", ""),
        ("python app.py", "OPENAI_BASE_URL", "/v1"),
    ):
        line = f"{variable}={gateway.url}{path} {name}"
        assert line.replace(gateway.url, "http://127.0.0.1:8787") in "".join(
            page.read_text() for page in PAGES
        )
        subprocess.run(["sh", "-c", line], cwd=folder, env=environ, check=True, timeout=180)


def test_the_named_make_targets_exist():
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M)
    pages = (page.read_text() for page in PAGES if page.stem != "api")  # prose of docstrings
    named = re.findall(r"\bmake (\w+)", "".join(pages))
    assert {"serve", "test"} <= set(named) <= set(targets)


def test_the_config_example_is_valid(tmp_path):
    path = tmp_path / "weft.toml"
    path.write_text(block("README.md", "toml", "[[upstream]]"))
    settings = read_settings(Flags(config=str(path)), {"LOCAL_KEY": "k"})
    local, proxy = settings.providers
    assert (local.key, local.models, local.pass_through) == ("k", ("qwen*", "llama*"), False)
    assert (proxy.key, proxy.pass_through) == (None, True)
    assert settings.keys
    with pytest.raises(weft.ConfigError, match="LOCAL_KEY"):
        read_settings(Flags(config=str(path)), {})


@pytest.mark.parametrize("text", blocks("toml"))
def test_a_toml_block_is_valid(text):
    assert tomllib.loads(text)


IGNORING_THREAD = ("fsck", "gc", "resume", "threads", "undelete")


def test_the_commands_are_all_listed_with_their_common_options(capsys):
    text = block("README.md", "", "weft commit log show")
    listed = re.findall(r"[a-z-]+", re.sub(r"CMD|weft\b|--", " ", text))
    assert sorted(listed) == sorted(COMMANDS)
    first_group, _, _ = text.partition("weft serve")
    for name in re.findall(r"[a-z-]+", first_group.replace("weft", "")):
        with pytest.raises(SystemExit):
            main([name, "--help"])
        shown = capsys.readouterr().out
        assert all(option in shown for option in ("--store", "--json")), name
        assert ("--thread" in shown) is (name not in IGNORING_THREAD), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_has_a_target(page):
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), target


ANCHOR = re.compile(r"\]\((?!https?:)([^)#]*)#([^)]+)\)")


def anchors(page):
    """The addresses of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_anchor_is_a_heading(page):
    for target, anchor in ANCHOR.findall(page.read_text()):
        assert anchor in anchors(page.parent / target if target else page), (target, anchor)


FILES_AND_FORMATS = {"toml", "db", "gz", "1"}
"""What follows `weft.` in the names of files, and in the summaries that Codex gets (`weft.1.`)."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_names_only_what_weft_exports(page):
    if page.stem == "stability":  # it says which names are not public
        return
    names = set(re.findall(r"\bweft\.(\w+)", page.read_text()))
    assert names - set(weft.__all__) - FILES_AND_FORMATS == set()


def test_the_sample_matches_the_readme():
    store = open_store()
    ensure_sample(store)
    [record] = store.threads()
    with weft.open(store, record.name) as thread:
        kinds = [info.kind for info in thread.log()]
        assert len(thread.branches()) == 2  # main, and one beside it
    assert kinds.count("compact") == 1
    assert len(kinds) > 20
