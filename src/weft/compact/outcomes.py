"""What was agreed in a conversation, what came of it, and what was found out.

- A *confirmation* is the assistant's sentence that repeats what the user has just decided ("Noted:
  Pennine Coaches, 7:30 from Leeds."). It can be understood without the exchange before it, and it
  is shorter.
- A *choice* is a short sentence in which the user takes one of several options ("Porto then.").
- An *outcome* is a later sentence about the same thing that says that it failed, was wrong or was
  undone. A decision without it would mislead.
- A *finding* is a sentence of the assistant that gives a cause.
- A *report* is what the assistant said about the result of a call that did something: "The credit
  of 46.62 euros is booked as CR-9921." Of several reports about one thing, the last one holds.

Everything is recognised by the words that people use for it, in several languages, and by words
that two sentences have in common. Each text is a verbatim sentence of the source.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from weft.lazy import lazy_pattern

from .facts import content_words, figures_in, refers_back
from .names import NameReader
from .source import PEOPLE, ToolUse, Turn, is_courtesy, is_narration, is_question

MAX_CONFIRMATION = 260
MAX_PLAIN_CONFIRMATION = 160
MAX_CHOICE = 160
SHORT_CHOICE = 24
MAX_FINDING = 280
"""The longest confirmation, confirmation without a word of agreement, choice and finding, in
characters. A choice shorter than `SHORT_CHOICE` is quoted with the question after it."""

MIN_FINDING_WORDS = 3
SHORT_FINDING_WORDS, REFERRING_FINDING_WORDS = 4, 8
"""The fewest content words of a finding. A finding with fewer words than these is quoted with the
next sentence, or if it refers back with the sentence before it."""

MAX_REPORT = 220
SHORT_RESULT, MAX_RESULT = 300, 4000
MAX_RESULT_LINE = 120
MAX_IDS = 3
"""The longest report and the longest line of a result, in characters. A result of at most
`SHORT_RESULT` characters and `MAX_IDS` new identifiers is probably that of an action; that of a
search has more. A result longer than `MAX_RESULT` is not read."""

MIN_MENTIONED_DIGITS = 3
"""Shorter figures occur by chance in a result and in the answer about it."""

SHORT_TURN_WORDS = 4
"""A turn of the user with at most this many content words need not share words with its
confirmation: "B, the second one."."""

MIN_SHARED_WORDS = 0.3
"""A confirmation without a word of agreement repeats at least this share of the user's content
words."""

MAX_FOLLOWING = 90
"""A shorter sentence that refers back belongs to the confirmation before it."""

OFFER_TURNS = 4
"""Options are looked for in this many turns before the user's."""

MAX_LATER_TURNS = 5
"""More later turns about a decision do not make it more important."""

AGE_PENALTY = 0.7
"""The oldest decision loses this share of its weight."""

MAX_TURNS_READ = 400
"""Outcomes and findings are looked for in this many of the last turns."""

COMMON_WORD_SHARE = 0.25
"""Words in more than this share of the turns do not tell what a sentence is about."""

MIN_COMMON_TURNS = 8
"""A word in at most this many turns is never common, however short the conversation is."""

# These are searched in sentences in lower case.
_AGREES = lazy_pattern(
    r"(?:(?:ok|okay|yes|ja|sì|oui|sí|well|very|all|good|great|so|c'est|está)[,.!]? )?"
    r"(?:noted|understood|agreed|clear|done|updated|moved|planned|added|good|great|fine|okay|ok"
    r"|sure|right|perfect|no problem|got it|confirmed|changed|recorded|removed|switched|booked"
    r"|reserved|excellent|will do|alright|then|correct|saved|set|scheduled|cancell?ed|approved"
    r"|notiert|verstanden|gut|alles klar|klar|erledigt|geändert|in ordnung|einverstanden"
    r"|kein problem|schön|dann|vermerkt|gebucht|vorgemerkt|entendu|noté|compris|d'accord|bien"
    r"|parfait|fait|de acuerdo|entendido|anotado|vale|hecho|perfecto|listo|va bene|capito|fatto"
    r"|annotato|segnato|entendi|anotei|combinado|feito|понял\w*|хорошо|записал\w*|принято|готово"
    r"|ясно|договорились)\b"
    r"|好的|明白|收到|已|没问题|了解|承知|かしこまり|わかりました|分かりました|では|알겠|네,"
)
"""The start of a confirmation."""

