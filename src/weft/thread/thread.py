"""`Thread`: one conversation with its branches, and everything that can be done with it.

Short methods have their code here. Longer ones call a function in a module beside this one:
`append`, `merge`, `undo`, `compaction`, `engine`, `lookup`, `lineage`, `transfer`.

- A method that takes an id takes any unambiguous prefix of one, or the `CommitInfo` itself.
- A method that writes returns the `CommitInfo` of its commit.
- A method with `preview=True` returns what it would do and changes nothing.
- `note=` is the commit note; `message=` is an alias of it.

Most commands never compact, so the modules of compaction are imported by the methods that need
them.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf
from types import TracebackType
from typing import Any, Literal, Self, overload

from msgspec import structs

import weft.compact
from weft.catalog import Catalog, Model
from weft.checked import checked
from weft.compact import (
    CompactResult,
    Importance,
    Scorer,
    Strip,
    SummaryBatch,
    SystemMessage,
    Trigger,
    describe_works,
)
from weft.errors import BudgetExceeded, NotFound, StoreError, ThreadError, WrongValue
from weft.history import (
    TAG,
    Append,
    Change,
    CommitKind,
    Diff,
    Draft,
    Priority,
    Rewrite,
    Row,
    Setup,
    View,
    diff_rows,
    edit_text,
    index_after_write,
    read_branches,
    read_tags,
    read_writers,
    visible_rows,
)
from weft.ids import Id
from weft.model import (
    ApiError,
    Block,
    Checkpoint,
    JsonObject,
    Message,
    Opaque,
    Params,
    Request,
    Response,
    Text,
    ToolResult,
    Usage,
    is_system,
)
from weft.store import Store, deleted_name, descendants

from . import lineage, lookup, merge, undo
from .append import (
    append,
    content_draft,
    describe_generation,
    read_answer,
    result_blocks,
    results_draft,
)
from .arguments import (
    CompactOptions,
    Replacements,
    check_count,
    check_flag,
    check_hook,
    check_name,
    check_objects,
    check_priority,
    check_text,
    check_texts,
    check_thread_name,
    read_note,
)
from .asker import SUMMARY_SECONDS, Asker
from .attempts import Attempt, attempts_up_to, record_attempt
from .background_index import index_in_background
from .compiled import PORTABLE_TOKENS, CompiledContext, ToolLike, describe_size, read_tools
from .content import Content, DialogueContent, InstructionContent
from .handle import Handle
from .hooks import After, Before, Budget, Hooks, check_budget, hook_name
from .info import (
    CommitInfo,
    Imported,
    ListedCommit,
    LogPart,
    Progress,
    Stats,
    auto_note,
    read_info,
)
from .lineage import Blame, Version, written_messages
from .lookup import RECALL_TOKENS, Hit, Moment, RecallPage, make_filter
from .media_files import Attachment, read_attachments
from .merge import MergePreview, Preview, Strategy, land_or_preview, preview_state
from .resolve import At, Name, check_ref_name, require_commit, resolve_commit, resolve_row
from .sent import Sent, SentLike, sent_entries, show_sent
from .source_lines import read_echo
from .undo import Undone
from .usage import UsageTotal, calibrate, read_costs, read_usage, total_usage

IMPORTANCE = Importance()
LOG_PART_SIZE = 500
"""How many commits `iter_log` reads at once."""

No = Literal[False]
Yes = Literal[True]


@checked
class Thread:
    """One open thread of a store, on one branch (a *handle*). May be used by several OS threads.

    Methods that commit take a `note`, which describes the commit; `message=` is an alias of it.
    `Thread.note` writes a note on an earlier commit or message.
    """

    def __init__(self, handle: Handle, *, owns_store: bool = True) -> None:
        self._handle = handle
        self._owns_store = owns_store
        self._closed = False

    # Properties and reading

    @property
    def name(self) -> str:
        return self._handle.name

    @property
    def store(self) -> Store:
        return self._handle.store

    @property
    def current(self) -> str:
        """The current branch."""
        return self._handle.branch

    @property
    def head(self) -> CommitInfo | None:
        """The newest commit of the current branch."""
        head = self._handle.head()
        return None if head is None else self._handle.info(head)

    def branches(self) -> dict[str, str]:
        """Every branch and the id of its head."""
        heads = read_branches(self._handle.store, self.name)
        return {name: head.hex() for name, head in heads.items()}

    def tags(self) -> dict[str, str]:
        """Every tag and the id of its commit."""
        tags = read_tags(self._handle.store, self.name)
        return {name: id.hex() for name, id in tags.items()}

    def compile(
        self, at: At = None, *, last: int | None = None, reasoning: bool = False
    ) -> CompiledContext:
        """The messages at a commit; by default, at the head of the current branch.

        `at` is a branch, a tag, an id, or a time (then the newest commit at that time). With
        `last`, only that many of the newest messages are returned. The rest of a long thread is not
        read. With `reasoning`, `to_dicts` and `to_text` include the thinking.
        """
        check_count("last", last)
        handle = self._handle
        head = resolve_commit(handle, at)
        tail = None if last is None else handle.tail(head, last, reasoning=reasoning)
        return CompiledContext(
            handle.view(head) if tail is None else lambda: handle.view(head),
            handle.count,
            head=head,
            tail=tail,
            last=last,
            reasoning=reasoning,
            read_configs=self._generation_configs,
            counter_name=handle.tokenizer,
            calibrate=partial(calibrate, handle),
            portable_text=partial(_portable_summary, handle, head),
        )

    def log(self, limit: int | None = None) -> list[CommitInfo]:
        """The commits of the current branch, newest first."""
        check_count("limit", limit)
        handle = self._handle
        head = handle.head()
        steps = [] if head is None else handle.store.walk(handle.name, head, limit=limit)
        return [read_info(step, handle.count) for step in reversed(steps)]

    def iter_log(self, limit: int | None = None) -> Iterator[CommitInfo]:
        """The same as `log`, one by one: a long branch is read in parts, not at once."""
        check_count("limit", limit)
        handle = self._handle
        head, max_depth, remaining = handle.head(), None, inf if limit is None else limit
        while head is not None and remaining > 0 and max_depth != 0:
            size = int(min(remaining, LOG_PART_SIZE))
            rows = handle.store.walk_log(handle.name, head, until=max_depth, limit=size)
            part = LogPart(handle.store, handle.name, rows)
            for row in rows:
                yield ListedCommit(row, part, handle.count)
            if len(rows) < size:
                return
            remaining -= len(rows)
            _, last_depth, *_ = rows[-1]
            max_depth = last_depth - 1

    @overload
    def show(self, id: Name, *, sent: No = False) -> CommitInfo: ...
    @overload
    def show(self, id: Name, *, sent: Yes) -> Sent: ...
    @overload
    def show(self, id: Name, *, sent: bool) -> CommitInfo | Sent: ...
    def show(self, id: Name, *, sent: bool = False) -> CommitInfo | Sent:
        """One commit with its messages; for an answer with `sent`, the request that was sent.

        For the id of a message, this is the newest commit of the branch that wrote it.
        """
        info = self._find_commit(id)
        return show_sent(self._handle, info, self.compile) if sent else info

    def client_echo(self, id: Name) -> Message | None:
        """The client's version of the answer of a commit; `None` if the client did not change it.

        Clients rewrite answers when they send them back: they add default arguments, trim text,
        shorten paths. The thread has the answer as the model wrote it.
        """
        info = self._find_commit(id)
        return read_echo(self._handle.store, self.name, bytes.fromhex(info.id))

    def _find_commit(self, name: Name) -> CommitInfo:
        """The commit with this name, or the newest one that wrote the message with this id."""
        handle = self._handle
        try:
            return handle.info(require_commit(handle, name))
        except NotFound:
            row = resolve_row(handle, handle.view(handle.head()), name)
        head = handle.head()
        steps = [] if head is None else handle.store.walk(handle.name, head)
        for step in reversed(steps):
            if any(slot == row.id for slot, _ in written_messages(step)):
                return read_info(step, handle.count)
        raise NotFound("commit", str(name))

    def diff(self, before: At, after: At = None) -> Diff:
        """What changed between two commits or branches."""
        old_view, new_view = (
            self._handle.view(resolve_commit(self._handle, at)) for at in (before, after)
        )
        return diff_rows(old_view.rows, new_view.rows, self._handle.count)

    def search(
        self,
        query: str,
        limit: int = lookup.LIMIT,
        *,
        role: str | None = None,
        branch: str | None = None,
        since: Moment = None,
        until: Moment = None,
        regex: bool = False,
        path: str | None = None,
    ) -> list[Hit]:
        """Find the messages of this thread that contain all these words.

        The most relevant come first, and among equals the newest. Messages that were edited or
        removed are searched too (`Hit.live`: a model still sees the text). The notes, metadata and
        tags of commits come last: `Hit.kind` says what a hit is. If nothing has all the words, the
        result is the messages with some of them.

        `role`, `branch`, `since`, `until` (a `datetime`, seconds since 1970, or ISO text) and
        `path` (a file that a message mentions) limit the search. With `regex`, the query is a
        regular expression of Python's `re`.
        """
        filter = make_filter(role, branch, since, until, regex, path)
        return lookup.search(self._handle, query, limit, filter)

    def recall(
        self,
        wanted: str,
        limit: int = lookup.LIMIT,
        *,
        since: Moment = None,
        until: Moment = None,
        path: str | None = None,
    ) -> list[Hit]:
        """The originals of an id or a checkpoint, or the messages that match these words best.

        `since`, `until` and `path` (a file that a message mentions) limit the search.
        """
        filter = make_filter(since=since, until=until, path=path)
        return lookup.recall(self._handle, wanted, limit, filter)

    def recall_page(
        self,
        wanted: str,
        *,
        tokens: int = RECALL_TOKENS,
        offset: int = 0,
        since: Moment = None,
        until: Moment = None,
        path: str | None = None,
    ) -> RecallPage:
        """The same as `recall`, one page of at most `tokens` tokens at a time.

        The page has the offset of the next one.
        """
        filter = make_filter(since=since, until=until, path=path)
        return lookup.recall_page(self._handle, wanted, tokens=tokens, offset=offset, filter=filter)

    def blame(self, wanted: Name, limit: int = lineage.LIMIT) -> list[Blame]:
        """The commit that wrote each message that contains this text, or has this id.

        Messages that a model still sees come first.
        """
        return lineage.blame(self._handle, wanted, limit)

    def edit_history(self, id: Name) -> list[Version]:
        """Every version of a message, the original first; `restore` takes their numbers."""
        return lineage.edit_history(self._handle, id)

    def notes(self, about: Name | None = None) -> list[CommitInfo]:
        """The notes on the branch and on everything merged into it, oldest first.

        With `about`, only the notes on that commit or message.
        """
        handle = self._handle
        head = handle.head()
        target = None if about is None else self._find_note_target(head, about).hex()
        steps = [] if head is None else read_writers(handle.store, handle.name, head, ())
        steps.sort(key=lambda step: step.commit.created)
        notes = [read_info(step, handle.count) for step in steps if step.commit.kind == "note"]
        return [
            info
            for info in notes
            if "about" in info.metadata and target in (None, info.metadata["about"])
        ]

    def checkpoints(self) -> list[Checkpoint]:
        """The checkpoints of the current branch, oldest first."""
        handle = self._handle
        return [
            block
            for row in handle.view(handle.head()).rows
            for block in row.message.blocks
            if isinstance(block, Checkpoint) and handle.store.has_checkpoint(handle.name, block.id)
        ]

    def batches(self, at: At = None) -> list[SummaryBatch]:
        """The batches of the current summaries, oldest first, each with the commit that made it.

        Here, a batch is one part of a summary: its text, and the number of messages that it
        replaces. It has nothing to do with the method `batch`.
        """
        from .compaction import list_batches

        return list_batches(self._handle, resolve_commit(self._handle, at))

    def attempts(self, at: At = None) -> list[Attempt]:
        """The stopped, truncated and failed answers of the branch, oldest first.

        With `at`, only those at that commit and its ancestors.
        """
        return attempts_up_to(self._handle, at)

    def stats(self) -> Stats:
        """Statistics of the thread and its current branch."""
        return self._stats(self._handle.view(self._handle.head()))

    def usage(self, catalog: Catalog | None = None) -> UsageTotal:
        """The tokens and the cost of the thread's answers on all branches, as reported.

        `catalog` has the prices; without it, the default one.
        """
        return total_usage(read_costs(self._handle.store, self.name, catalog))

    def stats_with_usage(self, catalog: Catalog | None = None) -> tuple[Stats, UsageTotal]:
        """`stats()` and `usage()` together; a long history is read only once."""
        handle = self._handle
        head = handle.head()
        if head is None:
            return self.stats(), self.usage(catalog)
        steps = handle.store.walk(handle.name, head)
        costs = read_costs(handle.store, self.name, catalog, {head: steps})
        return self._stats(handle.view(head, steps)), total_usage(costs)

    def _stats(self, view: View) -> Stats:
        handle = self._handle
        visible = len(visible_rows(view.rows))
        return Stats(
            thread=handle.name,
            branch=handle.branch,
            branches=len(read_branches(handle.store, handle.name)),
            commits=handle.store.count(handle.name),
            messages=visible,
            hidden=len(view.rows) - visible,
            tokens=view.tokens(handle.count),
            priorities=dict(Counter(row.priority for row in view.rows)),
        )

    def _generation_configs(self, commits: Sequence[Id]) -> dict[Id, JsonObject]:
        """How the answers of these commits were generated, if that was recorded."""
        steps = self._handle.store.read_commits(self.name, commits)
        infos = [(step.commit.id, read_info(step, self._handle.count)) for step in steps]
        return {id: i.generation_config for id, i in infos if i.generation_config is not None}

    # Hooks, budget, listeners

    def before(self, hook: Before) -> Before:
        """Call this function before every commit. It may raise an error to stop the commit, or
        return another draft.

        Hooks run in the order in which they were added. They run again if another writer committed
        first. Commits made inside a hook run no hooks. Returns the hook, so that this method can be
        used as a decorator.
        """
        self._handle.before.append(check_hook(hook))
        return hook

    def after(self, hook: After) -> After:
        """Call this function after every commit that this handle writes.

        An error in it does not undo the commit. It is issued as a `HookWarning`, and is in the
        `hook_errors` of the returned commit.
        """
        self._handle.after.append(check_hook(hook))
        return hook

    @property
    def hooks(self) -> Hooks:
        """The hooks of this handle, in order."""
        return Hooks(tuple(self._handle.before), tuple(self._handle.after))

    def remove_hook(self, hook: Before | After) -> None:
        """Remove a hook; raises `NotFound` if it was not added."""
        handle = self._handle
        if hook not in handle.before and hook not in handle.after:
            raise NotFound("hook", hook_name(hook))
        handle.before[:] = [other for other in handle.before if other != hook]
        handle.after[:] = [other for other in handle.after if other != hook]

    @property
    def budget(self) -> Budget | None:
        """The limit on the compiled size of this handle's thread; assign another, or `None`."""
        return self._handle.budget

    @budget.setter
    def budget(self, budget: Budget | None) -> None:
        self._handle.budget = check_budget(budget)

    def listen(self, callback: Callable[[SystemMessage], None]) -> None:
        """Call this function with every event of the thread, also of an agent that works in it."""
        self._handle.listeners.append(callback)

    def emit(self, event: SystemMessage) -> None:
        """Send an event to the functions that were added with `listen`."""
        self._handle.emit([event])

    # Appending

    def commit(
        self,
        content: Content | JsonObject | Any,
        note: str | None = None,
        *,
        message: str | None = None,
        metadata: JsonObject | None = None,
        generation_config: JsonObject | None = None,
        priority: Priority = "normal",
        reminder: str | None = None,
    ) -> CommitInfo:
        """Append one of the eight content types, or a dict with `content_type`.

        `weft.register_content_type` adds types of your own.

        Without a note, the note is `"<type>: <preview>"`. An empty note stays empty.
        """
        draft = content_draft(
            content,
            note=read_note(note, message),
            metadata=metadata,
            generation_config=generation_config,
            priority=priority,
            reminder=reminder,
        )
        return append(self._handle, draft)

    def system(
        self,
        text: str,
        *,
        note: str | None = None,
        message: str | None = None,
        metadata: JsonObject | None = None,
    ) -> CommitInfo:
        """Append an instruction."""
        return self.commit(InstructionContent(text), read_note(note, message), metadata=metadata)

    def user(
        self,
        text: str,
        *,
        attach: Attachment | Iterable[Attachment] | None = None,
        name: str | None = None,
        reminder: str | None = None,
        note: str | None = None,
        message: str | None = None,
        metadata: JsonObject | None = None,
    ) -> CommitInfo:
        """Append a message of the user.

        `attach` are the paths of files to send with it: images, PDF and text files, audio. They are
        read now and stored in the thread; their type is detected from their content. Raises
        `ThreadError` with the file's name if it is missing, larger than 20 MB, or of an unsupported
        type.
        """
        content = DialogueContent("user", text, name)
        media = read_attachments(attach)
        note = read_note(note, message)
        if not media:
            return self.commit(content, note, metadata=metadata, reminder=reminder)
        draft = content_draft(content, note=note, metadata=metadata, reminder=reminder, media=media)
        return append(self._handle, draft)

    def assistant(
        self,
        answer: Any,
        *,
        name: str | None = None,
        note: str | None = None,
        message: str | None = None,
        metadata: JsonObject | None = None,
        generation_config: JsonObject | None = None,
        sent: SentLike | None = None,
    ) -> CommitInfo:
        """Append an answer: a text, or any vendor's whole response with everything in it.

        `sent` is the request that it answers: what `to_*_params` returned, or a `SentRequest` with
        the bytes. With it, `show(id, sent=True)` can later return what the model was sent.
        """
        check_texts(name=name)
        check_objects(metadata=metadata, generation_config=generation_config)
        note = read_note(note, message)
        metadata, attachments = sent_entries(self._handle, metadata, sent)
        if isinstance(answer, str):
            content = DialogueContent("assistant", answer, name)
            if not attachments:
                return self.commit(
                    content, note, metadata=metadata, generation_config=generation_config
                )
            draft = content_draft(
                content,
                note=note,
                metadata=metadata,
                generation_config=generation_config,
                attachments=attachments,
            )
            return append(self._handle, draft)
        response = read_answer(answer)
        draft = Draft(
            "append",
            Append("dialogue"),
            (response.message, *attachments),
            auto_note("dialogue", response.message.text) if note is None else note,
            metadata,
            generation_config or describe_generation(response),
            response.usage,
        )
        return append(self._handle, draft, checkpoint=False)

    def tool_result(
        self,
        call_id: str,
        content: str | Sequence[Block] = "",
        is_error: bool = False,
        *,
        reminder: str | None = None,
        note: str | None = None,
        message: str | None = None,
        metadata: JsonObject | None = None,
    ) -> CommitInfo:
        """Append the result of one tool call as a turn of its own.

        Raises `ThreadError` if the id is unknown while other calls wait for their results.
        """
        check_text("call_id", call_id)
        failed = check_flag("is_error", is_error) or None
        result = ToolResult(call_id, result_blocks(content), failed)
        note = read_note(note, message)
        return self.tool_results([result], reminder=reminder, note=note, metadata=metadata)

    def tool_results(
        self,
        results: Sequence[ToolResult],
        *,
        text: str | None = None,
        reminder: str | None = None,
        note: str | None = None,
        message: str | None = None,
        metadata: JsonObject | None = None,
    ) -> CommitInfo:
        """Append all results of one turn as one message: results, text, reminder, checkpoint.

        Raises `ThreadError` for an unknown id while other calls wait for their results.
        """
        note = read_note(note, message)
        draft = results_draft(results, note=note, metadata=metadata, text=text, reminder=reminder)
        return append(self._handle, draft, answers=[result.call_id for result in results])

    def commit_message(
        self,
        entry: Message,
        *,
        note: str | None = None,
        message: str | None = None,
        metadata: JsonObject | None = None,
        generation_config: JsonObject | None = None,
        usage: Any = None,
        priority: Priority = "normal",
        kind: str = "dialogue",
        sent: SentLike | None = None,
    ) -> CommitInfo:
        """Append a `Message` exactly as it is, without an automatic note or a checkpoint.

        `sent` is as for `assistant`.
        """
        check_objects(metadata=metadata, generation_config=generation_config)
        check_priority(priority)
        note = read_note(note, message)
        metadata, attachments = sent_entries(self._handle, metadata, sent)
        op = Append(kind, priority)
        entries = (entry, *attachments)
        draft = Draft("append", op, entries, note, metadata, generation_config, usage)
        return append(self._handle, draft, checkpoint=False)

    def record_attempt(
        self,
        message: Message | Response | None,
        *,
        error: ApiError | None = None,
        reason: str | None = None,
        at: At = None,
    ) -> Attempt:
        """Record an answer that was stopped, truncated or failed, beside the commit it answers.

        The state is `partial` if `message` has any content, else `failed`. The commit is `at`, or
        the head. No branch changes. A complete answer is appended with `assistant` instead.
        """
        return record_attempt(self._handle, message, error=error, reason=reason, at=at)

    def record_usage(self, usage: Usage | Mapping[str, Any]) -> CommitInfo:
        """Record the tokens that a vendor reported for a request and its answer.

        Call it while that answer is the newest message of the branch. `CompiledContext.calibrated`
        corrects its estimate with the report. No model sees it.
        """
        reported = read_usage(usage)

        def make_draft(head: Id | None) -> tuple[Draft, tuple[Id, ...]]:
            if head is None:
                raise ThreadError("the thread is empty: there is no request to record usage for")
            note = f"usage {reported.input}+{reported.output}"
            return Draft("note", Rewrite(), (), note, usage=reported), ()

        return self._handle.land("note", make_draft)

    def setup(self, tools: Sequence[ToolLike] = (), params: Params | None = None) -> CommitInfo:
        """Set the tools and parameters of requests made from here on.

        A tool is a function with type hints, a vendor's dict, or a `Tool`.
        """
        op = Setup(read_tools(tools), params or Params())
        return self._handle.land("setup", lambda _: (Draft("setup", op), ()))

    @contextmanager
    def batch(self) -> Generator[Self]:
        """Write everything inside as one transaction; an exception rolls all of it back.

        A nested batch is rolled back by itself, so the outer one may catch its exception. `undo`
        undoes the outermost batch as one step.
        """
        handle = self._handle
        with handle.lock:
            try:
                with handle.restoring_branch(), handle.store.transaction(), handle.as_one_step():
                    yield self
            except BaseException:
                handle.forget_views()
                raise
        index_in_background(handle.store)

    # Editing

    @overload
    def edit(
        self,
        id: Name,
        text: str,
        *,
        note: str | None = None,
        message: str | None = None,
        metadata: JsonObject | None = None,
        preview: No = False,
    ) -> CommitInfo: ...
    @overload
    def edit(self, id: Name, text: str, *, preview: Yes) -> Preview: ...
    @overload
    def edit(self, id: Name, text: str, *, preview: bool) -> CommitInfo | Preview: ...
    def edit(
        self,
        id: Name,
        text: str,
        *,
        note: str | None = None,
        message: str | None = None,
        metadata: JsonObject | None = None,
        preview: bool = False,
    ) -> CommitInfo | Preview:
        """Replace the text of a message; its calls, media and id stay."""
        check_text("text", text)
        check_objects(metadata=metadata)
        note = read_note(note, message)

        def change(row: Row) -> Row:
            return structs.replace(row, message=edit_text(row.message, text))

        return self._change_row("edit", id, change, note, metadata, preview)

    @overload
    def restore(self, id: Name, version: int = 0, *, preview: No = False) -> CommitInfo: ...
    @overload
    def restore(self, id: Name, version: int = 0, *, preview: Yes) -> Preview: ...
    @overload
    def restore(self, id: Name, version: int = 0, *, preview: bool) -> CommitInfo | Preview: ...
    def restore(self, id: Name, version: int = 0, *, preview: bool = False) -> CommitInfo | Preview:
        """Restore a version of a message with everything in it; by default, the original."""
        handle = self._handle
        row = resolve_row(handle, handle.view(handle.head()), id)
        versions = lineage.read_versions(handle, row.id)
        if not 0 <= version < len(versions):
            raise ThreadError(f"there is no version {version}: {id} has 0 to {len(versions) - 1}")
        restored = versions[version]

        def change(row: Row) -> Row:
            return structs.replace(row, message=restored.message)

        note, record = f"restore version {version}", {"restores": restored.commit}
        return self._change_row("edit", id, change, note, record, preview)

    def directive(self, name: str, text: str) -> CommitInfo:
        """Add a named instruction, or replace the one with that name in place."""
        if not check_name("name", name).strip():
            raise ThreadError("a directive needs a name")
        check_text("text", text)
        instruction = Message("system", (Text(text),), name=name)
        note = f"directive {name}"

        def make_draft(head: Id | None) -> tuple[Draft, tuple[Id, ...]]:
            for row in self._handle.view(head).rows:
                if row.message.name == name and is_system(row.message) and row.id is not None:
                    op = Rewrite(change=(Change(row.id, 0, "pinned"),))
                    return Draft("edit", op, (instruction,), note), ()
            return Draft("append", Append("instruction", "pinned"), (instruction,), note), ()

        return self._handle.land("directive", make_draft)

    @overload
    def annotate(self, id: Name, priority: Priority, *, preview: No = False) -> CommitInfo: ...
    @overload
    def annotate(self, id: Name, priority: Priority, *, preview: Yes) -> Preview: ...
    @overload
    def annotate(self, id: Name, priority: Priority, *, preview: bool) -> CommitInfo | Preview: ...
    def annotate(
        self, id: Name, priority: Priority, *, preview: bool = False
    ) -> CommitInfo | Preview:
        """Change the priority of a message on this branch."""
        check_priority(priority)

        def change(row: Row) -> Row:
            return structs.replace(row, priority=priority)

        return self._change_row("annotate", id, change, None, None, preview)

    def pin(self, id: Name) -> CommitInfo:
        """Pin a message: every compaction keeps it byte-identical."""
        return self.annotate(id, "pinned")

    def skip(self, id: Name) -> CommitInfo:
        """Hide a message from the model until `annotate` changes its priority."""
        return self.annotate(id, "skip")

    def note(self, about: Name, text: str) -> CommitInfo:
        """Write a note on a commit or a message, for people only; no model sees it.

        A note is a commit that changes no message, so it can be undone and exported like any other.
        """
        if not check_text("text", text).strip():
            raise ThreadError("a note needs a text")

        def make_draft(head: Id | None) -> tuple[Draft, tuple[Id, ...]]:
            target = self._find_note_target(head, about)
            return Draft("note", Rewrite(), (), text, {"about": target.hex()}), ()

        return self._handle.land("note", make_draft)

    def _find_note_target(self, head: Id | None, name: Name) -> Id:
        """The id of the message with this name, or else of the commit."""
        try:
            row = resolve_row(self._handle, self._handle.view(head), name)
        except NotFound:
            return require_commit(self._handle, name)
        assert row.id is not None
        return row.id

    def _change_row(
        self,
        kind: CommitKind,
        name: Name,
        change: Callable[[Row], Row],
        note: str | None,
        metadata: JsonObject | None,
        preview: bool,
    ) -> CommitInfo | Preview:
        """Commit a change of one row. The row is looked up again if the head has moved."""
        handle = self._handle

        def make_draft(head: Id | None) -> tuple[Draft, tuple[Id, ...]]:
            old_row = resolve_row(handle, handle.view(head), name)
            assert old_row.id is not None
            new_row = change(old_row)
            is_edit = new_row.message != old_row.message
            priority = None if new_row.priority == old_row.priority else new_row.priority
            op = Rewrite(change=(Change(old_row.id, 0 if is_edit else None, priority),))
            return Draft(kind, op, (new_row.message,) if is_edit else (), note, metadata), ()

        return land_or_preview(handle, kind, make_draft, preview)

    # Branches and tags

    def branch(self, name: str, at: At = None) -> CommitInfo:
        """Create a branch at a commit, without switching to it."""
        handle = self._handle
        check_ref_name(name)
        target = resolve_commit(handle, at)
        if target is None:
            raise ThreadError("an empty thread cannot be branched")
        with handle.changing_refs():
            self._check_new_branch(name)
            handle.move_ref("branch", name, None, target)
        return handle.info(target)

    def fork(self, name: str, at: At = None) -> "Thread":
        """Create a branch and return a new `Thread` on it.

        The two `Thread` objects share only the store, so each agent or task can have its own. The
        fork starts with the hooks and the budget of this one, and with the functions that were
        added with `listen`. Close this one last, because it owns the store.
        """
        check_ref_name(name)
        if resolve_commit(self._handle, at) is not None:
            self.branch(name, at)
        else:
            self._check_new_branch(name)
        return Thread(self._handle.on_branch(name), owns_store=False)

    def _check_new_branch(self, name: str) -> None:
        if self._handle.store.read_ref(self.name, name) is not None:
            raise ThreadError(f"branch {name!r} already exists")

    def delete_branch(self, name: str) -> CommitInfo:
        """Delete a branch; its commits stay, and `undo` restores it."""
        handle = self._handle
        if name == handle.branch:
            raise ThreadError(f"branch {name!r} is the current branch; switch to another first")
        with handle.changing_refs():
            head = handle.store.read_ref(handle.name, name)
            if head is None:
                raise NotFound("branch", name)
            handle.move_ref("delete", name, head, None)
        return handle.info(head)

    def switch(self, name: str) -> CommitInfo | None:
        """Switch to another branch, for this handle and for handles opened later."""
        handle = self._handle
        with handle.changing_refs():
            head = handle.store.read_ref(handle.name, name)
            record = handle.store.read_thread(handle.name)
            # A current branch may have no commits yet, and then no ref.
            current_branches = {handle.branch, "" if record is None else record.head}
            if head is None and name not in current_branches:
                raise NotFound("branch", name)
            if name != handle.branch:
                handle.log_operation("switch", name, head, head, handle.branch)
                handle.branch = name
        return None if head is None else handle.info(head)

    def tag(self, name: str, at: At = None) -> CommitInfo:
        """Tag a commit: give it a name that does not move."""
        handle = self._handle
        check_ref_name(name, "tag")
        with handle.changing_refs():
            target = resolve_commit(handle, at)
            if target is None:
                raise ThreadError("an empty thread cannot be tagged")
            if handle.store.read_ref(handle.name, TAG + name) is not None:
                raise ThreadError(f"tag {name!r} already exists")
            handle.move_ref("tag", TAG + name, None, target)
        return handle.info(target)

    def untag(self, name: str) -> CommitInfo:
        """Delete a tag; its commit stays."""
        handle = self._handle
        with handle.changing_refs():
            target = handle.store.read_ref(handle.name, TAG + name)
            if target is None:
                raise NotFound("tag", name)
            handle.move_ref("untag", TAG + name, target, None)
        return handle.info(target)

    @overload
    def reset(self, at: At, *, preview: No = False) -> CommitInfo: ...
    @overload
    def reset(self, at: At, *, preview: Yes) -> Preview: ...
    @overload
    def reset(self, at: At, *, preview: bool) -> CommitInfo | Preview: ...
    def reset(self, at: At, *, preview: bool = False) -> CommitInfo | Preview:
        """Move the current branch to another commit; `undo` moves it back."""
        handle = self._handle
        if at is None:
            raise WrongValue("at", "must name a commit: `clear()` empties the branch")
        with handle.lock, handle.store.transaction():
            target = resolve_commit(handle, at)
            if target is None:
                raise ThreadError("an empty thread cannot be reset")
            if preview:
                return preview_state(handle, "reset", handle.view(target))
            if target != handle.head():
                handle.move_ref("reset", handle.branch, handle.head(), target)
            return handle.info(target)

    @overload
    def clear(self, *, preview: No = False) -> CommitInfo | None: ...
    @overload
    def clear(self, *, preview: Yes) -> Preview: ...
    @overload
    def clear(self, *, preview: bool) -> CommitInfo | Preview | None: ...
    def clear(self, *, preview: bool = False) -> CommitInfo | Preview | None:
        """Empty the current branch; `undo` restores everything.

        Returns the old head, or `None` if the branch was empty. Other branches and tags stay.
        """
        handle = self._handle
        with handle.lock, handle.store.transaction():
            head = handle.head()
            if preview:
                return preview_state(handle, "clear", handle.view(None))
            if head is None:
                return None
            handle.move_ref("clear", handle.branch, head, None)
            return handle.info(head)

    @overload
    def merge(  # pyright: ignore[reportOverlappingOverload] - only `ask` can return a preview
        self,
        branch: str,
        strategy: Literal["ask"],
        preview: No = False,
        *,
        note: str | None = None,
        message: str | None = None,
    ) -> CommitInfo | MergePreview: ...
    @overload
    def merge(
        self,
        branch: str,
        strategy: Literal["squash"],
        preview: No = False,
        *,
        text: str | None = None,
        settle: Literal["ask"],
        note: str | None = None,
        message: str | None = None,
    ) -> CommitInfo | MergePreview: ...
    @overload
    def merge(
        self,
        branch: str,
        strategy: Strategy = None,
        preview: No = False,
        *,
        text: str | None = None,
        settle: Strategy = None,
        note: str | None = None,
        message: str | None = None,
    ) -> CommitInfo: ...
    @overload
    def merge(
        self,
        branch: str,
        strategy: Strategy = None,
        *,
        preview: Yes,
        text: str | None = None,
        settle: Strategy = None,
    ) -> MergePreview: ...
    @overload
    def merge(
        self,
        branch: str,
        strategy: Strategy = None,
        *,
        preview: bool,
        text: str | None = None,
        settle: Strategy = None,
        note: str | None = None,
        message: str | None = None,
    ) -> CommitInfo | MergePreview: ...
    def merge(
        self,
        branch: str,
        strategy: Strategy = None,
        preview: bool = False,
        *,
        text: str | None = None,
        settle: Strategy = None,
        note: str | None = None,
        message: str | None = None,
    ) -> CommitInfo | MergePreview:
        """Merge a branch: our new messages, then theirs; raises `MergeConflict`.

        `strategy` resolves conflicts: `ours`, `theirs`, `concat`, a mapping from conflict id to an
        answer, a function that answers, or `ask`, which returns the conflicts and writes nothing.
        The setup can conflict too; its id is `setup`. So can a call that both sides answered
        differently (`ResultConflict`); its id is that of the call.

        The strategy `squash` adds the result of the branch as one message: its last answer, or
        `text`. Edits and priorities of shared messages are merged too; `settle` is the strategy for
        their conflicts. Compactions and the setup of the branch are ignored.
        """
        note = read_note(note, message)
        if preview:
            return merge.preview_merge(self._handle, branch, strategy, text=text, settle=settle)
        return merge.merge(self._handle, branch, strategy, text=text, settle=settle, note=note)

    @overload
    def rebase(self, onto: At, strategy: Strategy = None, *, preview: No = False) -> CommitInfo: ...
    @overload
    def rebase(self, onto: At, strategy: Strategy = None, *, preview: Yes) -> Preview: ...
    @overload
    def rebase(
        self, onto: At, strategy: Strategy = None, *, preview: bool
    ) -> CommitInfo | Preview: ...
    def rebase(
        self, onto: At, strategy: Strategy = None, *, preview: bool = False
    ) -> CommitInfo | Preview:
        """Apply this branch's own commits on top of another commit; messages keep their ids."""
        return merge.rebase(self._handle, onto, strategy, preview=preview)

    @overload
    def cherry_pick(
        self, id: Name, strategy: Strategy = None, *, preview: No = False
    ) -> CommitInfo: ...
    @overload
    def cherry_pick(self, id: Name, strategy: Strategy = None, *, preview: Yes) -> Preview: ...
    @overload
    def cherry_pick(
        self, id: Name, strategy: Strategy = None, *, preview: bool
    ) -> CommitInfo | Preview: ...
    def cherry_pick(
        self, id: Name, strategy: Strategy = None, *, preview: bool = False
    ) -> CommitInfo | Preview:
        """Apply one commit of another branch here; its message keeps its id."""
        return merge.cherry_pick(self._handle, id, strategy, preview=preview)

    @overload
    def revert(
        self,
        id: Name,
        strategy: Strategy = None,
        *,
        note: str | None = None,
        message: str | None = None,
        preview: No = False,
    ) -> CommitInfo: ...
    @overload
    def revert(self, id: Name, strategy: Strategy = None, *, preview: Yes) -> Preview: ...
    @overload
    def revert(
        self, id: Name, strategy: Strategy = None, *, preview: bool
    ) -> CommitInfo | Preview: ...
    def revert(
        self,
        id: Name,
        strategy: Strategy = None,
        *,
        note: str | None = None,
        message: str | None = None,
        preview: bool = False,
    ) -> CommitInfo | Preview:
        """Undo the change of one commit, and keep what came after.

        The commit may be a compaction, an edit, a merge, an appended message or any other change.
        """
        note = read_note(note, message)
        return merge.revert(self._handle, id, strategy, note=note, preview=preview)

    def undo(self, *, turn: bool = False) -> Undone:
        """Undo the last operation on the current branch; the result says which.

        With `turn`, if the last operation appended a message, the branch returns to the state
        before the user's last question. Any other operation is undone alone. A tool result is not a
        question. System messages and tools that were written together with the question are undone
        too. Branches and tags stay.

        The last operation is the newest one that moved this branch, by any writer: a commit, a
        merge, a reset. These operations of this handle count too: a switch, and the creation or
        deletion of a branch or tag. The creation of a branch no longer counts after somebody has
        written to that branch. If the handle was opened without `branch=`, such operations from
        before it was opened count as well. Commits on other branches are never undone. Raises
        `ThreadError` if there is nothing to undo.
        """
        return undo.undo(self._handle, turn=turn)

    def redo(self, *, turn: bool = False) -> Undone:
        """Redo the operation that was undone last, unless the branch has changed since.

        If a whole turn was undone, it is restored as a whole. With `turn`, the undone operations
        that follow the redone one are redone too, up to the user's next question or a switch.
        """
        return undo.redo(self._handle, turn=turn)

    # Compaction

    @overload
    def compact(
        self,
        replacements: Replacements,
        *,
        strip: Strip = "all",
        call_id: str | None = None,
        retain: Sequence[str] = (),
        trigger: Trigger = "manual",
        note: str | None = None,
        message: str | None = None,
        preview: bool = False,
    ) -> CompactResult:
        """Replace ranges between checkpoints with summaries.

        `strip` says which kept messages lose reminders and thinking: all of them, or only those
        after the first range begins. `call_id` is the id of the agent's own `compact` call.
        """

    @overload
    def compact(
        self,
        *,
        model: str | Asker,
        budget: int | None = None,
        keep: int | None = None,
        first: str | None = None,
        last: str | None = None,
        prompt: str | None = None,
        verbatim: int = 0,
        scorer: Scorer = IMPORTANCE,
        force: bool = True,
        fallback: bool | None = None,
        timeout: float | None = SUMMARY_SECONDS,
        retain: Sequence[str] = (),
        trigger: Trigger = "manual",
        note: str | None = None,
        message: str | None = None,
        preview: bool = False,
    ) -> CompactResult:
        """Replace old turns with a summary that a model writes.

        - `model`: a model's name, or an `Asker`.
        - `prompt`: the instructions for the summary.
        - `verbatim`: how many tokens of old messages stay verbatim: first those with the priority
          `important`, then the most important ones by `scorer`.
        - `force=False`: refuse a summary that saves nothing.
        - `fallback`: if the model fails, try a shorter summary, then an extract, then a cut. On by
          default with a `budget`.
        - `timeout`: seconds for one request.
        """

    @overload
    def compact(
        self,
        *,
        summary: str,
        keep: int | None = None,
        budget: int | None = None,
        first: str | None = None,
        last: str | None = None,
        retain: Sequence[str] = (),
        trigger: Trigger = "manual",
        note: str | None = None,
        message: str | None = None,
        preview: bool = False,
    ) -> CompactResult:
        """Replace old turns with your own summary: all but `keep` exchanges (default 1)."""

    @overload
    def compact(
        self,
        *,
        budget: int | None = None,
        keep: int | None = None,
        first: str | None = None,
        last: str | None = None,
        retain: Sequence[str] = (),
        trigger: Trigger = "manual",
        note: str | None = None,
        message: str | None = None,
        preview: bool = False,
    ) -> CompactResult:
        """Replace old turns with an extract.

        Afterwards the thread fits `budget` tokens, or only the `keep` newest exchanges are
        unchanged. Without both, the budget is half of the current tokens.
        """

    def compact(
        self,
        replacements: Replacements | None = None,
        *,
        budget: int | None = None,
        keep: int | None = None,
        first: str | None = None,
        last: str | None = None,
        summary: str | None = None,
        model: str | Asker | None = None,
        strip: Strip = "all",
        preview: bool = False,
        call_id: str | None = None,
        trigger: Trigger = "manual",
        retain: Sequence[str] = (),
        prompt: str | None = None,
        verbatim: int = 0,
        scorer: Scorer = IMPORTANCE,
        force: bool = True,
        fallback: bool | None = None,
        timeout: float | None = SUMMARY_SECONDS,
        note: str | None = None,
        message: str | None = None,
    ) -> CompactResult:
        """Replace ranges, or old turns, with summaries.

        There are four modes, each with its own arguments:

        - `replacements`: your own summaries for ranges between checkpoints.
        - `model`: a summary that a model writes.
        - `summary`: your own summary of all old turns.
        - `budget` or `keep`: an extract without a model. Without any of these arguments, the budget
          is half of the current tokens, or the smallest one above that which works.

        With `first` and `last`, the ids of two messages, only what is between them is replaced,
        both included: by a model's summary, your own summary, or else an extract. Pins,
        leading system messages, and the last question with its answer stay. A call stays with its
        result.

        `keep` is the number of recent turns that stay, at least the last one; a turn is a message
        of the user and everything up to the next one. Leading system messages and pins always stay.
        A text in `retain` is never lost: it is added to a model's summary, and without a model, a
        compaction that would lose it is refused. If a budget is too small for what must stay and a
        summary of the rest, `BudgetExceeded` says how much is needed, and which values of `keep`
        and `budget` work.

        In a model's summary, names that the messages do not have are marked as unverified, and
        missing names are added. With a `budget`, a failing model does not stop the compaction: a
        shorter summary is requested, then an extract is made, then a cut (one line that says how
        many messages were removed). `fallback=True` turns this on without a budget, and
        `fallback=False` raises the error instead. If every step fails, the thread is unchanged. A
        preview asks no model and gives an upper bound.

        Only `replacements` can replace tool results that no answer has read yet. If such results
        do not fit a budget, they are shortened and end with an id for `recall`.

        With `replacements`, `strip` says which kept messages lose reminders and thinking: `all`, or
        only those `after` the first range begins. `call_id` is the id of the tool call with which
        an agent compacts its own thread. In the compacted thread, a short sentence replaces that
        call. `trigger` says who asked for the compaction; events about the compaction contain this
        value.
        """
        from .compaction import (
            Compaction,
            compact,
            compact_to_half,
            count_rows,
            find_works,
            refuse_model_options,
            refuse_own_summary,
            refuse_with_range,
        )

        note = read_note(note, message)
        refuse_with_range(
            first, last, replacements=replacements, budget=budget, keep=keep, verbatim=verbatim
        )
        handle = self._handle

        def attempt(keep: int | None, budget: int | None, preview: bool) -> CompactResult:
            if model is not None:
                from .engine import compact_with_model

                refuse_own_summary(replacements, summary)
                options = CompactOptions(
                    budget=budget,
                    keep=keep,
                    first=first,
                    last=last,
                    prompt=prompt,
                    retain=tuple(retain),
                    trigger=trigger,
                    verbatim=verbatim,
                    scorer=scorer,
                    force=force,
                    fallback=fallback,
                    note=note,
                )
                return compact_with_model(handle, model, options, preview, timeout)
            refuse_model_options(prompt, verbatim)
            return compact(
                Compaction(handle=handle, trigger=trigger, retain=retain, note=note),
                replacements,
                budget=budget,
                keep=keep,
                first=first,
                last=last,
                summary=summary,
                strip=strip,
                call_id=call_id,
                preview=preview,
            )

        def try_instead(name: str, number: int) -> CompactResult:
            return attempt(number, None, True) if name == "keep" else attempt(None, number, True)

        chosen = (replacements, budget, keep, first, last, summary, model)
        if all(value is None for value in chosen):
            tokens = count_rows(handle, handle.view(handle.head()).rows)
            return compact_to_half(tokens, lambda budget: attempt(None, budget, preview))
        try:
            result = attempt(keep, budget, preview)
        except BudgetExceeded as error:
            _, works = find_works(handle, error.budget, try_instead)
            needed = works.get("budget", error.needed) if keep is None else error.needed
            raise BudgetExceeded(
                f"{error}{describe_works(works)}",
                needed=needed,
                budget=error.budget,
                works=works,
            ) from None
        if keep is None or budget is not None or not result.is_unchanged:
            return result
        turns, works = find_works(handle, None, try_instead)
        return structs.replace(result, turns=turns, works=works)

    def compacting(
        self, model: Model | None, options: CompactOptions
    ) -> "Generator[Request, weft.compact.Answer, CompactResult]":
        """The compaction with a model as a generator, for callers that ask models themselves.

        It yields requests. Send it a response, an error or `Stopped` for each; it commits at the
        end. Without a model it yields nothing.
        """
        from .engine import compact_flow

        return compact_flow(self._handle, model, options)

    def adopt(
        self,
        messages: Sequence[Message],
        *,
        summary: int,
        note: str | None = None,
        message: str | None = None,
        metadata: JsonObject | None = None,
    ) -> CommitInfo:
        """Record a compaction that a client made itself.

        `messages` is the list that the client sends from now on, and `summary` the index of its
        summary. Messages that are still in the list keep their ids, and a revert restores the
        others.
        """
        from .compaction import adopt

        note = read_note(note, message)
        return adopt(self._handle, messages, summary, note=note, metadata=metadata)

    def portable_summary(
        self, block: Opaque, *, tokens: int = PORTABLE_TOKENS, at: At = None
    ) -> str | None:
        """A text that replaces a vendor's own compaction in requests to another vendor.

        Such a compaction is encrypted, so that only its vendor can read it.

        It is an extract of the messages that the block replaced in this thread; `None` if the
        thread does not have them. With `at`, the block is looked for at that commit.
        """
        return _portable_summary(self._handle, resolve_commit(self._handle, at), block, tokens)

    # The thread as a whole

    def import_bytes(
        self, data: bytes, *, format: str | None = None, progress: Progress | None = None
    ) -> Imported:
        """Import a file into this thread.

        The file is a session file of Claude Code or Codex, a list of messages, or a request body.

        New messages go through the hooks, and each branch is checked against the budget. If a hook
        or the budget refuses, nothing is written. Importing the same file twice changes nothing.
        """
        from .transfer import import_file  # most programs never read a file

        imported = import_file(self._handle, data, format, progress)
        index_in_background(self._handle.store)
        return imported

    def rename(self, name: str) -> None:
        """Rename the thread, with its branches, tags and attempts.

        Other handles on the old name raise an error from then on.
        """
        check_thread_name(name)
        handle = self._handle
        with handle.lock:
            if name == handle.name:
                return
            try:
                handle.store.rename_thread(handle.name, name)
            except StoreError as error:
                raise ThreadError(str(error)) from None
            handle.name = name

    def delete(self) -> None:
        """Delete the thread: it is no longer listed, searched or matched, and its name is free.

        Its children (subagents and side questions of a session) are deleted with it.
        `weft.undelete(store, name)` restores all of them until `gc` removes them for good.
        """
        # A deleted thread is stored under a name that no thread can be given.
        handle = self._handle
        with handle.lock, handle.store.transaction():
            moment = handle.clock()
            for name in (*descendants(handle.store.threads(), handle.name), handle.name):
                handle.store.rename_thread(name, deleted_name(name, moment))

    def close(self) -> None:
        """Close the store, if this handle opened it; closing twice is harmless."""
        if not self._owns_store or self._closed:
            return
        self._closed = True
        if self._handle.has_written:
            index_after_write(self._handle.store)
        self._handle.store.close()

    def __repr__(self) -> str:
        """Name, branch and head; the size only if it is already known."""
        label = f"Thread {self.name!r} on {self.current!r}"
        if self._closed:
            return f"<{label}: closed>"
        head = self._handle.head()
        if head is None:
            return f"<{label}: empty>"
        label = f"{label} at {head.hex()[:12]}"
        if not self._handle.has_view(head):
            return f"<{label}>"
        view = self._handle.view(head)
        return f"<{label}: {describe_size(len(visible_rows(view.rows)), view.counted_tokens)}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _portable_summary(
    handle: Handle, head: Id | None, block: Opaque, tokens: int = PORTABLE_TOKENS
) -> str | None:
    from .compaction import portable_summary

    return portable_summary(handle, head, block, tokens)
