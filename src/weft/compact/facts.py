"""Statements that a newer statement replaced.

"The launch is on 14 March." and later "We move the launch to 21 March." are about the same thing
and give different values, so only the second one holds. No model is needed to see that: *values*
are figures and proper names, the *subject* is what remains of the content words. A newer statement
replaces an older one in two cases:

- Most words of their subjects are the same, and it gives other values. With a word of change
  ("now", "instead", "no wait") by the user, fewer words need to be the same. Without one, only
  figures or only proper names may differ, and two words must be the same, because two statements
  of the same form often speak of different things.
- It has a word of change, and the *label* of a figure, the content word before it ("the hearing is
  on 22 September": hearing), is the same as that of a figure of the same form in the older one.

Identifiers (paths, symbols, errors) belong to the subject: two tickets are two subjects. A sentence
never replaces one of the same message, which is rather its reason. The assistant's confirmation of
a change ("Noted: the hearing is on 6 October.") counts like the user's own statement.
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

VALUES_MOST = 4
"""A statement with more values is not replaced as a whole: most of it may still hold."""

LABEL_WORDS = 5
"""How many words before a figure may be its label."""

RESTATED, RESTATED_LEAST = 0.6, 2
"""The share and the number of words of a sentence that a newer one repeats with other figures."""

OLD_MOST = 60
"""The longest old value that is quoted."""

_WIDE = "\u3040-\u30ff\u3400-\u9fff"
_FIGURE = lazy_pattern(r"\d+月(?:\d+日)?|\d+(?:[.,:]\d+)*")
_ASCII_FIGURE = lazy_pattern(r"[0-9]+(?:[.,:][0-9]+)*")
_PROPER = lazy_pattern(r"[A-Z](?<=\s[A-Z])[\w&'-]*[a-z][\w&'-]*")
_WORD = lazy_pattern(rf"[{_WIDE}]{{2,}}|[^\W\d_{_WIDE}]{{3,}}")
_ASCII_WORD = lazy_pattern(r"[a-z]{3,}")
"""In ASCII, simple sets of characters find the same, and several times as fast."""

_TOKEN = lazy_pattern(
    rf"\d+月(?:\d+日)?|\d+(?:[.,:]\d+)*|[{_WIDE}]+|[^\W\d_{_WIDE}]+|[.;!?。；](?=\s|$)"
)
_UNIT = lazy_pattern(rf"\.?\s?(%|€|\$|£|[^\W\d_{_WIDE}]+|[日月年点時点分人名个円元])")
# These are searched in lower case, which is three times as fast as `re.IGNORECASE`.
_CHANGE = lazy_pattern(
    r"\b(?:now|actually|instead|correction|changed?|changes|no wait|rather|update[ds]?|new|moved?"
    r"|postponed|rescheduled|replaced?s?|switch(?:ed)?|not|no longer|forget|scrap|revised?|cut"
    r"|raised?|reduced?|lowered|amended|made it|any ?more|swap(?:ped)?"
    r"|jetzt|nun|doch|stattdessen|statt|verschoben|verschieben?|verschiebt|geändert|nicht mehr"
    r"|umplanen|maintenant|plutôt|désormais|reporté\w*|déplacé\w*|réduit\w*|retardé\w*|ahora|mejor"
    r"|cambi\w+|aplaza\w*|retras\w+|recort\w+|ya no|en vez de|en lugar de|agora|adiad\w+|adesso"
    r"|rinviat\w+|spostat\w+)\b"
    r"|改为|改成|改到|改在|调整为|推迟|提前|现在|变更|変更|に変わ|延期|ではなく",
)
_CHANGE_WORDS = frozenset(
    """
    now actually instead correction change changed changes rather update updated updates new move
    moved postponed rescheduled replace replaced switch switched not forget scrap revise revised cut
    raise raised reduce reduced lowered amended anymore swap swapped
    jetzt nun doch stattdessen statt verschoben verschiebe verschieben verschiebt umplanen
    maintenant ahora mejor agora adesso
    """.split()  # noqa: SIM905
)
_CHANGE_HINTS = frozenset("wait longer made more mehr replaces vez lugar".split())  # noqa: SIM905
_CHANGE_STEMS = ("cambi", "aplaza", "retras", "recort", "ya no", "adiad", "rinviat", "spostat")
"""The words of `_CHANGE` in ASCII, and words and beginnings that may be part of one. They are
looked up first, because the search is slow."""

_CLEAR_CHANGE = lazy_pattern(
    r"\b(?:changed|(?<!not )instead(?! of)|correction|no wait|actually|moved|postponed|rescheduled"
    r"|replaced|switched|no longer|amended|any ?more|cut|swap(?:ped)?|is now|are now|as of now"
    r"|verschoben|verschiebt|geändert|stattdessen|umplanen|jetzt doch|reporté\w*|déplacé\w*"
    r"|réduit\w*|retardé\w*|aplaza\w*|retras\w+|recort\w+|ya no|adiad\w+|rinviat\w+|spostat\w+"
    r"|now needs?|now wants?)\b|\d now\b(?=[.,;!]|$)"
    r"|改为|改成|改到|改在|调整为|推迟|变更|変更|に変わ|延期",
)
_NEGATED = lazy_pattern(
    r"\b(?:not|instead of|rather than|nicht|statt|anstatt|pas|au lieu de|en vez de|en lugar de|non)"
    r" (?:the |on the |den |die |am |el |le )?(\d+(?:[.,:]\d+)*)",
    re.IGNORECASE,
)
"""A value that a statement says does not hold."""

_CORRECTS = lazy_pattern(
    r"\d.*, (?:not (?!instead)|nicht |pas |non |y no )(?:\S+ ?){1,3}$", re.IGNORECASE
)
"""A sentence with a figure, which ends with the value that is no longer true."""

_MOVE = lazy_pattern(
    r"\b(?:move[ds]?|postpone[ds]?|reschedule[ds]?|shift|push|verschieb\w*) (.{3,60}?)"
    r" (?:to|until|auf) \W?\d",
    re.IGNORECASE,
)
"""What is moved to another time."""

_NAMED = lazy_pattern(r"[^\W\d_]+[-_]?\d[\w-]*")
_LABELLED = lazy_pattern(r"\d[\d.,:]*\W{1,2}(?:[^\W\d_]{1,3}\s+){0,2}([^\W\d_]{3,})")
_COUNTED = lazy_pattern(
    r"\b(?:we are|we're|there are|wir sind|es sind|nous sommes|somos)(?: \w+){0,2}? (\d+)\b",
    re.IGNORECASE,
)
_BACK = lazy_pattern(r"(?:it|this|that|they|these|es|das|sie|er|dies\w*|c'est|它|这|それ)\b", re.I)
"""The start of a sentence whose subject is in the sentence before."""

_COUNT_WORDS = frozenset("are sind sommes somos".split())  # noqa: SIM905
_GERMAN_WORDS = frozenset(
    "der die das und ist nicht ein eine mit für auf ich wir den dem".split()  # noqa: SIM905
)
_GERMAN = lazy_pattern(rf"\b(?:{'|'.join(_GERMAN_WORDS)})\b")
_DAY_NAME = lazy_pattern(
    r"\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|montag|dienstag|mittwoch|donnerstag|freitag"
    r"|samstag|sonntag)s?\b",
)
_MONTH = lazy_pattern(
    r"(?:jan|feb|mar|apr|ma[iy]|jun|jul|aug|sep|o[ck]t|nov|de[cz]|märz)[a-zä]*$", re.IGNORECASE
)
STOP_WORDS = frozenset(
    """
    the and for that this with from are was were have has had not you your can will would should
    could what which when where who how why all any its but then than them they there here into
    please our their his her him she its make made let lets take takes took taken get got settled
    now actually instead correction change changed changes wait rather update updated new move moved
    away replace replaced switch switched longer forget scrap revised decide decided agree agreed
    about also just still again only out over been being does did done use used yes need needs want
    und oder aber der die das den dem des ein eine einen einem einer ist sind war wird werden nicht
    kein keine mit von vom zum zur für auf aus bei nach über unter dass wir ich sie ihr ihre ihnen
    uns unser unsere unseren mein meine meinen auch noch schon also jetzt doch dann nun bitte wie
    was wann alles immer haben hat hatte kann können muss soll sollen ja
    les des une est sont pour dans avec que qui pas mais donc cette ces aux ses leur vous nous elle
    los las una unos con por para del está están pero muy sus este esta estos hay gli che della sono
    uma dos das não
    """.split()  # noqa: SIM905
)
_STOP_PAIRS = frozenset(
    """
    改为 改成 改到 改在 现在 我们 你们 可以 需要 这个 那个 です ます した って から まで 変更 更に
    なり りま まし 推迟 提前 延期 だっ たい ない です。 して くだ ださ さい
    """.split()  # noqa: SIM905
)
_NO_LABEL = frozenset(
    """
    cost costs take takes want wants least most under between until about around only euro euros
    eur usd gbp dollar dollars pounds percent kostet kosten dauert noted updated moved planned
    understood done booked changed verschoben notiert arrival departure from since utc
    """.split()  # noqa: SIM905
)
"""Content words that do not tell what a figure is about."""


class Statement(Struct, frozen=True, gc=False):
    """A sentence of a conversation.

    - `before`: the sentence before it in the same message
    - `confirms`: the assistant repeats a change that the user has just stated
    """

    row: int
    text: str
    by_user: bool
    before: str = ""
    confirms: bool = False


class Replacement(Struct, frozen=True):
    """A current statement, and what it replaced.

    - `lines`: the sentences that it consists of
    - `replaced`: the statements that no longer hold
    - `outdated`: statements with many values, of which some no longer hold
    - `old_value`: in the words of the older statement; empty if it is not clear
    """

    row: int
    text: str
    lines: tuple[str, ...]
    replaced: tuple[str, ...] = ()
    outdated: tuple[str, ...] = ()
    old_value: str = ""


class _Figure(Struct, frozen=True, gc=False):
    text: str
    start: int
    end: int
    form: str
    labels: frozenset[str]


class _Claim(Struct, gc=False):
    """A statement with its values and its subject."""

    row: int
    text: str
    lines: tuple[str, ...]
    subject: frozenset[str]
    identifiers: frozenset[str]
    numbers: frozenset[str]
    proper: frozenset[str]
    plain: str
    context: frozenset[str]
    is_change: bool
    has_authority: bool
    by_user: bool
    replaced: list[str]
    outdated: list[str]
    old_value: str = ""
    is_current: bool = True
    read_figures: tuple[_Figure, ...] | None = None

    @property
    def negated(self) -> set[str]:
        """The values that it says do not hold."""
        if not self.is_change or not self.by_user:
            return set()
        return set(_NEGATED.findall(self.plain))

    @property
    def figures(self) -> tuple[_Figure, ...]:
        """The figures with their labels; they are read late, because few statements need them."""
        if self.read_figures is None:
            self.read_figures = tuple(_figures(self.plain, self.context))
        return self.read_figures

    @property
    def moved(self) -> set[str]:
        """The words of what is moved to another time."""
        move = _MOVE.search(self.plain)
        return content_words(move[1]) if move else set()


def find_replaced(statements: Sequence[Statement], reader: NameReader) -> Iterator[Replacement]:
    """The current statements that replaced others, the newest first."""
    index: dict[str, list[_Claim]] = {}
    read: dict[str, _Claim] = {}
    for statement in statements:
        text = statement.text
        if text in read:
            again = read[text]
            if again.is_current:
                again.row = statement.row
                continue
        claim = _read(statement, reader)
        if claim is None:
            continue
        for older in _similar(claim, index):
            if not older.is_current:
                continue
            if _replaces(claim, older):
                older.is_current = False
                claim.replaced += [*older.replaced, older.text]
                claim.outdated += older.outdated
            elif _changes_part(claim, older):
                claim.outdated.append(older.text)
            else:
                continue
            claim.old_value = _old_value(claim, older) or claim.old_value
        read[text] = claim
        for word in (*claim.subject, *claim.numbers):
            index.setdefault(word, []).append(claim)
    changed = [one for one in read.values() if one.is_current and (one.replaced or one.outdated)]
    for claim in sorted(changed, key=lambda one: -one.row):
        yield Replacement(
            claim.row,
            " ".join(claim.lines),
            claim.lines,
            tuple(claim.replaced),
            tuple(claim.outdated),
            claim.old_value,
        )


def is_change(text: str) -> bool:
    """Whether a statement says that something changed, and gives a figure or a name."""
    if len(text) > LONGEST or is_question(text):
        return False
    is_clear = _CLEAR_CHANGE.search(text.lower()) is not None or _CORRECTS.search(text) is not None
    return is_clear and (_FIGURE.search(text) is not None or _PROPER.search(text) is not None)


def has_change(text: str) -> bool:
    """Whether a sentence of the user may say that something changed."""
    return _CHANGE.search(text.lower()) is not None and not is_question(text)


def values_of(text: str) -> set[str]:
    """The figures of a text."""
    return set((_ASCII_FIGURE if text.isascii() else _FIGURE).findall(text))


def figure_labels(text: str) -> frozenset[str]:
    """The words after the figures of a text, which often tell what they are about: "884 in
    December, 1,371 in January"."""
    words = (match[1].lower() for match in _LABELLED.finditer(text))
    return frozenset(word for word in words if word not in STOP_WORDS and word not in _NO_LABEL)


