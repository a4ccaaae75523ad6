"""Which tool the offline model is asked for, read from words.

A tool is called by its name; "use a tool" without one gets the tool whose name and description
share the most words with the wish. The two tools that change or read the thread itself are never
guessed: nobody who wants the time wants to lose a conversation, so `compact` and `recall` are
called only by whoever says so.
"""

import re
from collections.abc import Iterable, Mapping

from weft.model import Tool

OWN = ("compact", "recall")

_WORD = re.compile(r"[a-z]+", re.IGNORECASE)
_ASKS = re.compile(r"\b(use|call|run|try|invoke|ask|with)\b", re.IGNORECASE)
_ANY_TOOL = re.compile(
    r"\b(the|a|an|your|any|some|this|that)\s+([\w-]+\s+)?tools?\b", re.IGNORECASE
)
_WHICH = re.compile(r"\b(what|which)\s+tools\b", re.IGNORECASE)
_CALLED = re.compile(r"`([\w.-]+)`|\b([A-Za-z]\w*_\w+)\b")
_SUM = re.compile(r"\d\s*[-+*/%]\s*[\d(]|\)\s*[-+*/%]")

_NOT = re.compile(
    r"\b(do not|don't|never|without|not to|no need to)\s+(\w+\s+)?(compact|recall)", re.IGNORECASE
)
_SAID = (
    r"(?:^|[.!?;:,\n]\s*|\b(?:please|now|then|and|you|to)\s+|/){name}\b(?!\s+\w+\s+(?:is|are)\b)"
)
_BY_NAME = r"\b(?:use|call|run|try|invoke)\s+(?:the\s+)?(?:tool\s+)?[`\"']?{name}\b"
_THREAD = r"the\s+(?:thread|conversation|history|context|chat)"
_ON_THREAD = rf"\b{{name}}\s+(?:it|this|our|everything|all|{_THREAD})\b"

IDLE = frozenset(
    re.findall(
        r"\w+",
        "a an and any are as at be by call can could do for from here i in invoke is it its me my "
        "of on one or our please run some that the then there this to tool tools try us use what "
        "which will with would you your",
    )
)
"""Words that say nothing about which tool is meant."""

SUMS = frozenset({"expression", "calculate", "calculator", "arithmetic", "math"})


def wishes(name: str, words: str) -> bool:
    """Whether the words ask, in so many words, for one of the thread's own tools."""
    if _NOT.search(words):
        return False
    forms = (_SAID, _BY_NAME, _ON_THREAD)
    return any(re.search(form.format(name=name), words, re.IGNORECASE) for form in forms)


def named_tools(tools: Mapping[str, Tool], words: str) -> list[Tool]:
    """Tools whose name stands in the words beside a verb of asking, in the order named."""
    if not _ASKS.search(words):
        return []
    places = {
        name: found.start()
        for name in others(tools)
        if (found := re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", words))
    }
    return [tools[name] for name in sorted(places, key=places.__getitem__)]


def wants_some_tool(words: str) -> bool:
    """Whether a tool is asked for, whichever it is."""
    return bool(_ASKS.search(words) and (_ANY_TOOL.search(words) or _unknown(words)))


def asks_which(words: str) -> bool:
    return bool(_WHICH.search(words))


def fitting_tool(tools: Mapping[str, Tool], words: str) -> Tool | None:
    """The tool that the wish fits best; the first where it names no task; None where none fits."""
    candidates = [tools[name] for name in others(tools)]
    if not candidates or _unknown(words):
        return None
    wanted = _stems(words)
    if not wanted and not _SUM.search(words):
        return candidates[0]
    best = max(candidates, key=lambda tool: _fit(tool, wanted, words))
    return best if _fit(best, wanted, words) else None


def say_tools(tools: Mapping[str, Tool], words: str) -> str:
    """What there is, for whoever asked for something else."""
    missing = _unknown(words)
    lead = f"There is no tool `{missing}` here. " if missing and missing not in tools else ""
    if not tools:
        return lead + "I was given no tools here."
    own = [name for name in OWN if name in tools]
    rest = others(tools)
    if not rest:
        return lead + f"I have no tools here but {_listed(own)}, which I call when you say so."
    also = f" Besides, {_listed(own)}, when you say so." if own else ""
    return lead + f"My tools are {_listed(rest)}; name one, and I call it.{also}"


def others(tools: Mapping[str, Tool]) -> list[str]:
    """The tools that are not the thread's own."""
    return [name for name in tools if name not in OWN]


def _unknown(words: str) -> str | None:
    """A word that is spelt as the name of a tool."""
    found = _CALLED.search(words)
    return None if found is None else found[1] or found[2]


def _fit(tool: Tool, wanted: frozenset[str], words: str) -> int:
    """A word of the name counts for three of the description's."""
    about = _stems(
        f"{tool.description or ''} {' '.join((tool.parameters or {}).get('properties', {}))}"
    )
    sums = bool(_SUM.search(words)) and bool(
        SUMS & set(_WORD.findall(f"{tool.name} {' '.join(about)}"))
    )
    return 3 * len(wanted & _stems(tool.name)) + len(wanted & about) + 3 * sums


def _stems(words: str) -> frozenset[str]:
    """The words that say something, without the endings that grammar puts to them."""
    found = (word.lower() for word in _WORD.findall(words))
    return frozenset(
        re.sub(r"(?<=\w{3})(s|es|ing|ed)$", "", word) for word in found if word not in IDLE
    )


def _listed(names: Iterable[str]) -> str:
    *head, last = [f"`{name}`" for name in names]
    return f"{', '.join(head)} and {last}" if head else last
