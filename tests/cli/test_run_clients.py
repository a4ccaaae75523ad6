"""How `weft run` configures each client, and the model names that a gateway redirects."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import orjson
import pytest

from servers import LAUNCH, SECRETS, Scripted, scripted_upstream, weft_serve
from weft.catalog import load_catalog
from weft.client import Alias, find_route, make_provider, read_aliases
from weft.errors import ConfigError

SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def run(home: Path, *words: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    clean = {name: value for name, value in os.environ.items() if name not in SECRETS}
    return subprocess.run(
        [sys.executable, "-c", LAUNCH, "run", *words],
        cwd=home,
        env={**clean, "HOME": str(home), **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def program(home: Path, name: str, code: str = SHOW) -> str:
    """A program of this name; it prints its options and its environment."""
    path = home / name
    path.write_text(f"#!{sys.executable}\n{code}\n")
    path.chmod(0o755)
    return str(path)


def started(home: Path, *command: str, **environ: str) -> tuple[list[str], dict[str, str]]:
    """The options and the environment that a program gets."""
    done = run(home, "--store", "s.db", "--", *command, **environ)
    assert done.returncode == 0, done.stderr
    options, variables = json.loads(done.stdout)
    return options, variables


def test_opencode_gets_base_urls_with_a_version(home: Path) -> None:
    own = {"theme": "dark", "provider": {"anthropic": {"options": {"timeout": 5}}}}
    opencode = program(home, "opencode")
    options, variables = started(
        home, opencode, "run", "hi", OPENCODE_CONFIG_CONTENT=json.dumps(own)
    )
    url = variables["OPENAI_BASE_URL"].removesuffix("/v1")
    config = json.loads(variables["OPENCODE_CONFIG_CONTENT"])
    assert options == ["run", "hi"]
    assert config["theme"] == "dark"
    assert config["provider"] == {
        "anthropic": {"options": {"timeout": 5, "baseURL": f"{url}/v1"}},
        "openai": {"options": {"baseURL": f"{url}/v1"}},
        "google": {"options": {"baseURL": f"{url}/v1beta"}},
    }
    assert variables["ANTHROPIC_BASE_URL"] == f"{url}/v1"
    assert variables["ANTHROPIC_API_KEY"] == "weft"  # opencode lists no model without a key


@pytest.mark.parametrize("content", ["", "[1]", "{broken"])
def test_opencode_configuration_overrides_existing_settings(home: Path, content: str) -> None:
    opencode = program(home, "opencode")
    _, variables = started(home, opencode, OPENCODE_CONFIG_CONTENT=content)
    assert json.loads(variables["OPENCODE_CONFIG_CONTENT"])["provider"]["openai"]


COPY = """
import json, os
home = os.environ.get("GEMINI_CLI_HOME")
folder = home and os.path.join(home, ".gemini")
print(json.dumps([[], {
    "home": home,
    "settings": folder and open(os.path.join(folder, "settings.json")).read(),
    "entries": folder and sorted(os.listdir(folder)),
    "base": os.environ["GOOGLE_GEMINI_BASE_URL"],
}]))
if folder: open(os.path.join(folder, "tmp", "session.json"), "w").write("kept")
"""


def test_gemini_uses_a_key_whatever_its_login_setting(home: Path) -> None:
    own = home / ".gemini"
    own.mkdir()
    settings = {"ui": {"theme": "x"}, "security": {"auth": {"selectedType": "oauth-personal"}}}
    (own / "settings.json").write_text(json.dumps(settings))
    (own / "GEMINI.md").write_text("notes")
    _, printed = started(home, program(home, "gemini", COPY))
    assert printed["base"].startswith("http://127.0.0.1:")
    assert json.loads(printed["settings"]) == {
        "ui": {"theme": "x"},
        "security": {"auth": {"selectedType": "gemini-api-key"}},
    }
    assert set(printed["entries"]) >= {"GEMINI.md", "tmp", "history", "settings.json"}
    assert json.loads((own / "settings.json").read_text()) == settings  # the person's own stay
    assert (own / "tmp" / "session.json").read_text() == "kept"
    assert not Path(printed["home"]).exists()


def test_gemini_with_a_key_in_its_settings_gets_its_own_home(home: Path) -> None:
    (home / ".gemini").mkdir()
    chosen = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    (home / ".gemini" / "settings.json").write_text(json.dumps(chosen))
    _, printed = started(home, program(home, "gemini", COPY))
    assert printed["home"] is None


@pytest.mark.parametrize(
    "command",
    [["codex", "exec"], ["npx", "codex", "exec"], ["npx", "-y", "@openai/codex@latest", "exec"]],
)
def test_a_client_is_recognised_behind_a_runner(home: Path, command: list[str]) -> None:
    paths = [program(home, command[0]), *command[1:]]
    options, _ = started(home, *paths)
    place = options.index("-c")
    assert options[:place] == command[1:-1] if len(command) > 2 else not place
    assert options[place + 1].startswith('openai_base_url="http://127.0.0.1:')
    assert options[-1] == "exec"


def test_an_argument_of_another_program_is_not_a_client(home: Path) -> None:
    options, variables = started(home, program(home, "mine"), "codex")
    assert options == ["codex"]
    assert "OPENCODE_CONFIG_CONTENT" not in variables


ASK = """
import sys, anthropic
for model in sys.argv[1:]:
    answer = anthropic.Anthropic().messages.create(
        model=model, max_tokens=50, messages=[{"role": "user", "content": "hello"}]
    )
    print(answer.content[0].text)
