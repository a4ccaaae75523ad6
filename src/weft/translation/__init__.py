"""Translate requests, answers, streams and errors between vendor protocols.

A layer of its own: it needs the codecs and the model catalogue, and no thread.
"""
