"""Names and scopes of keys are checked before a key is used."""

import hashlib

import pytest

from weft.errors import ConfigError
from weft.gateway import Flags, read_settings

HASH = "sha256:" + hashlib.sha256(b"old key").hexdigest()
NEW = "sha256:" + hashlib.sha256(b"new key").hexdigest()


def test_a_plain_key_does_not_share_its_scope_with_a_named_one(tmp_path):
    config = tmp_path / "weft.toml"
    table = f'[[key]]\nname = "alice"\nhashes = ["{NEW}"]\nscope = "{HASH}"\n'
    config.write_text(f'keys = ["{HASH}"]\n{table}')
    with pytest.raises(ConfigError, match="same scope"):
        read_settings(Flags(config=str(config)), {})
    config.write_text(table)
    assert len(read_settings(Flags(config=str(config)), {}).keys) == 1


@pytest.mark.parametrize("command", ['""', '" "', "''"])
def test_a_key_command_without_a_word_is_refused(tmp_path, command):
    config = tmp_path / "weft.toml"
    upstream = '[[upstream]]\nname = "x"\nprotocol = "anthropic"\nurl = "http://localhost"\n'
    config.write_text(f"{upstream}key_command = {command}\n")
    with pytest.raises(ConfigError, match="key_command"):
        read_settings(Flags(config=str(config)), {})
