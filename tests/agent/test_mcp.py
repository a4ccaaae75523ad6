"""Tools of real MCP servers, over stdio and HTTP."""

import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import weft
from servers import scripted_upstream
from summarisers import bodies, says, tool_calls, watch
from weft.client import make_provider

SERVER = str(Path(__file__).with_name("mcp_server.py"))
COMMAND = [sys.executable, SERVER]
SECONDS = 60.0
DEADLINE = 120.0


@pytest.fixture(scope="module")
def stdio():
    with weft.McpServer(COMMAND, timeout=DEADLINE, env={"COLOUR": "blue"}) as server:
        yield server


@pytest.fixture(scope="module")
def url():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([*COMMAND, str(port)], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                assert time.monotonic() < deadline, "the server did not start"
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def run(server: weft.McpServer, name: str, arguments: dict[str, Any], **options: Any) -> Any:
    """The result of one call that a model makes, and the first request of the run."""
    with scripted_upstream() as upstream:
        upstream.then(tool_calls([("c1", name, arguments)]), says("done"))
        provider = make_provider("u", "openai-chat", upstream.url)
        agent = weft.Agent(weft.open(), "m", [server], provider=provider, **options)
        (end,) = (e for e in watch(agent, "go") if isinstance(e, weft.ToolEnd))
        return (end.content, end.is_error), bodies(upstream)[0]


def test_a_model_calls_a_tool_of_a_stdio_server(stdio):
    result, body = run(stdio, "add", {"a": 2, "b": 3}, permission="allow")
    assert result == ("5", False)
    offered = {tool["function"]["name"]: tool["function"] for tool in body["tools"]}
    assert offered["add"]["description"] == "Add two numbers."
    assert offered["add"]["parameters"]["required"] == ["a", "b"]


def test_a_model_calls_a_tool_of_an_http_server(url):
    with weft.McpServer(url, timeout=DEADLINE) as server:
        assert server.name == "demo"
        assert run(server, "add", {"a": 2, "b": 3}, permission="allow")[0] == ("5", False)


def test_no_tool_of_a_server_runs_without_permission(stdio):
    assert run(stdio, "add", {"a": 2, "b": 3})[0] == ("the user did not allow this call", True)


def test_the_question_names_the_server(stdio):
    requests: list[weft.ToolRequest] = []
    run(stdio, "add", {"a": 2, "b": 3}, permission=lambda r: requests.append(r) or "deny")
    assert [(r.server, r.name, r.input) for r in requests] == [("demo", "add", {"a": 2, "b": 3})]


def test_an_error_of_a_tool_reaches_the_model(stdio):
    text, is_error = run(stdio, "fail", {}, permission="allow")[0]
    assert "out of paper" in text
    assert is_error


def test_a_server_gets_only_the_configured_environment(stdio, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    with weft.McpServer(COMMAND, timeout=DEADLINE) as server:
        arguments = {"name": "ANTHROPIC_API_KEY"}
        assert run(server, "environment", arguments, permission="allow")[0] == ("not set", False)
    assert run(stdio, "environment", {"name": "COLOUR"}, permission="allow")[0] == ("blue", False)


def test_a_call_that_never_ends_times_out(stdio):
    result = run(stdio, "wait", {}, permission="allow", tool_timeout=0.2)[0]
    assert result == ("the tool did not end within 0.2 seconds", True)
    assert run(stdio, "add", {"a": 1, "b": 1}, permission="allow")[0] == ("2", False)


def test_a_prefix_distinguishes_servers(url):
    with weft.McpServer(url, timeout=DEADLINE, name="math", prefix=True) as server:
        assert "math_add" in {tool.name for tool in server.tools}
        assert run(server, "math_add", {"a": 2, "b": 3}, permission="allow")[0] == ("5", False)


def test_two_servers_with_the_same_tool_name_are_refused(stdio):
    with pytest.raises(weft.ConfigError, match="two tools are named 'add'"):
        weft.Agent(weft.open(), "weft-offline", [stdio, stdio])


def test_a_closed_server_fails_its_calls():
    server = weft.McpServer(COMMAND, timeout=DEADLINE)
    server.close()
    server.close()
    text, is_error = run(server, "add", {"a": 2, "b": 3}, permission="allow")[0]
    assert "is not running" in text
    assert is_error


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        ("no-such-program-here", "no-such-program-here"),
        ([sys.executable, "-c", "import sys; sys.exit('no licence')"], "no licence"),
        ("http://127.0.0.1:9/mcp", "MCP server"),
        ("", "command or a URL"),
        ("'unclosed", "No closing quotation"),
    ],
)
def test_a_server_that_does_not_start_says_why(server, reason):
    with pytest.raises(weft.ConfigError, match=reason):
        weft.McpServer(server, timeout=DEADLINE)


def test_a_program_that_prints_nothing_times_out():
    silent = [sys.executable, "-c", "import time; time.sleep(600)"]
    with pytest.raises(weft.ConfigError, match="did not answer within"):
        weft.McpServer(silent, timeout=1.0)
