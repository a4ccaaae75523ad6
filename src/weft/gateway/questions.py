"""The questions of a run to the people who watch it.

There are two kinds: whether a tool may run (`permission`), and questions of the agent (`choice`). A
question waits until somebody answers it or the run ends. It has no deadline, so no decision is made
without a person. Every tab on the thread shows it, and the first answer counts. The answers
"this thread" and "always" are remembered by `weft.agent.Permissions`, one for each caller.

    {"type": "question", "id", "kind": "permission", "tool", "server", "input"}
    {"type": "question", "id", "kind": "choice", "questions"}
    {"type": "answered", "id", "answer"}      null: nobody answered, and the question is over
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast, get_args
from uuid import uuid4

from msgspec import Struct

from weft.agent import Permission, Permissions, ToolRequest, UserQuestion
from weft.errors import Refused
from weft.model import JsonObject

ANSWERS: tuple[str, ...] = get_args(Permission)
ANSWER_LENGTH = 10_000


class OpenQuestion(Struct, frozen=True):
    """A question that waits: its frame, and the future for its answer."""

    frame: JsonObject
    answer: "asyncio.Future[Any]"


class Questions:
    """The questions of one run. `publish` sends a frame to all watchers of the run."""

    def __init__(
        self, publish: Callable[[JsonObject], None], on_change: Callable[[], None]
    ) -> None:
        self._publish = publish
        self._on_change = on_change
        self._open: dict[str, OpenQuestion] = {}

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    def to_json(self) -> list[JsonObject]:
        """The open questions, oldest first."""
        return [question.frame for question in self._open.values()]

    async def ask_permission(self, request: ToolRequest) -> Permission:
        """Ask whether a tool may run."""
        answer: Permission = await self._ask(
            {
                "kind": "permission",
                "call": request.id,
                "tool": request.name,
                "server": request.server,
                "input": request.input,
            }
        )
        return answer

    async def ask_user(self, question: UserQuestion) -> dict[str, str]:
        """Ask the agent's own questions."""
        answers: dict[str, str] = await self._ask(
            {"kind": "choice", "call": question.id, "questions": list(question.questions)}
        )
        return answers

    def answer(self, id: str, value: object) -> None:
        """Answer a question; raises `Refused` if it is not open or the answer is invalid."""
        question = self._open.get(id)
        if question is None or question.answer.done():
            raise Refused("this question is answered already", param="id", status=409)
        read = _read_permission if question.frame["kind"] == "permission" else _read_choice
        question.answer.set_result(read(value))

    async def _ask(self, fields: JsonObject) -> Any:
        id = uuid4().hex[:12]
        frame: JsonObject = {"type": "question", "id": id, **fields}
        question = OpenQuestion(frame, asyncio.get_running_loop().create_future())
        self._open[id] = question
        self._publish(frame)
        self._on_change()
        answer: Any = None
        try:
            answer = await question.answer
            return answer
        finally:
            del self._open[id]
            self._publish({"type": "answered", "id": id, "answer": answer})
            self._on_change()


def _read_permission(value: object) -> str:
    if value not in ANSWERS:
        raise Refused(f"must be one of {', '.join(ANSWERS)}", param="answer")
    return str(value)


def _read_choice(value: object) -> dict[str, str]:
    """A text for each question."""
    items = cast(dict[object, object], value).items() if isinstance(value, dict) else ()
    answers = {
        key: text[:ANSWER_LENGTH]
        for key, text in items
        if isinstance(key, str) and isinstance(text, str)
    }
    if not answers or len(answers) != len(items):
        raise Refused("must be an object with a text for each question", param="answer")
    return answers


class CallerPermissions:
    """The permissions of each caller; an answer applies only to the caller who gave it.

    `path` is the file of the person who runs the server; callers with keys have files beside it.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._by_scope: dict[str | None, Permissions] = {}

    def of(self, scope: str | None) -> Permissions:
        """The permissions of a caller; `scope` is None on a server without keys."""
        if scope not in self._by_scope:
            path = self._path
            if path is not None and scope is not None:
                path = path.with_name(f"{path.stem}-{scope}{path.suffix}")
            self._by_scope[scope] = Permissions(_refuse, path=path)
        return self._by_scope[scope]


def _refuse(_: ToolRequest) -> Permission:
    """Deny the call; used until `with_ask` provides a way to ask."""
    return "deny"
