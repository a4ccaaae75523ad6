"""The real Claude Code and Codex, each with its own home folder, for the tests that run them.

`WEFT_CLAUDE` and `WEFT_CODEX` name the native binaries. Nothing leaves this machine, because the
clients use an upstream of the test.
"""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

QUIET = (
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "DISABLE_TELEMETRY",
    "DISABLE_ERROR_REPORTING",
    "DISABLE_AUTOUPDATER",
    "IS_SANDBOX",
)
"""Variables that keep Claude Code from talking to anyone but the model."""

CLAUDE_OPTIONS = ("-p", "--dangerously-skip-permissions")
CODEX_OPTIONS = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
CODEX_CONFIG = """
model = "gpt-5.5"
model_provider = "upstream"
check_for_update_on_startup = false
approval_policy = "never"
{settings}
[analytics]
enabled = false
[features]
plugins = false
apps = false
[model_providers.upstream]
name = "{name}"
base_url = "{url}/v1"
env_key = "UPSTREAM_KEY"
wire_api = "responses"
supports_websockets = false
request_max_retries = 1
stream_max_retries = 1
"""


def require_binary(variable: str) -> str:
    """The client's binary; skips the test if the variable does not name one."""
    binary = os.environ.get(variable)
    if not binary:
        pytest.skip(f"{variable} does not name the binary of a client")
    return binary


def claude_environment(home: Path, url: str) -> dict[str, str]:
    """Claude Code in this home, with its model at this address."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(home / "config"),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "test-key",
        "NO_PROXY": "*",
        "TERM": "dumb",
        **dict.fromkeys(QUIET, "1"),
    }


def claude_folder(home: Path, project: Path) -> Path:
    """Where Claude Code keeps the sessions of a project."""
    return home / "config" / "projects" / re.sub(r"[^A-Za-z0-9]", "-", str(project))


def codex_environment(home: Path) -> dict[str, str]:
    """Codex in this home; `configure_codex` says where its model is."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "CODEX_HOME": str(home),
        "UPSTREAM_KEY": "test-key",
        "NO_PROXY": "*",
        "TERM": "dumb",
    }


def configure_codex(home: Path, url: str, *settings: str, name: str = "upstream") -> None:
    """Write the configuration: the provider's address and name, and further top-level settings."""
    text = CODEX_CONFIG.format(url=url, name=name, settings="\n".join(settings))
    (home / "config.toml").write_text(text)


def run_client(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], *, seconds: float = 120
) -> str:
    """Run a command to its end in this folder; its standard output."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def start_client(
    command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> "subprocess.Popen[str]":
    """Start a command in this folder; its standard error is part of its output."""
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
