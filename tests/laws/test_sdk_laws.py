"""The wire laws on bodies that are generated from the official SDKs' types."""

import orjson
import pytest

import weft
from laws.judges import request as params_of
from laws.test_named_losses import unnamed
from sdk_bodies import made
from sdk_types import REQUESTS, RESPONSES, faults
from weft.store import open_store
from weft.thread import import_bytes

PROTOCOLS = tuple(REQUESTS)
PAIRS = [(a, b) for a in PROTOCOLS for b in PROTOCOLS if a != b]
BODIES = 250
THREADS = 60
TYPED = ("anthropic", "openai-chat", "openai-responses")
"""The protocols whose SDK types a request as one dict."""

OF_LITTLE_SENSE = 0.5
"""The largest share of bodies that may be refused: the SDK types allow bodies that vendors
refuse."""

MISLAID = 0.012
"""The share in which similarity pairs the wrong neighbours, or a body contradicts itself (it
chooses a custom tool as a function)."""


def over_the_wire(value):
    return orjson.loads(orjson.dumps(value))


def requests(protocol):
    """Bodies, each with the model's name, which some protocols do not have in the body."""
    for seed in range(BODIES):
        body = made("request", protocol, seed)
        if protocol == "openai-responses":
            body.setdefault("model", "gpt-5")
        yield body, body.get("model") or "m"


def translated(body, model, source, target, refused):
    """The translation, or `None` for a body that is refused."""
    try:
        done = weft.translate(body, source, target, model=model)
    except weft.Refused as error:
        refused.append(error)
        return None
    assert done is not None  # only a refused body may be left unchecked
    return done


RULES = {"cache_breakpoint_dropped", "system_demoted_for_model"}
"""Rules of a target that change a body even in its own protocol."""


def without_rules(value):
    """A body without what the rules may change: cache marks, and the role `system`."""
    if isinstance(value, dict):
        members = {
            key: without_rules(inner) for key, inner in value.items() if key != "cache_control"
        }
        return {**members, "role": "user"} if members.get("role") == "system" else members
    return [without_rules(item) for item in value] if isinstance(value, list) else value


def assert_few(refused):
    assert all(error.status == 400 and error.param for error in refused)
    assert len(refused) <= BODIES * OF_LITTLE_SENSE


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_generated_bodies_match_the_sdk_types(protocol):
    for body, _ in requests(protocol):
        assert faults(REQUESTS, protocol, body) == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_law_1_the_same_protocol_round_trips(protocol):
    refused = []
    for body, model in requests(protocol):
        done = translated(body, model, protocol, protocol, refused)
        if done is not None:
            assert {loss.code for loss in done.losses} <= RULES
            same = without_rules if done.losses else dict
            assert same(done.body) == same(body)
    assert_few(refused)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_law_2_every_body_is_valid_in_the_target_and_restored_by_its_sidecar(source, target):
    refused = []
    for body, model in requests(source):
        sent = translated(body, model, source, target, refused)
        if sent is None:
            continue
        wire = over_the_wire(sent.body)
        assert faults(REQUESTS, target, wire) == []
        round_trip = weft.translate(
            wire, target, source, model=model, sidecar=over_the_wire(sent.sidecar)
        )
        own = weft.translate(body, source, source, model=model)
        same = without_rules if own.losses else dict
        assert same(round_trip.body) == same(body)
    assert_few(refused)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_law_2_differences_without_the_sidecar_are_reported(source, target):
    failures = {}
    for seed, (body, _) in enumerate(requests(source)):
        try:
            unreported = unnamed(body, source, target)
        except weft.Refused:
            continue
        if unreported:
            failures[seed] = unreported
    assert len(failures) <= BODIES * MISLAID, failures


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_imported_thread_is_valid_for_every_vendor(protocol, tmp_path):
    store = open_store(str(tmp_path / "weft.db"))
    judged = 0
    for seed, (body, _) in enumerate(requests(protocol)):
        if seed >= THREADS:
            break
        try:
            import_bytes(store, orjson.dumps(body), format=protocol, thread=f"t{seed}")
            compiled = weft.open(store, f"t{seed}").compile()
            written = {target: params_of(compiled, target) for target in TYPED}
        except weft.WeftError:
            continue  # no message, or nothing that another wire can say
        for target, params in written.items():
            assert faults(REQUESTS, target, params) == []
        judged += 1
    assert judged > THREADS / 3


@pytest.mark.parametrize(("maker", "client"), PAIRS)
def test_every_answer_is_valid_for_its_client(maker, client):
    shown = 0
    for seed in range(BODIES):
        answer = made("response", maker, seed)
        try:
            done = weft.translate_response(answer, maker, client)
        except (weft.Refused, weft.UpstreamFailed):
            continue  # no choice at all, which is no answer, or none that succeeded
        assert faults(RESPONSES, client, over_the_wire(done.body)) == []
        shown += 1
    assert (
        shown > BODIES / 3
    )  # Gemini's type allows an answer without any candidate: half have none