_CHOOSES = lazy_pattern(
    r"\b(?:take|choose|pick|go(?:ing)? with|go for|prefer|stick with|nehmen|nimm|nehme|wählen"
    r"|prenons|je prends|on prend|tomamos|quiero|prendiamo|vamos com"
    r"|do (?:that|it|so)|mach das|fais(?:-le| ça)|hazlo|haz eso)\b"
    r"|\b(?:then|it is|sounds (?:good|lovely|great|fine|perfect)"
    r"|(?:is|are) (?:fine|better|perfect))[.!]?$"
    r"|^(?:we|i) want (?:\S+ ){0,3}\S+[.!]?$"
    r"|^(?:ok|okay|yes|good|fine|gut|ja|oui|sí|va bene|alors)[,:] (?:\S+ ){0,4}\S+[.!]?$"
    r"|^also (?:den|die|das|der)\b"
    r"|就用|选|要这个|にします|にしましょう|でお願い"
)
"""A sentence in which the user chooses an option."""

_DO_THAT = lazy_pattern(r"\b(?:do (?:that|it|so)|mach das|fais(?:-le| ça)|hazlo|haz eso)\b")
"""A choice that does not name the option."""

_PROPOSES = lazy_pattern(
    r"\b(?:suggest|propose|recommend|would|could|can|schlage|vorschlag|empfehle|könnte|propose|suggère"
    r"|recommande|propongo|sugiero|recomiendo)\b"
)
"""A sentence in which the assistant proposes something."""

_CHOICE_WORDS = frozenset(
    """
    take want choose pick going with prefer stick good okay fine great yes sounds lovely perfect
    better that this one nehmen nimm nehme mach machen gut super also dann prenons prends bien
    tomamos quiero bueno
    """.split()  # noqa: SIM905
)
"""Words of a choice that do not name the option."""

_REVERSES = lazy_pattern(
    r"\b(?:wrong|mistaken?|not the (?:cause|reason|problem|only)|not because|innocent"
    r"|(?:did|does|do)(?: not|n't) (?:help|work|fix|fit|solve|change)|no effect|without effect"
    r"|(?:it|that|they) fail(?:s|ed)|still (?:fails?|failing|broken|at|the same|there|not|\d)"
    r"|(?:is|are|was|were) still|revert(?:ed|ing)?|rolled back|undone|undid|cancell?ed|withdrawn"
    r"|reject(?:s|ed)|refuse[sd]|decline[sd]|withdraws|withdrew|dropped|abandoned|gave up|scrapped"
    r"|turned out|timed out"
    r"|too (?:small|big|late|early|slow|expensive|narrow|wide|long|short|tight|risky)|no longer"
    r"|any ?more|not any|instead of|out of stock|sold out|deleted|obsolete|superseded|unavailable"
    r"|not available|impossible|is taken|fell through|backfired|moved to|(?:was|been|be) moved"
    r"|(?:is|are) now|changed (?:the|it|its|to|from)|postponed|rescheduled"
    r"|verschoben|reportée?s?|aplazad\w+|rinviat\w+"
    r"|falsch|nicht die ursache|nicht der grund|(?:hilft|half|geht|ging|klappt|passt) nicht"
    r"|fehlgeschlagen|gescheitert|zu (?:eng|klein|groß|spät|früh|teuer|lang|kurz)|gelöscht"
    r"|abgelehnt|lehnt ab|sagt ab|entfällt|fällt aus|storniert|abgesagt|verworfen|doch nicht"
    r"|nicht mehr|scheidet aus|ausgebucht|ausverkauft"
    r"|refus\w+|se retire|n'est (?:\w+ )?plus|indisponible|abandonn\w+|rechaz\w+|ya no|se retira"
    r"|equivocad\w+|rifiut\w+|non è più"
    r"|n'a pas|ne (?:marche|suffit|convient) pas|échoué|annulée?s?|supprimée?s?|finalement"
    r"|épuisée?s?|trop (?:petit|tard|cher|long|court)e?s?|no funcion\w+|falló|cancelad\w+"
    r"|anulad\w+|descartad\w+|demasiado|al final|agotad\w+|non funziona|annullat\w+|troppo"
    r"|não funcion\w+|esgotad\w+"
    r"|не помогло|не работает|отменили|отменен\w*|слишком|оказалось)\b"
    r"|不是.{0,4}原因|没有用|没用|无效|失败|取消|售罄|太(?:小|大|晚|贵)|原因ではな|効果がな|失敗|取り消"
    r"|キャンセル|合わな"
)
"""Words for something that failed, was wrong or was undone."""

