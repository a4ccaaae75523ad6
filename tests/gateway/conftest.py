"""A scripted upstream for each test module, and a gateway in front of it for each protocol."""

import pytest

from servers import UPSTREAM_NAMES, scripted_upstream, weft_serve


@pytest.fixture(scope="module")
def upstream():
    with scripted_upstream() as running:
        yield running


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, upstream):
    """Four upstreams, one of each protocol, all at the same address."""
    flags = [
        f"--upstream={name}={protocol}:{upstream.url}" for protocol, name in UPSTREAM_NAMES.items()
    ]
    with weft_serve(tmp_path_factory.mktemp("many"), *flags) as running:
        yield running
