"""A list of messages made legal for its target.

Each wire states in `Rules` what it demands; `arrange` gives the turns to write, in order, with the
place that every block came from. Each rule, and whose it is:

- The leading system run leaves the list: Anthropic refuses an inline system at position 0.
- A later system message stays where the model and its neighbours allow it, else it speaks as
  `user`: https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system
- Nothing stands between a call and its results: all vendors pair them by adjacency.
- Results come first in their turn, those of parallel calls together: Anthropic, Gemini.
- A call without a result gets one that says so, a result without a call becomes text: an unpaired
  id is a 400 everywhere.
- Empty text is not sent: Anthropic says "text content blocks must be non-empty".
- The list does not begin, and for some models not end, with the assistant: Anthropic.
- What only its maker can read stays behind: signatures, file ids, foreign blocks.

A body that goes back to the protocol it came from is not touched: its vendor judges it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NoReturn

from msgspec import Struct

from weft.catalog import Model
from weft.errors import Refused
from weft.model import (
    Block,
    Checkpoint,
    Ext,
    Message,
    Place,
    Reminder,
    Request,
    Text,
    ToolCall,
    ToolResult,
    is_system,
    side,
    texts,
)

from .base import Losses, SystemPolicy
from .params import lose_ext

CONTINUED = "(continued)"
EMPTY = "(empty)"
NO_RESULT = "no result was recorded for this call"

SYSTEM_TEXT = Text | Checkpoint | Reminder
"""What may stand in a system message; reminders and checkpoints are text on every wire."""

Check = Callable[[Any, Message, Request], str | None]
"""Why a block cannot be said on this wire, or `None`."""


class Rules(Struct, frozen=True):
    """What a wire demands. `checks` are the block types that it cannot always say."""

    protocol: str
    roles: frozenset[str]
    inline_system: Literal["native", "placed", "never"]
    checks: Mapping[type, Check]
    hoists: bool = False
    named: bool = False
    user_first: bool = False
    empty_text: bool = True


class Turn(Struct):
    """One message to write: its blocks, and where each stood."""

    role: str
    message: Message
    blocks: list[Block]
    places: list[Place]
    at: Place


class Arranged(Struct, frozen=True):
    """The leading system run (empty where the wire keeps it in the list), then the turns."""

    system: list[Turn]
    turns: list[Turn]


def arrange(
    request: Request, rules: Rules, model: Model, policy: SystemPolicy, losses: Losses
) -> Arranged:
    """The turns of a request as this wire wants them; every change is reported."""
    native = request.wire is not None and request.wire.protocol == rules.protocol
    turns = [
        _turn(number, message)
        for number, message in enumerate(request.messages)
        if native or not _says_nothing(message, number, losses)
    ]
    system = _take_system(turns, policy)
    if not native:
        for turn in (*system, *(turn for turn in turns if is_system(turn.message))):
            refuse_non_text(request, turn)
        turns = _pair_results(turns, losses)
        _say_only(system, request, rules, losses)
        _say_only(turns, request, rules, losses)
        turns = _without_empty(turns, rules, losses)
        _speakable_roles(turns, rules, losses)
    _place_system(turns, rules, model, policy, losses, native)
    if not native:
        _close_ends(turns, rules, model, losses)
    return Arranged(system, turns) if rules.hoists else Arranged([], system + turns)


def _says_nothing(message: Message, number: int, losses: Losses) -> bool:
    """Whether a message only holds the place of another wire's setup; reported if so."""
    if message.blocks or message.form != "absent":
        return False
    losses.add((number,), f"a {message.role} message without content", "it says nothing", "form")
    return True


def refuse_non_text(request: Request, turn: Turn) -> None:
    """Raise `Refused` on the first block of a system message that is not text."""
    losses = Losses(request)
    for block, place in zip(turn.blocks, turn.places, strict=True):
        if not isinstance(block, SYSTEM_TEXT):
            name_of = request.wire.part_name if request.wire is not None else _tag
            refuse_system_block(block, turn.message.role, losses.path(place), name_of)


def refuse_system_block(
    block: Block, role: str, path: str, name_of: Callable[[Block], str]
) -> NoReturn:
    """Refuse a block of a system message that is not text, in the caller's own words."""
    raise Refused(
        f"invalid {name_of(block)!r} content part in a {role} message: only text can be said there",
        param=path,
    )


def _turn(number: int, message: Message) -> Turn:
    blocks = list(message.blocks)
    return Turn(
        message.role, message, blocks, [(number, at) for at in range(len(blocks))], (number,)
    )


