"""One model, many spellings: clouds and aggregators write a vendor's model names in their own way.

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
    """The name as the model's own vendor writes it, without region, revision, date mark or prefix;
    a Claude's version has hyphens for dots, as in `claude-opus-4-6`."""
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
    """The version that a plain name of a Claude states, or `None` where it states none."""
    found = _VERSION.match(plain)
    return None if found is None else (int(found[1]), int(found[2] or 0))


def read_version(value: Any, where: str) -> Version | None:
    """The version of a row's `below`; raises `ConfigError` where it is none."""
    if value is None:
        return None
    found = _SETTING.fullmatch(str(value))
    if found is None:
        raise ConfigError(f'{where}: `below` must be a version such as "4.8"')
    return int(found[1]), int(found[2] or 0)
