"""The title of a thread in a list: what a person wrote, found without reading the whole thread."""

from collections.abc import Callable
from typing import Any

import pytest

import weft
from weft.store import MemoryStore, SqliteStore, Store
from weft.thread import read_title

CALL = {
    "role": "assistant",
    "content": [{"type": "tool_use", "id": "t1", "name": "grep", "input": {}}],
}

Said = Callable[[weft.Thread], Any]

TITLES: list[tuple[str, list[Said], str | None]] = [
    ("nothing", [], None),
    ("words", [lambda t: t.user("plan  the\ntrip")], "plan the trip"),
    ("a system prompt", [lambda t: t.system("be brief"), lambda t: t.user("hi")], "hi"),
    ("only that", [lambda t: t.system("be brief")], "be brief"),
    ("reminder", [lambda t: t.user("what now?", reminder="be quick")], "what now?"),
    (
        "a client's reminder",
        [
            lambda t: t.user("<system-reminder>\nmind the style\n</system-reminder>"),
            lambda t: t.user("<system-reminder>x</system-reminder>\nfix the build"),
        ],
        "fix the build",
    ),
    (
        "what Codex says of the folder",
        [
            lambda t: t.user(
                "# AGENTS.md instructions for /my src\n\n"
                "<INSTRUCTIONS>\nBe brief.\n</INSTRUCTIONS>\n"
                "<environment_context>\n  <cwd>/src</cwd>\n</environment_context>"
            ),
            lambda t: t.user('<image name=[Image #1] path="/a.png">\n</image>\nwhat is this?'),
        ],
        "what is this?",
    ),
    (
        "what Gemini CLI says of the folder",
        [
            lambda t: t.user("<session_context>\nThis is the Gemini CLI.\n</session_context>"),
            lambda t: t.user("what is this?"),
        ],
        "what is this?",
    ),
    (
        "a command of Claude Code",
        [
            lambda t: t.user(
                "<local-command-caveat>not for you</local-command-caveat>\n"
                "<command-name>/compact</command-name> <command-args></command-args>\n"
                "<local-command-stdout>Compacted</local-command-stdout>\ngo on"
            )
        ],
        "go on",
    ),
    (
        "a compaction",
        [
            lambda t: t.user("plan the trip"),
            lambda t: t.assistant("to where?"),
            lambda t: t.user("Rome"),
            lambda t: t.compact(keep=1, summary="a trip is planned"),
        ],
        "plan the trip",
    ),
    ("a pasted marker", [lambda t: t.user("see <checkpoint:abc123> there")], "see there"),
    ("an assistant first", [lambda t: t.assistant("hello"), lambda t: t.user("hi")], "hi"),
    ("nobody asked", [lambda t: t.assistant("hello")], "hello"),
    ("an edit", [lambda t: t.edit(t.user("plan teh trip"), "plan the trip")], "plan the trip"),
]


@pytest.mark.parametrize("checkpoints", [False, True])
@pytest.mark.parametrize(
    ("messages", "title"), [row[1:] for row in TITLES], ids=[r[0] for r in TITLES]
)
def test_a_title_is_what_a_person_wrote(
    messages: list[Said], title: str | None, checkpoints: bool
) -> None:
    store = MemoryStore()
    thread = weft.open(store, checkpoints=checkpoints)
    for say in messages:
        say(thread)
    record = store.read_thread("default")
    assert record is not None
    assert read_title(store, record) == title


class Watched:
    """A store that counts the commits it hands out."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.read = 0

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)

        def watched(*args: Any, **options: Any) -> Any:
            result = verb(*args, **options)
            self.read += len(result) if isinstance(result, list) else 0
            return result

        return watched


@pytest.mark.parametrize("make", [MemoryStore, lambda: SqliteStore(":memory:")])
def test_only_the_start_of_a_long_thread_is_read(make: Callable[[], Store]) -> None:
    store = make()
    thread = weft.open(store)
    with thread.batch():
        for number in range(500):
            thread.user(f"line {number}")
    thread.branch("side", at=thread.log()[300].id)
    thread.switch("side")
    thread.user("and on")
    record = store.read_thread("default")
    assert record is not None
    watched: Any = Watched(store)
    assert read_title(watched, record) == "line 0"
    assert watched.read < 50
