"""`weft serve`, `weft run` and `weft chat` as commands."""

import os
import socket
import subprocess
import sys
from urllib.request import urlopen

import orjson
import pytest

import weft.thread
from servers import LAUNCH, SECRETS, Scripted, scripted_upstream, weft_serve
from serving import serving

SHOW = "import os; print(os.environ['ANTHROPIC_BASE_URL'], os.environ['OPENAI_BASE_URL'])"


def weft_command(folder, *words, stdin=""):
    environ = {name: value for name, value in os.environ.items() if name not in SECRETS}
    return subprocess.run(
        [sys.executable, "-c", LAUNCH, *words],
        cwd=folder,
        env={**environ, "HOME": str(folder)},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_port_in_use_prints_one_clear_line(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = weft_command(tmp_path, "serve", "--port", str(port))
    assert done.returncode == 1
    why = "Address already in use; --port chooses another"
    assert done.stderr == f"weft: cannot listen on 127.0.0.1:{port}: {why}\n"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--config", "missing.toml"], "'missing.toml' cannot be read"),
        (["--upstream", "nonsense"], "'nonsense' is not of the form NAME=PROTOCOL:URL"),
        (["--host", "0.0.0.0"], "callers need keys"),
        (["--store", "."], "'.'"),
    ],
)
def test_a_wrong_setting_prints_one_clear_line(tmp_path, flags, words):
    done = weft_command(tmp_path, "serve", "--port", "0", *flags)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert words in done.stderr


def test_run_starts_a_gateway_for_one_program(tmp_path):
    done = weft_command(tmp_path, "run", "--store", "s.db", "--", sys.executable, "-c", SHOW)
    anthropic, openai = done.stdout.split()
    assert done.returncode == 0
    assert openai == f"{anthropic}/v1"
    port = int(anthropic.rpartition(":")[2])
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0, "the gateway ends with the program"


def test_run_uses_an_existing_gateway(tmp_path):
    with weft_serve(tmp_path) as gateway:
        words = ["run", "--url", gateway.url, "--", sys.executable, "-c", SHOW]
        assert weft_command(tmp_path, *words).stdout.split()[0] == gateway.url


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--", sys.executable, "-c", "raise SystemExit(7)"], 7),
        (["--", "no-such-program"], 127),
        (["--", "/etc/passwd"], 126),  # not executable
        (["--", "/etc"], 126),  # a folder
        (["--", "/etc/passwd/program"], 126),  # below a file
        (["--"], 2),
    ],
)
def test_run_exits_with_the_code_of_its_program(tmp_path, words, code):
    with weft_serve(tmp_path) as gateway:
        assert weft_command(tmp_path, "run", "--url", gateway.url, *words).returncode == code


def test_chat_sends_one_message_and_stores_it(tmp_path):
    done = weft_command(tmp_path, "chat", "--store", "c.db", "-t", "default", "hello", "there")
    assert done.returncode == 0
    assert "You said: “hello there”" in done.stdout
    with weft.thread.open(tmp_path / "c.db") as thread:
        assert [message.role for message in thread.compile().messages] == ["user", "assistant"]


def test_chat_reads_lines_and_prints_events(tmp_path):
    lines = "I live in Lyon.\nWhat else?\nPlease compact the thread.\n"
    done = weft_command(tmp_path, "chat", "--store", "c.db", stdin=lines)
    assert done.returncode == 0
    assert "[compact " in done.stdout
    assert "compacted" in done.stdout.lower()


def test_chat_prints_events_as_json(tmp_path):
    done = weft_command(tmp_path, "chat", "--store", "c.db", "--json", "hello")
    events = [orjson.loads(line) for line in done.stdout.splitlines()]
    assert {event["type"] for event in events} == {"text_delta", "usage", "message_complete"}


