"""Statements that a newer statement replaced.

"The launch is on 14 March." and later "We move the launch to 21 March." are about the same thing
and give different values, so only the second one holds. No model is needed to detect that. The
*values* of a statement are its figures and proper names, and its *subject* is all other content
words. A newer statement replaces an older one in two cases:

- Most words of their subjects are the same, and it gives other values. With a word of change
  ("now", "instead", "no wait") by the user, fewer words need to be the same. Without one, only
  figures or only proper names may differ, and two words must be the same, because statements of the
  same form are often about different things.
- It has a word of change, and the *label* of a figure, the content word before it ("the hearing is
  on 22 September": hearing), is the same as that of a figure of the same form in the older one.

Identifiers (paths, symbols, errors) belong to the subject: two tickets are two subjects. A sentence
never replaces one of the same message, because that is rather its reason. The assistant's
confirmation of a change ("Noted: the hearing is on 6 October.") counts like the user's own
statement.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property

from msgspec import Struct

from weft.lazy import lazy_pattern

from .names import NameReader
from .source import is_question

MAX_STATEMENT_CHARS = 240
"""Longer sentences are not compared."""

SAME_SUBJECT = 0.67
SAME_CHANGED_SUBJECT = 0.5
"""The share of words that two subjects must have in common, without and with a word of change."""

MAX_COMPARED = 8
"""For each word, how many of the last statements with that word are compared."""

MAX_REPLACED_VALUES = 4
"""A statement with more values is not replaced as a whole: most of it may still hold."""

MAX_LABEL_WORDS = 5
"""How many words before a figure may be its label."""

RESTATED_SHARE, MIN_RESTATED_WORDS = 0.6, 2
"""The share and the number of words that a newer sentence with other figures must repeat."""

MAX_OLD_VALUE_CHARS = 60
"""Longer old values are not quoted."""

FIRST_WIDE_CHAR = "\u3040"
_WIDE = "\u3040-\u30ff\u3400-\u9fff"
"""The first character, and the ranges, of scripts without spaces."""

_FIGURE = lazy_pattern(r"\d+月(?:\d+日)?|\d+(?:[.,:]\d+)*")
_ASCII_FIGURE = lazy_pattern(r"[0-9]+(?:[.,:][0-9]+)*")
_PROPER = lazy_pattern(r"[A-Z](?<=\s[A-Z])[\w&'-]*[a-z][\w&'-]*")
_WORD = lazy_pattern(rf"[{_WIDE}]{{2,}}|[^\W\d_{_WIDE}]{{3,}}")
_ASCII_WORD = lazy_pattern(r"[a-z]{3,}")
"""For ASCII text these find the same as `_FIGURE` and `_WORD`, several times as fast."""

_TOKEN = lazy_pattern(
    rf"\d+月(?:\d+日)?|\d+(?:[.,:]\d+)*|[{_WIDE}]+|[^\W\d_{_WIDE}]+|[.;!?。；](?=\s|$)"
)
_UNIT = lazy_pattern(rf"\.?\s?(%|€|\$|£|[^\W\d_{_WIDE}]+|[日月年点時点分人名个円元])")
"""A figure, a run of letters or the end of a sentence; and the unit after a figure."""

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
"""Words of change."""

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
"""The ASCII words of `_CHANGE`, and words and beginnings that may be part of its phrases. They are
looked up first, because the search is slow."""

_CLEAR_CHANGE = lazy_pattern(
    r"\b(?:changed|(?<!not )instead(?! of)|correction|no wait|actually|moved|postponed|rescheduled"
    r"|replaced|switched|no longer|amended|any ?more|cut|swap(?:ped)?|is now|are now|as of now"
    r"|verschoben|verschiebt|geändert|stattdessen|umplanen|jetzt doch|reporté\w*|déplacé\w*"
    r"|réduit\w*|retardé\w*|aplaza\w*|retras\w+|recort\w+|ya no|adiad\w+|rinviat\w+|spostat\w+"
    r"|now needs?|now wants?)\b|\d now\b(?=[.,;!]|$)"
    r"|改为|改成|改到|改在|调整为|推迟|变更|変更|に変わ|延期",
)
"""Words of change that hardly occur in other sentences."""

_NEGATED = lazy_pattern(
    r"\b(?:not|instead of|rather than|nicht|statt|anstatt|pas|au lieu de|en vez de|en lugar de|non)"
    r" (?:the |on the |den |die |am |el |le )?(\d+(?:[.,:]\d+)*)",
    re.IGNORECASE,
)
"""A figure that a statement denies: "not 50"."""

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

_NUMBERED_NAME = lazy_pattern(r"[^\W\d_]+[-_]?\d[\w-]*")
"""A name with a number, such as `gate-4` or `Q3`."""

_LABELLED = lazy_pattern(r"\d[\d.,:]*\W{1,2}(?:[^\W\d_]{1,3}\s+){0,2}([^\W\d_]{3,})")
"""A figure and the word after it: "884 in December"."""

_COUNTED = lazy_pattern(
    r"\b(?:we are|we're|there are|wir sind|es sind|nous sommes|somos)(?: \w+){0,2}? (\d+)\b",
    re.IGNORECASE,
)
"""A number of people or things: "we are 14 now". Its label is "we are"."""

_BACK_REFERENCE = lazy_pattern(
    r"(?:it|this|that|they|these|es|das|sie|er|dies\w*|c'est|它|这|それ)\b", re.I
)
"""The start of a sentence whose subject is in the sentence before."""

_COUNT_WORDS = frozenset("are sind sommes somos".split())  # noqa: SIM905
_GERMAN_WORDS = frozenset(
    "der die das und ist nicht ein eine mit für auf ich wir den dem".split()  # noqa: SIM905
)
_GERMAN = lazy_pattern(rf"\b(?:{'|'.join(_GERMAN_WORDS)})\b")
"""Words that occur in most German sentences."""

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
"""Words that do not tell what a statement is about, in several languages."""

_STOP_PAIRS = frozenset(
    """
    改为 改成 改到 改在 现在 我们 你们 可以 需要 这个 那个 です ます した って から まで 変更 更に
    なり りま まし 推迟 提前 延期 だっ たい ない です。 して くだ ださ さい
    """.split()  # noqa: SIM905
)
"""The same for pairs of characters in Chinese and Japanese."""

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


class ChangedFact(Struct, frozen=True):
    """A current statement, and what it replaced.

    - `lines`: the sentences that it consists of
    - `replaced`: the statements that no longer hold
    - `outdated`: statements with many values, of which some no longer hold
    - `old_value`: the value that no longer holds, as it was spelled; empty if unclear
    """

    row: int
    text: str
    lines: tuple[str, ...]
    replaced: tuple[str, ...] = ()
    outdated: tuple[str, ...] = ()
    old_value: str = ""


class _Figure(Struct, frozen=True, gc=False):
    """A figure of a statement.

    - `start`, `end`: where it is in the text, with its unit
    - `form`: `time`, `date`, a unit, or empty
    - `labels`: the words that tell what the figure is about
    """

    text: str
    start: int
    end: int
    form: str
    labels: frozenset[str]


class _Claim(Struct, gc=False):
    """A statement with its values and its subject.

    - `plain`: the text with its identifiers blanked out
    - `context`: the content words of the sentence before, if the statement refers back to it
    - `has_authority`: the user said it, or the assistant confirmed what the user said
    - `read_figures`: the cache of `figures`
    """

    row: int
    text: str
    lines: tuple[str, ...]
    subject: frozenset[str]
    identifiers: frozenset[str]
    numbers: frozenset[str]
    proper_names: frozenset[str]
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
        """The figures that the user denies in it."""
        if not self.is_change or not self.by_user:
            return set()
        return set(_NEGATED.findall(self.plain))

    @property
    def figures(self) -> tuple[_Figure, ...]:
        """The figures with their labels. They are read when first needed, because few statements
        need them."""
        if self.read_figures is None:
            self.read_figures = tuple(_figures(self.plain, self.context))
        return self.read_figures

    @property
    def moved(self) -> set[str]:
        """The words for what is moved to another time."""
        move = _MOVE.search(self.plain)
        return content_words(move[1]) if move else set()


def find_replaced(statements: Sequence[Statement], reader: NameReader) -> Iterator[ChangedFact]:
    """The current statements that replaced others, the newest first."""
    claims_with: dict[str, list[_Claim]] = {}  # by the words of the subject and the figures
    claims: dict[str, _Claim] = {}
    for statement in statements:
        text = statement.text
        if text in claims and claims[text].is_current:
            claims[text].row = statement.row
            continue
        claim = _read_claim(statement, reader)
        if claim is None:
            continue
        for older in _similar_claims(claim, claims_with):
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
        claims[text] = claim
        for word in (*claim.subject, *claim.numbers):
            claims_with.setdefault(word, []).append(claim)
    changes = [
        claim
        for claim in claims.values()
        if claim.is_current and (claim.replaced or claim.outdated)
    ]
    for claim in sorted(changes, key=lambda claim: -claim.row):
        yield ChangedFact(
            claim.row,
            " ".join(claim.lines),
            claim.lines,
            tuple(claim.replaced),
            tuple(claim.outdated),
            claim.old_value,
        )


def states_change(text: str) -> bool:
    """Whether a sentence clearly says that something changed, and gives a figure or a name."""
    if len(text) > MAX_STATEMENT_CHARS or is_question(text):
        return False
    is_clear = _CLEAR_CHANGE.search(text.lower()) is not None or _CORRECTS.search(text) is not None
    return is_clear and (_FIGURE.search(text) is not None or _PROPER.search(text) is not None)


def may_state_change(text: str) -> bool:
    """Whether a sentence has a word of change and is no question."""
    return _CHANGE.search(text.lower()) is not None and not is_question(text)


def figures_in(text: str) -> set[str]:
    """The figures of a text."""
    return set((_ASCII_FIGURE if text.isascii() else _FIGURE).findall(text))


def figure_labels(text: str) -> frozenset[str]:
    """The words after the figures of a text. They often tell what the figures are about: "884 in
    December, 1,371 in January"."""
    words = (match[1].lower() for match in _LABELLED.finditer(text))
    return frozenset(word for word in words if word not in STOP_WORDS and word not in _NO_LABEL)


