"""Fits the constants of `need` (`weft.compact.extract`) to a transcript, for cross-validation."""

from collections.abc import Sequence
from math import exp

from memory_data import Transcript

from weft.compact.extract import NeedModel, features
from weft.compact.names import NameReader
from weft.compact.source import read_source

CUTS = (0.2, 0.35, 0.5, 0.65, 0.8)
PENALTY = 30.0
ROUNDS = 12


def fit(transcripts: Sequence[Transcript]) -> NeedModel:
    """The logistic model that predicts best which names later calls of these sessions contain."""
    samples = [sample for transcript in transcripts for sample in read_samples(transcript)]
    weights = [0.0] * len(NeedModel())
    for _ in range(ROUNDS):
        gradient = [-PENALTY * weight for weight in weights]
        matrix = [[PENALTY * (i == j) for j in range(len(weights))] for i in range(len(weights))]
        for values, is_needed in samples:
            guess = 1 / (1 + exp(-sum(w * v for w, v in zip(weights, values, strict=True))))
            spread = guess * (1 - guess)
            places = [i for i, value in enumerate(values) if value]
            for i in places:
                gradient[i] += (is_needed - guess) * values[i]
                for j in places:
                    matrix[i][j] += spread * values[i] * values[j]
        step = _solve(matrix, gradient)
        weights = [weight + change for weight, change in zip(weights, step, strict=True)]
    return NeedModel(*weights)


def read_samples(transcript: Transcript) -> list[tuple[tuple[float, ...], bool]]:
    """For each name before each cut: its features, and whether a later call contains it."""
    samples: list[tuple[tuple[float, ...], bool]] = []
    reader = NameReader()
    for cut in CUTS:
        border = int(len(transcript.rows) * cut)
        source = read_source(transcript.rows[:border])
        later = {
            name
            for use in read_source(transcript.rows[border:]).uses
            for passage in use.arguments.values()
            for line in passage.text.splitlines()
            for name in reader.read(line)
        }
        samples += [
            (features(name, mentions, source.row_count), name in later)
            for name, mentions in source.mentions.items()
        ]
    return samples


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gaussian elimination."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    size = len(rows)
    for i in range(size):
        pivot = max(range(i, size), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(size):
            if r != i:
                factor = rows[r][i] / rows[i][i]
                rows[r] = [a - factor * b for a, b in zip(rows[r], rows[i], strict=True)]
    return [rows[i][size] / rows[i][i] for i in range(size)]
