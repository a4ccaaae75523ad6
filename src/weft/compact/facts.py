"""Statements that a newer statement replaced.

"The launch is on 14 March." and later "We move the launch to 21 March." are about the same thing
and give different values, so only the second one holds. No model is needed to see that: *values*
are figures and proper names, the *subject* is what remains of the content words. A newer statement
replaces an older one if most words of their subjects are the same and it gives other values.

- With a word of change ("now", "instead", "no wait") by the user, fewer words need to be the same.
- Without one, only figures or only proper names may differ, because two statements of the same form
  often speak of different things.
- Identifiers (paths, symbols, errors) belong to the subject: two tickets are two subjects.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from weft.lazy import lazy_pattern

from .entities import NameReader
from .source import is_question

LONGEST = 240
SAME = 0.67
SAME_CHANGED = 0.5
"""The share of words that two subjects must have in common, without and with a word of change."""

POSTINGS = 8
"""How many of the last statements with a word are compared."""

_FIGURE = lazy_pattern(r"\d+(?:[.,:]\d+)*")
_PROPER = lazy_pattern(r"(?<=\s)[A-Z][\w&'-]*[a-z][\w&'-]*")
_WORD = lazy_pattern(r"[^\W\d_]{3,}")
_CHANGE = lazy_pattern(
    r"\b(?:now|actually|instead|correction|changed?|changes|no wait|rather|update[ds]?|new|moved?"
    r"|postponed|replaced?s?|switch(?:ed)?|not|no longer|forget|scrap|revised?|cut|raised?"
    r"|reduced?|lowered|any ?more|swap(?:ped)?"
    r"|jetzt|doch|stattdessen|maintenant|plutôt|ahora|mejor)\b|改为|改成|现在",
    re.IGNORECASE,
)
_CLEAR_CHANGE = lazy_pattern(
    r"\b(?:changed|instead|correction|no wait|actually|moved|postponed|replaced|switched|no longer"
    r"|any ?more|cut|swap(?:ped)?|is now|are now|\d now|as of now)\b|改为|改成",
    re.IGNORECASE,
)
STOP_WORDS = frozenset(
    """
    the and for that this with from are was were have has had not you your can will would should
    could what which when where who how why all any its but then than them they there here into
    please our their his her him she its make made let lets take takes took taken get got settled
    now actually instead correction change changed changes wait rather update updated new move moved
    away replace replaced switch switched longer forget scrap revised decide decided agree agreed
    about also just still again only out over been being does did done use used yes need needs want
    """.split()  # noqa: SIM905
)


class _Statement(Struct, gc=False):
    row: int
    text: str
    subject: frozenset[str]
    identifiers: frozenset[str]
    figures: frozenset[str]
    proper: frozenset[str]
    is_change: bool
    by_user: bool
    replaced: list[str]
    is_current: bool = True


def find_replaced(
    statements: Sequence[tuple[int, str, bool]],
) -> Iterator[tuple[int, str, list[str]]]:
    """The current statements that replaced others, the newest first, with the replaced ones.

    Each statement has its row, its text, and whether the user made it.
    """
    reader = NameReader()
    index: dict[str, list[_Statement]] = {}
    read: dict[str, _Statement] = {}
    for row, text, by_user in statements:
        if text in read:
            again = read[text]
            if again.is_current:
                again.row = row
                continue
        statement = _read(row, text, by_user, reader)
        if statement is None:
            continue
        for older in _similar(statement, index):
            if older.is_current and _replaces(statement, older):
                older.is_current = False
                statement.replaced += [*older.replaced, older.text]
        read[text] = statement
        for word in statement.subject:
            index.setdefault(word, []).append(statement)
    changed = [one for one in read.values() if one.is_current and one.replaced]
    for statement in sorted(changed, key=lambda one: -one.row):
        yield statement.row, statement.text, statement.replaced


def is_change(text: str) -> bool:
    """Whether a statement says that something changed, and gives a figure or a name."""
    if len(text) > LONGEST or is_question(text):
        return False
    return _CLEAR_CHANGE.search(text) is not None and (
        _FIGURE.search(text) is not None or _PROPER.search(text) is not None
    )


def _read(row: int, text: str, by_user: bool, reader: NameReader) -> _Statement | None:
    """A statement with values; `None` for questions, long texts, and texts without values."""
    if len(text) > LONGEST or is_question(text):
        return None
    names = reader.read(text)
    identifiers = frozenset(name for kind, name in names if kind != "number")
    plain = text
    for name in identifiers:
        plain = plain.replace(name, " ")
    figures = frozenset(_FIGURE.findall(plain))
    proper = frozenset(_PROPER.findall(plain))
    if not figures and not proper:
        return None
    lowered = {word.lower() for word in proper}
    words = content_words(plain)
    values = {_stem(word) for value in lowered for word in _WORD.findall(value)}
    subject = frozenset((words - values) | identifiers)
    if not subject:
        return None
    is_change = _CHANGE.search(text) is not None
    return _Statement(row, text, subject, identifiers, figures, proper, is_change, by_user, [])


def content_words(text: str) -> set[str]:
    """The words of a text without stop words and endings, in lower case."""
    return {_stem(word) for word in _WORD.findall(text.lower()) if word not in STOP_WORDS}


def _stem(word: str) -> str:
    return word[:-1] if word.endswith("s") and len(word) > 4 else word


def _similar(statement: _Statement, index: dict[str, list[_Statement]]) -> list[_Statement]:
    """The last statements that share a word, each once."""
    found: dict[int, _Statement] = {}
    for word in statement.subject:
        for older in index.get(word, ())[-POSTINGS:]:
            found[id(older)] = older
    return sorted(found.values(), key=lambda older: older.row)


def _replaces(new: _Statement, old: _Statement) -> bool:
    if new.identifiers - old.identifiers and old.identifiers - new.identifiers:
        return False
    shared = len(new.subject & old.subject)
    same = shared / max(1, min(len(new.subject), len(old.subject)))
    has_new_value = bool(new.figures - old.figures or new.proper - old.proper)
    if not has_new_value or not shared:
        return False
    if new.is_change and new.by_user:
        names_old = bool((new.figures & old.figures) or (new.proper & old.proper))
        return same >= (SAME_CHANGED if names_old or shared > 1 else SAME)
    figures_differ, proper_differ = new.figures != old.figures, new.proper != old.proper
    wider = shared / max(len(new.subject), len(old.subject))
    return wider >= SAME and figures_differ != proper_differ
