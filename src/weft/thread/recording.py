"""`Recorder`: the verbs that append to a thread."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self, cast

from weft.checked import checked
from weft.errors import NotFound, WrongValue
from weft.history import Draft, Priority, Setup
from weft.model import (
    ApiError,
    Block,
    JsonObject,
    Message,
    Params,
    Response,
    Text,
    ToolResult,
    Usage,
)

from .append import append_content, append_message, append_results, describe_generation, read_answer
from .arguments import check_beside, check_flag, check_priority, check_text
from .attempts import Attempt, record_attempt
from .budget import Budget, check_budget
from .content import Content, DialogueContent, InstructionContent
from .hooks import After, Before, Hooks, check_hook, hook_name
from .info import CommitInfo, auto_note
from .media_files import Attachment, read_attachments
from .params import ToolLike, read_tools
from .reading import Reader
from .resolve import At
from .sent import Sending, with_receipt
from .usage import record_usage


@checked
class Recorder(Reader):
    """A thread as those use it who write it down.

    Every verb lands by the same road: the hooks are asked, the budget is weighed, and a commit
    that is refused leaves no trace.
    """

    def before(self, hook: Before) -> Before:
        """Ask this before every commit: it raises to stop one, or answers with another draft.

        Hooks are asked in the order they came, and again where another writer was first. What a
        hook itself commits asks no hook. The result is the hook, so this is a decorator too.
        """
        self._handle.before.append(check_hook(hook))
        return hook

    def after(self, hook: After) -> After:
        """Tell this of every commit that has landed here.

        What it raises does not undo the commit: it is issued as a `HookWarning`, and is among
        the `hook_errors` of the commit that the verb returns.
        """
        self._handle.after.append(check_hook(hook))
        return hook

    @property
    def hooks(self) -> Hooks:
        """The hooks of this handle, in order."""
        return Hooks(tuple(self._handle.before), tuple(self._handle.after))

    def remove_hook(self, hook: Before | After) -> None:
        """Call this hook no more; raises `NotFound` where it was not added."""
        handle = self._handle
        if hook not in handle.before and hook not in handle.after:
            raise NotFound("hook", hook_name(hook))
        handle.before[:] = [kept for kept in handle.before if kept != hook]
        handle.after[:] = [kept for kept in handle.after if kept != hook]

    @property
    def budget(self) -> Budget | None:
        """The limit on what this handle's thread may compile to; assign another, or `None`."""
        return self._handle.budget

    @budget.setter
    def budget(self, budget: Budget | None) -> None:
        self._handle.budget = check_budget(budget)

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
        attach: Attachment | Iterable[Attachment] | None = None,
        name: str | None = None,
        reminder: str | None = None,
        message: str | None = None,
        metadata: JsonObject | None = None,
    ) -> CommitInfo:
        """Append what the user says.

        `attach` are paths of files that go with it: images, PDF and text files, audio. They are
        read now and kept in the thread; their type is found by their content. Raises `ThreadError`
        naming the file if it is missing, larger than 20 MB, or of a type that no model reads.
        """
        content = DialogueContent("user", text, name)
        attached = read_attachments(attach)
        if not attached:
            return self.commit(content, message, metadata=metadata, reminder=reminder)
        return append_content(
            self._handle,
            content,
            note=message,
            metadata=metadata,
            reminder=reminder,
            attached=attached,
        )

    def assistant(
        self,
        answer: Any,
        *,
        name: str | None = None,
        message: str | None = None,
        metadata: JsonObject | None = None,
        generation_config: JsonObject | None = None,
        sent: Sending | None = None,
    ) -> CommitInfo:
        """Append what the model says: text, or any vendor's whole response with all it holds.

        `sent` is the request it answers, as a compiled context wrote it, or as a `SentRequest` with
        the bytes that left: with it `show` can say later what the model was sent.
        """
        check_beside(
            message=message, metadata=metadata, generation_config=generation_config, name=name
        )
        metadata, riders = with_receipt(self._handle, metadata, sent)
        if isinstance(answer, str):
            content = DialogueContent("assistant", answer, name)
            if not riders:
                return self.commit(
                    content, message, metadata=metadata, generation_config=generation_config
                )
            return append_content(
                self._handle,
                content,
                note=message,
                metadata=metadata,
                generation_config=generation_config,
                riders=riders,
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
            riders=riders,
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
        check_text("call_id", call_id)
        failed = check_flag("is_error", is_error) or None
        result = ToolResult(call_id, _result_blocks(content), failed)
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
        sent: Sending | None = None,
    ) -> CommitInfo:
        """Append one message of the model exactly as it is; adds no note and no checkpoint.

        `sent` is as for `assistant`.
        """
        check_beside(message=message, metadata=metadata, generation_config=generation_config)
        check_priority(priority)
        metadata, riders = with_receipt(self._handle, metadata, sent)
        return append_message(
            self._handle,
            said,
            kind=kind,
            note=message,
            metadata=metadata,
            generation_config=generation_config,
            usage=usage,
            priority=priority,
            riders=riders,
        )

    def record_attempt(
        self,
        message: Message | Response | None,
        *,
        error: ApiError | None = None,
        reason: str | None = None,
        at: At = None,
    ) -> Attempt:
        """Keep an answer that was stopped, cut off or failed, beside the commit it was to answer.

        The state is `partial` if `message` has any content, else `failed`. The commit is `at`, or
        the head. What the thread compiles to stays the same, and so does every branch; a complete
        answer is appended with `assistant` instead.
        """
        return record_attempt(self._handle, message, error=error, reason=reason, at=at)

    def record_usage(self, usage: Usage | Mapping[str, Any]) -> CommitInfo:
        """Keep what a vendor reported for all that is said so far; `calibrated` counts on it."""
        return record_usage(self._handle, usage)

    def setup(self, tools: Sequence[ToolLike] = (), params: Params | None = None) -> CommitInfo:
        """The tools and parameters of requests made from here on.

        A tool is a function with type hints, a vendor's dict, or a `Tool`.
        """
        op = Setup(read_tools(tools), params or Params())
        return self._handle.land("setup", lambda _: (Draft("setup", op), ()))

    @contextmanager
    def batch(self) -> Generator[Self]:
        """Everything inside lands as one transaction; an exception takes all of it back.

        A batch inside a batch is taken back by itself, so the outer one may catch its exception
        and go on.
        """
        handle = self._handle
        with handle.lock:
            within, handle.batching = handle.batching, True
            try:
                with handle.restoring_place(), handle.store.transaction():
                    yield self
            except BaseException:
                handle.forget_views()
                raise
            finally:
                handle.batching = within


def _result_blocks(content: Any) -> tuple[Block, ...]:
    """What a tool answered: words, or blocks of the model."""
    if isinstance(content, str):
        return (Text(content),)
    if not isinstance(content, list | tuple):
        wrong = f"must be a string or a list of blocks, not {type(content).__name__}"
        raise WrongValue("content", wrong)
    return tuple(cast(Sequence[Block], content))
