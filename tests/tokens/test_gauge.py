"""The size of a request after the first answer: what was reported, plus what is new."""

import random

import pytest

import weft
from weft.compact import Gauge


@pytest.mark.parametrize("hidden", [0, 346, 15_000])
@pytest.mark.parametrize("factor", [0.9, 1.0, 1.35, 1.6])
def test_estimates_are_right_after_the_first_answer(hidden, factor):
    """Over a session: turns of any size, a hidden prompt, and a tokenizer of another density."""
    numbers = random.Random(7)
    gauge, estimate, errors = Gauge(), 400, []
    for turn in range(120):
        real = hidden + int(estimate * factor * numbers.uniform(0.97, 1.03))
        if turn:
            errors.append(abs(gauge.measure(estimate) - real) / real)
        gauge = gauge.learn(estimate, real, 1_000_000)
        estimate += numbers.choice([40, 300, 900, 4000])
    errors.sort()
    assert errors[len(errors) // 2] <= 0.05  # the reports themselves vary by 3 %
    assert errors[len(errors) * 9 // 10] <= 0.10


def test_a_spike_in_one_report_changes_nothing():
    gauge = Gauge().learn(50_000, 60_000, 200_000)
    spiked = gauge.learn(50_400, 121_000, 200_000)
    assert spiked.measure(50_800) < 65_000
    assert spiked.learn(50_800, 61_000, 200_000).measure(50_800) == 61_000


def test_after_a_compaction_the_removed_part_counts_with_its_real_size():
    with weft.open() as t:
        for n in range(60):
            t.user(f"Part {n}: " + "the service reads its settings from a file. " * 60)
            t.assistant("Understood.")
        tokens = t.compile().tokens
        t.record_usage({"input_tokens": int(tokens * 1.5), "output_tokens": 10})
        assert t.compile().calibrated == int(tokens * 1.5) + 10
        t.compact(budget=tokens // 5)
        left = t.compile()
        assert left.calibrated == pytest.approx(left.tokens * 1.5, rel=0.1)