_FINDS = lazy_pattern(
    r"\b(?:root cause|the (?:real |actual |true )?(?:cause|reason|culprit|fault|bug|problem)"
    r" (?:is|was|of|for|lies|in)|(?:is|was|are|were) caused by|caused by|explains|turns? out"
    r"|turned out|it was (?:not )?the|comes from|came from|due to|responsible for"
    r"|there (?:are|were) \w+ (?:faults|causes|problems|reasons)|not the cause"
    r"|traced (?:it )?(?:back )?to"
    r"|ursache|liegt an|lag an|der grund|stellt sich heraus|stellte sich heraus|daran liegt"
    r"|la cause|provient de|vient de|à cause d|s'explique|la causa|se debe|debido a|proviene"
    r"|a causa|dovut[oa] a|deve-se|причина|из-за)\b|原因|由于|导致|によるもの|のせい"
)
"""Words for the cause of something."""

_THANKS = lazy_pattern(
    r"\b(?:thank you|thanks|you're welcome|you are welcome|my pleasure|glad|danke|gern geschehen"
    r"|merci|gracias|de nada|grazie|obrigad[oa]|спасибо)\b|谢谢|ありがとう"
)
_ADDRESS = lazy_pattern(r"\S*[@/]\S*")
"""A path, a URL or an e-mail address."""

_CLAUSE_END = lazy_pattern(r"[;:,.](?:\s+|$)|[；：，。]")
_LETTERS = lazy_pattern(r"[^\W\d_]{3}")
_ID = lazy_pattern(r"[A-Z]{1,6}[-_]?\d[\w-]*|[A-Z]{1,6}(?:-[A-Z0-9]+)*-\d[\w-]*")
"""An identifier with a digit, such as `CR-9921`."""

_SUPPOSES = lazy_pattern(
    r"\b(?:maybe|perhaps|might|may|could|i think|i suspect|probably|possibly|either|if|suspect"
    r"|vielleicht|könnte|vermutlich|wahrscheinlich|falls|wenn|peut-être|quizás|forse|talvez"
    r"|возможно|если)\b|可能|也许|如果|かもしれ"
)
"""Words of a supposition."""


_PENDING = lazy_pattern(
    r"\b(?:not yet|waiting|i(?:'ll| will)? (?:ask|call|check|asked|wrote|write|send|sent|phone)"
    r"|looks? for it|call(?:s|ed)? back|answer open|no answer|until (?:he|she|they|we)"
    r"|noch nicht|warte|frage (?:ich|sie|ihn)|ich (?:frage|rufe|kläre|schreibe|habe .{0,20}gefragt)"
    r"|steht noch aus|pas encore|j'attends|je (?:l'|lui |leur )?(?:appelle|demande|écris)"
    r"|je (?:l'|lui |leur )?ai demandé|todavía no|aún no|espero|lo llamo|le pregunto|pregunto"
    r"|he pedido|he preguntado)\b"
    r"|还没|等.{0,4}回复|まだ|待って"
)
"""Words of an answer that leaves a question open."""


class Agreement(Struct, frozen=True):
    """What the user decided, in one or two sentences.

    - `number`: the number of the user's turn
    - `about`: the texts that say what it is about
    - `is_confirmed`: the assistant said it, and not the user
    """

    number: int
    row: int
    text: str
    lines: tuple[str, ...]
    about: tuple[str, ...]
    is_confirmed: bool


