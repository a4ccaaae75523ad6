"""The spellings of model names."""

from weft.lazy import lazy_pattern

# Normalises model names: clouds and aggregators spell a vendor's model names differently.
#
#     us.anthropic.claude-opus-4-6-v1:0     Amazon Bedrock, with or without the region
#     claude-opus-4-6@20250805              Google Vertex
#     anthropic/claude-opus-4.6             OpenRouter
#     claude-opus-4.6, claude-4.6-opus      GitHub Copilot, Cursor
#     models/gemini-2.5-pro                 Google's own resource names
#     claude-opus-4-6[1m]                   Claude Code, for a window of a million tokens
#
# https://docs.aws.amazon.com/bedrock/latest/userguide/models-supported.html
# https://docs.cloud.google.com/vertex-ai/generative-ai/docs/partner-models/claude
# https://openrouter.ai/docs/api/reference/overview

Version = tuple[int, int]

_BEDROCK = lazy_pattern(r"(?:[a-z-]+\.)*anthropic\.(?=claude)")
_FINE_TUNED = lazy_pattern(r"ft:([^:]+)")
_BEDROCK_REVISION = lazy_pattern(r"-v\d+$")
_VERSION_WITH_V = lazy_pattern(r"claude-v(?=\d)")
_VERSION_FIRST = lazy_pattern(r"claude-(\d{1,2}(?:-\d{1,2})?)-([a-z]+)(?=-|$)")
_VERSION = lazy_pattern(r"claude-(?:[a-z]+-)?(\d{1,2})(?:-(\d{1,2}))?(?=-|$)")

LARGE_WINDOW_SUFFIX = "[1m]"

FAMILY_FIRST = 4
"""From this version on, Anthropic writes the family first: `claude-opus-4`, but `claude-3-opus`."""


def plain_name(name: str) -> str:
    """The name as the model's vendor writes it, without region, revision, date suffix or prefix.

    The version of a Claude model has hyphens, not dots: `claude-opus-4-6`.
    """
    plain = name.rpartition("/")[2].lower().removesuffix(LARGE_WINDOW_SUFFIX)
    fine_tuned = _FINE_TUNED.match(plain)
    if fine_tuned is not None:
        return fine_tuned[1]
    plain = _BEDROCK.sub("", plain, count=1)
    plain = plain.partition("@")[0].partition(":")[0]
    if not plain.startswith("claude"):
        return plain
    plain = _VERSION_WITH_V.sub("claude-", plain.replace(".", "-"), count=1)
    return maker_spelling(_BEDROCK_REVISION.sub("", plain))


def maker_spelling(name: str) -> str:
    """A Claude model's name as Anthropic spells it, with all its parts; other names unchanged."""
    if not name.startswith("claude"):
        return name
    plain = name.replace(".", "-")
    version_first = _VERSION_FIRST.match(plain)
    if version_first is not None:
        version, family = version_first.groups()
        if int(version.partition("-")[0]) >= FAMILY_FIRST:
            plain = f"claude-{family}-{version}{plain[version_first.end() :]}"
    return plain


def version_of(plain: str) -> Version | None:
    """The version in the plain name of a Claude model, or `None`."""
    version = _VERSION.match(plain)
    return None if version is None else (int(version[1]), int(version[2] or 0))
