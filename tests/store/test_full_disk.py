"""A full disk, or a file that cannot grow: only stored data is reported as stored."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import weft
from weft.store import write_private

LONG = " ".join(f"word{number:x}" for number in range(6_000))
PROGRAM = "import sys; from weft.cli import main; sys.exit(main(sys.argv[1:]))"


@contextmanager
def no_growth(path: Path) -> Iterator[None]:
    """Files cannot become longer than this one is; SQLite then fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_close_succeeds_if_the_text_index_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    thread = weft.open(path)
    thread.user(LONG)
    with no_growth(path.with_name("store.db-wal")):
        thread.close()
    with weft.open(path) as thread:
        assert thread.show("HEAD").text == LONG
        assert len(thread.search("word1fe")) == 1


def run_limited(
    kilobytes: int, words: list[str], text: str = "", **environ: str
) -> "subprocess.CompletedProcess[bytes]":
    """Run a command whose files cannot grow beyond this size."""

    def refuse_growth() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes * 1024, kilobytes * 1024))

    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        input=text.encode(),
        capture_output=True,
        preexec_fn=refuse_growth,
        env={**os.environ, **environ},
        check=False,
    )


@pytest.mark.parametrize("command", ["commit", "import"])
def test_a_command_fails_only_if_nothing_was_stored(tmp_path: Path, command: str) -> None:
    message = json.dumps([{"role": "user", "content": LONG}]) if command == "import" else LONG
    words = ["import", "-", "--thread", "default"] if command == "import" else ["commit"]
    outcomes: set[bool] = set()
    for kilobytes in (48, 80, 110, 140, 180, 240, 600):
        path = tmp_path / f"{kilobytes}.db"
        with weft.open(path) as thread:
            thread.user("first")

        done = run_limited(kilobytes, [*words, "--store", str(path)], message)
        with weft.open(path) as thread:
            is_stored = bool(thread.search("word1fe"))
        assert done.returncode == (0 if is_stored else 1), (kilobytes, done.stderr)
        assert bool(done.stdout) == is_stored
        outcomes.add(is_stored)
    assert outcomes == {False, True}


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    with weft.open(store) as thread:
        for _ in range(20):
            thread.user(LONG)
            thread.assistant(LONG)
    folder = tmp_path / "out"
    folder.mkdir()
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": LONG}]})
    translate = ["translate", "-", "--from", "openai-chat", "--to", "anthropic", "--model", "m"]
    exports = [["--html"], ["--markdown"], ["--format", "archive"], ["--format", "claude-code"]]
    commands = {
        "a": [*translate, "--save-sidecar"],
        **{
            f"b{number}": ["export", "--store", str(store), *words, "-o"]
            for number, words in enumerate(exports)
        },
    }
    for name, words in commands.items():
        path = folder / name
        path.write_text("the old file")
        limit = 0 if "translate" in words else 100  # reading a store writes a file of 32 kB
        done = run_limited(limit, [*words, str(path)], body)
        assert done.returncode == 1, words
        assert done.stderr.startswith(f"weft: '{path}': ".encode())
        assert path.read_text() == "the old file"
        path.unlink()
        assert run_limited(limit, [*words, str(path)], body).returncode == 1
        assert not any(folder.iterdir())


def test_a_session_file_is_written_completely_or_not_at_all(tmp_path: Path) -> None:
    with weft.open(tmp_path / "store.db", "long") as thread:
        for _ in range(5):
            thread.user(LONG)
            thread.assistant(LONG)
    words = ["resume", "long", "--client", "claude", "--print", "--folder", str(tmp_path)]
    done = run_limited(
        100, [*words, "--store", str(tmp_path / "store.db")], CLAUDE_CONFIG_DIR=str(tmp_path / "c")
    )
    assert done.returncode == 1
    assert [path for path in (tmp_path / "c").rglob("*") if path.is_file()] == []


def test_writing_a_file_keeps_its_mode_and_its_link(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    write_private(path, b"new")
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    link.symlink_to(path)
    write_private(link, b"newer")
    assert link.is_symlink()
    assert path.read_bytes() == b"newer"
    assert path.stat().st_mode & 0o777 == 0o644
    write_private(Path(os.devnull), b"x")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "link"]


def test_forget_says_what_a_full_disk_left(tmp_path: Path) -> None:
    messages: set[str] = set()
    for kilobytes in (60, 90, 120, 150, 180, 220, 300, 1000):
        path = tmp_path / f"{kilobytes}.db"
        with weft.open(path) as thread:
            thread.user("the secret 4711 " + LONG)
        done = run_limited(kilobytes, ["forget", "secret 4711", "--store", str(path)])
        with weft.open(path) as thread:
            is_found = bool(thread.search("4711"))
        message = done.stderr.decode()
        is_rewritten = done.returncode == 0
        assert ("is erased from every thread" in message) == (not is_found and not is_rewritten)
        assert not (is_found and is_rewritten)
        messages.add(message.partition(":")[2][:10])
        again = run_limited(10_000, ["forget", "secret 4711", "--store", str(path)])
        assert again.returncode == 0
        assert b"secret 4711" not in path.read_bytes()
    assert len(messages) == 3  # nothing was erased; the file was not rewritten; all is done