def has_value(text: str) -> bool:
    """Whether a text has a figure or a proper name."""
    if figures_in(text):
        return True
    lowered = text.lower()
    return bool(_proper_names(text, lowered, _split_words(lowered)))


class Claim:
    """A sentence as `restates` compares it; what is read from the text is read once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.figures = figures_in(text)
        self.negated_figures = set(_NEGATED.findall(text))

    @cached_property
    def words(self) -> set[str]:
        return content_words(self.text)

    @cached_property
    def numbered_names(self) -> set[str]:
        return set(_NUMBERED_NAME.findall(self.text))

    @cached_property
    def proper_names(self) -> frozenset[str]:
        lowered = self.text.lower()
        return _proper_names(self.text, lowered, _split_words(lowered))


def restates(new: Claim, old: Claim) -> bool:
    """Whether a newer sentence repeats most words of an older one with other figures, or denies a
    figure of it.

    If the older one has a name that the newer one lacks, they are about different things.
    """
    if not new.negated_figures.isdisjoint(old.figures) and new.words & old.words:
        return True
    if not new.figures or not old.figures or old.figures <= new.figures:
        return False
    if not old.numbered_names <= new.numbered_names:
        return False
    old_words = old.words - _NO_LABEL
    shared = len(old_words & new.words)
    if shared < MIN_RESTATED_WORDS or shared < RESTATED_SHARE * len(old_words):
        return False
    return all(name in new.text or _DAY_NAME.fullmatch(name.lower()) for name in old.proper_names)


def changed_dates(change: str, statements: Sequence[str]) -> list[str]:
    """The one statement with a date, if a statement of change has other dates; else empty.

    It is probably the statement that changed: "from 4 July" and "So 11 to 25 July".
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
    return _BACK_REFERENCE.match(text) is not None