def _take_system(turns: list[Turn], policy: SystemPolicy) -> list[Turn]:
    """Remove the leading run from the turns, or, when merging, every system message."""
    if policy == "merge":
        system = [turn for turn in turns if is_system(turn.message)]
        turns[:] = [turn for turn in turns if not is_system(turn.message)]
        return system
    lead = 0
    while lead < len(turns) and is_system(turns[lead].message):
        lead += 1
    system = turns[:lead]
    del turns[:lead]
    return system


class _Pairing:
    """Puts results behind their calls. `waiting` are the calls that have none yet."""

    def __init__(self, losses: Losses) -> None:
        self.losses = losses
        self.turns: list[Turn] = []
        self.waiting: dict[str, Place] = {}
        self.group: Turn | None = None
        self.deferred: list[Turn] = []

    def assistant(self, turn: Turn) -> None:
        last = self.turns[-1] if self.turns else None
        if self.waiting and self.group is None and last is not None and not self.deferred:
            last.blocks += turn.blocks  # parallel calls in two messages are one turn
            last.places += turn.places
        else:
            self.settle()
            self.turns.append(turn)
        for block, place in zip(turn.blocks, turn.places, strict=True):
            if isinstance(block, ToolCall):
                self.waiting[block.id] = place

    def system(self, turn: Turn) -> None:
        if self.waiting:
            self.deferred.append(turn)
            self.losses.add(
                turn.at,
                f"the place of a {turn.message.role} message",
                "it stood between a call and its result, and now stands behind the result",
                "form",
            )
        else:
            self.turns.append(turn)

    def user(self, turn: Turn) -> None:
        results: list[tuple[Block, Place]] = []
        others: list[tuple[Block, Place]] = []
        for block, place in zip(turn.blocks, turn.places, strict=True):
            if not isinstance(block, ToolResult):
                others.append((block, place))
            elif self.waiting.pop(block.call_id, None) is not None:
                if others:
                    self.losses.add(
                        place, "the order of text and results", "results come first", "form"
                    )
                results.append((block, place))
            else:
                others += self._orphan(block, place)
        if not results:
            self.settle()
            turn.blocks = [block for block, _ in others]
            turn.places = [place for _, place in others]
            self.turns.append(turn)
            return
        self._add(turn, results)
        if others:
            self._add(turn, others)
        if not self.waiting:
            self.turns += self.deferred
            self.deferred = []

    def settle(self) -> None:
        """Answer what still waits, and let go of what was held back."""
        for call_id, place in self.waiting.items():
            self.losses.add(place, "nothing: an error result was added", "the call has no result")
            answer = ToolResult(call_id, (Text(NO_RESULT),), is_error=True, form="text")
            turn = Turn("tool", Message("tool", (answer,)), [], [], place[:1])
            self._add(turn, [(answer, place)])
        self.waiting = {}
        self.group = None
        self.turns += self.deferred
        self.deferred = []

    def _add(self, turn: Turn, items: list[tuple[Block, Place]]) -> None:
        if self.group is None:
            self.group = Turn(turn.role, turn.message, [], [], turn.at)
            self.turns.append(self.group)
        at = len(self.group.blocks)
        if isinstance(items[0][0], ToolResult):  # results stand before any words of their turn
            at = sum(isinstance(block, ToolResult) for block in self.group.blocks)
        self.group.blocks[at:at] = [block for block, _ in items]
        self.group.places[at:at] = [place for _, place in items]

    def _orphan(self, block: ToolResult, place: Place) -> list[tuple[Block, Place]]:
        self.losses.add(place, "a tool result, now text", "its call is not in the conversation")
        words = "\n".join(texts(block.content))
        media = [(part, place) for part in block.content if not isinstance(part, Text)]
        return [(Text(f"[result of {block.call_id}]\n{words}"), place), *media]


def _pair_results(turns: Sequence[Turn], losses: Losses) -> list[Turn]:
    pairing = _Pairing(losses)
    for turn in turns:
        if is_system(turn.message):
            pairing.system(turn)
        elif turn.role == "assistant":
            pairing.assistant(turn)
        else:
            pairing.user(turn)
    pairing.settle()
    return pairing.turns