def has_value(text: str) -> bool:
    """Whether a text has a figure or a proper name."""
    if values_of(text):
        return True
    lowered = text.lower()
    return bool(_proper_names(text, lowered, _split_words(lowered)))


def restates(new: str, old: str) -> bool:
    """Whether a newer sentence has most words of an older one and other figures, or denies one.

    A name that only the older one has makes it another subject.
    """
    figures, old_figures = values_of(new), values_of(old)
    negated = set(_NEGATED.findall(new))
    if negated & old_figures and content_words(new) & content_words(old):
        return True
    if not figures or not old_figures or old_figures <= figures:
        return False
    if not set(_NAMED.findall(old)) <= set(_NAMED.findall(new)):
        return False
    words, old_words = content_words(new) - _NO_LABEL, content_words(old) - _NO_LABEL
    shared = len(words & old_words)
    if shared < RESTATED_LEAST or shared < RESTATED * len(old_words):
        return False
    lowered = old.lower()
    names = _proper_names(old, lowered, _split_words(lowered))
    return all(name in new or _DAY_NAME.fullmatch(name.lower()) for name in names)


def changed_dates(change: str, statements: Sequence[str]) -> list[str]:
    """The statement with a date, if it is the only one and a statement of change has other dates.

    It is probably the one that changed: "from 4 July" and "So 11 to 25 July".
    """
    dates = _dates(change)
    dated = [text for text in statements if _dates(text)]
    if not dates or len(dated) != 1 or _dates(dated[0]) & dates:
        return []
    return dated


