"""Settings of a gateway come from flags, the file and the environment, in that order."""

from hashlib import sha256

import pytest

from weft.errors import ConfigError
from weft.gateway import Flags, read_settings


def config(folder, text):
    path = folder / "weft.toml"
    path.write_text(text)
    return str(path)


KEYS = {"ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "o"}


def test_flags_override_the_file_and_the_file_the_environment(tmp_path):
    path = config(tmp_path, 'port = 2\nstore = "file.db"\n')
    environ = {"WEFT_PORT": "1", "WEFT_STORE": "env.db", "WEFT_HOST": "localhost"}
    settings = read_settings(Flags(config=path, port=3), environ)
    assert (settings.port, settings.store, settings.host) == (3, "file.db", "localhost")


def test_the_vendors_are_configured_from_environment_keys():
    settings = read_settings(Flags(), dict(KEYS, GEMINI_API_KEY="g"))
    assert [(p.name, p.protocol, p.key) for p in settings.providers] == [
        ("anthropic", "anthropic", "a"),
        ("openai", "openai-responses", "o"),
        ("openai-chat", "openai-chat", "o"),
        ("gemini", "gemini", "g"),
    ]


def test_configured_upstreams_replace_the_defaults_and_find_their_key(tmp_path):
    path = config(
        tmp_path,
        '[[upstream]]\nname = "a"\nprotocol = "anthropic"\nurl = "http://a"\nkey_env = "MINE"\n',
    )
    flags = Flags(config=path, upstreams=["my-box=anthropic:http://b"])
    settings = read_settings(flags, {"MINE": "one", "MY_BOX_API_KEY": "two"})
    assert [(p.name, p.key) for p in settings.providers] == [("a", "one"), ("my-box", "two")]


def test_the_repr_has_no_password_of_the_store():
    flags = Flags(store="postgresql://me:hunter2xyz@db/weft")
    assert "hunter2xyz" not in repr(flags) + repr(read_settings(flags, {}))


def test_keys_are_stored_only_as_hashes(tmp_path):
    digest = sha256(b"second").hexdigest()
    path = config(tmp_path, f'keys = ["sha256:{digest}"]\n')
    settings = read_settings(Flags(config=path), {"WEFT_API_KEYS": "first, "})
    assert settings.keys == {sha256(b"first").hexdigest(), digest}


@pytest.mark.parametrize(
    ("flags", "environ", "words"),
    [
        (Flags(port=99999), {}, "port 99999"),
        (Flags(), {"WEFT_PORT": "soon"}, "'soon' is not a number"),
        (Flags(host="0.0.0.0"), {}, "callers need keys"),
        (Flags(config="/nowhere.toml"), {}, "'/nowhere.toml' cannot be read"),
        (Flags(upstreams=["x"]), {}, "'x' is not of the form"),
        (Flags(upstreams=["a=anthropic:http://x"] * 2), {}, "two upstreams are named 'a'"),
        (Flags(), {"WEFT_OFFLINE_PACE": "slow"}, "WEFT_OFFLINE_PACE='slow'"),
        (Flags(), {"WEFT_OFFLINE_PACE": "-1"}, "WEFT_OFFLINE_PACE='-1'"),
        (Flags(), {"WEFT_OFFLINE_PACE": "nan"}, "WEFT_OFFLINE_PACE='nan'"),
        (Flags(port=-1), {}, "port -1"),
        (Flags(), {"WEFT_PORT": "80.5"}, "'80.5' is not a number"),
        (Flags(upstreams=["up=gemini:http://host:port"]), {}, "'up': url is not a URL"),
        (Flags(upstreams=["up=gemini:https://u:p@host"]), {}, "'up': url must not contain a user"),
    ],
)
def test_a_wrong_setting_is_named(flags, environ, words):
    with pytest.raises(ConfigError, match=words):
        read_settings(flags, environ)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("port = ", "is not TOML"),
        ('port = "x"', "line 1: the key 'port' at the top level must be a whole number, not a str"),
        ('[limits]\n\nidle_seconds = "x"', r"line 3: the key 'idle_seconds' in \[limits\] must be"),
        ('host = "a"\nkeys = [5]', "line 2: the key 'keys' at the top level must be a string"),
        ('record = "yes"', "must be true or false, not a string"),
        ("[aliases]\na = 5", r"line 1: a value in \[aliases\] must be a string, not a whole"),
        ('port = 1\n[upstream]\nname = "a"', r"line 2: the key 'upstream' .* a list, not a table"),
        (
            'thinking = "loud"',
            r"the key 'thinking' .* has a wrong value: .* 'loud'",
        ),
        ("[compaction]\ntarget = 5", r"line 2: the key 'target' in \[compaction\] has a wrong"),
        ('[[upstream]]\nurl = "u"\n[[upstream]]\nname = 7', "line 1: the key 'name' is missing"),
        ("prot = 1", "unknown key 'prot' at the top level"),
        ('[[upstream]]\nnam = "a"\n', r"unknown key 'nam' in \[upstream\]"),
        ('[[upstream]]\nname = "a"\n', r"line 1: the key 'protocol' is missing in \[upstream\]"),
        (
            '[[upstream]]\nname = "a"\nprotocol = "gemini"\nurl = "u"\n[[upstream]]\nname = 7',
            r"line 6: the key 'name' in \[upstream\] must be a string, not a whole number",
        ),
        ('keys = ["secret"]', "sha256:<64 hex digits>"),
        ("max_body = -5", "max_body"),
        ("max_body = 0", "max_body"),
        ("max_body = 1.5", "max_body"),
        ("max_body = true", "max_body"),
        ("ping_seconds = 0", "ping_seconds"),
        ("ping_seconds = -0.1", "ping_seconds"),
        ("ping_seconds = nan", "ping_seconds"),
        ("ping_seconds = inf", "ping_seconds"),
        ("port = -1", "port -1"),
        ("port = 65536", "port 65536"),
        (
            '[[upstream]]\nname = "a"\nprotocol = "gemini"\nurl = "a.example"\n',
            "'a': url must begin",
        ),
        ('[[upstream]]\nname = "a"\nprotocol = "gemini"\nurl = "http://[::1"\n', "'a': url is not"),
        ('[[upstream]]\nname = "a"\nprotocol = "x"\nurl = "http://a"\n', "unknown protocol 'x'"),
    ],
)
def test_an_error_names_the_position_in_a_wrong_file(tmp_path, text, words):
    with pytest.raises(ConfigError, match=words):
        read_settings(Flags(config=config(tmp_path, text)), {})


