"""TLS of a client: which authorities it trusts, and the certificate that it shows, from the environment of the process.

``HEADRACE_TLS_CA``: a PEM file of authorities, instead of the public ones (``SSL_CERT_FILE`` works too). A file that is
given to the client itself (``--ca-file``) wins.
``HEADRACE_TLS_CERT`` and ``HEADRACE_TLS_KEY``: what to show to a server that was given ``--tls-client-ca``.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx

from headrace.errors import ConfigInvalid

if TYPE_CHECKING:
    import grpc

CA: Final = "HEADRACE_TLS_CA"
CERT: Final = "HEADRACE_TLS_CERT"
KEY: Final = "HEADRACE_TLS_KEY"

NO_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Of calls in clear: it trusts nobody. To read the public authorities takes each client 30 ms of the processor."""


def channel_credentials(ca_file: Path | None = None) -> grpc.ChannelCredentials:
    """Return the TLS credentials of a gRPC channel, of the same files as :func:`client_context`; ConfigInvalid as there."""
    client_context(ca_file)  # says what is wrong with a file, which gRPC would not
    import grpc  # noqa: PLC0415  # who speaks HTTP alone does not wait for it

    ca, cert, key = (os.environ.get(name) or None for name in (CA, CERT, KEY))
    authorities = ca_file or ca or os.environ.get("SSL_CERT_FILE")
    roots = Path(authorities).read_bytes() if authorities is not None else None
    chain = Path(cert).read_bytes() if cert is not None else None
    private = Path(key or cert).read_bytes() if cert is not None else None
    return grpc.ssl_channel_credentials(roots, private, chain)


def context_for(server: str, ca_file: Path | None = None) -> ssl.SSLContext:
    """Return the context of a client that calls ``server`` alone; ConfigInvalid as :func:`client_context`."""
    return client_context(ca_file) if server.startswith("https://") else NO_TLS


def client_context(ca_file: Path | None = None) -> ssl.SSLContext:
    """Return the TLS context of a client's calls; ConfigInvalid, naming option or variable, if a file can't be used.

    ``ca_file``: the authorities to trust, else those of the environment.
    """
    ca, cert, key = (os.environ.get(name) or None for name in (CA, CERT, KEY))
    if key is not None and cert is None:
        raise ConfigInvalid(f"{KEY} is set, and {CERT} is not", hint="A client certificate needs both.")
    ca, named = (ca, CA) if ca_file is None else (str(ca_file), "--ca-file")
    try:
        context = ssl.create_default_context(cafile=ca) if ca is not None else httpx.create_ssl_context()
    except OSError as error:
        raise ConfigInvalid(f"{named} {ca}: can't be used: {error.strerror or error}") from None
    if cert is not None:
        try:
            # Without a password of its own, OpenSSL would ask for one on the terminal.
            context.load_cert_chain(cert, key, password="")
        except OSError as error:
            raise ConfigInvalid(f"{CERT} {cert}: can't be used: {error.strerror or error}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
