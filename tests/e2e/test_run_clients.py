"""The real clients under `weft run`: each calls its own tool with another vendor's model.

A client is tested if its variable names the binary and the mock upstream is available. Nothing
leaves this machine.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from real_clients import CLAUDE_OPTIONS, CODEX_OPTIONS, QUIET, require_binary
from servers import LAUNCH, SECRETS

COMMANDS = {
    "WEFT_CLAUDE": CLAUDE_OPTIONS,
    "WEFT_CODEX": ("exec", *CODEX_OPTIONS),
    "WEFT_GEMINI": ("--approval-mode", "yolo", "-p"),
    "WEFT_OPENCODE": ("run",),
}
QUIET_ALL = (
    *QUIET,
    "OPENCODE_DISABLE_AUTOUPDATE",
    "OPENCODE_DISABLE_MODELS_FETCH",
    "OPENCODE_DISABLE_LSP_DOWNLOAD",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS",
)


@pytest.mark.parametrize("protocol", ["anthropic", "openai-chat", "openai-responses", "gemini"])
@pytest.mark.parametrize("variable", COMMANDS)
def test_a_client_calls_its_tool_with_another_model(
    variable: str, protocol: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    binary = require_binary(variable)
    mock: Any = request.getfixturevalue("mock")  # asked for last: most machines have no binary
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    home.mkdir()
    clean = {name: value for name, value in os.environ.items() if name not in SECRETS}
    quiet = {**dict.fromkeys(QUIET_ALL, "1"), "GEMINI_CLI_TRUST_WORKSPACE": "true", "TERM": "dumb"}
    flags = ["--store", str(tmp_path / "s.db"), "--upstream", f"up={protocol}:{mock.url}"]
    done = subprocess.run(
        [sys.executable, "-c", LAUNCH, "run", *flags, "--model", "mock-model", "--",
         binary, *COMMANDS[variable], "Please use the tool to print a greeting."],
        cwd=project,
        env={**clean, **quiet, "HOME": str(home), "NO_PROXY": "*"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "hello-from-tool-42" in done.stdout
    assert "no request" not in done.stderr
    assert mock.models() == {"mock-model"}
