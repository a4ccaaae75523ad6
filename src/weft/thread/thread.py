"""`Thread`: one conversation, and the verbs that people and programs use on it.

A verb reads, asks one function, and writes; the functions live in the modules beside this one and
take a `Handle`. Verbs that take an id take any prefix that is not ambiguous, or the `CommitInfo`
itself. Verbs that write give back the `CommitInfo` of what they wrote.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from weft.history import Priority
from weft.model import Block, JsonObject, Message, Text, ToolResult

from .append import append_content, append_message, append_results
from .compiled import CompiledContext
from .content import Content, DialogueContent, InstructionContent
from .handle import Handle
from .info import CommitInfo, read_info

if TYPE_CHECKING:
    from weft.compact import SystemMessage


class Thread:
    """A handle on one thread of a store, standing on one branch; usable from any thread."""

    def __init__(self, handle: Handle, *, owns_store: bool = True) -> None:
        self._handle = handle
        self._owns_store = owns_store

    @property
    def name(self) -> str:
        return self._handle.name

    @property
    def current(self) -> str:
        """The branch this handle stands on."""
        return self._handle.branch

    @property
    def head(self) -> CommitInfo | None:
        """The newest commit of the branch."""
        head = self._handle.head()
        return None if head is None else self._handle.info(head)

    def commit(
        self,
        content: Content | JsonObject,
        message: str | None = None,
        *,
        metadata: JsonObject | None = None,
        generation_config: JsonObject | None = None,
        priority: Priority = "normal",
        reminder: str | None = None,
    ) -> CommitInfo:
        """Append one of the eight content types, or a dict with `content_type`.

        Without `message` the note is `"<type>: <preview>"`; an empty one stays empty.
        """
        return append_content(
            self._handle,
            content,
            note=message,
            metadata=metadata,
            generation_config=generation_config,
            priority=priority,
            reminder=reminder,
        )

    def system(
        self, text: str, *, message: str | None = None, metadata: JsonObject | None = None
    ) -> CommitInfo:
        """Append an instruction."""
        return self.commit(InstructionContent(text), message, metadata=metadata)

    def user(
        self,
        text: str,
        *,
        name: str | None = None,
        reminder: str | None = None,
        message: str | None = None,
        metadata: JsonObject | None = None,
    ) -> CommitInfo:
        """Append what the user says."""
        content = DialogueContent("user", text, name)
        return self.commit(content, message, metadata=metadata, reminder=reminder)

    def assistant(
        self,
        text: Any,
        *,
        name: str | None = None,
        message: str | None = None,
        metadata: JsonObject | None = None,
        generation_config: JsonObject | None = None,
    ) -> CommitInfo:
        """Append what the model says."""
        return self.commit(
            DialogueContent("assistant", text, name),
            message,
            metadata=metadata,
            generation_config=generation_config,
        )

    def tool_result(
        self,
        call_id: str,
        content: str | Sequence[Block] = "",
        is_error: bool = False,
        *,
        reminder: str | None = None,
        message: str | None = None,
        metadata: JsonObject | None = None,
    ) -> CommitInfo:
        """Append what one tool answered, as a turn of its own."""
        blocks = (Text(content),) if isinstance(content, str) else tuple(content)
        result = ToolResult(call_id, blocks, is_error or None)
        return self.tool_results([result], reminder=reminder, message=message, metadata=metadata)

    def tool_results(
        self,
        results: Sequence[ToolResult],
        *,
        text: str | None = None,
        reminder: str | None = None,
        message: str | None = None,
        metadata: JsonObject | None = None,
    ) -> CommitInfo:
        """Append all answers of one turn as one message: results, text, reminder, checkpoint."""
        return append_results(
            self._handle, results, text=text, reminder=reminder, note=message, metadata=metadata
        )

    def commit_message(
        self,
        said: Message,
        *,
        message: str | None = None,
        metadata: JsonObject | None = None,
        generation_config: JsonObject | None = None,
        usage: Any = None,
        priority: Priority = "normal",
        kind: str = "dialogue",
    ) -> CommitInfo:
        """Append one message of the model exactly as it is; adds no note and no checkpoint."""
        return append_message(
            self._handle,
            said,
            kind=kind,
            note=message,
            metadata=metadata,
            generation_config=generation_config,
            usage=usage,
            priority=priority,
        )

    def compile(
        self, at: object = None, *, last: int | None = None, reasoning: bool = False
    ) -> CompiledContext:
        """The messages that a commit means; the branch's head where none is named."""
        head = self._handle.head()
        view = self._handle.view(head)
        return CompiledContext(view, self._handle.count, last=last, reasoning=reasoning)

    def log(self, limit: int | None = None) -> list[CommitInfo]:
        """The commits of the branch, newest first."""
        handle = self._handle
        head = handle.head()
        steps = [] if head is None else handle.store.walk(handle.name, head, limit=limit)
        return [read_info(step, handle.count) for step in reversed(steps)]

    def listen(self, callback: "Callable[[SystemMessage], None]") -> None:
        """Call this with every event of the thread."""
        self._handle.listeners.append(callback)

    @contextmanager
    def batch(self) -> Generator[Self]:
        """Everything inside lands as one transaction; an exception takes all of it back."""
        handle = self._handle
        with handle.lock:
            try:
                with handle.store.transaction():
                    yield self
            except BaseException:
                handle.forget_views()
                raise

    def close(self) -> None:
        """Let go of the store, if this handle opened it."""
        if self._owns_store:
            self._handle.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
