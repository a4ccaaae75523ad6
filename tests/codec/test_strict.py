"""What `strict` refuses of requests that coding agents send: what somebody could notice."""

from pathlib import Path

import pytest

import weft
from corpus import sent_by_clients

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "strict.md"
MODELS = {
    "anthropic": "claude-sonnet-5",
    "openai-chat": "gpt-5",
    "openai-responses": "gpt-5",
    "gemini": "gemini-3-pro-preview",
}
NEVER_NOTICED = (
    "id", "type", "include", "client_metadata", "display", "context_management",
    "internal_chat_message_metadata_passthrough",
)  # fmt: skip


def agent_requests() -> list[tuple[str, str, dict]]:
    return [
        (name, source, body)
        for source in ("anthropic", "openai-responses")
        for name, body in sent_by_clients(source)
        if "claude" in name or "codex" in name
    ]


def test_every_refused_request_has_a_loss_that_the_guide_lists() -> None:
    page = PAGE.read_text()
    refused = accepted = 0
    for name, source, body in agent_requests():
        for target, model in MODELS.items():
            if target == source:
                continue
            done = weft.translate(body, source, target, model=model)
            levels = [loss.level for loss in done.losses]
            assert levels == sorted(levels, key=("content", "meaning", "form").index), name
            noticed = [loss for loss in done.losses if loss.level != "form"]
            for loss in noticed:
                assert f"`{loss.code}`" in page, (name, target, loss)
                assert loss.path.rpartition(".")[2] not in NEVER_NOTICED, (name, target, loss)
            if not noticed:
                assert weft.translate(body, source, target, model=model, strict=True).losses
                accepted += 1
                continue
            with pytest.raises(weft.Refused) as error:
                weft.translate(body, source, target, model=model, strict=True)
            assert error.value.param == noticed[0].path
            refused += 1
    assert accepted
    assert refused


def test_a_dropped_compaction_comes_first() -> None:
    """Its text is encrypted and stands for the whole earlier conversation."""
    compacted = [
        row
        for row in agent_requests()
        if any(
            item.get("type") == "compaction"
            for item in row[2].get("input", ())
            if isinstance(item, dict)
        )
    ]
    assert compacted
    for name, source, body in compacted:
        for target in ("anthropic", "openai-chat", "gemini"):
            losses = weft.translate(body, source, target, model=MODELS[target]).losses
            contents = [loss for loss in losses if loss.level == "content"]
            assert losses[: len(contents)] == contents, name
            assert ("vendor_block_dropped", "compaction") in {(x.code, x.detail) for x in contents}


def test_the_most_important_loss_comes_first_and_is_refused() -> None:
    body = {
        "model": "m",
        "include": ["file_search_call.results"],
        "client_metadata": {"a": "b"},
        "text": {"verbosity": "low"},
        "input": [
            {"role": "user", "content": "q"},
            {"type": "compaction", "encrypted_content": "sealed"},
            {"role": "user", "content": "r"},
        ],
    }
    done = weft.translate(body, "openai-responses", "anthropic", model="claude-sonnet-5")
    first = done.losses[0]
    assert (first.level, first.code, first.path) == ("content", "vendor_block_dropped", "input[1]")
    levels = {loss.path: loss.level for loss in done.losses}
    assert levels["include"] == levels["client_metadata"] == "form"
    assert levels["text.verbosity"] == "meaning"
    with pytest.raises(weft.Refused) as error:
        weft.translate(body, "openai-responses", "anthropic", model="claude-sonnet-5", strict=True)
    assert error.value.param == "input[1]"