def _dates(text: str) -> set[str]:
    return {figure.text for figure in _figures(text, frozenset()) if figure.form == "date"}


def refers_back(text: str) -> bool:
    """Whether a statement only makes sense after the sentence before it."""
    return _BACK.match(text) is not None


def _read(statement: Statement, reader: NameReader) -> _Claim | None:
    """A statement with values; `None` for questions, long texts, and texts without values."""
    text = statement.text
    if len(text) > LONGEST or is_question(text):
        return None
    names = reader.read(text)
    identifiers = frozenset([name for kind, name in names if kind != "number"])
    plain = text
    for name in identifiers:
        plain = plain.replace(name, " " * len(name))
    lowered = plain.lower()
    words = _split_words(lowered)
    numbers = frozenset(values_of(plain))
    proper = _proper_names(plain, lowered, words)
    if not numbers and not proper:
        return None
    changes = statement.confirms or _changes(lowered, words)
    has_back = bool(statement.before) and changes and refers_back(text)
    context = content_words(statement.before) if has_back else set[str]()
    subject = _content(words) | context
    subject -= {_stem(word) for value in proper for word in _split_words(value.lower())}
    subject |= identifiers
    if numbers and not _COUNT_WORDS.isdisjoint(words) and _COUNTED.search(plain):
        subject.add("we are")
    if not subject:
        return None
    lines = (statement.before, text) if has_back else (text,)
    authority = statement.by_user or statement.confirms
    return _Claim(
        statement.row,
        text,
        lines,
        frozenset(subject),
        identifiers,
        numbers,
        proper,
        plain,
        frozenset(context),
        changes,
        authority,
        statement.by_user,
        [],
        [],
    )


