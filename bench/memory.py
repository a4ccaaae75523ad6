"""How much of a conversation a compaction keeps. Run it with `make eval`; no model, no network.

    python bench/memory.py [--corpus FOLDER] [--only PART] [--budgets 0.05,0.1,0.2]

Without a folder of transcripts (`--corpus`, or the variable `WEFT_CORPUS`) the generated sessions
are measured alone. The parts are:

- `retention`: what later calls need, beside recency, set cover and BM25 (`memory_measures`)
- `exam`: needed items, changed facts, names and the user's words in the frozen talks of
  `bench/exam`, which nobody tunes on (`memory_exam`)
- `validation`: the same for an extract whose constants are fitted on one session and measured on
  the others
- `rules`: how many of twenty rules are still there, verbatim, after five compactions
- `facts`: whether the current value of a changed fact is there, or only an old one
- `check`: how often the check of a model's summary drops a true sentence or misses a wrong name
- `tokens`: the error of the estimated size of a request, beside what the vendor reported
- `questions`: whether `recall` finds the answers to questions in 500 and 1,000 tokens, beside its
  hits and plain BM25 (`memory_recall`)
- `speed`: one million tokens, beside one pass of the tokenizer, and how the time grows; a recall in
  100,000 messages
"""

import argparse
import os
import re
import resource
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import process_time

import memory_data as data
import memory_questions as questions
from memory_exam import measure_exam
from memory_fit import fit
from memory_measures import (
    CUTS,
    METHODS,
    Bm25,
    Context,
    Future,
    Past,
    Recall,
    Scores,
    count,
    extract,
    identifiers,
    mean_scores,
    row_texts,
    score,
)
from memory_recall import measure_recall

import weft
from weft.catalog import load_catalog
from weft.compact import Gauge, plan_budget
from weft.compact.extract import Extract, NeedModel
from weft.compact.fidelity import check_summary, read_ground_truth
from weft.history import Row
from weft.model import Message
from weft.tokens import counter_for, counter_for_model

SEEDS = (1, 2, 3)
PLANS = range(30)
TUNED = "claude-code-258c7280"
"""The recorded session that the constants of the extract were chosen on."""

RECALL_TOKENS = 500


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--corpus", default=os.environ.get("WEFT_CORPUS"))
    parser.add_argument("--only", choices=sorted(PARTS), action="append")
    parser.add_argument("--budgets", default="0.1")
    options = parser.parse_args()
    folder = None if options.corpus is None else Path(options.corpus)
    if folder is not None and (folder / "transcripts").is_dir():
        folder = folder / "transcripts"
    budgets = [float(share) for share in options.budgets.split(",")]
    data_set = DataSet(folder, budgets)
    for part in options.only or PARTS:
        PARTS[part](data_set)
        print(flush=True)


class DataSet:
    """The conversations that are measured, and the shares of tokens for their contexts."""

    def __init__(self, folder: Path | None, budgets: Sequence[float]) -> None:
        self.budgets = budgets
        self.sessions = [data.make_session(seed) for seed in SEEDS]
        self.transcripts = [] if folder is None else data.read_transcripts(folder)
        self.files = [] if folder is None else data.transcript_files(folder)
        self.summaries = [] if folder is None else data.read_model_summaries(folder)


def measure_retention(data_set: DataSet) -> None:
    """One table for each budget: the mean over transcripts and cuts, and each transcript."""
    groups = {
        "tuned": [t for t in data_set.transcripts if t.name == TUNED],
        "not tuned": [t for t in data_set.transcripts if t.name != TUNED],
        "generated": data_set.sessions,
    }
    for label, transcripts in groups.items():
        for share in data_set.budgets if transcripts else ():
            names = " ".join(f"{name:>8}" for name in Scores.__struct_fields__)
            print(f"retention, {label} sessions, {share:.0%} of tokens\n{'':28}{names}")
            for method, context in METHODS.items():
                scores = {t.name: retention(t, context, share) for t in transcripts}
                _print_scores(method, mean_scores(list(scores.values())))
                if method.startswith("Weft"):
                    for name, single in scores.items():
                        _print_scores(f"  {name}", single)


def retention(transcript: data.Transcript, context: Context, share: float) -> Scores:
    """The mean over the cuts of one conversation."""
    scores: list[Scores] = []
    for cut in CUTS:
        key = (transcript.name, cut)
        if key not in _CUT:
            _CUT[key] = _cut(transcript.rows, cut)
        past, future, recall, bm25 = _CUT[key]
        text = context(past.rows, int(past.tokens * share))
        scores.append(score(text, past, future, recall, bm25))
    return mean_scores(scores)


Cut = tuple[Past, Future, Recall, Recall]
_CUT: dict[tuple[str, float], Cut] = {}
"""Each cut of each transcript, because every method is measured on it."""