def _read_claim(statement: Statement, reader: NameReader) -> _Claim | None:
    """The claim of a statement; `None` for questions, long texts, and texts without values."""
    text = statement.text
    if len(text) > MAX_STATEMENT_CHARS or is_question(text):
        return None
    names = reader.read(text)
    identifiers = frozenset([name for kind, name in names if kind != "number"])
    plain = text
    for name in identifiers:
        plain = plain.replace(name, " " * len(name))
    lowered = plain.lower()
    words = _split_words(lowered)
    numbers = frozenset(figures_in(plain))
    proper_names = _proper_names(plain, lowered, words)
    if not numbers and not proper_names:
        return None
    is_change_stated = statement.confirms or _has_change_word(lowered, words)
    refers_to_before = bool(statement.before) and is_change_stated and refers_back(text)
    context = content_words(statement.before) if refers_to_before else set[str]()
    subject = _content_words_of(words) | context
    subject -= {_stem(word) for value in proper_names for word in _split_words(value.lower())}
    subject |= identifiers
    if numbers and not _COUNT_WORDS.isdisjoint(words) and _COUNTED.search(plain):
        subject.add("we are")
    if not subject:
        return None
    lines = (statement.before, text) if refers_to_before else (text,)
    return _Claim(
        row=statement.row,
        text=text,
        lines=lines,
        subject=frozenset(subject),
        identifiers=identifiers,
        numbers=numbers,
        proper_names=proper_names,
        plain=plain,
        context=frozenset(context),
        is_change=is_change_stated,
        has_authority=statement.by_user or statement.confirms,
        by_user=statement.by_user,
        replaced=[],
        outdated=[],
    )


