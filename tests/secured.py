"""A real server that asks for tokens, and with TLS if a test wants it: ``with secured(folder, issuer) as server``."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from headrace.client.tls import NO_TLS
from tests.certificates import Authority
from tests.identity import Issuer
from tests.servers import ServerProcess


class SecuredServer(ServerProcess):
    """``http`` bears an admin's token. ``authority``: what its certificate is from, None without TLS."""

    def __init__(self, folder: Path, issuer: Issuer, *, args: Sequence[str] = (), tls: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.issuer = issuer
        self.keys = folder / "jwks.json"
        self.keys.write_bytes(issuer.key_set())
        given = ["--auth-jwks", self.keys.as_uri(), *args]
        self.authority = Authority(folder) if tls else None
        if self.authority is not None:
            pair = self.authority.sign("server")
            given += ["--tls-cert", str(pair.cert), "--tls-key", str(pair.key)]
        super().__init__(folder, args=given, grpc=True)

    @property
    def url(self) -> str:
        """The address of its HTTP face."""
        return f"{'https' if self.authority is not None else 'http'}://{self.address}"

    @property
    def grpc_url(self) -> str:
        """The address of its gRPC face, as our clients take it."""
        return f"https://{self.grpc_address}" if self.authority is not None else self.grpc_address

    def start(self) -> None:
        """Start the process, and speak to it as an admin."""
        super().start()
        self.http.close()
        self._http = self.client(self.issuer.token())

    def client(self, token: str | None) -> httpx.Client:
        """A client that bears ``token``."""
        verify = NO_TLS
        if self.authority is not None:
            verify = ssl.create_default_context(cafile=str(self.authority.file))
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        return httpx.Client(base_url=self.url, timeout=70, trust_env=False, headers=headers, verify=verify)


@contextmanager
def secured(
    folder: Path, issuer: Issuer, *, args: Sequence[str] = (), tls: bool = False
) -> Iterator[SecuredServer]:
    """Run a server for the length of a ``with``; it is killed at the end if it still runs."""
    server = SecuredServer(folder, issuer, args=args, tls=tls)
    try:
        server.start()
        yield server
    finally:
        server.kill()
