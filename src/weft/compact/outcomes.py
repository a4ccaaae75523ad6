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

from msgspec import Struct

from weft.lazy import lazy_pattern

from .entities import NameReader
from .facts import content_words, refers_back, values_of
from .source import ToolUse, Turn, is_courtesy, is_narration, is_question

CONFIRMATION_MOST = 260
ECHO_MOST = 160
CHOICE_MOST = 160
CHOICE_SHORT = 24
FINDING_MOST = 280
"""The longest confirmation, confirmation without a word of agreement, choice and finding, in
characters. A shorter choice is quoted with the question after it."""

REPORT_MOST = 220
RESULT_SHORT, RESULT_MOST = 300, 4000
RESULT_LINE = 120
IDS_MOST = 3
"""The longest report; the longest line of a result; and the characters and identifiers of a result
that is probably that of an action. A longer result, such as one of a search, has more identifiers;
a very long one is not read."""

SHORT_TURN = 4
"""A turn of the user with at most this many content words needs no word in common with the
confirmation: "B, the second one."."""

SHARED = 0.3
"""The share of the user's content words that a confirmation without a word of agreement repeats."""

FOLLOWING_MOST = 90
"""A shorter sentence that refers back belongs to the confirmation before it."""

OFFERED = 4
"""An option was offered in one of this many turns before the user's."""

LATER_MOST = 5
"""More later turns about a decision do not make it more important."""

AGE = 0.7
"""How much less the oldest decision counts than the newest."""

TURNS_READ = 400
"""Outcomes and findings are looked for in this many of the last turns."""

COMMON = 0.25
"""Words in more than this share of the turns do not tell what a sentence is about."""

