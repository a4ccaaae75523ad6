"""`weft translate --jsonl`: one body or job per line; flags are defaults for every line."""

import json
from pathlib import Path
from typing import Any

import pytest

from weft.cli import main

BODY = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
FLAGS = ["--from", "anthropic", "--to", "openai-chat"]


@pytest.mark.parametrize(
    ("line", "flags", "model"),
    [
        (BODY, FLAGS, "m"),  # a body and nothing around it
        ({"body": BODY}, FLAGS, "m"),
        ({"id": "a", "body": BODY}, [*FLAGS, "--model", "gpt-5"], "gpt-5"),
        ({"body": BODY, "options": {"model": "own"}}, [*FLAGS, "--model", "gpt-5"], "own"),
        ({"source": "anthropic", "target": "openai-chat", "body": BODY}, [], "m"),
        ({"source": "anthropic", "body": BODY}, ["--from", "x", "--to", "openai-chat"], "m"),
    ],
    ids=str,
)
def test_a_line_overrides_the_flags(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], line: Any, flags: list[str], model: str
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps(line) + "\n")
    assert main(["translate", "--jsonl", *flags, str(path)]) == 0
    result = json.loads(capfd.readouterr().out)
    assert result["body"]["model"] == model
    assert result["id"] == (line.get("id") if "body" in line else 1)


@pytest.mark.parametrize(
    ("line", "flags", "param", "expected"),
    [
        (json.dumps(BODY), [], "source", "--from"),
        (json.dumps(BODY), ["--from", "anthropic"], "target", "--to"),
        (json.dumps({"source": "anthropic", "target": "openai-chat"}), [], "body", '"body"'),
        ("[1]", FLAGS, "line", '"body"'),
        ("{", FLAGS, "line", "not JSON"),
        (json.dumps(BODY), [*FLAGS, "--kind", "stream"], "sse", '"sse"'),
    ],
    ids=str,
)
def test_an_error_names_the_line_and_the_format(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    line: str,
    flags: list[str],
    param: str,
    expected: str,
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(f"{json.dumps({'body': BODY})}\n\n{line}\n")
    main(["translate", "--jsonl", *flags, str(path)])
    error = json.loads(capfd.readouterr().out.splitlines()[1])["error"]
    assert (error["line"], error["param"]) == (3, param)
    assert expected in error["message"]


def test_help_shows_an_example_line(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["translate", "--help"])
    out = capfd.readouterr().out
    assert '{"id": "1", "source": "anthropic", "target": "openai-chat", "body": {' in out
    for flag in ("--kind", "--system", "--cache"):
        help_text = out.split(f"  {flag} ")[1].split("\n  --")[0]
        assert len(help_text.split("}")[1].split()) > 3, flag


def test_the_help_names_the_protocols(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["translate", "--help"])
    output = " ".join(capfd.readouterr().out.split())
    assert "PROTOCOL is one of anthropic, gemini, openai-chat, openai-responses" in output
