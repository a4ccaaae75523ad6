"""Generates bodies of every protocol: valid conversations with everything that they can contain."""

import orjson
from hypothesis import strategies as st

PROTOCOLS = ("anthropic", "openai-chat", "openai-responses", "gemini")
MODEL = {"gemini": "gemini-2.5-pro"}
"""The model's name, for protocols that do not have it in the body."""

words = st.text(min_size=1, max_size=12).filter(str.strip)
names = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
arguments = st.dictionaries(
    names, st.none() | st.booleans() | st.integers(-9, 9) | words, max_size=3
)
schemas = st.just({"type": "object", "properties": {"x": {"type": "string"}}})
PNG = "iVBORw0KGgo="
kinds = st.sampled_from(["text", "list"])


@st.composite
def turns(draw):
    """Turns as (role, content) pairs in a valid order, independent of any protocol."""
    steps = []
    for _ in range(draw(st.integers(0, 2))):
        steps.append(("system", draw(words)))
    for number in range(draw(st.integers(1, 4))):
        steps.append(("user", draw(words)))
        if draw(st.booleans()):
            steps.append(("picture", draw(words)))
        if draw(st.integers(0, 3)) == 0:
            steps.append(("system", draw(words)))
        if draw(st.booleans()):
            calls = [
                (f"call_{number}_{at}", draw(names), draw(arguments))
                for at in range(draw(st.integers(1, 3)))
            ]
            steps.append(("calls", (draw(st.none() | words), calls)))
            steps.append(("results", [(call[0], draw(words)) for call in calls]))
        steps.append(("assistant", draw(words)))
    steps.append(("user", draw(words)))
    return steps


@st.composite
def chat_bodies(draw):
    messages = []
    for kind, what in draw(turns()):
        match kind:
            case "system":
                role = draw(st.sampled_from(["system", "developer"]))
                messages.append({"role": role, "content": draw(content(what, "text"))})
            case "user":
                message = {"role": "user", "content": draw(content(what, "text"))}
                if draw(st.integers(0, 4)) == 0:
                    message["name"] = draw(names)
                messages.append(message)
            case "assistant":
                messages.append({"role": "assistant", "content": what})
            case "picture":
                url = {"url": f"data:image/png;base64,{PNG}"}
                parts = [{"type": "text", "text": what}, {"type": "image_url", "image_url": url}]
                messages.append({"role": "user", "content": parts})
            case "calls":
                text, calls = what
                messages.append(
                    {
                        "role": "assistant",
                        "content": text,
                        "tool_calls": [
                            {
                                "id": call_id,
                                "type": "function",
                                "function": {
                                    "name": name,
                                    "arguments": orjson.dumps(args).decode(),
                                },
                            }
                            for call_id, name, args in calls
                        ],
                    }
                )
            case "results":
                messages += [
                    {"role": "tool", "tool_call_id": call_id, "content": text}
                    for call_id, text in what
                ]
    return {"model": draw(names), "messages": messages, **draw(chat_params)}


def chat_call(call_id, name, args):
    function = {"name": name, "arguments": orjson.dumps(args).decode()}
    return {"id": call_id, "type": "function", "function": function}


@st.composite
def anthropic_bodies(draw):
    body = {"model": draw(names), "max_tokens": draw(st.integers(1, 9999)), "messages": []}
    messages = body["messages"]
    for kind, what in draw(turns()):
        match kind:
            case "system" if not messages:
                body["system"] = draw(content(what, "text"))
            case "system":
                messages.append({"role": "system", "content": draw(content(what, "text"))})
            case "user" | "assistant":
                texts = draw(content(what, "text"))
                if isinstance(texts, list) and len(messages) < 2:  # four marks at the most
                    texts[-1]["cache_control"] = {"type": "ephemeral", "ttl": "1h"}
                messages.append({"role": kind, "content": texts})
            case "picture":
                source = {"type": "base64", "media_type": "image/png", "data": PNG}
                parts = [{"type": "image", "source": source}, {"type": "text", "text": what}]
                messages.append({"role": "user", "content": parts})
            case "calls":
                text, calls = what
                blocks = [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}]
                blocks = blocks if draw(st.booleans()) else []
                blocks += [{"type": "text", "text": text}] if text else []
                blocks += [
                    {"type": "tool_use", "id": call_id, "name": name, "input": args}
                    for call_id, name, args in calls
                ]
                messages.append({"role": "assistant", "content": blocks})
            case "results":
                messages.append(
                    {"role": "user", "content": [draw(tool_result(*result)) for result in what]}
                )
    return body | draw(anthropic_params)


