"""TLS for a gRPC server, from the same files as HTTP's. Apart from them, so that who serves HTTP alone loads no gRPC."""

from __future__ import annotations

import grpc

from headrace.access.tls import Tls, TlsFiles


def server_credentials(tls: Tls) -> grpc.ServerCredentials:
    """Return credentials for ``add_secure_port``: each handshake takes the newest files."""
    served = tls.files

    def changed() -> grpc.ServerCertificateConfiguration | None:
        # gRPC asks in a thread of its own; None keeps what it has.
        nonlocal served
        tls.refresh()
        if tls.files is served:
            return None
        served = tls.files
        return _configuration(served)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(served), changed, tls.settings.client_ca is not None
    )


def _configuration(files: TlsFiles) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(files.key, files.cert)], files.client_ca)
