"""No conversation gets data of another one, and each stays in its own thread.

The upstream checks this: the private state of every answer has a unique token, which must not
appear in the request of another conversation.
"""

import os
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import weft.thread
from conversations import Conversation, ThinkingUpstream, thinking_upstream
from servers import UPSTREAM_NAMES, Gateway, weft_serve
from weft.history import read_branches
from weft.store import open_store

LARGE = bool(os.environ.get("WEFT_TORTURE"))
EXAMPLES = 500 if LARGE else 15
OPENINGS = 5000 if LARGE else 120
AT_ONCE = 16
PROTOCOLS = sorted(UPSTREAM_NAMES)
PAIRS = [(client, upstream) for upstream in PROTOCOLS for client in PROTOCOLS if client != upstream]
KEYS = ("first-key", "second-key")
SHARED = "shared-session-of-the-example"

HINTS = (
    "none",
    "shared prompt_cache_key",  # says what may be cached, not which conversation it is
    "shared user_id",  # one end user, any number of conversations
    "x-session-id",
    "x-weft-thread",
    "claude subagent",  # carries its parent's session id
    "codex subagent",
    "shared x-session-id",  # a client that gives all its conversations one name
)
OWN_HINTS = frozenset({"x-session-id", "x-weft-thread", "claude subagent", "codex subagent"})


class Plan:
    """What one conversation of an example does."""

    def __init__(self, number: int, example: int, drawn: dict[str, Any]) -> None:
        self.number = number
        self.key: int = drawn["key"]
        self.hint: str = drawn["hint"]
        self.tools: bool = drawn["tools"]
        self.changes_system: bool = drawn["changes_system"]
        self.own_words: bool = drawn["own_words"]
        self.code_word = f"CODEWORD{example}x{number}x"
        self.client: str = drawn["client"]
        self.echo: str = drawn["echo"]
        self.system: str | None = {
            "none": None,
            "equal": "You are a helpful assistant.",
            "own": f"You assist one caller. The secret is {self.code_word}.",
        }[drawn["system"]]

    @property
    def has_token(self) -> bool:
        """Whether the client echoes an id that only its own conversation has."""
        return self.tools or self.echo == "previous"

    @property
    def group(self) -> tuple[object, ...]:
        """Conversations of one group begin with equal requests: nobody can tell them apart."""
        hint = self.hint if self.hint not in OWN_HINTS else self.number
        named = hint if hint == "shared x-session-id" or isinstance(hint, int) else "unnamed"
        return (self.key, named, self.system, self.tools)

    def headers(self, example: int, keys: bool) -> dict[str, str]:
        own = f"{example}-{self.number}"
        headers = {
            "x-session-id": {"x-session-id": own},
            "x-weft-thread": {"x-weft-thread": f"named-{own}"},
            "claude subagent": {
                "x-claude-code-session-id": f"{SHARED}-{example}",
                "x-claude-code-agent-id": f"agent-{own}",
            },
            "codex subagent": {"session-id": f"{SHARED}-{example}", "thread-id": f"thread-{own}"},
            "shared x-session-id": {"x-session-id": f"{SHARED}-{example}"},
        }.get(self.hint, {})
        return headers | ({"x-api-key": KEYS[self.key]} if keys else {})

    def params(self, example: int) -> dict[str, Any]:
        if self.hint == "shared prompt_cache_key" and self.client.startswith("openai"):
            return {"prompt_cache_key": f"{SHARED}-{example}"}
        if self.hint == "shared user_id" and self.client == "anthropic":
            return {"metadata": {"user_id": f"{SHARED}-{example}"}}
        return {}


PLANS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.integers(0, 1),
            "hint": st.sampled_from(HINTS),
            "tools": st.sampled_from([False, False, False, True]),
            "changes_system": st.sampled_from([False, False, True]),
            "own_words": st.booleans(),
            "client": st.sampled_from(PROTOCOLS),
            "echo": st.sampled_from(["text", "text", "whole", "previous", "mixed"]),
            "system": st.sampled_from(["equal", "own", "none"]),
        }
    ),
    min_size=2,
    max_size=5,
)

_example = iter(range(1_000_000))


@pytest.fixture(scope="module")
def thinker() -> Iterator[ThinkingUpstream]:
    with thinking_upstream() as running:
        yield running


def serve(folder: Path, thinker: ThinkingUpstream, **environ: str) -> Any:
    flags = [f"--upstream={name}={each}:{thinker.url}" for each, name in UPSTREAM_NAMES.items()]
    return weft_serve(folder, *flags, **environ)


@pytest.fixture(scope="module")
def open_gateway(
    tmp_path_factory: pytest.TempPathFactory, thinker: ThinkingUpstream
) -> Iterator[Gateway]:
    with serve(tmp_path_factory.mktemp("open"), thinker) as running:
        yield running


@pytest.fixture(scope="module")
def keyed_gateway(
    tmp_path_factory: pytest.TempPathFactory, thinker: ThinkingUpstream
) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("keyed")
    with serve(folder, thinker, WEFT_API_KEYS=",".join(KEYS)) as running:
        yield running