def _figures(text: str, context: frozenset[str]) -> Iterator[_Figure]:
    """The figures of a text with the content word before each: what it is about."""
    before: list[str] = []
    for match in _TOKEN.finditer(text):
        token = match[0]
        if not token[0].isdigit():
            before = [] if token in ".;!?。；" else [*before[-LABEL_WORDS:], token]
            continue
        unit = _UNIT.match(text, match.end())
        counted = _COUNTED.search(text[: match.end()])
        is_counted = counted is not None and counted.end() == match.end()
        labels = frozenset({"we are"}) if is_counted else _labels(before) or context
        form = _form(token, unit)
        end = unit.end() if unit and form != "time" and form else match.end()
        yield _Figure(token, match.start(), end, form, labels)


def _labels(before: Sequence[str]) -> frozenset[str]:
    """The nearest content word before a figure; in scripts without spaces, its pairs of signs."""
    for token in reversed(before):
        words = frozenset(word for word in content_words(token) if len(word) > 1) - _NO_LABEL
        if words and (len(token) > 3 or not token.isascii()) and not _MONTH.match(token):
            return words
    return frozenset()


def _form(figure: str, unit: re.Match[str] | None) -> str:
    """What kind of figure it is: a time, a date, or a number with its unit."""
    if ":" in figure:
        return "time"
    if "月" in figure:
        return "date"
    word = unit[1].lower() if unit else ""
    if _MONTH.match(word):
        return "date"
    return word if word in "%€$£" or (len(word) > 2 and word not in STOP_WORDS) else ""