def _cut(rows: Sequence[Row], cut: float) -> Cut:
    border = int(len(rows) * cut)
    past = Past(rows[:border])
    thread = weft.open()
    for row in past.rows:
        thread.commit_message(row.message)
    index = Bm25(row_texts(past.rows))

    @cache
    def recall(question: str) -> str:
        return str(thread.recall_page(question, tokens=RECALL_TOKENS).text)

    @cache
    def bm25(question: str) -> str:
        return index.find(question, RECALL_TOKENS)

    return past, Future(rows[border:], past), recall, bm25


def measure_validation(data_set: DataSet) -> None:
    """Fits the need of names on one session, and measures the extract on the others."""
    groups = {"recorded": data_set.transcripts, "generated": data_set.sessions}
    for label, transcripts in groups.items():
        for trained in transcripts:
            model = fit([trained])

            def extract_with(rows: Sequence[Row], budget: int, model: NeedModel = model) -> str:
                summary = Extract(rows, count, model).within(budget)
                return "" if summary is None else summary.text

            others = [one for one in transcripts if one is not trained]
            scores = mean_scores([retention(one, extract_with, 0.1) for one in others])
            print(f"an extract fitted on {trained.name}, measured on the others ({label})")
            _print_scores("", scores)


def measure_rules(_: DataSet) -> None:
    """Five parts of a session, a compaction after each: the rules that are still verbatim."""
    for model in (None, "weft-offline"):
        counts = [count_rules(seed, 0.1, model) for seed in SEEDS]
        print(f"rules after five compactions, {model or 'extract'}: {counts} of {len(data.RULES)}")


def count_rules(seed: int, share: float, model: str | None) -> int:
    """How many of the rules of one session are in the thread after its last compaction."""
    whole = 0
    with weft.open() as thread:
        for part in data.make_ruled_session(seed):
            for message in part:
                thread.commit_message(message)
                whole += count(message)
            thread.compact(budget=int(whole * share), **({} if model is None else {"model": model}))
        text = "\n".join(message.text for message in thread.compile().messages)
    return sum(rule in text for rule in data.RULES)


def measure_facts(_: DataSet) -> None:
    """The facts of thirty conversations at 10 %: the current value, or only an old one."""
    current = old = total = 0
    for seed in PLANS:
        plan = data.make_plan(seed)
        past = plan.rows
        budget = int(sum(count(row.message) for row in past) * 0.1)
        text = extract(past, budget)
        for fact in plan.facts:
            total += 1
            holds = fact.values[-1] in text
            current += holds
            old += not holds and any(value in text for value in fact.values[:-1])
    print(f"changed facts: current value {current / total:.1%}, only an old one {old / total:.1%}")


def measure_check(data_set: DataSet) -> None:
    """Both errors of the check, on recorded and on generated summaries."""
    generated = [data.make_model_summary(seed) for seed in SEEDS]
    for label, summaries in {"recorded": data_set.summaries, "generated": generated}.items():
        dropped = marked = sentences = altered = caught = 0
        for summary in summaries:
            ground = read_ground_truth(summary.rows)
            lines = [line for line in summary.text.splitlines() if line.strip()]
            sentences += sum(len(re.split(r"(?<=[.!?])\s+", line)) for line in lines)
            checked = check_summary(summary.text, ground)
            dropped += len(checked.dropped)
            marked += len(getattr(checked, "marked", ()))
            for line, name, wrong in alterations(summary, Random(7)):
                altered += 1
                result = check_summary(line.replace(name, wrong), ground)
                was_marked = any(wrong in doubt for doubt in getattr(result, "marked", ()))
                caught += wrong not in result.text or was_marked
        if sentences:
            print(
                f"check, {label} summaries: {dropped} of {sentences} true sentences dropped "
                f"({dropped / sentences:.1%}), {marked} marked; "
                f"{caught} of {altered} altered names caught ({caught / max(1, altered):.1%})"
            )
    sources = [*data_set.sessions, *data_set.transcripts]
    invented = sum(invented_names(transcript.rows) for transcript in sources)
    print(f"identifiers of extracts that are not in their source: {invented}")


def alterations(summary: data.ModelSummary, chance: Random) -> list[tuple[str, str, str]]:
    """For each identifier of a summary: its line, the identifier, and an altered spelling.

    Only spellings that the source does not have can be noticed, so others are left out.
    """
    source = Past(summary.rows).whole.lower()
    changes: list[tuple[str, str, str]] = []
    for line in summary.text.splitlines():
        for name in sorted(identifiers(line)):
            wrong = alter(name, chance)
            if wrong != name and wrong.lower() not in source:
                changes.append((line, name, wrong))
    return changes


def alter(name: str, chance: Random) -> str:
    """The name with another digit, two letters swapped, or another word in it.

    The arity in `name/2` is not part of the name.
    """
    body, arity = (name[:-2], name[-2:]) if re.search(r"/\d$", name) else (name, "")
    digits = [position for position, char in enumerate(body) if char.isdigit()]
    if digits:
        position = chance.choice(digits)
        digit = str((int(body[position]) + chance.randint(1, 8)) % 10)
        return body[:position] + digit + body[position + 1 :] + arity
    words = re.findall(r"[A-Z]?[a-z]{3,}", body)
    if not words:
        return name
    word = chance.choice(words)
    if chance.random() < 0.5 and len(words) > 1:
        other = chance.choice(("zephyr", "walnut", "harbor", "meadow"))
        other = other.capitalize() if word[0].isupper() else other
        return body.replace(word, other, 1) + arity
    position = chance.randrange(1, len(word) - 1)
    return (
        body.replace(
            word, word[:position] + word[position + 1] + word[position] + word[position + 2 :], 1
        )
        + arity
    )