def stored(gateway: Gateway, names: Sequence[str]) -> dict[str, list[list[Any]]]:
    """The messages of every branch of these threads."""
    store = open_store(gateway.store)
    try:
        return {
            name: [
                list(weft.thread.open(store, name, branch=branch).compile().messages)
                for branch in read_branches(store, name)
            ]
            for name in names
        }
    finally:
        store.close()


def visible(messages: Sequence[Any]) -> list[str]:
    """What the client saw, without the system prompt, which may change."""
    return [message.text for message in messages if message.role != "system"]


@given(drawn=PLANS, upstream=st.sampled_from(PROTOCOLS), seed=st.integers(0, 1 << 30))
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@pytest.mark.parametrize("keys", [False, True], ids=["no keys", "two keys"])
def test_nothing_crosses_between_interleaved_conversations(
    keys: bool,
    request: pytest.FixtureRequest,
    thinker: ThinkingUpstream,
    drawn: list[dict[str, Any]],
    upstream: str,
    seed: int,
) -> None:
    gateway: Gateway = request.getfixturevalue("keyed_gateway" if keys else "open_gateway")
    example, chance = next(_example), random.Random(seed)
    plans = [Plan(number, example, each) for number, each in enumerate(drawn)]
    for plan in plans:
        if plan.client == upstream:  # private state is put back only where it was translated
            plan.client = PROTOCOLS[PROTOCOLS.index(upstream) - 1]
        if plan.client != "openai-responses" and plan.echo in ("previous", "mixed"):
            plan.echo = "text"  # only Responses names answers by their ids
        plan.key = plan.key if keys else 0
    conversations = [
        Conversation(
            gateway.url,
            plan.client,
            upstream,
            system=plan.system,
            headers=plan.headers(example, keys),
            params=plan.params(example),
            tools=plan.tools,
            echo=plan.echo,
        )
        for plan in plans
    ]
    thinker.forget()
    turns = [number for number in range(len(plans)) for _ in range(chance.randint(2, 4))]
    chance.shuffle(turns)
    for number in turns:
        plan, conversation = plans[number], conversations[number]
        count = len(conversation.threads)
        if plan.changes_system and count == 2:
            conversation.system = f"Another prompt. The secret is {plan.code_word}."
        words = f"{number} goes on" if plan.own_words and count else f"turn {count}"
        thinker.label = lambda _, number=number: number
        conversation.turn(f"{words} of example {example}")

    assert thinker.leaks() == []
    for number, conversation in enumerate(conversations):
        for reply in conversation.replies:
            assert set(thinker.tokens_in(reply).values()) <= {number}
    for number, (receiver, body) in enumerate(thinker.requests):
        for plan in plans:
            foreign = plan.code_word.encode() in body and plan.number != receiver
            assert not foreign, f"request {number}: the prompt of another conversation"
    _check_threads(gateway, plans, conversations)


def _may_meet(plan: Plan, other: Plan) -> bool:
    """Whether a turn of one may be recorded in the other, because they cannot be distinguished.

    They are equal; or both use the same session name, and one of them changes the prompt that
    distinguished them.
    """
    one_name = plan.hint == other.hint == "shared x-session-id" and plan.key == other.key
    changes = plan.changes_system or other.changes_system
    return plan.group == other.group or (one_name and changes)


def _check_threads(gateway: Gateway, plans: list[Plan], conversations: list[Conversation]) -> None:
    both = list(zip(plans, conversations, strict=True))
    names = {name for conversation in conversations for name in conversation.threads}
    threads = stored(gateway, sorted(names))
    groups: dict[tuple[object, ...], list[tuple[Plan, Conversation]]] = {}
    for plan, conversation in both:
        groups.setdefault(plan.group, []).append((plan, conversation))
    for plan, conversation in both:
        alone = not any(_may_meet(plan, other) for other in plans if other is not plan)
        if plan.hint in OWN_HINTS or plan.has_token or (alone and not plan.changes_system):
            assert len(set(conversation.threads)) == 1, "one conversation, several threads"
        near = {name for other, each in both if _may_meet(plan, other) for name in each.threads}
        there = [visible(messages) for name in near for messages in threads[name]]
        assert conversation.transcript in there
        for other, beside in both:
            if not _may_meet(plan, other):
                assert not set(conversation.threads) & set(beside.threads), "two in one thread"
                mine = repr([threads[name] for name in conversation.threads])
                assert other.code_word not in mine, "another one's prompt is stored"
    for members in groups.values():
        # Equal ones may change places, but each has a thread of its own: unless they bear one
        # name, or only some of them hand back ids, and another one took their place before.
        group = [plan for plan, _ in members]
        if group[0].hint == "shared x-session-id" or len({plan.echo for plan in group}) > 1:
            continue
        if not any(plan.changes_system for plan in group):
            near = {name for _, each in members for name in each.threads}
            there = [visible(messages) for name in near for messages in threads[name]]
            assert sorted(there) == sorted(each.transcript for _, each in members)
            assert len(near) == len(members)