@pytest.mark.parametrize(
    ("line", "policy"),
    [
        ("", "auto"),
        ('system = "merge"', "merge"),
        ("demote-interleaved-system-to-user = true", "demote"),
        ("demote-interleaved-system-to-user = false", "auto"),
    ],
)
def test_W4_the_system_policy_of_an_upstream(tmp_path, line, policy):
    text = f'[[upstream]]\nname = "a"\nprotocol = "anthropic"\nurl = "http://a"\n{line}\n'
    settings = read_settings(Flags(config=config(tmp_path, text)), {})
    assert [provider.system for provider in settings.providers] == [policy]


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ({"host": "0.0.0.0"}, "loopback"),
        ({"record": False}, "needs a recorded conversation"),
        ({"agent_dir": None}, "--agent-dir"),
        ({"agent_dir": "/no/such/folder"}, "/no/such/folder"),
    ],
)
def test_the_page_gets_an_agent_only_with_a_folder_on_this_machine(tmp_path, flags, reason):
    options = {"agent": "claude", "agent_dir": str(tmp_path), **flags}
    with pytest.raises(ConfigError, match=reason):
        read_settings(Flags(**options), {"WEFT_API_KEYS": "k"})


def test_mcp_servers_are_available_only_locally():
    with pytest.raises(ConfigError, match="loopback"):
        read_settings(Flags(host="0.0.0.0", mcp=["a-server"]), {"WEFT_API_KEYS": "k"})
