"""Normalises model names: clouds and aggregators spell a vendor's model names differently.

    us.anthropic.claude-opus-4-6-v1:0     Amazon Bedrock, with or without the region
    claude-opus-4-6@20250805              Google Vertex
    anthropic/claude-opus-4.6             OpenRouter
    claude-opus-4.6, claude-4.6-opus      GitHub Copilot, Cursor
    models/gemini-2.5-pro                 Google's own resource names

https://docs.aws.amazon.com/bedrock/latest/userguide/models-supported.html
https://docs.cloud.google.com/vertex-ai/generative-ai/docs/partner-models/claude
https://openrouter.ai/docs/api/reference/overview
"""

import re
from typing import Any

from weft.errors import ConfigError

Version = tuple[int, int]

_BEDROCK = re.compile(r"(?:[a-z-]+\.)*anthropic\.(?=claude)")
_FINE_TUNED = re.compile(r"ft:([^:]+)")
_BEDROCK_REVISION = re.compile(r"-v\d+$")
_OLD_NAME = re.compile(r"claude-v(?=\d)")
_VERSION_FIRST = re.compile(r"claude-(\d{1,2}(?:-\d{1,2})?)-([a-z]+)(?=-|$)")
_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:-(\d{1,2}))?(?=-|$)")
_SETTING = re.compile(r"(\d{1,2})(?:\.(\d{1,2}))?")

FAMILY_FIRST = 4
"""From this generation on, the vendor writes the family before the version."""


def plain_name(name: str) -> str:
    """The name as the model's vendor writes it, without region, revision, date suffix or prefix.

    The version of a Claude model has hyphens, not dots: `claude-opus-4-6`.
    """
    plain = name.rpartition("/")[2].lower()
    tuned = _FINE_TUNED.match(plain)
    if tuned is not None:
        return tuned[1]
    plain = _BEDROCK.sub("", plain, count=1)
    plain = plain.partition("@")[0].partition(":")[0]
    if not plain.startswith("claude"):
        return plain
    plain = _OLD_NAME.sub("claude-", plain.replace(".", "-"), count=1)
    plain = _BEDROCK_REVISION.sub("", plain)
    swapped = _VERSION_FIRST.match(plain)
    if swapped is not None and int(swapped[1].partition("-")[0]) >= FAMILY_FIRST:
        plain = f"claude-{swapped[2]}-{swapped[1]}{plain[swapped.end() :]}"
    return plain


def version_of(plain: str) -> Version | None:
    """The version in the plain name of a Claude model, or `None`."""
    version = _VERSION.match(plain)
    return None if version is None else (int(version[1]), int(version[2] or 0))


def read_version(value: Any, where: str) -> Version | None:
    """The version in a row's `below`; raises `ConfigError` if it is invalid."""
    if value is None:
        return None
    version = _SETTING.fullmatch(str(value))
    if version is None:
        raise ConfigError(f'{where}: `below` must be a version such as "4.8"')
    return int(version[1]), int(version[2] or 0)