@pytest.mark.parametrize(("client", "upstream"), PAIRS)
def test_a_callers_thinking_stays_with_the_caller(
    open_gateway: Gateway, thinker: ThinkingUpstream, client: str, upstream: str
) -> None:
    """Equal first messages and answers under two system prompts; the second one continues first."""
    thinker.forget()
    pair = [
        Conversation(open_gateway.url, client, upstream, system=f"You assist {who}.")
        for who in (f"A of {client}", f"B of {client}")
    ]
    for number in (0, 1, 0, 1, 0):
        thinker.label = lambda _, number=number: number
        pair[number].turn(f"turn {len(pair[number].threads)} of {client} to {upstream}")
    assert thinker.leaks() == []
    assert [len(set(each.threads)) for each in pair] == [1, 1]
    assert pair[0].threads[0] != pair[1].threads[0]
    restored = [len(thinker.tokens_in(body)) for _, body in thinker.requests]
    assert restored == [0, 0, 1, 1, 2]  # each gets its own thinking back


@pytest.mark.parametrize(("client", "upstream"), PAIRS[::3])
def test_a_shared_session_name_proves_nothing(
    open_gateway: Gateway, thinker: ThinkingUpstream, client: str, upstream: str
) -> None:
    """They have equal texts, and one changes the prompt that distinguished them."""
    thinker.forget()
    headers = {"x-session-id": f"constant of {client} to {upstream}"}
    pair = [
        Conversation(open_gateway.url, client, upstream, system=system, headers=headers)
        for system in ("You assist A.", "You assist B.")
    ]
    for number in (0, 1, 0, 1, 1, 0, 1, 0):
        thinker.label = lambda _, number=number: number
        if number == 0 and len(pair[0].threads) == 2:
            pair[0].system = "You assist A at noon."
        pair[number].turn(f"turn {len(pair[number].threads)} of {client} to {upstream}")
    assert thinker.leaks() == []


@pytest.mark.parametrize("upstream", [each for each in PROTOCOLS if each != "openai-responses"])
@pytest.mark.parametrize("echo", ["previous", "mixed"])
def test_an_answer_id_restores_nothing_of_an_equal_conversation(
    open_gateway: Gateway, thinker: ThinkingUpstream, upstream: str, echo: str
) -> None:
    """The first one may be recorded with the second one's start, and then names its answer."""
    thinker.forget()
    pair = [
        Conversation(open_gateway.url, "openai-responses", upstream, echo=echo) for _ in range(2)
    ]
    for number in (0, 1, 0, 0, 1, 1):
        thinker.label = lambda _, number=number: number
        pair[number].turn(f"turn {len(pair[number].threads)} by {echo} to {upstream}")
    assert thinker.leaks() == []
    if echo == "previous":
        assert [len(set(each.threads)) for each in pair] == [1, 1]
        restored = [len(thinker.tokens_in(body)) for _, body in thinker.requests]
        assert restored == [0, 0, 1, 2, 1, 2]


@pytest.mark.parametrize(("client", "upstream"), PAIRS[::5])
def test_three_equal_runs_of_a_job_are_three_threads(
    open_gateway: Gateway, thinker: ThinkingUpstream, client: str, upstream: str
) -> None:
    thinker.forget()
    threads: list[str] = []
    for run in range(3):
        job = Conversation(open_gateway.url, client, upstream, system="You run a job.")
        thinker.label = lambda _, run=run: run
        for step in range(3):
            job.turn(f"step {step} of the job of {client} to {upstream}")
        threads += job.threads
    first, second, third = threads[0], threads[3], threads[6]
    assert len({first, second, third}) == 3
    assert threads == [first] * 3 + [second] * 3 + [third] * 3
    assert thinker.leaks() == []


@pytest.mark.parametrize("keys", [False, True], ids=["no keys", "two keys"])
def test_conversations_that_start_equally_are_separate_threads(
    keys: bool, request: pytest.FixtureRequest, thinker: ThinkingUpstream
) -> None:
    gateway: Gateway = request.getfixturevalue("keyed_gateway" if keys else "open_gateway")
    thinker.forget()
    thinker.label = lambda body: body["max_tokens"]

    def talk(number: int) -> str:
        headers = {"x-api-key": KEYS[number % 2]} if keys else {}
        one = Conversation(gateway.url, "openai-chat", "anthropic", headers=headers)
        one.turn("hi", max_tokens=1000 + number)
        one.turn(f"the topic of {number}", max_tokens=1000 + number)
        return one.threads[-1]

    with ThreadPoolExecutor(AT_ONCE) as pool:
        threads = list(pool.map(talk, range(OPENINGS)))
    assert len(set(threads)) == OPENINGS
    assert thinker.leaks() == []
    for number, name in enumerate(threads):
        if number % (OPENINGS // 60) == 0:
            (messages,) = stored(gateway, [name])[name]
            assert visible(messages)[2] == f"the topic of {number}"
    store = open_store(gateway.store)
    begun = [ref for ref in store.threads() if _says(store, ref.name, "hi")]
    store.close()
    assert len(begun) == OPENINGS


def _says(store: Any, name: str, text: str) -> bool:
    messages = weft.thread.open(store, name).compile().messages
    return any(message.text == text for message in messages)
