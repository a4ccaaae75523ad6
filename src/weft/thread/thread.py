"""`Thread`: one conversation, and the verbs that people and programs use on it.

A verb reads, asks one function, and writes; the functions live in the modules beside this one and
take a `Handle`. Verbs that take an id take any prefix that is not ambiguous, or the `CommitInfo`
itself. Verbs that write give back the `CommitInfo` of what they wrote.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Literal, Self, overload

from weft.compact import CompactResult, Strip, SystemMessage, Trigger
from weft.errors import ThreadError
from weft.history import Diff, Draft, Priority, Setup, diff_rows, index_behind
from weft.model import Block, Checkpoint, JsonObject, Message, Params, Text, ToolResult
from weft.store import Store

from . import looking, moving, rewriting
from .answers import describe_generation, read_answer
from .append import append_content, append_message, append_results
from .compacting import Replacements, compact
from .compiled import CompiledContext
from .content import Content, DialogueContent, InstructionContent
from .handle import Handle
from .info import CommitInfo, auto_note, read_info
from .looking import Hit, Stats
from .params import ToolLike, read_tool
from .resolve import At, Name, resolve_commit
from .rewriting import MergePreview, Strategy


class Thread:
    """A handle on one thread of a store, standing on one branch; usable from any thread."""

    def __init__(self, handle: Handle, *, owns_store: bool = True) -> None:
        self._handle = handle
        self._owns_store = owns_store
        self._closed = False

    @property
    def name(self) -> str:
        return self._handle.name

    @property
    def store(self) -> Store:
        return self._handle.store

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
        answer: Any,
        *,
        name: str | None = None,
        message: str | None = None,
        metadata: JsonObject | None = None,
        generation_config: JsonObject | None = None,
    ) -> CommitInfo:
        """Append what the model says: text, or any vendor's whole response with all it holds."""
        if isinstance(answer, str):
            content = DialogueContent("assistant", answer, name)
            return self.commit(
                content, message, metadata=metadata, generation_config=generation_config
            )
        response = read_answer(answer)
        said = response.message
        return append_message(
            self._handle,
            said,
            note=auto_note("dialogue", said.text) if message is None else message,
            metadata=metadata,
            generation_config=generation_config or describe_generation(response),
            usage=response.usage,
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

    def setup(self, tools: Sequence[ToolLike] = (), params: Params | None = None) -> CommitInfo:
        """The tools and parameters that requests made from here on carry."""
        op = Setup(tuple(read_tool(tool) for tool in tools), params or Params())
        return self._handle.land("setup", lambda _: (Draft("setup", op), ()))

    def edit(
        self,
        id: Name,
        text: str,
        *,
        message: str | None = None,
        metadata: JsonObject | None = None,
    ) -> CommitInfo:
        """Give a message other words; its calls and media stay, and so does its id."""
        return rewriting.edit(self._handle, id, text, note=message, metadata=metadata)

    def annotate(self, id: Name, priority: Priority) -> CommitInfo:
        """Give a message another priority, on this branch."""
        return rewriting.annotate(self._handle, id, priority)

    def pin(self, id: Name) -> CommitInfo:
        """The message must survive every compaction, byte by byte."""
        return self.annotate(id, "pinned")

    def skip(self, id: Name) -> CommitInfo:
        """Leave the message out of what is sent, until `annotate` says otherwise."""
        return self.annotate(id, "skip")

    def branch(self, name: str, at: At = None) -> CommitInfo:
        """Give a commit a second name to go on from; does not switch."""
        return moving.branch(self._handle, name, at)

    def branches(self) -> dict[str, str]:
        """Every branch and the id of its head."""
        refs = self._handle.store.refs(self.name)
        return {name: head.hex() for name, head in refs.items()}

    def delete_branch(self, name: str) -> CommitInfo:
        """Forget a branch's name; its commits stay."""
        return moving.delete_branch(self._handle, name)

    def switch(self, name: str) -> CommitInfo | None:
        """Stand on another branch."""
        return moving.switch(self._handle, name)

    @overload
    def merge(
        self, branch: str, strategy: Strategy = None, preview: Literal[False] = False
    ) -> CommitInfo: ...
    @overload
    def merge(
        self, branch: str, strategy: Strategy = None, *, preview: Literal[True]
    ) -> MergePreview: ...
    def merge(
        self, branch: str, strategy: Strategy = None, preview: bool = False
    ) -> CommitInfo | MergePreview:
        """Bring a branch home: our new messages, then theirs; raises `MergeConflict`.

        `strategy` settles conflicts: `ours`, `theirs`, `concat`, or an answer for each by its id.
        """
        if preview:
            return rewriting.preview_merge(self._handle, branch, strategy)
        return rewriting.merge(self._handle, branch, strategy)

    def revert(self, id: Name, strategy: Strategy = None) -> CommitInfo:
        """Take back one compaction, edit or merge, and keep what came after."""
        return rewriting.revert(self._handle, id, strategy)

    def undo(self) -> CommitInfo | None:
        """Take back the last operation; the result is the head it leaves."""
        return moving.undo(self._handle)

    def redo(self) -> CommitInfo | None:
        """Take back the last undo."""
        return moving.redo(self._handle)

    def compact(
        self,
        replacements: Replacements | None = None,
        *,
        budget: int | None = None,
        keep: int | None = None,
        model: str | None = None,
        strip: Strip = "all",
        preview: bool = False,
        call_id: str | None = None,
        trigger: Trigger = "manual",
    ) -> CompactResult:
        """Fold ranges into summaries, or old turns into an extract that fits a budget."""
        if model is not None:
            raise ThreadError(f"no summariser is set up that could ask {model!r}")
        return compact(
            self._handle,
            replacements,
            budget=budget,
            keep=keep,
            strip=strip,
            preview=preview,
            call_id=call_id,
            trigger=trigger,
        )

    def compile(
        self, at: At = None, *, last: int | None = None, reasoning: bool = False
    ) -> CompiledContext:
        """The messages that a commit means; the branch's head where none is named."""
        view = self._handle.view(resolve_commit(self._handle, at))
        return CompiledContext(view, self._handle.count, last=last, reasoning=reasoning)

    def log(self, limit: int | None = None) -> list[CommitInfo]:
        """The commits of the branch, newest first."""
        handle = self._handle
        head = handle.head()
        steps = [] if head is None else handle.store.walk(handle.name, head, limit=limit)
        return [read_info(step, handle.count) for step in reversed(steps)]

    def show(self, id: Name) -> CommitInfo:
        """One commit with the messages it brought."""
        return looking.show(self._handle, id)

    def diff(self, before: At, after: At = None) -> Diff:
        """What changed between two commits or branches."""
        old, new = (self._handle.view(resolve_commit(self._handle, at)) for at in (before, after))
        return diff_rows(old.rows, new.rows, self._handle.count)

    def search(self, query: str, limit: int = looking.LIMIT) -> list[Hit]:
        """Everything ever said here that has all these words, live or not."""
        return looking.search(self._handle, query, limit)

    def recall(self, wanted: str, limit: int = looking.LIMIT) -> list[Hit]:
        """The originals behind an id or checkpoint, or behind words."""
        return looking.recall(self._handle, wanted, limit)

    def checkpoints(self) -> list[Checkpoint]:
        """The checkpoints of the branch, oldest first."""
        return looking.checkpoints(self._handle)

    def stats(self) -> Stats:
        """The thread in numbers."""
        return looking.stats(self._handle)

    def listen(self, callback: Callable[[SystemMessage], None]) -> None:
        """Call this with every event of the thread."""
        self._handle.listeners.append(callback)

    @contextmanager
    def batch(self) -> Generator[Self]:
        """Everything inside lands as one transaction; an exception takes all of it back."""
        handle = self._handle
        with handle.lock:
            branch = handle.branch
            try:
                with handle.store.transaction():
                    yield self
            except BaseException:
                handle.branch = branch
                handle.forget_views()
                raise

    def close(self) -> None:
        """Let go of the store, if this handle opened it; twice is the same as once."""
        if not self._owns_store or self._closed:
            return
        self._closed = True
        if self._handle.has_written:
            index_behind(self._handle.store)
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
