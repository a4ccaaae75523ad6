"""The sample thread, which is added to an empty store.

It is built from `sample.toml` with the public methods of `Thread`. Only its name and the metadata
of its first commit mark it as the sample. A store with any thread is not changed, so a deleted
sample does not come back.
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
METADATA = {"sample": True}


class SampleStep(Struct, frozen=True, forbid_unknown_fields=True):
    """One step: a message, or an operation on the thread.

    - `label`: a name for the message, which later steps refer to. `pin`: whether to pin it.
    - `system`, `user`: the text of such a message.
    - `think`, `say`, `call`, `tool`, `input`: an assistant message; `call` is the id of its call.
    - `result`, `text`, `error`: a tool result; `result` is the id of its call.
    - `compact`, `after`, `summary`: compact the turns up to one label, from after another one.
    - `branch`, `switch`: create a branch, or change to one.
    """

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


class SampleScript(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `sample.toml`."""

    name: str
    step: tuple[SampleStep, ...]


def ensure_sample(store: Store) -> None:
    """Add the sample to a store without any thread, not even a deleted one."""
    if store.threads() or store.threads(deleted=True):
        return
    thread = open_thread(store, SAMPLE, checkpoints=True)
    with thread.batch():
        apply_steps(thread, read_script().step)


def read_script() -> SampleScript:
    text = files("weft.demo").joinpath("sample.toml").read_text("utf-8")
    return convert(tomllib.loads(text), SampleScript)


def apply_steps(thread: Thread, steps: Iterable[SampleStep]) -> None:
    """Apply the steps; labels name commits for later steps."""
    labels: dict[str, CommitInfo] = {}
    for step in steps:
        info = _append(thread, step)
        if info is not None and step.label is not None:
            labels[step.label] = info
        if info is not None and step.pin:
            thread.pin(info)
        if step.compact is not None:
            _compact(thread, step, labels)
        if step.branch is not None:
            thread.branch(step.branch)
        if step.switch is not None:
            thread.switch(step.switch)


def _append(thread: Thread, step: SampleStep) -> CommitInfo | None:
    if step.system is not None:
        return thread.system(step.system, metadata=METADATA)
    if step.user is not None:
        return thread.user(step.user)
    if step.result is not None:
        return thread.tool_result(step.result, step.text, is_error=step.error)
    if step.say is not None or step.call is not None:
        return thread.commit_message(_assistant_message(step), message=_commit_note(step))
    return None


def _assistant_message(step: SampleStep) -> Message:
    blocks: list[Block] = []
    if step.think is not None:
        blocks.append(Thinking(step.think))
    if step.say is not None:
        blocks.append(Text(step.say))
    if step.call is not None and step.tool is not None:
        blocks.append(ToolCall(step.call, step.tool, step.input))
    return Message("assistant", tuple(blocks))


def _commit_note(step: SampleStep) -> str:
    text = " ".join((step.say or f"calls {step.tool}").split())
    return f"dialogue: {text}"[:72]


def _compact(thread: Thread, step: SampleStep, labels: dict[str, CommitInfo]) -> None:
    """Compact the range between the checkpoints of two labelled turns."""
    first = None if step.after is None else _checkpoint(labels[step.after])
    last = _checkpoint(labels[step.compact or ""])
    thread.compact([Replacement(summary=step.summary, from_=first, to=last)])


def _checkpoint(info: CommitInfo) -> str | None:
    blocks = (block for message in info.messages for block in message.blocks)
    return next((block.id for block in blocks if isinstance(block, Checkpoint)), None)
