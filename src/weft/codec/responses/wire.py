"""Constants of OpenAI Responses: https://platform.openai.com/docs/api-reference/responses"""

from weft.model import ErrorKind, StopKind

PROTOCOL = "openai-responses"

DECODED_MEMBERS = frozenset({"model", "input", "instructions"})
"""Members that `Request.raw` does not keep, because they are decoded completely. It only notes the
original form of `input` and `instructions`. A `tools` list with items is not kept either: each
`Tool` keeps its own definition. An empty list is kept."""

MAX_CALL_ID_LENGTH = 64
"""https://platform.openai.com/docs/guides/function-calling"""

STOP_KINDS: dict[str, StopKind] = {
    "max_output_tokens": "length",
    "content_filter": "filter",
}
"""The stop kind of each `incomplete_details.reason`."""

STOP_REASON_BY_KIND: dict[StopKind, str] = {
    "length": "max_output_tokens",
    "context": "max_output_tokens",
    "filter": "content_filter",
    "refusal": "content_filter",
}
"""The `incomplete_details.reason` for each stop kind; an answer with another kind is complete."""

FAILED_STOPS: dict[str, ErrorKind] = {"failed": "server", "cancelled": "server"}
"""Values of `status` that mean a failure. `queued` and `in_progress` mean that the answer is still
to come, `incomplete` means that a limit or a filter cut it short."""

POLICIES: dict[str, str | None] = {
    "bio_policy": "bio",
    "content_filter": None,
    "cyber_policy": "cyber",
    "image_content_policy_violation": None,
    "misalignment_policy_violation": None,
}
"""Error codes of responses that a policy refused, with Anthropic's category of the refusal. They
are decoded to refusals, not to failures."""

DEFAULT_ID = "resp_weft"
"""The id of an answer that has none."""

ITEM_IDS = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
}
"""The id prefix of each type of output item."""


def item_id(kind: str, response_id: str, number: int) -> str:
    """A stable id for an item without one."""
    return f"{ITEM_IDS[kind]}_{response_id}_{number}"