def _say_only(turns: Iterable[Turn], request: Request, rules: Rules, losses: Losses) -> None:
    """Leave out what the wire cannot say, and report members that belong to another wire."""
    checks = rules.checks
    for turn in turns:
        message = turn.message
        if message.ext is not None:
            lose_ext(message.ext, rules.protocol, turn.at, losses)
        if message.name is not None and not rules.named:
            losses.add(turn.at, f"the name {message.name!r}", "messages have no name here", "form")
        refused: list[int] = []
        for number, block in enumerate(turn.blocks):
            check = checks.get(type(block))
            why = check(block, message, request) if check is not None else None
            if why is not None:
                what = request.wire.part_name(block) if request.wire is not None else _tag(block)
                losses.add(turn.places[number], f"a {what} block", why)
                refused.append(number)
                continue
            ext: Ext | None = getattr(block, "ext", None)
            if ext is not None:
                lose_ext(ext, rules.protocol, turn.places[number], losses)
        for number in reversed(refused):
            del turn.blocks[number], turn.places[number]


def _tag(block: Block) -> str:
    return type(block).__name__.lower()


def _without_empty(turns: list[Turn], rules: Rules, losses: Losses) -> list[Turn]:
    """Drop empty text where the wire refuses it, and turns that have nothing left to say."""
    if rules.empty_text:
        return turns
    kept: list[Turn] = []
    for turn in turns:
        blank = [at for at, block in enumerate(turn.blocks) if _is_blank(block)]
        for at in reversed(blank):
            losses.add(turn.places[at], "an empty text", "empty text is refused here", "form")
            del turn.blocks[at], turn.places[at]
        if turn.blocks or is_system(turn.message):
            kept.append(turn)
        elif turn.role == "assistant":
            losses.add(turn.at, "an empty message", "a message must say something here", "form")
        else:
            losses.add(turn.at, f"an empty message, now {EMPTY!r}", "it must say something", "form")
            turn.blocks, turn.places = [Text(EMPTY)], [turn.at]
            kept.append(turn)
    return kept


def _is_blank(block: Block) -> bool:
    return isinstance(block, Text) and not block.text.strip()


def _speakable_roles(turns: Iterable[Turn], rules: Rules, losses: Losses) -> None:
    for turn in turns:
        if turn.role not in rules.roles and not is_system(turn.message) and turn.role != "tool":
            losses.add(turn.at, f"the role {turn.role!r}", "it speaks as `user` here")
            turn.role = "user"


def _place_system(
    turns: list[Turn],
    rules: Rules,
    model: Model,
    policy: SystemPolicy,
    losses: Losses,
    native: bool,
) -> None:
    """Let each run of later system messages stay, or speak as `user` in its place."""
    start = 0
    while start < len(turns):
        if not is_system(turns[start].message):
            start += 1
            continue
        end = start
        while end < len(turns) and is_system(turns[end].message):
            end += 1
        why = _why_not_inline(turns, start, end, rules, model, policy, native)
        for turn in turns[start:end] if why else ():
            losses.add(turn.at, f"the role {turn.role!r}, now `user`", why)
            turn.role = "user"
        start = end


def _why_not_inline(
    turns: Sequence[Turn],
    start: int,
    end: int,
    rules: Rules,
    model: Model,
    policy: SystemPolicy,
    native: bool,
) -> str:
    """Why a run of system messages cannot stay inline, or `""`."""
    if policy == "demote":
        return "the policy demotes later system messages"
    if rules.inline_system == "never":
        return "this wire has no system message inside the conversation"
    if policy == "inline" or rules.inline_system == "native":
        return ""
    if model.inline_system == "never":
        return f"{model.name} refuses system messages inside the conversation"
    if native:
        return ""
    if start == 0 or side(turns[start - 1].role) != "user":
        return "it must follow a user turn"
    if end < len(turns) and turns[end].role != "assistant":
        return "it must come before an assistant turn, or last"
    return ""


def _close_ends(turns: list[Turn], rules: Rules, model: Model, losses: Losses) -> None:
    """Begin with the user and, where the model takes no prefill, do not end with the assistant."""
    if rules.user_first and turns and turns[0].role == "assistant":
        first = turns[0].at
        losses.add(first, f"nothing: {CONTINUED!r} was added before it", "a user speaks first")
        turns.insert(0, _filler(first))
    if turns and turns[-1].role == "assistant" and rules.user_first and not model.prefill:
        last = turns[-1].at
        losses.add(
            last,
            f"nothing: {CONTINUED!r} was added behind it",
            f"{model.name} does not continue an assistant turn",
        )
        turns.append(_filler(last))


def _filler(at: Place) -> Turn:
    message = Message("user", (Text(CONTINUED),), form="text")
    return Turn("user", message, list(message.blocks), [at], at)