def _changes(lowered: str, words: Sequence[str]) -> bool:
    """Whether a sentence has a word of change."""
    if not _CHANGE_WORDS.isdisjoint(words):
        return True
    may_change = not lowered.isascii() or not _CHANGE_HINTS.isdisjoint(words)
    may_change = may_change or any([stem in lowered for stem in _CHANGE_STEMS])
    return may_change and _CHANGE.search(lowered) is not None


def _proper_names(text: str, lowered: str, words: Sequence[str]) -> frozenset[str]:
    """Names and days. German writes every noun like a name, so there only days count."""
    days = set[str]()
    if "day" in lowered or "tag" in lowered or "mittwoch" in lowered:
        days = {match[0] for match in _DAY_NAME.finditer(lowered)}
    if not _GERMAN_WORDS.isdisjoint(words) and _GERMAN.search(text):
        return frozenset(days)
    return frozenset(
        days.union([name for name in _PROPER.findall(text) if name.lower() not in days])
    )


def content_words(text: str) -> set[str]:
    """The words of a text without stop words and endings, in lower case.

    In scripts without spaces, every pair of neighbouring signs is a word.
    """
    return _content(_split_words(text.lower()))


def _split_words(lowered: str) -> list[str]:
    return (_ASCII_WORD if lowered.isascii() else _WORD).findall(lowered)


def _content(lowered: Sequence[str]) -> set[str]:
    words: set[str] = set()
    for word in lowered:
        if word[0] < "\u3040":
            if word not in STOP_WORDS:
                words.add(_stem(word))
        else:
            pairs = {word[at : at + 2] for at in range(len(word) - 1)}
            words |= pairs - _STOP_PAIRS
    return words


