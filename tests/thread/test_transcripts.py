"""Real sessions of Claude Code: imported, compiled for every vendor, exported byte for byte."""

import gzip
from functools import cache
from typing import Any

import pytest

import weft
from corpus import ROOT
from sdk_types import REQUESTS, faults
from weft.store import MemoryStore, SqliteStore, Store
from weft.thread import archive_bytes, export_bytes, import_bytes

NAMES = ("258c7280", "8463c716", "short", "subagent", "tool_heavy")
COMPACTED = {"258c7280": (115, 343), "8463c716": (163, 322)}  # messages, folded and not
MODELS = {
    "anthropic": "claude-opus-4-6",
    "openai-chat": "gpt-5.5",
    "openai-responses": "gpt-5.5",
    "gemini": "gemini-2.5-pro",
}


@cache
def transcript(name: str) -> bytes:
    """The bytes of a recorded session; skips the test where it is not at hand."""
    path = ROOT / "transcripts" / f"claude-code-{name}.jsonl.gz"
    if not path.exists():
        pytest.skip("the recorded transcripts are not beside the project")
    return gzip.decompress(path.read_bytes())


def taken_in(name: str, store: Store | None = None) -> tuple[Store, str]:
    store = store or MemoryStore()
    (imported,) = import_bytes(store, transcript(name))
    assert imported.remarks == ()
    assert list(imported.branches) == ["main"]
    return store, imported.thread


def folds(thread: weft.Thread) -> list[Any]:
    return [info for info in thread.log() if info.kind == "compact"]


@pytest.mark.parametrize("name", NAMES)
def test_a_session_is_exported_byte_for_byte(name: str) -> None:
    store, thread = taken_in(name)
    assert export_bytes(store, thread, "claude-code")[0] == transcript(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_session_has_the_same_ids_on_every_store(name: str, tmp_path: Any) -> None:
    store, thread = taken_in(name)
    other = SqliteStore(tmp_path / "other.db")
    taken_in(name, other)
    assert other.refs(thread) == store.refs(thread)
    (again,) = import_bytes(other, transcript(name))
    assert again.new == 0
    assert weft.open(other, thread).compile() == weft.open(store, thread).compile()
    other.close()


@pytest.mark.parametrize("protocol", MODELS)
@pytest.mark.parametrize("name", NAMES)
def test_every_vendors_sdk_accepts_a_session(name: str, protocol: str) -> None:
    store, thread = taken_in(name)
    opened = weft.open(store, thread)
    for fold in folds(opened):
        opened.revert(fold)
    body = getattr(opened.compile(), METHODS[protocol])(model=MODELS[protocol])
    wire = dict(body)
    if protocol == "gemini":
        wire.pop("model", None)
    assert faults(REQUESTS, protocol, wire) == []


METHODS = {
    "anthropic": "to_anthropic_params",
    "openai-chat": "to_openai_params",
    "openai-responses": "to_responses_params",
    "gemini": "to_gemini_params",
}


@pytest.mark.parametrize("name", COMPACTED)
def test_a_reverted_compaction_restores_every_turn(name: str) -> None:
    store, thread = taken_in(name)
    opened = weft.open(store, thread)
    folded = len(opened.compile())
    (fold,) = folds(opened)
    opened.revert(fold)
    assert (folded, len(opened.compile())) == COMPACTED[name]
    out = export_bytes(store, thread, "claude-code")[0]
    before, after = transcript(name).splitlines(), out.splitlines()
    assert len(after) == len(before) - 2  # boundary and summary
    assert len(set(after) - set(before)) == 1  # the line that followed them
    again = MemoryStore()
    (imported,) = import_bytes(again, out)
    assert imported.remarks == ()
    assert weft.open(again, thread).compile().messages == opened.compile().messages


def test_an_archive_of_all_sessions_restores_them(tmp_path: Any) -> None:
    store = MemoryStore()
    names = [taken_in(name, store)[1] for name in NAMES]
    data = archive_bytes(store, names)
    other = SqliteStore(tmp_path / "other.db")
    import_bytes(other, data)
    assert archive_bytes(other, names) == data
    for name, thread in zip(NAMES, names, strict=True):
        assert export_bytes(other, thread, "claude-code")[0] == transcript(name)
    other.close()
