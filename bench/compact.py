"""Measures the planning of compactions, on a coding session of 2,000 messages and a chat of 8,000.

Run it with `python bench/compact.py [MESSAGES]`; the chat is four times as long. Both are generated
without randomness. The session has user messages, calls, results of forty lines, and answers. The
chat has messages of about 200 characters, all different.

It prints the best CPU time of three runs for each plan, the tokens before and after, and the growth
of the cost from the shortest thread to one ten times as long (linear is 10). The growth for a chat
is measured with a budget of a tenth of its tokens. A fixed budget would replace half of the short
chat, but nearly all of the long one.
"""

import sys
from collections.abc import Callable
from time import process_time

from weft.compact import Plan, Replacement, plan_budget, plan_replacements
from weft.history import Row
from weft.ids import object_id
from weft.model import Block, Checkpoint, Message, Text, Thinking, ToolCall, ToolResult
from weft.tokens import Counter, counter_for

ROUNDS = 3


def make_thread(size: int) -> list[Row]:
    """A coding session: five messages a turn."""
    messages = [Message("system", (Text("You repair programs."),))]
    for turn in range(size // 5):
        path = f"src/module_{turn % 97}/part_{turn}.py"
        call = ToolCall(f"call_{turn}", "read_file", f'{{"path": "{path}"}}')
        lines = "\n".join(
            f"{n:4} def handle_{turn}_{n}(row): return row[{n}] + {turn * n}" for n in range(40)
        )
        thought = Thinking(f"Part {turn} may be the one.", signature="sealed")
        messages += [
            _message(
                "user",
                Text(f"Please look at {path}. It must not import os."),
                _checkpoint(2 * turn),
            ),
            _message("assistant", thought, Text(f"I read {path} first."), call),
            _message("tool", ToolResult(call.id, (Text(lines),)), _checkpoint(2 * turn + 1)),
            _message(
                "assistant", Text(f"handle_{turn}_7 raises ValueError for {turn * 7}. I fixed it.")
            ),
            _message("assistant", Text(f"All {turn + 11} tests of part_{turn} pass now.")),
        ]
    return [
        Row(object_id("slot", b"%d" % number), message, "pinned" if number % 400 == 1 else "normal")
        for number, message in enumerate(messages)
    ]


VOCABULARY = """
the release waits for a reader of old files that nobody has tried on long names yet so we keep both
and ask which of them fails first when a request grows and its answer is late
"""
WORDS = VOCABULARY.split()


def make_chat(size: int) -> list[Row]:
    """A chat of two people: no tools, and two different sentences in every message."""
    rows: list[Row] = []
    for number in range(size):
        words = [WORDS[(number * step + step * step) % len(WORDS)] for step in range(3, 33)]
        words[7], words[21] = f"part_{number % 211}", f"src/talk/{number % 503}.py"
        text = f"Then {' '.join(words[:15])} {number}. It {' '.join(words[15:])}."
        message = _message("user" if number % 2 == 0 else "assistant", Text(text))
        rows.append(Row(object_id("slot", b"%d" % number), message))
    return rows


def _message(role: str, *blocks: Block) -> Message:
    return Message(role, blocks)


def _checkpoint(number: int) -> Checkpoint:
    return Checkpoint(f"{number:06d}")


def measure(name: str, plan: Callable[[], Plan], rows: list[Row], counter: Counter) -> float:
    """Print one line; returns the best time in seconds."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = process_time()
        planned = plan()
        best = min(best, process_time() - start)
    before, after = (sum(counter.message(row.message) for row in r) for r in (rows, planned.rows))
    print(f"  {name:<34} {best * 1000:9.1f} ms   {before:>9,} → {after:>7,} tokens")
    return best


def run(size: int, counter: Counter) -> dict[str, float]:
    """All plans on one thread."""
    rows = make_thread(size)
    last = size // 5 * 2 - 1
    known = {f"{number:06d}" for number in range(last + 1)}
    middle = Replacement(summary="It works.", from_=f"{last // 4:06d}", to=f"{last * 3 // 4:06d}")
    many = [
        Replacement(summary="Done.", from_=f"{n:06d}", to=f"{n + 3:06d}")
        for n in range(0, last - 3, 4)
    ]
    plans: dict[str, Callable[[], Plan]] = {
        "one range": lambda: plan_replacements(rows, [middle], known=known),
        f"{len(many)} ranges": lambda: plan_replacements(rows, many, known=known),
        "budget 20,000": lambda: plan_budget(rows, 20_000, count=counter.message),
        "keep 5 turns": lambda: plan_budget(rows, 10**9, keep=5, count=counter.message),
    }
    print(f"{len(rows):,} messages, {counter.tokenizer}")
    return {name: measure(name, plan, rows, counter) for name, plan in plans.items()}


def run_chat(size: int, counter: Counter) -> float:
    """The plan for a full window, on a long chat."""
    rows = make_chat(size)
    print(f"{len(rows):,} messages of a chat, {counter.tokenizer}")
    budget = sum(counter.message(row.message) for row in rows) // 10
    return measure(
        "a tenth of its tokens",
        lambda: plan_budget(rows, budget, count=counter.message),
        rows,
        counter,
    )


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    if size < 200:
        sys.exit("MESSAGES must be at least 200: the short session has a tenth of them")
    for tokenizer in ("estimate", "o200k"):
        counter = counter_for(tokenizer)
        counter.text("the vocabulary loads before the clock runs")
        short, long = run(size // 10, counter), run(size, counter)
        growth = [new / old for old, new in zip(short.values(), long.values(), strict=True)]
        print("  growth at ten times the length:", ", ".join(f"{g:.1f}" for g in growth))
        chat_costs = [run_chat(length, counter) for length in (size * 4 // 10, size * 4)]
        print(f"  growth at ten times the length: {chat_costs[1] / chat_costs[0]:.1f}")


if __name__ == "__main__":
    main()