def find_agreements(
    turns: Sequence[Turn],
    use_rows: Sequence[int],
    is_known: Callable[[str], bool],
    asks_for_work: Callable[[str], bool],
) -> Iterator[Agreement]:
    """The confirmation of each decision of the user, or else the user's choice, in order.

    - `use_rows`: the rows with calls, in order. The answer after a call is rather a report, so it
      only counts as a confirmation if it begins with a word of agreement.
    - `is_known`: whether another section already quotes a sentence of the user. A confirmation that
      only repeats such sentences is left out.
    - `asks_for_work`: whether a sentence of the user asks for work. The answer is then rather a
      report, too.
    """
    for number in range(max(0, len(turns) - MAX_TURNS_READ), len(turns)):
        row, speaker, sentences = turns[number]
        if speaker != "user" or all(map(is_question, sentences)):
            continue
        before = turns[number - 1] if number else None
        after = turns[number + 1] if number + 1 < len(turns) else None
        about = list(before.sentences[-3:]) if before and before.speaker == "assistant" else []
        lines: list[str] = []
        if after is not None and after.speaker == "assistant":
            has_calls = bisect_left(use_rows, row) < bisect_left(use_rows, after.row)
            must_agree = has_calls or any(map(asks_for_work, sentences))
            lines = _find_confirmation(sentences, after.sentences, is_known, must_agree=must_agree)
        if lines:
            text = " ".join(lines)
            yield Agreement(number, row, text, tuple(lines), (*about, *sentences, *lines), True)
        elif number:
            earlier = turns[max(0, number - OFFER_TURNS) : number]
            lines = _find_choice(sentences, [turn.sentences for turn in earlier], is_known)
            if lines:
                text = "\n  ".join([*lines[:-1], f"User: {lines[-1]}"])
                yield Agreement(number, row, text, tuple(lines), (*about, *sentences), False)


def _find_choice(
    sentences: Sequence[str], offered: Sequence[Sequence[str]], is_known: Callable[[str], bool]
) -> list[str]:
    """The sentence in which the user takes an option of earlier turns; empty if there is none.

    If it does not name the option ("Use that."), the assistant's proposal comes before it.
    `offered` are the sentences of the earlier turns.
    """
    for number, sentence in enumerate(sentences):
        lowered = sentence.lower()
        if is_question(sentence) or is_known(sentence) or len(sentence) > MAX_CHOICE:
            continue
        if _CHOOSES.search(lowered) is None:
            continue
        says_do_that = _DO_THAT.search(lowered) is not None
        option_words = set[str]() if says_do_that else content_words(sentence) - _CHOICE_WORDS
        if any(option_words & content_words(text) for turn in offered for text in turn):
            following = sentences[number + 1 : number + 2]
            is_short = len(sentence) <= SHORT_CHOICE and following and is_question(following[0])
            return [f"{sentence} {following[0]}"] if is_short else [sentence]
        statements = [text for text in offered[-1] if not is_question(text)] if offered else []
        if len(option_words) > 1 or is_courtesy(sentence) or not statements:
            continue
        proposal = max(statements, key=lambda text: len(figures_in(text)))
        if says_do_that:
            proposals = [text for text in statements if _PROPOSES.search(text.lower())]
            proposal = (proposals or statements[-1:])[0]
        return [proposal, sentence] if len(proposal) <= MAX_CONFIRMATION else []
    return []


