"""Recorded traffic, if it is available next to the project."""

import gzip
import json
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1].parent / "shared" / "corpus"
FILES = {
    "anthropic": "anthropic-messages",
    "openai-chat": "openai-chat",
    "openai-responses": "openai-responses",
    "gemini": "gemini",
}


PATHS = {
    "/messages": "anthropic",
    "/chat/completions": "openai-chat",
    "/responses": "openai-responses",
    "enerateContent": "gemini",
}


@cache
def sent_by_clients(protocol: str) -> list[tuple[str, dict]]:
    """Bodies that real clients sent, by file; skips the test where they are not at hand."""
    folder = ROOT / "clients"
    if not folder.exists():
        pytest.skip("the clients' bodies are not beside the project")
    bodies = []
    for path in sorted(folder.glob("*.json")):
        sent = json.loads(path.read_text())
        wire = next((PATHS[end] for end in PATHS if sent["path"].endswith(end)), None)
        if wire == protocol and isinstance(sent.get("body"), dict) and sent["body"]:
            bodies.append((path.name, sent["body"]))
    return bodies


@cache
def recorded(protocol: str) -> list[dict]:
    """Recorded exchanges of a protocol; skips the test where they are not at hand."""
    path = ROOT / "recorded" / f"{FILES[protocol]}.jsonl.gz"
    if not path.exists():
        pytest.skip("the recorded traffic is not beside the project")
    with gzip.open(path, "rt") as lines:
        exchanges = [json.loads(line) for line in lines]
    assert exchanges  # a test over no exchange could not fail
    return exchanges


NO_ANSWER = {"18f45f492cbf79ff"}
"""Recorded with status 200, but an echo service's page and not an answer."""
STORED_CONTEXT = {"previous_response_id", "conversation", "cachedContent"}
"""Members that stand for context which only their own vendor has."""


def is_untranslatable(param: str | None, message: str) -> bool:
    """Whether a refusal has one of the reasons for which a recorded request may be refused."""
    return (
        param in STORED_CONTEXT
        or "'tool_addition' content part" in message
        or (bool(param) and "nothing of this conversation" in message)
    )


@cache
def server_answers() -> list[dict]:
    """Recorded answers in the spellings of several servers; skips the test where they are not at
    hand."""
    path = ROOT / "answers.jsonl"
    if not path.exists():
        pytest.skip("the recorded answers are not beside the project")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows
    return rows
