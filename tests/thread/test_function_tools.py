"""Plain functions in `setup(tools=...)` and `to_*_params(tools=...)`."""

import json

import pytest

import weft
from weft.agent import read_tool


def solve(thought: str, answer: str, budget: int = 3) -> str:
    """Solve the task.

    Args:
        thought: think before you answer
    """
    return answer + thought * budget


ORDER = ["thought", "answer", "budget"]


def schema_of(protocol, params):
    if protocol == "gemini":
        declared = params["config"]["tools"][0]["functionDeclarations"][0]
        return declared.get("parametersJsonSchema") or declared["parameters"]
    tool = params["tools"][0]
    if protocol == "openai":
        return tool["function"]["parameters"]
    return tool["input_schema" if protocol == "anthropic" else "parameters"]


PROTOCOLS = ["anthropic", "openai", "responses", "gemini"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("way", ["setup", "params"])
def test_a_function_is_a_tool_with_its_parameters_in_order(protocol, way, tmp_path):
    with weft.open(tmp_path / "t.db") as thread:
        thread.user("hi")
        if way == "setup":
            thread.setup(tools=[solve])
    with weft.open(tmp_path / "t.db") as thread:  # read back from the store
        options = {} if way == "setup" else {"tools": [solve]}
        params = getattr(thread.compile(), f"to_{protocol}_params")(model="m", **options)
    schema = json.loads(json.dumps(schema_of(protocol, params)))
    assert list(schema["properties"]) == ORDER
    assert schema["required"] == ORDER[:2]
    assert schema["properties"]["thought"]["description"] == "think before you answer"


def test_methods_and_tool_objects_are_accepted_too():
    class Desk:
        def look_up(self, word: str) -> str:
            """Look a word up."""
            return word

    with weft.open() as thread:
        thread.user("hi")
        thread.setup(tools=[Desk().look_up, read_tool(solve), {"name": "plain"}])
        params = thread.compile().to_anthropic_params(model="claude-sonnet-5")
    assert [tool["name"] for tool in params["tools"]] == ["look_up", "solve", "plain"]
    assert list(params["tools"][0]["input_schema"]["properties"]) == ["word"]


def test_a_function_that_cannot_be_described_is_refused_with_its_name():
    def many(*words: str) -> str:
        return " ".join(words)

    with weft.open() as thread, pytest.raises(weft.ThreadError, match=r"'many'.*words"):
        thread.setup(tools=[many])
