"""`Reader`: the verbs that only look at a thread."""

from collections.abc import Sequence
from functools import partial
from typing import Literal, overload

from weft.checked import checked
from weft.compact import SummaryBatch
from weft.history import Diff, diff_rows, read_branches, read_tags
from weft.ids import Id
from weft.model import Checkpoint, JsonObject
from weft.store import Store

from . import edits, lineage, looking
from .arguments import check_count
from .attempts import Attempt, attempts_up_to
from .compiled import CompiledContext
from .handle import Handle
from .info import CommitInfo, read_info
from .lineage import Blame, Version
from .looking import Hit, Stats
from .recalling import RECALL_TOKENS, RecallPage, recall_page
from .resolve import At, Name, resolve_commit
from .searching import Moment, make_filter, search
from .sent import Sent, show_sent
from .summaries import list_batches
from .usage import calibrate


@checked
class Reader:
    """One thread of a store, as one looks at it from a branch; usable from any thread."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

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

    def branches(self) -> dict[str, str]:
        """Every branch and the id of its head."""
        found = read_branches(self._handle.store, self.name)
        return {name: head.hex() for name, head in found.items()}

    def tags(self) -> dict[str, str]:
        """Every tag and the id of its commit."""
        found = read_tags(self._handle.store, self.name)
        return {name: id.hex() for name, id in found.items()}

    def compile(
        self, at: At = None, *, last: int | None = None, reasoning: bool = False
    ) -> CompiledContext:
        """The messages that a commit means; the branch's head where none is named.

        `at` is a branch, a tag, an id, or a time: then the newest commit that was there by then.
        With `last`, no more is read of a long thread than its last so many lines need.
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
            configs=self._configs,
            source=handle.tokenizer,
            calibrate=partial(calibrate, handle),
        )

    def log(self, limit: int | None = None) -> list[CommitInfo]:
        """The commits of the branch, newest first."""
        check_count("limit", limit)
        handle = self._handle
        head = handle.head()
        steps = [] if head is None else handle.store.walk(handle.name, head, limit=limit)
        return [read_info(step, handle.count) for step in reversed(steps)]

    @overload
    def show(self, id: Name, *, sent: Literal[False] = False) -> CommitInfo: ...
    @overload
    def show(self, id: Name, *, sent: Literal[True]) -> Sent: ...
    def show(self, id: Name, *, sent: bool = False) -> CommitInfo | Sent:
        """One commit with the messages it brought; or, of an answer, what the model was sent."""
        info = looking.show(self._handle, id)
        return show_sent(self._handle, info, self.compile) if sent else info

    def diff(self, before: At, after: At = None) -> Diff:
        """What changed between two commits or branches."""
        old, new = (self._handle.view(resolve_commit(self._handle, at)) for at in (before, after))
        return diff_rows(old.rows, new.rows, self._handle.count)

    def search(
        self,
        query: str,
        limit: int = looking.LIMIT,
        *,
        role: str | None = None,
        branch: str | None = None,
        since: Moment = None,
        until: Moment = None,
        regex: bool = False,
    ) -> list[Hit]:
        """Everything ever said here that has all these words, live or not.

        `role`, `branch`, and times (a `datetime`, seconds, or ISO text) narrow it down. With
        `regex` the query is a regular expression of Python's `re`, looked for as it stands.
        """
        only = make_filter(role, branch, since, until, regex)
        return search(self._handle, query, limit, only)

    def recall(self, wanted: str, limit: int = looking.LIMIT) -> list[Hit]:
        """The originals behind an id or checkpoint, or behind words."""
        return looking.recall(self._handle, wanted, limit)

    def recall_page(
        self, wanted: str, *, tokens: int = RECALL_TOKENS, offset: int = 0
    ) -> RecallPage:
        """The same in at most so many tokens: one page, and the offset that reads on."""
        return recall_page(self._handle, wanted, tokens=tokens, offset=offset)

    def blame(self, wanted: Name, limit: int = lineage.LIMIT) -> list[Blame]:
        """Which commit brought this text, or the line of this id; live ones first."""
        return lineage.blame(self._handle, wanted, limit)

    def edit_history(self, id: Name) -> list[Version]:
        """Every version of a message, the original first; `restore` takes their numbers."""
        return lineage.edit_history(self._handle, id)

    def notes(self, about: Name | None = None) -> list[CommitInfo]:
        """The notes of the branch, or those on one commit or message, oldest first."""
        return edits.notes(self._handle, about)

    def checkpoints(self) -> list[Checkpoint]:
        """The checkpoints of the branch, oldest first."""
        return looking.checkpoints(self._handle)

    def batches(self, at: At = None) -> list[SummaryBatch]:
        """The summaries that stand for the past, oldest first: what each stands for, and the
        commit that made it."""
        return list_batches(self._handle, resolve_commit(self._handle, at))

    def attempts(self, at: At = None) -> list[Attempt]:
        """The stopped, cut off and failed answers of the branch, oldest first.

        With `at`, only those at commits that lead to this one, itself included.
        """
        return attempts_up_to(self._handle, at)

    def stats(self) -> Stats:
        """The thread in numbers."""
        return looking.stats(self._handle)

    def _configs(self, commits: Sequence[Id]) -> dict[Id, JsonObject]:
        """How the answers of these commits were made, where that is known."""
        steps = self._handle.store.read_commits(self.name, commits)
        infos = [(step.commit.id, read_info(step, self._handle.count)) for step in steps]
        return {id: i.generation_config for id, i in infos if i.generation_config is not None}
