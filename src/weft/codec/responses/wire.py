"""OpenAI Responses, in its own words: https://platform.openai.com/docs/api-reference/responses"""

from weft.model import ErrorKind, StopKind

PROTOCOL = "openai-responses"

CALL_ID_LENGTH = 64
"""The longest `call_id` the vendor takes: https://platform.openai.com/docs/guides/function-calling"""

INCOMPLETE: dict[str, StopKind] = {"max_output_tokens": "length", "content_filter": "filter"}
"""Why a response is incomplete, in `incomplete_details.reason`."""

INCOMPLETE_WORDS: dict[StopKind, str] = {
    "length": "max_output_tokens",
    "context": "max_output_tokens",
    "filter": "content_filter",
    "refusal": "content_filter",
}

FAILED_STOPS: dict[str, ErrorKind] = {"failed": "server", "cancelled": "server"}
"""States of a response that is no answer. `queued` and `in_progress` are answers still to come,
`incomplete` is one that was cut short by a limit or a filter."""

POLICIES: dict[str, str | None] = {
    "bio_policy": "bio",
    "content_filter": None,
    "cyber_policy": "cyber",
    "image_content_policy_violation": None,
    "misalignment_policy_violation": None,
}
"""Codes of a failed response that nobody may answer, not one that nobody could: each with the
category by which Anthropic, where such a thing is a refusal, knows it."""

ITEM_IDS = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
}
"""What the id of an output item begins with, by its type."""


def item_id(kind: str, response_id: str, number: int) -> str:
    """The id of an item that its own maker gave none: the same whenever it is written."""
    return f"{ITEM_IDS[kind]}_{response_id}_{number}"