def test_chat_with_an_unreachable_upstream_fails(tmp_path):
    words = [
        "--store",
        "c.db",
        "--upstream",
        "u=anthropic:http://127.0.0.1:1",
        "--model",
        "m",
        "hi",
    ]
    done = weft_command(tmp_path, "chat", *words)
    assert done.returncode == 1
    assert "cannot be reached" in done.stdout


@pytest.mark.parametrize(
    ("flags", "sampled"), [([], True), (["--no-sample"], False), (["--store", "x.db"], False)]
)
def test_the_sample_is_added_only_to_serves_default_store(tmp_path, flags, sampled):
    with serving(tmp_path, "--port", "0", *flags) as url:
        threads = orjson.loads(urlopen(f"{url}/api/threads").read())["threads"]
    assert bool(threads) == sampled


def test_run_leaves_an_empty_store_empty(tmp_path):
    done = weft_command(tmp_path, "run", "--store", "x.db", "--", sys.executable, "-c", SHOW)
    assert done.returncode == 0
    assert list(weft.thread.threads(tmp_path / "x.db")) == []


def printed_store(folder, store):
    """What `weft serve` prints about the store."""
    words = [sys.executable, "-c", LAUNCH, "serve", "--port", "0", "--store", store]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        lines = [process.stdout.readline() for _ in range(2)]
        process.terminate()
    return lines[1]


def test_serve_prints_the_path_of_the_store(tmp_path):
    assert printed_store(tmp_path, "x.db") == "threads are stored in x.db\n"


def test_serve_prints_the_url_of_the_store_without_its_password(tmp_path, postgres):
    line = printed_store(tmp_path, f"{postgres}&password=hunter2xyz")
    assert line.startswith("threads are stored in postgresql://postgres@")
    assert "hunter2xyz" not in line


ASK = """
import anthropic
answer = anthropic.Anthropic().messages.create(
    model="weft-offline", max_tokens=50, messages=[{"role": "user", "content": "hello"}]
)
print(answer.content[0].text)
"""


def test_run_sets_a_key_for_an_sdk_that_requires_one(tmp_path):
    done = weft_command(tmp_path, "run", "--store", "s.db", "--", sys.executable, "-c", ASK)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    line = done.stderr.splitlines()[-1]
    assert line.startswith("weft: recorded in 's.db', thread "), done.stderr
    command = line.partition("`weft ")[2].partition("`")[0].split()
    shown = weft_command(tmp_path, *command)  # the command that it names works
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.strip()


def test_run_reports_if_no_request_arrived(tmp_path):
    done = weft_command(tmp_path, "run", "--store", "s.db", "--", sys.executable, "-c", "pass")
    assert done.returncode == 0
    assert "no request of" in done.stderr


def test_run_configures_codex_with_an_option(tmp_path):
    """Codex does not read OPENAI_BASE_URL."""
    codex = tmp_path / "codex"
    codex.write_text(f"#!{sys.executable}\nimport sys; print(*sys.argv[1:])")
    codex.chmod(0o755)
    done = weft_command(tmp_path, "run", "--store", "s.db", "--", str(codex), "exec", "hi")
    option, value, *rest = done.stdout.split()
    assert option == "-c"
    assert value.startswith('openai_base_url="http://127.0.0.1:')
    assert value.endswith('/v1"')
    assert rest == ["exec", "hi"]


def test_run_starts_its_gateway_with_upstreams(tmp_path):
    with scripted_upstream() as upstream:
        answer = {
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
            "content": [{"type": "text", "text": "from the upstream"}], "stop_reason": "end_turn",
            "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
        }  # fmt: skip
        upstream.then(Scripted(orjson.dumps(answer), kind="application/json"))
        words = ["run", "--store", "s.db", f"--upstream=up=anthropic:{upstream.url}", "--"]
        ask = ASK.replace("weft-offline", "any-model")
        done = weft_command(tmp_path, *words, sys.executable, "-c", ask)
    assert done.stdout.strip() == "from the upstream", done.stderr