def _stem(word: str) -> str:
    if len(word) > 6 and word.endswith("ing"):
        return word[:-3]
    return word[:-1] if word.endswith("s") and len(word) > 4 else word


def _similar(claim: _Claim, index: dict[str, list[_Claim]]) -> list[_Claim]:
    """The last statements that share a word, each once."""
    found: dict[int, _Claim] = {}
    for word in (*claim.subject, *claim.negated):
        for older in index.get(word, ())[-POSTINGS:]:
            found[id(older)] = older
    return sorted(found.values(), key=lambda older: older.row)


def _replaces(new: _Claim, old: _Claim) -> bool:
    if not _may_replace(new, old):
        return False
    has_many = _has_many_values(old)
    if new.is_change and new.has_authority and not has_many and _differing(new, old):
        return True
    shared = len(new.subject & old.subject)
    same = shared / max(1, min(len(new.subject), len(old.subject)))
    has_new_value = bool(new.numbers - old.numbers or new.proper - old.proper)
    if not has_new_value or not shared:
        return False
    if new.is_change and new.by_user and not has_many:
        if _negates(new, old):
            return True
        names_old = bool((new.numbers & old.numbers) or (new.proper & old.proper))
        return same >= (SAME_CHANGED if names_old or shared > 1 else SAME)
    figures_differ, proper_differ = new.numbers != old.numbers, new.proper != old.proper
    wider = shared / max(len(new.subject), len(old.subject))
    return wider >= SAME and shared > 1 and figures_differ != proper_differ


def _negates(new: _Claim, old: _Claim) -> bool:
    """Whether a statement names the old value itself: "64 plates, not 50"."""
    return bool(new.negated & old.numbers) and not new.numbers <= new.negated


def _changes_part(new: _Claim, old: _Claim) -> bool:
    """Whether a change by the user gives another value for one of many in an older statement."""
    is_stated = new.is_change and new.by_user and _has_many_values(old)
    if not is_stated or not _may_replace(new, old):
        return False
    return bool(_differing(new, old)) or (
        _negates(new, old) and not new.subject.isdisjoint(old.subject)
    )


def _may_replace(new: _Claim, old: _Claim) -> bool:
    """Whether two statements are of different messages, and not about different identifiers."""
    if new.row == old.row and new.by_user == old.by_user:
        return False
    return not (new.identifiers - old.identifiers and old.identifiers - new.identifiers)


def _has_many_values(claim: _Claim) -> bool:
    return len(claim.numbers) + len(claim.proper) > VALUES_MOST


def _differing(new: _Claim, old: _Claim) -> list[_Figure]:
    """The figures of the older statement for which the newer one gives another value."""
    moved = new.moved
    is_moved = bool(moved) and moved <= old.subject
    differing: list[_Figure] = []
    for figure in old.figures:
        rivals = [
            other
            for other in new.figures
            if (figure.form == other.form and (figure.labels & other.labels or is_moved))
            or "we are" in figure.labels & other.labels
        ]
        # A statement with two values of one label names the old one itself.
        if figure.text not in new.numbers and len(rivals) == 1:
            differing.append(figure)
    return differing


def _old_value(new: _Claim, old: _Claim) -> str:
    """The value in the older statement that no longer holds, in its words; empty if unclear."""
    if not new.is_change:
        return ""
    figures = _differing(new, old)
    if not figures and not (new.numbers & old.numbers or new.proper & old.proper):
        figures = [figure for figure in old.figures if figure.form in _forms(new)]
    if figures:
        quote = old.text[figures[0].start : figures[-1].end]
        return quote if len(quote) <= OLD_MOST else ""
    gone = old.proper - new.proper
    if old.numbers or new.proper & old.proper or len(gone) != 1:
        return ""
    [name] = gone
    return name


def _forms(claim: _Claim) -> set[str]:
    return {figure.form for figure in claim.figures}
