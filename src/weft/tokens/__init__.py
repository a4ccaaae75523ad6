"""Offline token counting: exact if the vocabulary is available, estimated otherwise."""

from .counter import Counter, Tokenizer, counter_for
from .estimate import estimate_text

__all__ = ["Counter", "Tokenizer", "counter_for", "estimate_text"]