def _figures(text: str, context: frozenset[str]) -> Iterator[_Figure]:
    """The figures of a text with their labels; `context` labels those without a label."""
    words_before: list[str] = []
    for match in _TOKEN.finditer(text):
        token = match[0]
        if not token[0].isdigit():
            is_end = token in ".;!?。；"
            words_before = [] if is_end else [*words_before[-MAX_LABEL_WORDS:], token]
            continue
        unit = _UNIT.match(text, match.end())
        counted = _COUNTED.search(text[: match.end()])
        is_counted = counted is not None and counted.end() == match.end()
        labels = frozenset({"we are"}) if is_counted else _labels(words_before) or context
        form = _figure_form(token, unit)
        has_unit = unit is not None and form not in ("", "time")
        end = unit.end() if unit is not None and has_unit else match.end()
        yield _Figure(token, match.start(), end, form, labels)


def _labels(words_before: Sequence[str]) -> frozenset[str]:
    """The nearest content word before a figure; in scripts without spaces, its pairs of
    characters."""
    for token in reversed(words_before):
        words = frozenset(word for word in content_words(token) if len(word) > 1) - _NO_LABEL
        if words and (len(token) > 3 or not token.isascii()) and not _MONTH.match(token):
            return words
    return frozenset()


def _figure_form(figure: str, unit: re.Match[str] | None) -> str:
    """`time`, `date`, the unit of a number, or empty."""
    if ":" in figure:
        return "time"
    if "月" in figure:
        return "date"
    word = unit[1].lower() if unit else ""
    if _MONTH.match(word):
        return "date"
    return word if word in "%€$£" or (len(word) > 2 and word not in STOP_WORDS) else ""


def _has_change_word(lowered: str, words: Sequence[str]) -> bool:
    """Whether a sentence has a word of change."""
    if not _CHANGE_WORDS.isdisjoint(words):
        return True
    may_match = (
        not lowered.isascii()
        or not _CHANGE_HINTS.isdisjoint(words)
        or any([stem in lowered for stem in _CHANGE_STEMS])
    )
    return may_match and _CHANGE.search(lowered) is not None


