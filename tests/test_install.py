"""`pip install weft` is enough for the library, the agent, the chat and the commands.

Each script runs in its own process, in which the libraries of the `serve` extra and the HTTP client
cannot be imported.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SERVER = {
    "granian": "granian",
    "latex2mathml": "latex2mathml",
    "markdown-it-py": "markdown_it",
    "nh3": "nh3",
    "Pygments": "pygments",
    "starlette": "starlette",
    "zstandard": "zstandard",
}
BLOCK = """
import sys
from importlib.machinery import PathFinder
class Finder:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            return None
        return PathFinder.find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
"""


def run_without(names, script, *args, **options):
    code = BLOCK.format(names=tuple(names)) + script
    return subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=60, **options
    )


def run_weft(*arguments, **options):
    names = [*SERVER.values(), "aiohttp"]
    return run_without(names, "from weft.cli import entry; entry()", *arguments, **options)


LIBRARY = """
import weft
t = weft.open()
t.system("Be brief.")
for number in range(6):
    t.user(f"Question {number}: which file holds the parser?")
    t.assistant(f"Answer {number}: src/parse.py. " + 30 * "It reads tokens. ")
context = t.compile()
for write in (context.to_anthropic_params, context.to_openai_params, context.to_gemini_params):
    write(model="some-model")
body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
weft.translate(body, "openai-chat", "anthropic")
assert t.compact(model="weft-offline", budget=400).commit is not None
assert t.search("parser")
"""

AGENT = """
import weft
def double(number: int) -> str:
    "Double a number."
    return str(2 * number)
answer = weft.Agent(weft.open(), "weft-offline", [double]).send("Call double with 21")
assert "42" in answer, answer
"""


@pytest.mark.parametrize("script", [LIBRARY, AGENT], ids=["library", "agent"])
def test_library_and_agent_work_without_the_server_and_without_http(script):
    ran = run_without([*SERVER.values(), "aiohttp"], script)
    assert ran.returncode == 0, ran.stderr


def test_commands_work_without_the_server_and_without_http(tmp_path):
    store = ["--store", str(tmp_path / "weft.db")]
    commands = [
        ["chat", "which", "file?", *store],
        ["commit", "the parser is in src/parse.py", *store],
        ["log", *store],
        ["show", "HEAD", *store],
        ["threads", *store],
        ["search", "parser", *store],
        ["stats", *store],
        ["compile", *store],
        ["fsck", *store],
        ["export", "--format", "archive", *store],
        ["translate", "--from", "openai-chat", "--to", "anthropic"],
    ]
    body = '{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'
    for command in commands:
        ran = run_weft(*command, input=body if command[0] == "translate" else "")
        assert ran.returncode == 0, (command, ran.stderr)
        assert ran.stdout, command


@pytest.mark.parametrize("command", [["serve", "--port", "0"], ["run", "--", "true"]])
def test_the_gateway_says_what_to_install(command, tmp_path):
    name, *arguments = command
    ran = run_weft(name, "--store", str(tmp_path / "weft.db"), *arguments)
    assert ran.returncode == 1
    assert "pip install '.[serve]'" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_another_import_error_of_the_gateway_is_not_hidden():
    """Only a missing package of the extra is answered with what to install."""
    ran = run_without(["orjson"], "from weft.cli import entry; entry()", "serve")
    assert ".[serve]" not in ran.stderr


def test_the_serve_extra_has_what_only_the_gateway_imports():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {line.split(">=")[0] for line in project["dependencies"]}
    extra = {line.split(">=")[0] for line in project["optional-dependencies"]["serve"]}
    assert extra == set(SERVER)
    assert not needed & extra
