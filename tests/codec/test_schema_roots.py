"""The root of a tool's schema must be a plain object; vendors refuse the request otherwise."""

import orjson
import pytest

import weft

A, C, R, G = "anthropic", "openai-chat", "openai-responses", "gemini"

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
PLACE = {
    "type": "object",
    "properties": {"lat": {"type": "number"}, "unit": {"type": "string"}},
    "required": ["lat"],
}
BOTH = {**CITY["properties"], **PLACE["properties"]}
UNIT = {"unit": {"type": "string", "enum": ["c", "f"]}}


def offer(schema):
    tool = {"type": "function", "function": {"name": "weather", "parameters": schema}}
    return {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [tool]}


def schemas(body):
    return [tool.get("input_schema", tool.get("parameters")) for tool in body["tools"]]


ROOTS = [
    # a choice between two: either's properties, and what both need
    (
        {"anyOf": [CITY, PLACE]},
        {"type": "object", "properties": BOTH},
        ["anyOf"],
    ),
    (
        {"type": "object", "oneOf": [CITY, {**CITY, "properties": PLACE["properties"]}]},
        {"type": "object", "properties": BOTH, "required": ["city"]},
        ["oneOf"],
    ),
    # all of them: what any needs; the root's own word comes first
    (
        {"type": "object", "properties": UNIT, "required": ["unit"], "allOf": [CITY, PLACE]},
        {
            "type": "object",
            "properties": {**BOTH, **UNIT},
            "required": ["unit", "city", "lat"],
        },
        ["allOf"],
    ),
    # one that is only named
    (
        {"type": "object", "$defs": {"City": CITY}, "anyOf": [{"$ref": "#/$defs/City"}]},
        {"type": "object", "$defs": {"City": CITY}, **CITY},
        ["anyOf"],
    ),
    # conditions on what is there already
    (
        {**CITY, "anyOf": [{"required": ["city"]}, {"required": ["lat"]}]},
        CITY,
        ["anyOf"],
    ),
    # whatever else a keyword may hold
    ({**CITY, "anyOf": "x"}, CITY, ["anyOf"]),
    ({**CITY, "anyOf": [True, {"$ref": 5}, {"$ref": "#/a/b/c"}]}, CITY, ["anyOf"]),
    # inside, it may stand
    (
        {"type": "object", "properties": {"at": {"anyOf": [CITY, PLACE]}}},
        {"type": "object", "properties": {"at": {"anyOf": [CITY, PLACE]}}},
        [],
    ),
]


@pytest.mark.parametrize(("schema", "root", "lost"), ROOTS)
@pytest.mark.parametrize("target", [A, R])
def test_combined_schemas_at_the_root_become_one_object(schema, root, lost, target):
    done = weft.translate(offer(schema), C, target)
    assert schemas(done.body) == [root]
    paths = [loss.path for loss in done.losses if loss.level != "form"]
    assert paths == [f"tools[0].function.parameters.{key}" for key in lost]
    round_trip = weft.translate(done.body, target, C, sidecar=done.sidecar)
    assert round_trip.body["tools"] == offer(schema)["tools"]


def test_openai_refuses_more_schemas_than_anthropic():
    schema = {**CITY, "not": {"required": ["lat"]}}
    assert schemas(weft.translate(offer(schema), C, A).body) == [schema]
    assert schemas(weft.translate(offer(schema), C, R).body) == [CITY]
    body = {
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": schema}]}],
    }
    done = weft.translate(body, G, C, model="m")
    assert done.body["tools"][0]["function"]["parameters"] == CITY
    path = "tools[0].functionDeclarations[0].parametersJsonSchema.not"
    assert path in [loss.path for loss in done.losses]


@pytest.mark.parametrize(
    ("schema", "root"),
    [
        ({}, {"type": "object", "properties": {}}),
        # tools of Claude Code that take nothing: https://github.com/BerriAI/litellm/pull/19103
        ({"$schema": "s"}, {"type": "object", "$schema": "s", "properties": {}}),
        ({"properties": UNIT}, {"type": "object", "properties": UNIT}),
        ({"anyOf": [CITY, PLACE]}, {"type": "object", "properties": BOTH}),
    ],
)
@pytest.mark.parametrize("as_bytes", [True, False])
def test_a_root_has_the_type_object(schema, root, as_bytes):
    body = {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"name": "f", "input_schema": schema}],
    }
    done = weft.translate(orjson.dumps(body) if as_bytes else body, A, C)
    written = orjson.loads(done.body) if as_bytes else done.body
    assert written["tools"][0]["function"]["parameters"] == root
    assert "tools[0].input_schema" in [loss.path for loss in done.losses]


def test_gemini_gets_a_type_except_for_tools_without_parameters():
    for schema, root in (({"$schema": "s"}, {"type": "object", "$schema": "s"}), ({}, None)):
        done = weft.translate(offer(schema), C, G)
        (entry,) = done.body["tools"]
        assert entry["functionDeclarations"][0].get("parametersJsonSchema") == root
