"""Open calls: the tool calls of a run that was killed, cancelled or stopped before their results.

While an agent runs the tools of an answer, it records the start and the result of every call beside
that answer. When all have ended, their results become the next message. If the run ends before
that, these records say what happened: a call that has ended keeps its result, and a call that has
started without a result may have had an effect.
"""

from collections import Counter
from typing import Literal

from msgspec import Struct

from weft.history import decode_call
from weft.model import ToolCall, ToolResult, is_system
from weft.thread import Thread

INTERRUPTED = (
    "interrupted: the run ended while this call was in progress; it is not known whether the call "
    "had an effect"
)
NOT_RUN = "not run: the run ended before this call started"


class OpenCall(Struct, frozen=True):
    """A call without a result in the thread.

    `state` is `waiting` (it never started), `started` (it may have had an effect) or `ended` (its
    result is stored and will be used). `repeatable` says whether its tool may run again.
    """

    id: str
    name: str
    arguments: str
    state: Literal["waiting", "started", "ended"]
    repeatable: bool = False


class OpenTurn(Struct, frozen=True):
    """The last answer of a thread, if some of its calls have no result.

    `calls` are those calls by their position in the answer. `results` and `started` are about the
    positions that are recorded.
    """

    answer: str
    calls: dict[int, ToolCall]
    results: dict[int, ToolResult]
    started: frozenset[int]


def find_open_turn(thread: Thread) -> OpenTurn | None:
    """The last answer, if it has calls without results and nothing but results follows it."""
    compiled = thread.compile()
    answered: Counter[str] = Counter()
    position = len(compiled.messages)
    while position > 0:
        position -= 1
        message = compiled.messages[position]
        if is_system(message):
            continue
        if message.role == "assistant":
            break
        results = [block for block in message.blocks if isinstance(block, ToolResult)]
        if not results:
            return None
        answered.update(result.call_id for result in results)
    else:
        return None
    answer = compiled.ids[position]
    calls = [block for block in message.blocks if isinstance(block, ToolCall)]
    open_calls: dict[int, ToolCall] = {}
    for number, call in enumerate(calls):
        if answered[call.id]:
            answered[call.id] -= 1
        else:
            open_calls[number] = call
    if not open_calls:
        return None
    records = thread.store.call_records(thread.name, [bytes.fromhex(answer)])
    bodies = [decode_call(record) for record in records]
    return OpenTurn(
        answer,
        open_calls,
        {body.number: body.result for body in bodies if body.result is not None},
        frozenset(body.number for body in bodies),
    )