def _find_confirmation(
    user: Sequence[str],
    assistant: Sequence[str],
    is_known: Callable[[str], bool],
    *,
    must_agree: bool,
) -> list[str]:
    """The sentences of an answer that repeat what the user decided; empty if there are none.

    `user` and `assistant` are the sentences of the two turns. With `must_agree`, the answer has to
    begin with a word of agreement.
    """
    statements = [text for text in user if not is_question(text) and not is_courtesy(text)]
    new = [text for text in statements if not is_known(text)]
    if not new:
        return []
    new_words = {word for text in new for word in content_words(text)}
    new_figures = {figure for text in new for figure in figures_in(text)}
    known_words = {word for text in statements if text not in new for word in content_words(text)}
    is_short_turn = len(new_words) <= SHORT_TURN_WORDS
    agrees, opening = False, list[str]()
    must_agree = must_agree or is_question(user[-1])
    for number, sentence in enumerate(assistant[:3]):
        if is_question(sentence) or len(sentence) > MAX_CONFIRMATION:
            return []
        agrees = agrees or opens_with_agreement(sentence)
        words = content_words(sentence)
        if len(words) < 3 and not figures_in(sentence):  # "Done." or "Good choice."
            if not agrees and not is_courtesy(sentence):
                return []
            opening = [sentence]
            continue
        if is_narration(sentence) or (must_agree and not agrees) or _is_thanks(sentence):
            return []
        shared = len(words & new_words) + len(new_figures & figures_in(sentence))
        repeats_most = shared >= max(2, MIN_SHARED_WORDS * len(new_words))
        repeats_short_turn = is_short_turn and shared > 0
        agrees_with_it = agrees and (is_short_turn or shared > 0)
        if not (repeats_most or repeats_short_turn or agrees_with_it):
            return []
        if known_words and len(words & known_words) >= len(words & new_words):
            return []
        if not agrees and len(sentence) > MAX_PLAIN_CONFIRMATION:
            return []  # rather a list of options
        lines = [*opening, sentence] if opening and refers_back(sentence) else [sentence]
        return _with_following(lines, assistant[number + 1 : number + 3])
    return []


def _with_following(lines: list[str], following: Sequence[str]) -> list[str]:
    """The lines of a confirmation, with the short sentences after them that refer back."""
    for sentence in following:
        size = sum(map(len, lines)) + len(sentence)
        is_part = len(sentence) <= MAX_FOLLOWING and refers_back(sentence)
        if not is_part or size > MAX_CONFIRMATION or is_question(sentence):
            break
        lines = [*lines, sentence]
    return lines


def _is_thanks(sentence: str) -> bool:
    return _THANKS.search(sentence.lower()) is not None and not figures_in(sentence)


def opens_with_agreement(sentence: str) -> bool:
    """Whether a sentence of the assistant begins with a word of agreement, such as "Noted"."""
    return _AGREES.match(sentence.lower()) is not None


class Reversal(NamedTuple):
    """A sentence that says that something failed or was undone.

    - `turn`: the number of its turn
    - `words`, `identifiers`: what it is about
    """

    turn: int
    sentence: str
    words: set[str]
    identifiers: set[str]


class OutcomeIndex:
    """Finds later sentences that say what came of a decision."""

    def __init__(self, turns: Sequence[Turn], reader: NameReader) -> None:
        self.reader = reader
        self.first_turn = max(0, len(turns) - MAX_TURNS_READ)
        self.turn_count = 0
        self.turns_with: dict[str, list[int]] = {}  # by word, the numbers of the turns
        self.reversals: list[Reversal] = []
        for number in range(self.first_turn, len(turns)):
            _, speaker, sentences = turns[number]
            if speaker not in PEOPLE:
                continue
            self.turn_count += 1
            words: set[str] = set()
            for sentence in sentences:
                words |= content_words(_ADDRESS.sub(" ", sentence))
                is_short = len(sentence) <= MAX_CONFIRMATION
                if is_short and not is_question(sentence) and is_reversal(sentence):
                    undone_words = content_words(_reversed_clause(sentence))
                    identifiers = self._identifiers(sentence)
                    self.reversals.append(Reversal(number, sentence, undone_words, identifiers))
            for word in words:
                self.turns_with.setdefault(word, []).append(number)

    def find_outcome(self, number: int, lines: Iterable[str], about: Iterable[str]) -> str:
        """The last sentence that says that a decision failed or was undone; empty if there is none.

        `number` is the turn of the decision, `lines` are its sentences, and `about` are those of
        the exchange around it. The later sentence shares an identifier with any of them, or two
        words that are not common with `lines`.
        """
        texts = [*lines, *about]
        identifiers = {name for text in texts for name in self._identifiers(text)}
        words = {
            word for text in lines for word in content_words(text) if not self._is_common(word)
        }
        for reversal in reversed(self.reversals):
            if reversal.turn <= number + 1:
                return ""
            if reversal.sentence in texts:
                continue
            if identifiers & reversal.identifiers or len(words & reversal.words) > 1:
                return reversal.sentence
        return ""

    def weight(self, number: int, user: Iterable[str], text: str) -> float:
        """How much a decision matters: more if later turns mention one of its words, and less with
        its age.

        Of the words of its text, those that the user said are looked for, if there are any.
        """
        user_words = {word for sentence in user for word in content_words(sentence)}
        text_words = content_words(text)
        words = [
            word for word in text_words & user_words or text_words if not self._is_common(word)
        ]
        later_turns = [
            sum(turn > number + 1 for turn in self.turns_with.get(word, ())) for word in words
        ]
        most_turns = min(max(later_turns, default=0), MAX_LATER_TURNS)
        age = 1 - (number - self.first_turn) / max(1, self.turn_count)
        return (1 + most_turns) * (1 - AGE_PENALTY * max(0.0, min(1.0, age)))

    def _identifiers(self, text: str) -> set[str]:
        """The names of a text with a digit or an underscore, without figures."""
        names = [name for kind, name in self.reader.read(text) if kind != "number"]
        return {name for name in names if any(char.isdigit() for char in name) or "_" in name}

    def _is_common(self, word: str) -> bool:
        turns = len(self.turns_with.get(word, ()))
        return turns > max(MIN_COMMON_TURNS, COMMON_WORD_SHARE * self.turn_count)