def invented_names(rows: Sequence[Row]) -> int:
    """Identifiers in an extract that its source does not have."""
    past = Past(rows)
    raw = past.whole + "\n".join(
        block.arguments
        for row in rows
        for block in row.message.blocks
        if hasattr(block, "arguments")
    )
    body = extract(rows, past.tokens // 10).partition("\n")[2]
    tools = {block.name for row in rows for block in row.message.blocks if hasattr(block, "name")}
    body = re.sub(r"\.\.\. and \d+ more", "", body)
    return sum(name not in raw and name not in tools for name in identifiers(body))


def measure_tokens(data_set: DataSet) -> None:
    """The error of the agent's estimate after the first answer of a session, by its usage."""
    catalog = load_catalog()
    errors: list[float] = []
    for path in data_set.files:
        gauges: dict[str, Gauge] = {}
        sizes: dict[tuple[str, int], tuple[Message, int]] = {}
        for model, messages, reported in data.read_reports(path):
            counter = counter_for_model(catalog.find(model))
            for message in messages:
                if (model, id(message)) not in sizes:
                    sizes[model, id(message)] = (message, counter.message(message))
            estimate = sum(sizes[model, id(message)][1] for message in messages)
            gauge = gauges.get(model, Gauge())
            if gauge.reported is not None:
                errors.append(abs(gauge.measure(estimate) - reported) / reported)
            gauges[model] = gauge.learn(estimate, reported, catalog.find(model).window * 10)
    if not errors:
        print("tokens: no transcript with reported usage")
        return
    errors.sort()
    middle, most = errors[len(errors) // 2], errors[len(errors) * 9 // 10]
    print(f"tokens: {len(errors)} requests, median error {middle:.2%}, p90 {most:.2%}")


def measure_speed(_: DataSet) -> None:
    """CPU time of a compaction of up to a million tokens, beside one pass of the tokenizer."""
    for tokenizer in ("o200k",):
        counter = counter_for(tokenizer)
        counter.text("the vocabulary loads before the clock runs")
        for tasks in (50, 500):
            rows = data.make_session(1, tasks).rows
            start = process_time()
            tokens = sum(counter.message(row.message) for row in rows)
            one_pass = process_time() - start
            start = process_time()
            plan_budget(rows, tokens // 10, count=counter.message)
            took = process_time() - start
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            print(
                f"speed: {tokens:>9,} tokens ({tokenizer}) in {took:.2f} s, "
                f"{took / one_pass:.1f} times one pass of the tokenizer ({one_pass:.2f} s), "
                f"peak {memory} MB"
            )
    measure_recall_speed()


def measure_questions(_: DataSet) -> None:
    """How much of what a question needs is on one page of `recall`."""
    measure_recall()


MANY = 100_000


def measure_recall_speed() -> None:
    """CPU time of a recall in a thread of many messages, in a file of SQLite."""
    chance = Random(4)
    subjects = (*questions.TEST, *questions.CODE_TEST)
    lines = [line for subject in subjects for line in (*subject.chatter, subject.other)]
    kinds = (questions.VERBS, questions.NOUNS)
    names = ["_".join([*map(chance.choice, kinds), str(n)]) for n in range(5000)]
    with TemporaryDirectory() as folder, weft.open(f"{folder}/store.db") as thread:
        with thread.batch():
            for _ in range(MANY):
                words = " ".join(chance.sample(lines, 3))
                thread.user(f"{words} {' '.join(chance.sample(names, 6))}")
        thread.search("index")
        times: list[float] = []
        for subject in subjects * 2:
            question = f"{subject.question} {chance.choice(names)}"
            start = process_time()
            thread.recall_page(question, tokens=RECALL_TOKENS)
            times.append(process_time() - start)
        times.sort()
        middle, most = times[len(times) // 2] * 1000, times[len(times) * 9 // 10] * 1000
        print(f"recall in {MANY:,} messages: median {middle:.1f} ms, p90 {most:.1f} ms")


def _print_scores(label: str, scores: Scores) -> None:
    values = " ".join(f"{getattr(scores, f) * 100:8.1f}" for f in Scores.__struct_fields__)
    print(f"{label:28}{values}", flush=True)


PARTS = {
    "retention": measure_retention,
    "exam": lambda data_set: measure_exam(data_set.budgets),
    "validation": measure_validation,
    "rules": measure_rules,
    "facts": measure_facts,
    "check": measure_check,
    "tokens": measure_tokens,
    "questions": measure_questions,
    "speed": measure_speed,
}

if __name__ == "__main__":
    sys.exit(main())