"""


def answer(text: str) -> Scripted:
    message = {"role": "assistant", "content": text}
    body = {
        "id": "c1", "object": "chat.completion", "created": 1, "model": "house",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }  # fmt: skip
    return Scripted(orjson.dumps(body), kind="application/json")


@pytest.mark.parametrize(
    ("flags", "requested", "sent"),
    [
        (["--model", "house"], ["claude-opus-4-6", "claude-haiku"], ["house", "house"]),
        (["--alias", "claude-*=house"], ["claude-x", "other"], ["house", "other"]),
        (["--model", "house", "--alias", "small=tiny"], ["small", "big"], ["tiny", "house"]),
        (["--model", "weft-offline"], ["claude-opus-4-6"], []),  # answers without an upstream
    ],
)
def test_run_redirects_model_names(
    home: Path, flags: list[str], requested: list[str], sent: list[str]
) -> None:
    with scripted_upstream() as upstream:
        upstream.then(answer("from the house"))
        words = ["--store", "s.db", f"--upstream=up=openai-chat:{upstream.url}", *flags, "--"]
        done = run(home, *words, sys.executable, "-c", ASK, *requested)
        assert done.returncode == 0, done.stderr
        assert [json.loads(request["body"])["model"] for request in upstream.requests] == sent
    assert len(done.stdout.splitlines()) >= len(requested)


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--alias", "nonsense"], 1, "alias 'nonsense' is not of the form PATTERN=MODEL"),
        (["--alias", "=x"], 1, "neither may be empty"),
        (["--config", "missing.toml"], 1, "'missing.toml' cannot be read"),
        (["--url", "http://127.0.0.1:1", "--model", "m"], 2, "leave out the options"),
    ],
)
def test_wrong_options_print_one_clear_line(
    home: Path, flags: list[str], code: int, words: str
) -> None:
    done = run(home, *flags, "--", sys.executable, "-c", "pass")
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_aliases_are_read_from_the_config_file(home: Path) -> None:
    with scripted_upstream() as upstream:
        upstream.then(answer("one"))
        (home / "weft.toml").write_text(
            f'[[upstream]]\nname = "up"\nprotocol = "openai-chat"\nurl = "{upstream.url}"\n'
            '[aliases]\n"claude-*" = "house"\n'
        )
        words = ["--store", "s.db", "--config", "weft.toml", "--", sys.executable, "-c", ASK]
        done = run(home, *words, "claude-x")
        assert done.stdout == "one\n", done.stderr
        assert json.loads(upstream.requests[0]["body"])["model"] == "house"


UP = make_provider("up", "openai-chat", "http://127.0.0.1:1")
OTHER = make_provider("other", "anthropic", "http://127.0.0.1:2")


@pytest.mark.parametrize(
    ("table", "requested", "target"),
    [
        ({"claude-*": "up/gpt"}, "claude-x", ("up", "gpt")),  # a target may name its upstream
        ({"*": "up/any", "claude-*": "up/long"}, "claude-x", ("up", "long")),
        ({"*": "up/any", "fast": "other/quick"}, "fast", ("other", "quick")),
        ({"a[b]": "up/odd"}, "a[b]", ("up", "odd")),  # a name with a pattern's signs is a name too
        ({"a": "up/b", "up/b": "other/c"}, "a", ("up", "b")),  # looked up once
    ],
)
def test_an_alias_names_the_upstreams_model(
    table: dict[str, str], requested: str, target: tuple[str, str]
) -> None:
    aliases = read_aliases([], table)
    route = find_route(requested, "anthropic", (UP, OTHER), load_catalog(), aliases=aliases)
    assert (route.provider.name, route.model) == target


def test_an_alias_on_the_command_line_overrides_the_file() -> None:
    aliases = read_aliases(["fast=two"], {"fast": "one", "slow": "three"})
    assert aliases == (Alias("fast", "two"), Alias("slow", "three"))
    with pytest.raises(ConfigError, match="control characters"):
        read_aliases([], {"a\n": "b"})


def read_models(url: str) -> list[Any]:
    with urlopen(f"{url}/v1/models", timeout=60) as reply:
        return [row["id"] for row in json.loads(reply.read())["data"]]


def test_alias_names_are_listed_as_models(tmp_path: Path) -> None:
    with scripted_upstream() as upstream:
        flags = [f"--upstream=up=anthropic:{upstream.url}", "--alias=fast=m", "--alias=x-*=m"]
        with weft_serve(tmp_path, *flags) as gateway:
            names = read_models(gateway.url)
    assert "fast" in names
    assert not any("*" in name for name in names)