@st.composite
def tool_result(draw, call_id, text):
    block = {"type": "tool_result", "tool_use_id": call_id, "content": draw(content(text, "text"))}
    if draw(st.booleans()):
        block["is_error"] = draw(st.booleans())
    return block


@st.composite
def responses_bodies(draw):
    items = []
    for number, (kind, what) in enumerate(draw(turns())):
        match kind:
            case "system":
                role = draw(st.sampled_from(["system", "developer"]))
                items.append({"role": role, "content": draw(content(what, "input_text"))})
            case "user":
                items.append({"role": "user", "content": draw(content(what, "input_text"))})
            case "assistant":
                items.append(
                    {
                        "type": "message",
                        "id": f"msg_{number}",
                        "role": "assistant",
                        "status": "completed",
                        "content": [{"type": "output_text", "text": what, "annotations": []}],
                    }
                )
            case "picture":
                image = {
                    "type": "input_image",
                    "detail": "auto",
                    "image_url": f"data:image/png;base64,{PNG}",
                }
                text = {"type": "input_text", "text": what}
                items.append({"role": "user", "content": [text, image]})
            case "calls":
                text, calls = what
                if draw(st.booleans()):
                    items.append(
                        {
                            "type": "reasoning",
                            "id": f"rs_{number}",
                            "summary": [{"type": "summary_text", "text": "hm"}],
                            "encrypted_content": "ZW5j",
                        }
                    )
                items += [
                    {
                        "type": "function_call",
                        "call_id": call_id,
                        "name": name,
                        "arguments": orjson.dumps(args).decode(),
                    }
                    for call_id, name, args in calls
                ]
            case "results":
                items += [
                    {"type": "function_call_output", "call_id": call_id, "output": text}
                    for call_id, text in what
                ]
    body = {"model": draw(names), "input": items}
    if draw(st.booleans()):
        body["instructions"] = draw(words)
    return body | draw(responses_params)


@st.composite
def gemini_bodies(draw):
    body = {"contents": []}
    contents = body["contents"]
    for kind, what in draw(turns()):
        match kind:
            case "system" if not contents:
                body["systemInstruction"] = {"role": "user", "parts": draw(texts_of(what))}
            case "user" | "system":
                contents.append({"role": "user", "parts": draw(texts_of(what))})
            case "assistant":
                parts = draw(texts_of(what))
                if draw(st.booleans()):
                    parts.insert(0, {"text": "hm", "thought": True})
                if draw(st.booleans()):
                    parts[-1]["thoughtSignature"] = "c2ln"
                contents.append({"role": "model", "parts": parts})
            case "picture":
                data = {"mimeType": "image/png", "data": PNG}
                contents.append({"role": "user", "parts": [{"text": what}, {"inlineData": data}]})
            case "calls":
                text, calls = what
                parts = [{"text": text}] if text else []
                named = draw(st.booleans())
                for call_id, name, args in calls:
                    call = {"name": name, "args": args}
                    parts.append({"functionCall": call | ({"id": call_id} if named else {})})
                if draw(st.booleans()):
                    parts[-1]["thoughtSignature"] = "c2ln"
                contents.append({"role": "model", "parts": parts})
                ids = {call_id: (name, named) for call_id, name, _ in calls}
            case "results":
                contents.append(
                    {
                        "role": "user",
                        "parts": [_answered(*ids[key], key, text) for key, text in what],
                    }
                )
    return body | draw(gemini_params)