def _reversed_clause(sentence: str) -> str:
    """The clause of a sentence that says that something failed or was undone; the whole sentence if
    that clause has too few words."""
    for clause in _CLAUSE_END.split(_ADDRESS.sub(" ", sentence)):
        if is_reversal(clause) and len(content_words(clause)) > 1:
            return clause
    return sentence


class DraftItem(NamedTuple):
    """An item of the state block before it has its section: its row, its text, and the lines of the
    source that it quotes."""

    row: int
    text: str
    lines: tuple[str, ...]


def find_findings(turns: Sequence[Turn], reader: NameReader) -> list[DraftItem]:
    """The sentences of the assistant that give a cause, the most important first.

    First the best of each turn, which has most names, then the second best of each turn, and so on;
    newer turns come first.
    """
    by_turn: dict[int, list[DraftItem]] = {}
    for finding in _findings(turns):
        by_turn.setdefault(finding.row, []).append(finding)
    for findings in by_turn.values():
        findings.sort(key=lambda finding: -len(reader.read(finding.text)))
    ranked = [
        (rank, finding) for findings in by_turn.values() for rank, finding in enumerate(findings)
    ]
    return [finding for _, finding in sorted(ranked, key=lambda entry: entry[0])]


def _findings(turns: Sequence[Turn]) -> Iterator[DraftItem]:
    """The sentences of the assistant that give a cause, the newest first.

    A short one is quoted with its neighbour: "That is the cause." with the sentence before it.
    """
    for row, speaker, sentences in reversed(turns[-MAX_TURNS_READ:]):
        if speaker != "assistant":
            continue
        for number in range(len(sentences) - 1, -1, -1):
            sentence = sentences[number]
            lowered = sentence.lower()
            if len(sentence) > MAX_FINDING or is_question(sentence) or is_narration(sentence):
                continue
            if _FINDS.search(lowered) is None or is_supposed(sentence):
                continue
            lines = [sentence]
            words = len(content_words(sentence))
            if words < SHORT_FINDING_WORDS and number + 1 < len(sentences):
                lines.append(sentences[number + 1])
            if number and refers_back(sentence) and words < REFERRING_FINDING_WORDS:
                lines.insert(0, sentences[number - 1])
            text = " ".join(lines)
            if len(text) <= MAX_FINDING and len(content_words(text)) >= MIN_FINDING_WORDS:
                yield DraftItem(row, text, tuple(lines))


class Report(Struct, frozen=True):
    """What the assistant said about the result of a call.

    - `lines`: the sentences that it consists of
    - `id`: the identifier of what the call created or changed; empty if it has none
    """

    row: int
    text: str
    lines: tuple[str, ...]
    id: str


