"""Quotations: pieces of one passage in order, with a mark for everything left out inside it."""

from msgspec import Struct

from .source import Passage, split_sentences

GAP = "[...]"
"""Stands for the text that a quotation leaves out."""

HEAD_SHARE = 2 / 3
"""The share of the beginning in a text of which the middle is left out."""


class Quote(Struct, frozen=True, gc=False):
    """The pieces of a passage between these positions, in order.

    `line` is the text of a quotation that is one whole line of its passage.
    """

    passage: Passage
    spans: tuple[tuple[int, int], ...]
    line: str = ""

    @property
    def text(self) -> str:
        """The pieces with a mark between them. Sentences that stand side by side are one piece.

        A cut inside a word, a sentence or a line is marked too.
        """
        if self.line:
            return self.line
        whole = self.passage.text
        pieces: list[str] = []
        end = -1
        for start, stop in self.spans:
            if pieces and not whole[end:start].strip():
                pieces[-1] += whole[end:stop]
            else:
                pieces.append(whole[start:stop])
            end = stop
        text = f" {GAP} ".join(pieces)
        return f"{text} {GAP}" if end >= 0 and self._is_cut(end) else text

    def covers(self, start: int, end: int) -> bool:
        """Whether the pieces contain everything between two positions."""
        return any(first <= start and end <= last for first, last in self.spans)

    def with_span(self, span: tuple[int, int]) -> "Quote":
        """The quotation with one more piece."""
        others = [old for old in self.spans if not (span[0] <= old[0] and old[1] <= span[1])]
        return Quote(self.passage, tuple(sorted([*others, span])))

    def _is_cut(self, end: int) -> bool:
        """Whether the passage goes on in the same line."""
        return bool(self.passage.text[end:].partition("\n")[0].strip())


def quote_whole(passage: Passage) -> Quote:
    """The whole passage."""
    return Quote(passage, (stripped(passage.text, 0, len(passage.text)),))


def clip(passage: Passage, max_chars: int) -> Quote:
    """The passage in about `max_chars` characters: its first and its last sentences, or the
    beginning and the end of a single long one."""
    text = passage.text
    start, end = stripped(text, 0, len(text))
    if end - start <= max_chars:
        return Quote(passage, ((start, end),) if start < end else ())
    head, tail = int(max_chars * HEAD_SHARE), max_chars - int(max_chars * HEAD_SHARE)
    sentences = list(split_sentences(text))
    first = [span for span in sentences if span[1] - start <= head]
    last = [span for span in sentences if end - span[0] <= tail]
    if first:
        pieces = [(start, first[-1][1])]
        if last and last[0][0] > first[-1][1]:
            pieces.append((last[0][0], end))
        return Quote(passage, tuple(pieces))
    stop = text.rfind(" ", start, start + max_chars)
    stop = stop if stop > start else start + max_chars
    first, last = stripped(text, start, stop)
    return Quote(passage, ((first, last),) if first < last else ())


def stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """The span without the blanks at its ends."""
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())