COMMON_LEAST = 8
"""A word in at most this many turns is never common."""

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
_CHOICE = lazy_pattern(
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
_DO_THAT = lazy_pattern(r"\b(?:do (?:that|it|so)|mach das|fais(?:-le| ça)|hazlo|haz eso)\b")
_PROPOSES = lazy_pattern(
    r"\b(?:suggest|propose|recommend|would|could|can|schlage|vorschlag|empfehle|könnte|propose|suggère"
    r"|recommande|propongo|sugiero|recomiendo)\b"
)
_TAKES = frozenset(
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
_THANKS = lazy_pattern(
    r"\b(?:thank you|thanks|you're welcome|you are welcome|my pleasure|glad|danke|gern geschehen"
    r"|merci|gracias|de nada|grazie|obrigad[oa]|спасибо)\b|谢谢|ありがとう"
)
_ADDRESS = lazy_pattern(r"\S*[@/]\S*")
_CLAUSE_END = lazy_pattern(r"[;:,.](?:\s+|$)|[；：，。]")
_LETTERS = lazy_pattern(r"[^\W\d_]{3}")
_ID = lazy_pattern(r"[A-Z]{1,6}[-_]?\d[\w-]*|[A-Z]{1,6}(?:-[A-Z0-9]+)*-\d[\w-]*")
_SUPPOSES = lazy_pattern(
    r"\b(?:maybe|perhaps|might|may|could|i think|i suspect|probably|possibly|either|if|suspect"
    r"|vielleicht|könnte|vermutlich|wahrscheinlich|falls|wenn|peut-être|quizás|forse|talvez"
    r"|возможно|если)\b|可能|也许|如果|かもしれ"
)


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

    - `use_rows`: the rows with calls, in order. A text after a call is rather a report.
    - `asks_for_work`: whether a sentence of the user asks for work. A report follows then, too.
    - `is_known`: whether another section has a sentence of the user. A confirmation that only
      repeats such sentences is left out.
    """
    for number in range(max(0, len(turns) - TURNS_READ), len(turns)):
        row, speaker, sentences = turns[number]
        if speaker != "user" or all(map(is_question, sentences)):
            continue
        before = turns[number - 1] if number else None
        after = turns[number + 1] if number + 1 < len(turns) else None
        about = list(before[2][-3:]) if before and before[1] == "assistant" else []
        lines: list[str] = []
        if after is not None and after[1] == "assistant":
            has_calls = bisect_left(use_rows, row) < bisect_left(use_rows, after[0])
            must_agree = has_calls or any(map(asks_for_work, sentences))
            lines = _confirmation(sentences, after[2], is_known, must_agree=must_agree)
        if lines:
            text = " ".join(lines)
            yield Agreement(number, row, text, tuple(lines), (*about, *sentences, *lines), True)
        elif number:
            offered = [turn[2] for turn in turns[max(0, number - OFFERED) : number]]
            lines = _choice(sentences, offered, is_known)
            if lines:
                text = "\n  ".join([*lines[:-1], f"User: {lines[-1]}"])
                yield Agreement(number, row, text, tuple(lines), (*about, *sentences), False)


def _choice(
    sentences: Sequence[str], offered: Sequence[Sequence[str]], is_known: Callable[[str], bool]
) -> list[str]:
    """The sentence in which the user takes an option of the turns before.

    If it does not name the option ("Use that."), what the assistant proposed comes first.
    """
    for number, one in enumerate(sentences):
        is_statement = not is_question(one) and not is_known(one) and len(one) <= CHOICE_MOST
        if not is_statement or _CHOICE.search(one.lower()) is None:
            continue
        words = set[str]() if _DO_THAT.search(one.lower()) else content_words(one) - _TAKES
        if any(words & content_words(text) for turn in offered for text in turn):
            following = sentences[number + 1 : number + 2]
            is_short = len(one) <= CHOICE_SHORT and following and is_question(following[0])
            return [f"{one} {following[0]}"] if is_short else [one]
        proposed = [text for text in offered[-1] if not is_question(text)] if offered else []
        if len(words) > 1 or is_courtesy(one) or not proposed:
            continue
        proposal = max(proposed, key=lambda text: len(values_of(text)))
        if _DO_THAT.search(one.lower()):
            proposals = [text for text in proposed if _PROPOSES.search(text.lower())]
            proposal = (proposals or proposed[-1:])[0]
        return [proposal, one] if len(proposal) <= CONFIRMATION_MOST else []
    return []


def _confirmation(
    user: Sequence[str],
    assistant: Sequence[str],
    is_known: Callable[[str], bool],
    *,
    must_agree: bool,
) -> list[str]:
    """The sentences of an answer that repeat what the user decided; empty if it does not."""
    statements = [one for one in user if not is_question(one) and not is_courtesy(one)]
    new = [one for one in statements if not is_known(one)]
    if not new:
        return []
    words = {word for one in new for word in content_words(one)}
    values = {value for one in new for value in values_of(one)}
    known = {word for one in statements if one not in new for word in content_words(one)}
    agrees, opening = False, list[str]()
    must_agree = must_agree or is_question(user[-1])
    for number, sentence in enumerate(assistant[:3]):
        if is_question(sentence) or len(sentence) > CONFIRMATION_MOST:
            return []
        agrees = agrees or opens_with_agreement(sentence)
        own = content_words(sentence)
        if len(own) < 3 and not values_of(sentence):  # "Done." or "Good choice."
            if not agrees and not is_courtesy(sentence):
                return []
            opening = [sentence]
            continue
        if is_narration(sentence) or (must_agree and not agrees) or _is_chat(sentence):
            return []
        shared = len(own & words) + len(values & values_of(sentence))
        is_echo = shared >= max(2, SHARED * len(words)) or (len(words) <= SHORT_TURN and shared)
        if not is_echo and not (agrees and (shared or len(words) <= SHORT_TURN)):
            return []
        if known and len(own & known) >= len(own & words):
            return []
        if not agrees and len(sentence) > ECHO_MOST:
            return []  # rather a list of options
        lines = [*opening, sentence] if opening and refers_back(sentence) else [sentence]
        for following in assistant[number + 1 : number + 3]:
            size = sum(map(len, lines)) + len(following)
            is_part = len(following) <= FOLLOWING_MOST and refers_back(following)
            if not is_part or size > CONFIRMATION_MOST or is_question(following):
                break
            lines.append(following)
        return lines
    return []


def _is_chat(sentence: str) -> bool:
    return _THANKS.search(sentence.lower()) is not None and not values_of(sentence)


def opens_with_agreement(sentence: str) -> bool:
    """Whether a sentence of the assistant begins with a word of agreement, such as "Noted"."""
    return _AGREES.match(sentence.lower()) is not None


class OutcomeIndex:
    """Finds later sentences that say what came of a decision."""

    def __init__(self, turns: Sequence[Turn], reader: NameReader) -> None:
        self.reader = reader
        self.first = max(0, len(turns) - TURNS_READ)
        self.total = 0
        self.turns_with: dict[str, list[int]] = {}
        self.reversals: list[tuple[int, str, set[str], set[str]]] = []
        for number in range(self.first, len(turns)):
            _, speaker, sentences = turns[number]
            if speaker not in ("user", "assistant"):
                continue
            self.total += 1
            words: set[str] = set()
            for sentence in sentences:
                own = content_words(_ADDRESS.sub(" ", sentence))
                words |= own
                is_short = len(sentence) <= CONFIRMATION_MOST
                if is_short and not is_question(sentence) and _REVERSES.search(sentence.lower()):
                    undone = content_words(_reversed_clause(sentence))
                    self.reversals.append((number, sentence, undone, self._names(sentence)))
            for word in words:
                self.turns_with.setdefault(word, []).append(number)

    def outcome(self, number: int, lines: Iterable[str], about: Iterable[str]) -> str:
        """The last sentence after a turn that says that what it agreed on failed or was undone.

        It shares a name with the exchange (`about`), or two words with the agreement itself
        (`lines`), and not only common words.
        """
        texts = [*lines, *about]
        names = {name for text in texts for name in self._names(text)}
        words = {w for text in lines for w in content_words(text) if not self._is_common(w)}
        for later, sentence, own, own_names in reversed(self.reversals):
            if later <= number + 1:
                return ""
            if sentence in texts:
                continue
            if names & own_names or len(words & own) > 1:
                return sentence
        return ""

    def weight(self, number: int, user: Iterable[str], text: str) -> float:
        """How much a decision matters: how many later turns have one of the words that the user
        said and that its text repeats, and how recent it is."""
        user_words = {word for sentence in user for word in content_words(sentence)}
        own = content_words(text)
        rare = [word for word in own & user_words or own if not self._is_common(word)]
        later = [sum(turn > number + 1 for turn in self.turns_with.get(w, ())) for w in rare]
        age = 1 - (number - self.first) / max(1, self.total)
        most = min(max(later, default=0), LATER_MOST)
        return (1 + most) * (1 - AGE * max(0.0, min(1.0, age)))

    def _names(self, text: str) -> set[str]:
        names = [name for kind, name in self.reader.read(text) if kind != "number"]
        return {name for name in names if any(char.isdigit() for char in name) or "_" in name}

    def _is_common(self, word: str) -> bool:
        many = len(self.turns_with.get(word, ()))
        return many > max(COMMON_LEAST, COMMON * self.total)


def _reversed_clause(sentence: str) -> str:
    """The clause of a sentence that says that something failed or was undone; the whole sentence if
    that clause says little alone."""
    for clause in _CLAUSE_END.split(_ADDRESS.sub(" ", sentence)):
        if _REVERSES.search(clause.lower()) and len(content_words(clause)) > 1:
            return clause
    return sentence


Finding = tuple[int, str, tuple[str, ...]]
"""The row of a finding, its text and its lines."""


def find_findings(turns: Sequence[Turn], reader: NameReader) -> list[Finding]:
    """The sentences of the assistant that give a cause: the last turn first, and of each turn first
    the sentence with most names."""
    by_turn: dict[int, list[Finding]] = {}
    for row, text, lines in _findings(turns):
        by_turn.setdefault(row, []).append((row, text, lines))
    for findings in by_turn.values():
        findings.sort(key=lambda finding: -len(reader.read(finding[1])))
    ranked = [(place, one) for of in by_turn.values() for place, one in enumerate(of)]
    return [one for _, one in sorted(ranked, key=lambda entry: entry[0])]


def _findings(turns: Sequence[Turn]) -> Iterator[Finding]:
    for row, speaker, sentences in reversed(turns[-TURNS_READ:]):
        if speaker != "assistant":
            continue
        for number in range(len(sentences) - 1, -1, -1):
            sentence = sentences[number]
            lowered = sentence.lower()
            if len(sentence) > FINDING_MOST or is_question(sentence) or is_narration(sentence):
                continue
            if _FINDS.search(lowered) is None or _SUPPOSES.search(lowered) is not None:
                continue
            lines = [sentence]
            if len(content_words(sentence)) < 4 and number + 1 < len(sentences):
                lines.append(sentences[number + 1])
            if number and refers_back(sentence) and len(content_words(sentence)) < 8:
                lines.insert(0, sentences[number - 1])
            text = " ".join(lines)
            if len(text) <= FINDING_MOST and len(content_words(text)) > 2:
                yield row, text, tuple(lines)


class Report(Struct, frozen=True):
    """What the assistant said about the result of a call.

    - `lines`: the sentences that it consists of
    - `id`: what the call created or changed; empty if it has no identifier
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
    A call that only looked something up counts if its result is short: the assistant says what it
    found in the same way.
    """
    rows = [row for row, _, _ in turns]
    last_of: dict[str, Report] = {}
    for use in uses[-TURNS_READ:]:
        if use.path or use.command or use.failed or not 0 < len(use.result) <= RESULT_MOST:
            continue
        at = bisect_left(rows, use.row + 1)
        while at < len(turns) and turns[at][1] not in ("user", "assistant"):
            at += 1
        if at == len(turns) or turns[at][1] != "assistant":
            continue
        report = _report(use, rows[at], turns[at][2], reader)
        if report is not None:
            key = report.id or report.text
            last_of.pop(key, None)
            last_of[key] = report
    return list(reversed(last_of.values()))


def _report(use: ToolUse, row: int, sentences: Sequence[str], reader: NameReader) -> Report | None:
    """The sentence about a result: that with its identifier, or else the first with a value of the
    call or its result."""
    arguments = " ".join(use.arguments.values())
    created = [name for name in _ids(use.result, reader) if name not in arguments]
    is_short = len(use.result) <= RESULT_SHORT and len(created) <= IDS_MOST
    if not is_short and len(created) != 1:
        return None
    stated = [
        one
        for one in sentences
        if len(one) <= REPORT_MOST and not is_question(one) and not is_narration(one)
    ]
    known = _ids(use.result, reader) or (_ids(arguments, reader) if is_short else [])
    for name in created or known:
        for one in stated:
            if name in one:
                return Report(row, one, (one,), name)
    if not is_short:
        return None
    values = values_of(f"{arguments} {use.result}")
    for one in stated:
        if not values.isdisjoint(values_of(one)) or not _addresses(one).isdisjoint(
            _addresses(arguments)
        ):
            name = known[0] if known else ""
            is_named = name in use.result and name not in one
            return Report(row, f"{name}: {one}" if name and is_named else one, (one,), name)
    return None


def mentioned_results(turns: Sequence[Turn], uses: Sequence[ToolUse]) -> Iterator[tuple[int, str]]:
    """The short line of each result with a figure that the assistant mentions next, and its row.

    That is the line that mattered: "03:19 checkout-api 0.6 %". Several such lines are options, of
    which the decisions have the one that was taken. Files and errors have sections of their own.
    """
    rows = [row for row, _, _ in turns]
    for use in uses[-TURNS_READ:]:
        if use.path or use.command or use.failed:
            continue
        at = bisect_left(rows, use.row + 1)
        if at == len(turns) or turns[at][1] != "assistant":
            continue
        mentioned = {value for value in values_of(" ".join(turns[at][2])) if len(value) > 2}
        lines = [line.strip() for line in use.result[:RESULT_MOST].splitlines()]
        matching = [
            line
            for line in lines
            if len(line) <= RESULT_LINE and line[:1] != "{" and mentioned & values_of(line)
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
