"""What a person writes is never taken for a request that a client makes for itself."""

import json
from pathlib import Path

import pytest

import weft
from servers import post, weft_serve
from weft.gateway import is_summary_request, read_side_kind

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "clients"
OPENCODE = "You are a title generator. You output ONLY a thread title. Nothing else.\n\n<task>\n"
CLAUDE = (
    "You are naming a coding session so the user can pick it out of a long list of sessions. The "
    'title is a name for what the session is about.\n\nReturn JSON with a single "title" field.'
)
TOPIC = (
    "Analyze if this message indicates a new conversation topic. If it does, extract a 2-3 word "
    "title that captures the new topic. Format your response as a JSON object with two fields: "
    "'isNewTopic' (boolean) and 'title' (string, or null if isNewTopic is false)."
)
WEBUI = (
    "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history.\n"
    "### Guidelines:\n- The title should clearly represent the main theme or subject of the "
    "conversation.\n- Use emojis.\n### Chat History:\n<chat_history>\nUSER: hi\n</chat_history>"
)
ZED = (
    "Generate a concise 3-7 word title for this conversation, omitting punctuation. Go straight to "
    "the title, without any preamble and prefix like `Here's a concise suggestion:...` or `Title:`"
)
TOOL = {"name": "look", "description": "x", "input_schema": {"type": "object"}}
CLAUDE_USER = {"user_id": "user_0_account__session_01234567-89ab-cdef-0123-456789abcdef"}


def request(*texts: str, system: str | list[str] | None = None, **members):
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    body = {"model": "m", "max_tokens": 99, "messages": messages, **members}
    if system is not None:
        blocks = [system] if isinstance(system, str) else system
        body["system"] = [{"type": "text", "text": text} for text in blocks]
    return weft.decode(body, "anthropic")


PERSONS = [
    "Create a landing page with a big title and a form.",
    "Write a title for my essay about bees.",
    "Generate a title for this conversation:",
    "Generate a title for this conversation:\n",
    "generate TITLE",
    "quota",
    "isNewTopic",
    'Return JSON with a single "title" field.',
    "You are a title generator. What do you do?",
    "<session>\nmy notes\n</session>",
    "Schreibe einen Titel, write a title",
    "为这篇文章 generate a title",
    "Write a function that creates the title bar.",
    ZED + " And then translate it.",
    "Please read this: " + WEBUI,
    "Why does Claude Code send: " + CLAUDE,
]


@pytest.mark.parametrize("text", PERSONS)
@pytest.mark.parametrize(
    "members",
    [
        {},
        {"tools": [TOOL]},
        {"system": "You are a helpful assistant that can generate a title."},
        {"system": "You are a title generator for films."},
        {"system": 'Answer as JSON with a single "title" field.'},
        {"max_tokens": 1},
    ],
)
def test_a_persons_words_are_no_side_question(text, members):
    assert read_side_kind(request(text, **members)) is None
    assert read_side_kind(request("hello", "hi", text, **members)) is None
    assert not is_summary_request(request(text, **members))


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        (request("<session>\nfix it\n</session>\n\nWrite it.", system=CLAUDE), "title"),
        (
            request("<session>\nfix it\n</session>", system=["x-header: 1", "You are", CLAUDE]),
            "title",
        ),
        (request("hello", system=TOPIC), "topic"),
        (request("quota", max_tokens=1, metadata=CLAUDE_USER), "check"),
        (request("Generate a title for this conversation:\n", system=OPENCODE), "title"),
        (request(WEBUI), "title"),
        (request("hello", "hi", ZED), "title"),
    ],
)
def test_what_a_client_sends_is_recognised(asked, kind):
    assert read_side_kind(asked) == kind


def test_no_side_question_is_seen_in_the_recorded_turns_of_clients():
    if not CORPUS.is_dir():
        pytest.skip(f"the recorded requests are not in {CORPUS}")
    protocols = {"/v1/messages": "anthropic", "/v1/responses": "openai-responses"}
    seen = 0
    for path in sorted(CORPUS.glob("*.json")):
        recorded = json.loads(path.read_text())
        protocol = protocols.get(recorded.get("path", ""))
        body = recorded.get("body")
        if protocol is None or not isinstance(body, dict):
            continue
        seen += 1
        assert read_side_kind(weft.decode(body, protocol)) is None, path.name
    assert seen > 50


def test_a_conversation_that_begins_with_such_words_is_one_thread(tmp_path):
    texts = ["Create a landing page with a big title and a form.", "Make it blue.", "Add a footer."]
    with weft_serve(tmp_path) as gateway:
        messages, threads = [], set()
        for text in texts:
            messages.append({"role": "user", "content": text})
            body = {"model": "weft-offline", "max_tokens": 99, "messages": messages}
            _, headers, data = post(f"{gateway.url}/v1/messages", body, {"x-session-id": "mywork"})
            messages.append({"role": "assistant", "content": json.loads(data)["content"]})
            threads.add(headers["x-weft-thread"])
    assert threads == {"session-mywork"}