def _answered(name, named, call_id, text):
    answer = {"name": name, "response": {"output": text}}
    return {"functionResponse": answer | ({"id": call_id} if named else {})}


def texts_of(text):
    """A text as one part, or as two."""
    return st.sampled_from([[{"text": text}], [{"text": text}, {"text": "and more"}]]).map(
        lambda parts: [dict(part) for part in parts]
    )


@st.composite
def content(draw, text, kind):
    """A text as a string, or as a list of one or two parts."""
    form = draw(st.sampled_from(["text", "one", "two"]))
    if form == "text":
        return text
    parts = [{"type": kind, "text": text}]
    return parts if form == "one" else [*parts, {"type": kind, "text": draw(words)}]


def some(**members):
    """Any subset of these members."""
    return st.fixed_dictionaries({}, optional=members)


number = st.floats(0, 1, allow_nan=False, width=16)
chat_params = some(
    temperature=number,
    top_p=number,
    max_completion_tokens=st.integers(1, 999),
    stop=words | st.lists(words, min_size=1, max_size=2),
    seed=st.integers(0, 99),
    parallel_tool_calls=st.booleans(),
    tool_choice=st.sampled_from(["auto", "none", "required"]),
    reasoning_effort=st.sampled_from(["low", "high"]),
    logit_bias=st.just({"50256": -100}),
    tools=st.lists(
        st.fixed_dictionaries(
            {
                "type": st.just("function"),
                "function": st.fixed_dictionaries(
                    {"name": names, "parameters": schemas},
                    optional={"description": words, "strict": st.booleans()},
                ),
            }
        ),
        min_size=1,
        max_size=2,
    ),
)
anthropic_params = some(
    temperature=number,
    top_k=st.integers(1, 99),
    stop_sequences=st.lists(words, max_size=2),
    thinking=st.sampled_from(
        [{"type": "enabled", "budget_tokens": 2048}, {"type": "adaptive", "display": "omitted"}]
    ),
    tool_choice=st.sampled_from([{"type": "auto", "disable_parallel_tool_use": True}]),
    metadata=st.just({"user_id": "u"}),
    context_management=st.just({"edits": []}),
    tools=st.lists(
        st.fixed_dictionaries(
            {"name": names, "input_schema": schemas},
            optional={"description": words, "cache_control": st.just({"type": "ephemeral"})},
        ),
        min_size=1,
        max_size=2,
    ),
)
responses_params = some(
    temperature=number,
    max_output_tokens=st.integers(16, 999),
    store=st.booleans(),
    include=st.just(["reasoning.encrypted_content"]),
    reasoning=st.sampled_from([{"effort": "low"}, {"effort": "high", "summary": "auto"}]),
    text=st.just({"verbosity": "low"}),
    tools=st.lists(
        st.fixed_dictionaries(
            {"type": st.just("function"), "name": names, "parameters": schemas},
            optional={"strict": st.booleans(), "description": words},
        ),
        min_size=1,
        max_size=2,
    ),
)
gemini_params = some(
    generationConfig=some(
        temperature=number,
        topP=number,
        topK=st.integers(1, 99),
        maxOutputTokens=st.integers(1, 999),
        stopSequences=st.lists(words, min_size=1, max_size=2),
        seed=st.integers(0, 99),
        thinkingConfig=st.sampled_from(
            [{"thinkingBudget": 2048}, {"thinkingLevel": "low", "includeThoughts": True}]
        ),
        responseMimeType=st.sampled_from(["text/plain", "application/json"]),
    ),
    safetySettings=st.just([{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}]),
    toolConfig=st.sampled_from([{"functionCallingConfig": {"mode": "AUTO"}}]),
    tools=st.lists(
        st.fixed_dictionaries(
            {"name": names, "parametersJsonSchema": schemas}, optional={"description": words}
        ),
        min_size=1,
        max_size=2,
    ).map(lambda declared: [{"functionDeclarations": declared}]),
)

BODIES = {
    "anthropic": anthropic_bodies(),
    "openai-chat": chat_bodies(),
    "openai-responses": responses_bodies(),
    "gemini": gemini_bodies(),
}
