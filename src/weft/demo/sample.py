"""The thread that an empty store opens on, so that the first minute has something to look at.

It is played from `sample.toml` through the same verbs that everybody uses: nothing about it is
special but its name and the mark in the metadata of its first commit. A store that holds any
thread is left alone, so a sample that was deleted does not come back.
"""

import tomllib
from collections.abc import Iterable
from importlib.resources import files

from msgspec import Struct, convert

from weft.compact import Replacement
from weft.model import Block, Checkpoint, Message, Text, Thinking, ToolCall
from weft.store import Store
from weft.thread import CommitInfo, Thread, open as open_thread

SAMPLE = "sample-nightly-export"
MARK = {"sample": True}


class Play(Struct, frozen=True, forbid_unknown_fields=True):
    """One step: somebody speaks, or something is done to the thread."""

    label: str | None = None
    pin: bool = False
    system: str | None = None
    user: str | None = None
    think: str | None = None
    say: str | None = None
    call: str | None = None
    tool: str | None = None
    input: str = "{}"
    result: str | None = None
    text: str = ""
    error: bool = False
    compact: str | None = None
    after: str | None = None
    summary: str = ""
    branch: str | None = None
    switch: str | None = None


class Script(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    step: tuple[Play, ...]


def ensure_sample(store: Store) -> None:
    """Play the sample into a store that holds no thread at all, not even a deleted one."""
    if store.threads() or store.threads(deleted=True):
        return
    thread = open_thread(store, SAMPLE, checkpoints=True)
    with thread.batch():
        play(thread, read_script().step)


def read_script() -> Script:
    text = files("weft.demo").joinpath("sample.toml").read_text("utf-8")
    return convert(tomllib.loads(text), Script)


def play(thread: Thread, steps: Iterable[Play]) -> None:
    """Do each step; labels name commits that later steps speak of."""
    labels: dict[str, CommitInfo] = {}
    for step in steps:
        info = _speak(thread, step)
        if info is not None and step.label is not None:
            labels[step.label] = info
        if info is not None and step.pin:
            thread.pin(info)
        if step.compact is not None:
            _fold(thread, step, labels)
        if step.branch is not None:
            thread.branch(step.branch)
        if step.switch is not None:
            thread.switch(step.switch)


def _speak(thread: Thread, step: Play) -> CommitInfo | None:
    if step.system is not None:
        return thread.system(step.system, metadata=MARK)
    if step.user is not None:
        return thread.user(step.user)
    if step.result is not None:
        return thread.tool_result(step.result, step.text, is_error=step.error)
    if step.say is not None or step.call is not None:
        return thread.commit_message(_answer(step), message=_note(step))
    return None


def _answer(step: Play) -> Message:
    blocks: list[Block] = []
    if step.think is not None:
        blocks.append(Thinking(step.think))
    if step.say is not None:
        blocks.append(Text(step.say))
    if step.call is not None and step.tool is not None:
        blocks.append(ToolCall(step.call, step.tool, step.input))
    return Message("assistant", tuple(blocks))


def _note(step: Play) -> str:
    words = " ".join((step.say or f"calls {step.tool}").split())
    return f"dialogue: {words}"[:72]


def _fold(thread: Thread, step: Play, labels: dict[str, CommitInfo]) -> None:
    """The range between two labelled turns, by the checkpoints that those turns carry."""
    first = None if step.after is None else _checkpoint(labels[step.after])
    last = _checkpoint(labels[step.compact or ""])
    thread.compact([Replacement(summary=step.summary, from_=first, to=last)])


def _checkpoint(info: CommitInfo) -> str | None:
    blocks = (block for message in info.messages for block in message.blocks)
    return next((block.id for block in blocks if isinstance(block, Checkpoint)), None)
