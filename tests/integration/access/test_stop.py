"""A server with TLS stops as soon as all is answered, whoever keeps a connection for later."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx

from tests.identity import Issuer
from tests.secured import secured


def test_a_stop_waits_for_no_client_that_does_not_read(tmp_path: Path) -> None:
    with secured(tmp_path / "server", Issuer(), tls=True) as server:
        assert server.authority is not None
        with httpx.Client(verify=ssl.create_default_context(cafile=server.authority.file)) as client:
            assert client.get(f"{server.url}/healthz").status_code == 200
            assert server.stop() == 0
        assert "timeout graceful shutdown exceeded" not in server.errors()
