"""Folds events into a response. This is the only place that checks the order of events:

Start  first, once (a second one is ignored: some upstreams repeat it)
Open   of a new index
Delta  to an index that is open
Close  of an index that is open
Finish any time after Start; the values of later ones replace those of earlier ones
End    last, or `Fail`; anything after it is ignored
Other  any time
Alternative  any time; each alternative is folded for itself
"""

from collections.abc import Iterable

from msgspec import Struct, structs

from weft.errors import UpstreamProtocolError

from .message import Block, Ext, Message, Origin, Refusal, Text, Thinking, ToolCall
from .response import (
    Alternative,
    ApiError,
    Close,
    Delta,
    End,
    Event,
    Fail,
    Finish,
    Open,
    Response,
    Start,
    Stop,
    Usage,
)


class Growth(Struct, frozen=True, gc=False):
    """What one block of an answer gained since it was last read.

    `block` is the block as it was opened, or as it was closed; `text` is the added text.
    """

    index: int
    block: Block
    text: str
    is_new: bool = False
    is_closed: bool = False


class ReadPosition:
    """How much of a growing answer a reader has read; `Fold.read_growth` moves it forward.

    By block: `pieces` is the number of deltas, `lengths` the number of characters. `closed` are the
    blocks that were read to their end.
    """

    __slots__ = ("closed", "lengths", "pieces")

    def __init__(self) -> None:
        self.pieces: dict[int, int] = {}
        self.lengths: dict[int, int] = {}
        self.closed: set[int] = set()


class Fold:
    """Takes events one by one; `response()` is the answer so far.

    `_open` has the deltas of each open block, `_signature` the deltas of signatures.
    """

    def __init__(self, origin: Origin | None = None) -> None:
        self.origin = origin
        self.started = False
        self.ended = False
        self.error: ApiError | None = None
        self._id: str | None = None
        self._model: str | None = None
        self._stop: Stop | None = None
        self._usage: Usage | None = None
        self._ext: Ext | None = None
        self._blocks: dict[int, Block] = {}
        self._open: dict[int, list[str]] = {}
        self._signature: dict[int, list[str]] = {}
        self._alternatives: dict[int, Fold] = {}

    def send(self, event: Event) -> None:
        """Take one event; raises `UpstreamProtocolError` if it is out of order."""
        if self.ended:
            return
        if type(event) is Delta:  # nearly all events; a `match` takes twice the time
            index = event.index
            pieces = self._open.get(index)
            if pieces is None:
                raise UpstreamProtocolError(f"a delta came for block {index}, which is not open")
            if event.kind == "signature":
                pieces = self._signature.setdefault(index, [])
            pieces.append(event.text)
            return
        match event:
            case Open(index=index, block=block):
                if index in self._blocks:
                    raise UpstreamProtocolError(f"block {index} was opened twice")
                self.started = True
                self._blocks[index] = block
                self._open[index] = []
            case Close(index=index, block=block):
                self._close(index, block)
            case Start():
                self._start(event)
            case Finish():
                self._finish(event)
            case End():
                self.ended = True
            case Fail(error=error):
                self.error = error
                self.ended = True
            case Alternative(number=number, event=event):
                if number not in self._alternatives:
                    self._alternatives[number] = Fold(self.origin)
                self._alternatives[number].send(event)
            case _:
                pass

    @property
    def has_content(self) -> bool:
        """Whether the first block of the answer has begun."""
        return bool(self._blocks)

    def response(self) -> Response:
        """The answer so far; blocks that are still open hold what has arrived."""
        blocks = tuple(
            self._current_block(index) if index in self._open else block
            for index, block in sorted(self._blocks.items())
        )
        return Response(
            Message("assistant", blocks, origin=self.origin),
            id=self._id,
            model=self._model,
            stop=self._stop,
            usage=self._usage,
            ext=self._ext,
            alternatives=tuple(
                (number, other.response()) for number, other in sorted(self._alternatives.items())
            ),
        )

    def read_growth(self, position: ReadPosition) -> list[Growth]:
        """What was added since the last call with this position. The cost depends only on that."""
        growths: list[Growth] = []
        for index, block in self._blocks.items():
            if index in position.closed:
                continue
            is_new = index not in position.lengths
            pieces = self._open.get(index)
            if pieces is None:
                text = streamed_text(block)[position.lengths.get(index, 0) :]
                position.closed.add(index)
            else:
                text = "".join(pieces[position.pieces.get(index, 0) :])
                position.pieces[index] = len(pieces)
                if is_new:
                    text = streamed_text(block) + text
            position.lengths[index] = position.lengths.get(index, 0) + len(text)
            if text or is_new or pieces is None:
                growths.append(Growth(index, block, text, is_new, pieces is None))
        return growths

    def _start(self, event: Start) -> None:
        if self.started:
            return
        self.started = True
        self._id = event.id
        self._model = event.model
        self._usage = event.usage
        self._ext = event.ext

    def _close(self, index: int, block: Block | None) -> None:
        if index not in self._open:
            raise UpstreamProtocolError(f"block {index} was closed but is not open")
        self._blocks[index] = self._current_block(index) if block is None else block
        del self._open[index]

    def _finish(self, event: Finish) -> None:
        self._stop = event.stop or self._stop
        self._usage = merge_usage(self._usage, event.usage)
        if event.ext:
            self._ext = merge_ext(self._ext, event.ext)

    def _current_block(self, index: int) -> Block:
        block = self._blocks[index]
        added = "".join(self._open[index])
        match block:
            case Text(text=text) | Refusal(text=text):
                return structs.replace(block, text=text + added)
            case Thinking(text=text, signature=signature):
                pieces = self._signature.get(index)
                full_signature = signature if pieces is None else "".join(pieces)
                return structs.replace(block, text=text + added, signature=full_signature)
            case ToolCall(arguments=arguments):
                return structs.replace(block, arguments=arguments + added)
            case _:
                return block


def streamed_text(block: Block) -> str:
    """The text of a block that a stream sends in deltas."""
    match block:
        case Text(text=text) | Refusal(text=text) | Thinking(text=text):
            return text
        case ToolCall(arguments=arguments):
            return arguments
        case _:
            return ""


def fold(events: Iterable[Event], origin: Origin | None = None) -> Response:
    """The response for a complete list of events."""
    folding = Fold(origin)
    for event in events:
        folding.send(event)
    return folding.response()


def merge_usage(old: Usage | None, new: Usage | None) -> Usage | None:
    """Later counts win; counts that are missing there stay."""
    if old is None or new is None:
        return new or old
    return Usage(
        input=old.input if new.input is None else new.input,
        output=old.output if new.output is None else new.output,
        cached=old.cached if new.cached is None else new.cached,
        written=old.written if new.written is None else new.written,
        reasoning=old.reasoning if new.reasoning is None else new.reasoning,
        raw=merge_ext(old.raw, new.raw) if new.raw else old.raw,
    )


def merge_ext(old: Ext | None, new: Ext) -> Ext:
    """Vendor members of both values; for each member the newer one wins."""
    if not old:
        return new
    return {**old, **{name: {**old.get(name, {}), **fields} for name, fields in new.items()}}
