"""The recorded traffic beside the project, where there is some."""

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


@cache
def recorded(protocol: str) -> list[dict]:
    """Recorded exchanges of a protocol; skips the test where they are not at hand."""
    path = ROOT / "recorded" / f"{FILES[protocol]}.jsonl.gz"
    if not path.exists():
        pytest.skip("the recorded traffic is not beside the project")
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]
