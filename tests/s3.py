"""An S3 server for tests: moto's, as a process of its own, with a bucket. Fixtures ``s3`` and ``s3_url``.

A test that writes to ``s3_url`` gives its processes ``s3.env``; in the test's own process the address just works.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Final

import fsspec
import pytest

from tests.ports import free_port
from tests.waiting import wait_until

BUCKET: Final = "backups"
_numbers = count(1)


class S3Server:
    """The server at ``127.0.0.1:port``."""

    def __init__(self, port: int) -> None:
        self.port = port

    @property
    def config(self) -> dict[str, str]:
        """What fsspec must know of it."""
        return config_of(self.port)

    @property
    def env(self) -> dict[str, str]:
        """The environment by which another process finds it."""
        return os.environ | env_of(self.port)


def config_of(port: int) -> dict[str, str]:
    """What fsspec must know of the server behind this port."""
    return {"endpoint_url": f"http://127.0.0.1:{port}", "key": "test", "secret": "test"}


def env_of(port: int) -> dict[str, str]:
    """The same as variables of the environment."""
    return {f"FSSPEC_S3_{name.upper()}": value for name, value in config_of(port).items()}


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run a server with an empty bucket for the length of a ``with``."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        store = fsspec.filesystem("s3", skip_instance_cache=True, **config_of(port))

        def made() -> bool:
            assert process.poll() is None, "the S3 server has ended"
            try:
                store.mkdir(BUCKET)
            except Exception as error:  # noqa: BLE001  # whatever the driver says while nobody listens
                return "exist" in str(error).lower()
            return True

        wait_until(made, what="the S3 server")
        yield S3Server(port)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def s3_process() -> Iterator[S3Server]:
    """The server of all tests of this process."""
    with s3_server() as server:
        yield server


@pytest.fixture
def s3(s3_process: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server, known to fsspec in this process as well."""
    monkeypatch.setitem(fsspec.config.conf, "s3", s3_process.config)
    return s3_process


@pytest.fixture
def s3_url(s3: S3Server) -> str:
    """The address of a folder of this test's own."""
    return f"s3://{BUCKET}/archive-{next(_numbers)}"