def find_reports(
    turns: Sequence[Turn], uses: Sequence[ToolUse], reader: NameReader
) -> list[Report]:
    """The last report about each thing that calls created or changed, the newest first.

    Files and commands have sections of their own, so calls with a path or a command do not count.
    A call that only looked something up counts if its result is short, because the assistant
    reports it in the same way.
    """
    rows = [turn.row for turn in turns]
    last_reports: dict[str, Report] = {}  # by identifier, the newest last
    for use in uses[-MAX_TURNS_READ:]:
        if use.path or use.command or use.failed or not 0 < len(use.result) <= MAX_RESULT:
            continue
        number = bisect_left(rows, use.row + 1)
        while number < len(turns) and turns[number].speaker not in PEOPLE:
            number += 1
        if number == len(turns) or turns[number].speaker != "assistant":
            continue
        report = _find_report(use, turns[number], reader)
        if report is not None:
            key = report.id or report.text
            last_reports.pop(key, None)
            last_reports[key] = report
    return list(reversed(last_reports.values()))


def _find_report(use: ToolUse, turn: Turn, reader: NameReader) -> Report | None:
    """The sentence of a turn about a result: the one with its identifier, or else the first one
    with a figure or an address of the call or its result."""
    arguments = " ".join(use.arguments.values())
    created = [name for name in _ids(use.result, reader) if name not in arguments]
    is_short = len(use.result) <= SHORT_RESULT and len(created) <= MAX_IDS
    if not is_short and len(created) != 1:
        return None
    statements = [
        sentence
        for sentence in turn.sentences
        if len(sentence) <= MAX_REPORT and not is_question(sentence) and not is_narration(sentence)
    ]
    ids = _ids(use.result, reader) or (_ids(arguments, reader) if is_short else [])
    for id in created or ids:
        for sentence in statements:
            if id in sentence:
                return Report(turn.row, sentence, (sentence,), id)
    if not is_short:
        return None
    figures = figures_in(f"{arguments} {use.result}")
    addresses = _addresses(arguments)
    for sentence in statements:
        has_figure = not figures.isdisjoint(figures_in(sentence))
        if has_figure or not addresses.isdisjoint(_addresses(sentence)):
            id = ids[0] if ids else ""
            needs_id = bool(id) and id in use.result and id not in sentence
            text = f"{id}: {sentence}" if needs_id else sentence
            return Report(turn.row, text, (sentence,), id)
    return None


def mentioned_results(turns: Sequence[Turn], uses: Sequence[ToolUse]) -> Iterator[tuple[int, str]]:
    """The row and the short line of each result that has a figure which the next answer mentions.

    That is the line that mattered: "03:19 checkout-api 0.6 %". Several such lines in a result are
    options, and the decisions have the chosen one. Files and errors have sections of their own.
    """
    rows = [turn.row for turn in turns]
    for use in uses[-MAX_TURNS_READ:]:
        if use.path or use.command or use.failed:
            continue
        number = bisect_left(rows, use.row + 1)
        if number == len(turns) or turns[number].speaker != "assistant":
            continue
        figures = figures_in(" ".join(turns[number].sentences))
        mentioned = {figure for figure in figures if len(figure) >= MIN_MENTIONED_DIGITS}
        lines = [line.strip() for line in use.result[:MAX_RESULT].splitlines()]
        matching = [
            line
            for line in lines
            if len(line) <= MAX_RESULT_LINE and line[:1] != "{" and mentioned & figures_in(line)
        ]
        if len(matching) == 1 and _LETTERS.search(matching[0]):
            yield use.row, matching[0]


def is_pending(text: str) -> bool:
    """Whether an answer says that a question is still open."""
    return _PENDING.search(text.lower()) is not None


def is_reversal(text: str) -> bool:
    """Whether a text says that something was wrong, failed or was undone."""
    return _REVERSES.search(text.lower()) is not None


def is_supposed(sentence: str) -> bool:
    """Whether a sentence only supposes something."""
    return _SUPPOSES.search(sentence.lower()) is not None


def _ids(text: str, reader: NameReader) -> list[str]:
    """The identifiers of a text with a digit, such as `CR-9921`, each once."""
    names = (name for line in text.splitlines() for _, name in reader.read(line))
    return list(dict.fromkeys(name for name in names if _ID.fullmatch(name)))


def _addresses(text: str) -> set[str]:
    return {address.strip(".,;:()\"'") for address in _ADDRESS.findall(text)}
