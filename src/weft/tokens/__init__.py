"""Counting tokens, offline: exact where the vocabulary is at hand, an honest estimate elsewhere."""

from .counter import Counter, Tokenizer, counter_for
from .estimate import estimate_text

__all__ = ["Counter", "Tokenizer", "counter_for", "estimate_text"]
