"""`Thread`: one conversation, and the verbs that people and programs use on it.

A verb reads, asks one function, and writes; the functions live in the modules beside this one and
take a `Handle`. Verbs that take an id take any prefix that is not ambiguous, or the `CommitInfo`
itself. Verbs that write give back the `CommitInfo` of what they wrote; those that rewrite say with
`preview=True` what they would do, and do nothing.
"""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Literal, Self, overload

from weft.catalog import Model
from weft.checked import checked
from weft.compact import CompactResult, Importance, Scorer, Strip, SystemMessage, Trigger
from weft.history import Priority, index_behind, show_rows
from weft.model import JsonObject, Message

from . import edits, merge, rebase, refs, removing
from .asker import SUMMARY_SECONDS, Asker
from .compaction import Replacements, adopt, compact, refuse_wishes, refuse_words
from .compiled import tell_size
from .engine import CompactOptions, Flow, compact_by_model, compact_flow
from .handle import Handle
from .importing import Progress
from .info import CommitInfo
from .merge import MergePreview, Strategy
from .preview import Preview
from .recording import Recorder
from .refs import Undone
from .resolve import At, Name
from .transfer import Imported, import_file

IMPORTANCE = Importance()

No = Literal[False]
Yes = Literal[True]


@checked
class Thread(Recorder):
    """A handle on one thread of a store, standing on one branch; usable from any thread."""

    def __init__(self, handle: Handle, *, owns_store: bool = True) -> None:
        super().__init__(handle)
        self._owns_store = owns_store
        self._closed = False

    @overload
    def edit(
        self,
        id: Name,
        text: str,
        *,
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
        message: str | None = None,
        metadata: JsonObject | None = None,
        preview: bool = False,
    ) -> CommitInfo | Preview:
        """Give a message other words; its calls and media stay, and so does its id."""
        return edits.edit(self._handle, id, text, note=message, metadata=metadata, preview=preview)

    @overload
    def restore(self, id: Name, version: int = 0, *, preview: No = False) -> CommitInfo: ...
    @overload
    def restore(self, id: Name, version: int = 0, *, preview: Yes) -> Preview: ...
    @overload
    def restore(self, id: Name, version: int = 0, *, preview: bool) -> CommitInfo | Preview: ...
    def restore(self, id: Name, version: int = 0, *, preview: bool = False) -> CommitInfo | Preview:
        """Give a message the words of one of its versions, the original by default."""
        return edits.restore(self._handle, id, version, preview=preview)

    def directive(self, name: str, text: str) -> CommitInfo:
        """Tell the model something under a name; the same name again says it anew, in place."""
        return edits.directive(self._handle, name, text)

    @overload
    def annotate(self, id: Name, priority: Priority, *, preview: No = False) -> CommitInfo: ...
    @overload
    def annotate(self, id: Name, priority: Priority, *, preview: Yes) -> Preview: ...
    @overload
    def annotate(self, id: Name, priority: Priority, *, preview: bool) -> CommitInfo | Preview: ...
    def annotate(
        self, id: Name, priority: Priority, *, preview: bool = False
    ) -> CommitInfo | Preview:
        """Give a message another priority, on this branch."""
        return edits.annotate(self._handle, id, priority, preview=preview)

    def pin(self, id: Name) -> CommitInfo:
        """The message must survive every compaction, byte by byte."""
        return self.annotate(id, "pinned")

    def skip(self, id: Name) -> CommitInfo:
        """Leave the message out of what is sent, until `annotate` says otherwise."""
        return self.annotate(id, "skip")

    def note(self, about: Name, text: str) -> CommitInfo:
        """Say something beside a commit or a message, for people only."""
        return edits.note(self._handle, about, text)

    def branch(self, name: str, at: At = None) -> CommitInfo:
        """Give a commit a second name to go on from; does not switch."""
        return refs.branch(self._handle, name, at)

    def fork(self, name: str, at: At = None) -> "Thread":
        """A handle of its own on a new branch that begins here, or at another commit.

        Handles share nothing but the store, so each agent or task can have its own. A fork starts
        with the hooks, the budget and the listeners of this handle; close this one last, because
        the store belongs to it.
        """
        return Thread(refs.fork(self._handle, name, at), owns_store=False)

    def delete_branch(self, name: str) -> CommitInfo:
        """Forget a branch's name; its commits stay."""
        return refs.delete_branch(self._handle, name)

    def switch(self, name: str) -> CommitInfo | None:
        """Stand on another branch."""
        return refs.switch(self._handle, name)

    def tag(self, name: str, at: At = None) -> CommitInfo:
        """Give a commit a name that does not move."""
        return refs.tag(self._handle, name, at)

    def untag(self, name: str) -> CommitInfo:
        """Forget a tag; its commit stays."""
        return refs.untag(self._handle, name)

    @overload
    def reset(self, at: At, *, preview: No = False) -> CommitInfo: ...
    @overload
    def reset(self, at: At, *, preview: Yes) -> Preview: ...
    @overload
    def reset(self, at: At, *, preview: bool) -> CommitInfo | Preview: ...
    def reset(self, at: At, *, preview: bool = False) -> CommitInfo | Preview:
        """Let the branch point at another commit; `undo` brings it back."""
        return refs.reset(self._handle, at, preview=preview)

    @overload
    def clear(self, *, preview: No = False) -> CommitInfo | None: ...
    @overload
    def clear(self, *, preview: Yes) -> Preview: ...
    @overload
    def clear(self, *, preview: bool) -> CommitInfo | Preview | None: ...
    def clear(self, *, preview: bool = False) -> CommitInfo | Preview | None:
        """Empty the branch; `undo` brings everything back.

        The result is the commit that the branch pointed at, `None` where it was empty. Other
        branches and tags stay.
        """
        return refs.clear(self._handle, preview=preview)

    @overload
    def merge(  # pyright: ignore[reportOverlappingOverload] - of all words `ask` alone gives both
        self, branch: str, strategy: Literal["ask"], preview: No = False
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
    ) -> CommitInfo | MergePreview: ...
    def merge(
        self,
        branch: str,
        strategy: Strategy = None,
        preview: bool = False,
        *,
        text: str | None = None,
        settle: Strategy = None,
    ) -> CommitInfo | MergePreview:
        """Bring a branch home: our new messages, then theirs; raises `MergeConflict`.

        `strategy` settles conflicts: `ours`, `theirs`, `concat`, an answer for each by its id, a
        function that answers, or `ask`, which gives the conflicts back and lands nothing. The
        setup is one more place where sides may disagree; its id is `setup`. So is a call that both
        sides answered differently (`ResultConflict`); its id is the call's.

        `squash` brings the result home as one message, the branch's last answer or `text`, and
        with it what the branch did to messages that both have; `settle` is then what the strategy
        is to a merge. What the branch folded, and its setup, stay there.
        """
        if preview:
            return merge.preview_merge(self._handle, branch, strategy, text=text, settle=settle)
        return merge.merge(self._handle, branch, strategy, text=text, settle=settle)

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
        """Say this branch's own commits again behind another; messages keep their ids."""
        return rebase.rebase(self._handle, onto, strategy, preview=preview)

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
        """Say one commit of another branch again here; its message keeps its id."""
        return rebase.cherry_pick(self._handle, id, strategy, preview=preview)

    @overload
    def revert(self, id: Name, strategy: Strategy = None, *, preview: No = False) -> CommitInfo: ...
    @overload
    def revert(self, id: Name, strategy: Strategy = None, *, preview: Yes) -> Preview: ...
    @overload
    def revert(
        self, id: Name, strategy: Strategy = None, *, preview: bool
    ) -> CommitInfo | Preview: ...
    def revert(
        self, id: Name, strategy: Strategy = None, *, preview: bool = False
    ) -> CommitInfo | Preview:
        """Take back one compaction, edit or merge, and keep what came after."""
        return edits.revert(self._handle, id, strategy, preview=preview)

    def undo(self, *, turn: bool = False) -> Undone:
        """Take back the last operation on this handle's branch; the result says which.

        With `turn`, where the last operation appended a message, everything back to the user's
        last message goes, and that message with it; any other operation goes alone.

        That is the newest operation that moved this branch, whoever did it: a commit, a merge, a
        reset. What this handle itself did from here to other names counts too: a switch, a branch
        or tag that it made or deleted, unless that branch has gone on since. A handle that was
        opened without `branch=` inherits those that were done before it was opened. Other branches
        stay as they are. Raises `ThreadError` where nothing is left.
        """
        return refs.undo(self._handle, turn=turn)

    def redo(self, *, turn: bool = False) -> Undone:
        """Take back the last undo on this branch, if nothing else was done on it since.

        With `turn`, one undone operation and all behind it up to the user's next message.
        """
        return refs.redo(self._handle, turn=turn)

    def compact(
        self,
        replacements: Replacements | None = None,
        *,
        budget: int | None = None,
        keep: int | None = None,
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
    ) -> CompactResult:
        """Fold ranges into summaries, or old turns into an extract that fits a budget.

        An exchange (what the user typed, up to what the user types next) is folded whole or not.
        `keep` is how many recent ones stay word for word, the last one in any case; with `summary`
        these words stand for all before them (without `keep`, for all but the last exchange).
        Setup and pins stay. `BudgetExceeded` says what it takes where a budget is too small for
        what must stay and a summary of the rest. Refused where a text that is to be `retain`ed
        would be lost.

        With `model` (a name, or anything that can be asked) that model writes the summary, told
        how by `prompt`; what it makes up is left out, and what it forgets is put back. So many
        tokens of old turns as `verbatim` says stay in their places, those that matter most by the
        `scorer` and those that are marked as important. A preview
        then asks nobody, and says the most that it can come to. Without `force` a fold that saves
        nothing is refused. A request for a summary that takes more than `timeout` seconds is given
        up.

        With a `budget`, a model that writes no summary does not stop the compaction: a shorter
        summary is asked for, then an extract is made, then a cut; `fallback=False` raises instead,
        and `fallback=True` does the same without a budget. If all fails, the thread is as it was.

        Tool results that no answer has read yet are never folded by a budget, `keep` or a model.
        Where they do not fit a budget they are shortened, with a handle for `recall`.
        """
        if model is not None:
            refuse_words(replacements, summary)
            wish = CompactOptions(
                budget=budget,
                keep=keep,
                prompt=prompt,
                retain=tuple(retain),
                trigger=trigger,
                verbatim=verbatim,
                scorer=scorer,
                force=force,
                fallback=fallback,
            )
            return compact_by_model(self._handle, model, wish, preview, timeout)
        refuse_wishes(prompt, verbatim)
        return compact(
            self._handle,
            replacements,
            budget=budget,
            keep=keep,
            summary=summary,
            strip=strip,
            preview=preview,
            call_id=call_id,
            trigger=trigger,
            retain=retain,
        )

    def compacting(self, model: Model | None, wish: CompactOptions) -> Flow:
        """The compaction by a model as a flow, for whoever asks models themselves: it yields
        requests, is sent a response, an error or `Stopped` for each, and lands at its end. Without
        a model it asks nobody."""
        return compact_flow(self._handle, model, wish)

    def adopt(
        self,
        messages: Sequence[Message],
        *,
        summary: int,
        message: str | None = None,
        metadata: JsonObject | None = None,
    ) -> CommitInfo:
        """Go on with the list that a client's own compaction left; `summary` is the place of its
        summary. It lands as a compaction: what the list says again keeps its line, and a revert
        brings the rest back."""
        return adopt(self._handle, messages, summary, note=message, metadata=metadata)

    def import_bytes(
        self, data: bytes, *, format: str | None = None, progress: Progress | None = None
    ) -> Imported:
        """Take a file into this thread: a session, a rollout, a list of messages.

        All that is new passes the hooks, and each branch the budget; where one refuses, nothing
        is written. Twice is the same as once.
        """
        return import_file(self._handle, data, format, progress)

    def rename(self, name: str) -> None:
        """Give the thread another name; branches, tags, attempts and what leads to it follow.

        Other handles on the old name find no thread any more, and say so.
        """
        removing.rename(self._handle, name)

    def delete(self) -> None:
        """Take the thread away: it is not listed, searched or matched any more, and its name is
        free. `weft.undelete(store, name)` brings it back until `gc` drops it for good."""
        removing.delete(self._handle)

    def listen(self, callback: Callable[[SystemMessage], None]) -> None:
        """Call this with every event of the thread."""
        self._handle.listeners.append(callback)

    def close(self) -> None:
        """Let go of the store, if this handle opened it; twice is the same as once."""
        if not self._owns_store or self._closed:
            return
        self._closed = True
        if self._handle.has_written:
            index_behind(self._handle.store)
        self._handle.store.close()

    def __repr__(self) -> str:
        """Where it stands; what has to be compiled or counted for it first is left out."""
        told = f"Thread {self.name!r} on {self.current!r}"
        if self._closed:
            return f"<{told}: closed>"
        head = self._handle.head()
        if head is None:
            return f"<{told}: empty>"
        told = f"{told} at {head.hex()[:12]}"
        if not self._handle.has_view(head):
            return f"<{told}>"
        view = self._handle.view(head)
        return f"<{told}: {tell_size(len(show_rows(view.rows)), view.counted)}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