def _proper_names(text: str, lowered: str, words: Sequence[str]) -> frozenset[str]:
    """The proper names and days of a text. German capitalises every noun, so there only days
    count."""
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

    In scripts without spaces, every pair of neighbouring characters is a word.
    """
    return _content_words_of(_split_words(text.lower()))


def _split_words(lowered: str) -> list[str]:
    return (_ASCII_WORD if lowered.isascii() else _WORD).findall(lowered)


def _content_words_of(lowered: Sequence[str]) -> set[str]:
    """The content words among words in lower case."""
    words: set[str] = set()
    for word in lowered:
        if word[0] < FIRST_WIDE_CHAR:
            if word not in STOP_WORDS:
                words.add(_stem(word))
        else:
            pairs = {word[index : index + 2] for index in range(len(word) - 1)}
            words |= pairs - _STOP_PAIRS
    return words


def _stem(word: str) -> str:
    """The word without a final "ing" or "s"."""
    if len(word) > 6 and word.endswith("ing"):
        return word[:-3]
    return word[:-1] if word.endswith("s") and len(word) > 4 else word


def _similar_claims(claim: _Claim, claims_with: dict[str, list[_Claim]]) -> list[_Claim]:
    """The last claims that share a word, each once, the oldest first."""
    similar: dict[int, _Claim] = {}
    for word in (*claim.subject, *claim.negated):
        for older in claims_with.get(word, ())[-MAX_COMPARED:]:
            similar[id(older)] = older
    return sorted(similar.values(), key=lambda older: older.row)


def _replaces(new: _Claim, old: _Claim) -> bool:
    """Whether a newer claim replaces an older one; the module docstring has the rules."""
    if not _may_replace(new, old):
        return False
    has_many = _has_many_values(old)
    if new.is_change and new.has_authority and not has_many and _changed_figures(new, old):
        return True
    shared = len(new.subject & old.subject)
    has_new_value = bool(new.numbers - old.numbers or new.proper_names - old.proper_names)
    if not has_new_value or not shared:
        return False
    if new.is_change and new.by_user and not has_many:
        if _negates(new, old):
            return True
        shared_of_shorter = shared / max(1, min(len(new.subject), len(old.subject)))
        has_old_value = bool((new.numbers & old.numbers) or (new.proper_names & old.proper_names))
        is_same = has_old_value or shared > 1
        return shared_of_shorter >= (SAME_CHANGED_SUBJECT if is_same else SAME_SUBJECT)
    shared_of_longer = shared / max(len(new.subject), len(old.subject))
    figures_differ, names_differ = new.numbers != old.numbers, new.proper_names != old.proper_names
    return shared_of_longer >= SAME_SUBJECT and shared > 1 and figures_differ != names_differ


def _negates(new: _Claim, old: _Claim) -> bool:
    """Whether a statement denies the old value and gives a new one: "64 plates, not 50"."""
    return bool(new.negated & old.numbers) and not new.numbers <= new.negated


def _changes_part(new: _Claim, old: _Claim) -> bool:
    """Whether a change by the user gives another value for one of many in an older statement."""
    is_change = new.is_change and new.by_user and _has_many_values(old)
    if not is_change or not _may_replace(new, old):
        return False
    if _changed_figures(new, old):
        return True
    return _negates(new, old) and not new.subject.isdisjoint(old.subject)


def _may_replace(new: _Claim, old: _Claim) -> bool:
    """Whether two statements are in different messages, and not about different identifiers."""
    if new.row == old.row and new.by_user == old.by_user:
        return False
    return not (new.identifiers - old.identifiers and old.identifiers - new.identifiers)


def _has_many_values(claim: _Claim) -> bool:
    return len(claim.numbers) + len(claim.proper_names) > MAX_REPLACED_VALUES


def _changed_figures(new: _Claim, old: _Claim) -> list[_Figure]:
    """The figures of the older statement for which the newer one gives another value."""
    moved = new.moved
    is_moved = bool(moved) and moved <= old.subject
    changed: list[_Figure] = []
    for figure in old.figures:
        new_values = [
            other
            for other in new.figures
            if (figure.form == other.form and (figure.labels & other.labels or is_moved))
            or "we are" in figure.labels & other.labels
        ]
        # Of two values with one label, one is the old value itself.
        if figure.text not in new.numbers and len(new_values) == 1:
            changed.append(figure)
    return changed


def _old_value(new: _Claim, old: _Claim) -> str:
    """The value that no longer holds, as the older statement spells it; empty if unclear."""
    if not new.is_change:
        return ""
    shares_name = not new.proper_names.isdisjoint(old.proper_names)
    shares_value = shares_name or not new.numbers.isdisjoint(old.numbers)
    figures = _changed_figures(new, old)
    if not figures and not shares_value:
        figures = [figure for figure in old.figures if figure.form in _figure_forms(new)]
    if figures:
        quote = old.text[figures[0].start : figures[-1].end]
        return quote if len(quote) <= MAX_OLD_VALUE_CHARS else ""
    # Without figures, the only name of the older statement is its value.
    if old.numbers or shares_name or len(old.proper_names) != 1:
        return ""
    [name] = old.proper_names
    return name


def _figure_forms(claim: _Claim) -> set[str]:
    return {figure.form for figure in claim.figures}
