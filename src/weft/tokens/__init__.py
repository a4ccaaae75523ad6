"""Offline token counting: exact if the vocabulary is available, estimated otherwise."""

from .counter import Counter, Tokenizer, counter_for, counter_for_model, estimate_text

__all__ = ["Counter", "Tokenizer", "counter_for", "counter_for_model", "estimate_text"]
