"""Markdown for a terminal, while it streams in.

Bold, code, headings and lists get styles instead of their markers. A text is printed as soon as its
meaning is clear, so at most a few characters wait. Styles end with their line: a marker that is
never closed does not colour the rest of the answer.
"""

import re

BOLD, CODE, DIM, RESET = "\x1b[1m", "\x1b[36m", "\x1b[2m", "\x1b[0m"
FENCE = "```"

_OPENING = re.compile(r"[ \t]*(?:#{0,6}|[-*+]|`{0,3}|>)")
"""A part of a line that may still become a marker at its start."""

_HEADING = re.compile(r" {0,3}#{1,6} +")
_BULLET = re.compile(r"([ \t]*)[-*+] +")
_FENCE = re.compile(r"[ \t]*```")


class MarkdownStream:
    """Turns the deltas of one text into styled text."""

    def __init__(self, colour: bool = True) -> None:
        """Without `colour` the markers are removed, and nothing is styled."""
        self._colour = colour
        self._waiting: str = ""
        self._is_start = True
        self._in_fence = False
        self._bold = self._code = self._heading = False

    def feed(self, text: str) -> str:
        """What to print for more of the text."""
        self._waiting += text
        return self._read(is_end=False)

    def close(self) -> str:
        """The rest, at the end of the text."""
        return self._read(is_end=True) + self._end_styles()

    def _read(self, *, is_end: bool) -> str:
        out: list[str] = []
        while self._waiting:
            if self._is_start or self._in_fence:
                part = self._read_start(is_end)
            else:
                part = self._read_inline(is_end)
            if part is None:  # not clear yet
                break
            out.append(part)
        return "".join(out)

    def _read_start(self, is_end: bool) -> str | None:
        """The start of a line, or a line of a code block."""
        line, newline, rest = self._waiting.partition("\n")
        if not newline and not is_end and self._is_open(line):
            return None
        if _FENCE.match(line) and (newline or is_end):
            self._in_fence = not self._in_fence
            self._waiting = rest
            language = line.strip().strip("`")
            label = self._style(DIM, language) if self._in_fence and language else ""
            return label + (newline if label else "")
        if self._in_fence:
            return self._read_code(line, newline, rest)
        self._is_start = False
        if heading := _HEADING.match(line):
            self._heading = True
            self._waiting = self._waiting[heading.end() :]
            return self._on()
        if bullet := _BULLET.match(line):
            self._waiting = self._waiting[bullet.end() :]
            return f"{bullet[1]}• "
        return ""

    def _is_open(self, line: str) -> bool:
        """Whether more of this line could still change what its start means."""
        if _FENCE.match(line):
            return True  # the language may follow
        if self._in_fence:
            return FENCE.startswith(line.strip())
        return _OPENING.fullmatch(line) is not None

    def _read_code(self, line: str, newline: str, rest: str) -> str:
        self._is_start = bool(newline)
        self._waiting = rest
        if not newline and not line:
            return ""
        return self._style(CODE, line) + newline

    def _read_inline(self, is_end: bool) -> str | None:
        text = self._waiting
        end = next((i for i, c in enumerate(text) if c in "\n*`"), len(text))
        if end:
            self._waiting = text[end:]
            return text[:end]
        if text[0] == "\n":
            self._waiting, self._is_start = text[1:], True
            return self._end_styles() + "\n"
        if text[0] == "`":
            self._waiting = text[1:]
            self._code = not self._code
            return self._change()
        if self._code or (len(text) < 2 and is_end):
            self._waiting = text[1:]
            return "*"
        if len(text) < 2:
            return None
        if text[1] != "*":
            self._waiting = text[1:]
            return "*"
        if not self._bold and len(text) < 3 and not is_end:
            return None
        if not self._bold and (text[2:3].isspace() or not text[2:]):
            self._waiting = text[2:]
            return "**"  # a power, or the end: no text follows that could be bold
        self._waiting = text[2:]
        self._bold = not self._bold
        return self._change()

    def _change(self) -> str:
        return (RESET if self._colour else "") + self._on()

    def _on(self) -> str:
        if not self._colour:
            return ""
        return (BOLD if self._bold or self._heading else "") + (CODE if self._code else "")

    def _end_styles(self) -> str:
        is_styled = self._bold or self._code or self._heading
        self._bold = self._code = self._heading = False
        return RESET if is_styled and self._colour else ""

    def _style(self, code: str, text: str) -> str:
        return f"{code}{text}{RESET}" if self._colour and text else text
