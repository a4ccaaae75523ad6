"""Which tool the user asks the offline model for.

A tool is chosen by its name. "Use a tool" without a name chooses the tool whose name and
description share the most words with the request. `compact` and `recall` are never guessed: a user
who asks for the time must not lose the conversation. They are called only on explicit request.
"""

import re
from collections.abc import Iterable, Mapping

from weft.model import Tool

THREAD_TOOLS = ("compact", "recall")

_WORD = re.compile(r"[a-z]+", re.IGNORECASE)
_REQUEST_VERB = re.compile(r"\b(use|call|run|try|invoke|ask|with)\b", re.IGNORECASE)
_ANY_TOOL = re.compile(
    r"\b(the|a|an|your|any|some|this|that)\s+([\w-]+\s+)?tools?\b", re.IGNORECASE
)
_WHICH = re.compile(r"\b(what|which)\s+tools\b", re.IGNORECASE)
_TOOL_NAME = re.compile(r"`([\w.-]+)`|\b([A-Za-z]\w*_\w+)\b")
_ARITHMETIC = re.compile(r"\d\s*[-+*/%]\s*[\d(]|\)\s*[-+*/%]")

_NEGATED = re.compile(
    r"\b(do not|don't|never|without|not to|no need to)\s+(\w+\s+)?(compact|recall)", re.IGNORECASE
)
_IMPERATIVE = (
    r"(?:^|[.!?;:,\n]\s*|\b(?:please|now|then|and|you|to)\s+|/){name}\b(?!\s+\w+\s+(?:is|are)\b)"
)
_BY_NAME = r"\b(?:use|call|run|try|invoke)\s+(?:the\s+)?(?:tool\s+)?[`\"']?{name}\b"
_THREAD = r"the\s+(?:thread|conversation|history|context|chat)"
_ON_THREAD = rf"\b{{name}}\s+(?:it|this|our|everything|all|{_THREAD})\b"

STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an and any are as at be by call can could do for from here i in invoke is it its me my "
        "of on one or our please run some that the then there this to tool tools try us use what "
        "which will with would you your",
    )
)
"""Words that do not help to choose a tool."""

ARITHMETIC_WORDS = frozenset({"expression", "calculate", "calculator", "arithmetic", "math"})


def asks_for(name: str, text: str) -> bool:
    """Whether the text asks explicitly for `compact` or `recall`."""
    if _NEGATED.search(text):
        return False
    forms = (_IMPERATIVE, _BY_NAME, _ON_THREAD)
    return any(re.search(form.format(name=name), text, re.IGNORECASE) for form in forms)


def named_tools(tools: Mapping[str, Tool], text: str) -> list[Tool]:
    """Tools that the text names together with a verb such as "use", in the order named."""
    if not _REQUEST_VERB.search(text):
        return []
    positions = {
        name: match.start()
        for name in other_tools(tools)
        if (match := re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text))
    }
    return [tools[name] for name in sorted(positions, key=positions.__getitem__)]


def wants_some_tool(text: str) -> bool:
    """Whether the text asks for some tool."""
    return bool(_REQUEST_VERB.search(text) and (_ANY_TOOL.search(text) or _named_tool(text)))


def asks_which(text: str) -> bool:
    return bool(_WHICH.search(text))


def matching_tool(tools: Mapping[str, Tool], text: str) -> Tool | None:
    """The best matching tool; the first one if the text names no task; None if none matches."""
    candidates = [tools[name] for name in other_tools(tools)]
    if not candidates or _named_tool(text):
        return None
    stems = _stems(text)
    if not stems and not _ARITHMETIC.search(text):
        return candidates[0]
    best = max(candidates, key=lambda tool: _score(tool, stems, text))
    return best if _score(best, stems, text) else None


def list_tools(tools: Mapping[str, Tool], text: str) -> str:
    """A reply that lists the available tools."""
    missing = _named_tool(text)
    lead = f"There is no tool `{missing}` here. " if missing and missing not in tools else ""
    if not tools:
        return lead + "I was given no tools here."
    own = [name for name in THREAD_TOOLS if name in tools]
    others = other_tools(tools)
    if not others:
        return lead + f"I have no tools here but {_join_names(own)}, which I call when you say so."
    also = f" Besides, {_join_names(own)}, when you say so." if own else ""
    return lead + f"My tools are {_join_names(others)}; name one, and I call it.{also}"


def other_tools(tools: Mapping[str, Tool]) -> list[str]:
    """The tools other than `compact` and `recall`."""
    return [name for name in tools if name not in THREAD_TOOLS]


def _named_tool(text: str) -> str | None:
    """A word that looks like a tool's name."""
    match = _TOOL_NAME.search(text)
    return None if match is None else match[1] or match[2]


def _score(tool: Tool, stems: frozenset[str], text: str) -> int:
    """How well a tool matches; a word in its name counts three times."""
    about = _stems(
        f"{tool.description or ''} {' '.join((tool.parameters or {}).get('properties', {}))}"
    )
    sums = bool(_ARITHMETIC.search(text)) and bool(
        ARITHMETIC_WORDS & set(_WORD.findall(f"{tool.name} {' '.join(about)}"))
    )
    return 3 * len(stems & _stems(tool.name)) + len(stems & about) + 3 * sums


def _stems(text: str) -> frozenset[str]:
    """The significant words of a text, without grammatical endings."""
    lower = (word.lower() for word in _WORD.findall(text))
    return frozenset(
        re.sub(r"(?<=\w{3})(s|es|ing|ed)$", "", word) for word in lower if word not in STOP_WORDS
    )


def _join_names(names: Iterable[str]) -> str:
    *head, last = [f"`{name}`" for name in names]
    return f"{', '.join(head)} and {last}" if head else last
