"""The driver's connection to MariaDB or MySQL, which is opened without reading what nothing is checked against."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from pymysql.connections import Connection
from pymysql.cursors import Cursor

if TYPE_CHECKING:
    DriverConnection = Connection[Cursor]
else:
    DriverConnection = Connection  # generic in its type stubs only


class MysqlConnection(DriverConnection):
    """A connection. Without ``ssl-ca`` it has TLS where the server has it, and checks no certificate."""

    def _create_ssl_ctx(self, sslp: dict[str, Any]) -> ssl.SSLContext:
        """Leave this machine's authorities out where none is asked: to read them takes 40 ms of the processor."""
        if sslp:
            made: ssl.SSLContext = super()._create_ssl_ctx(sslp)  # type: ignore[misc]  # not in its type stubs
            return made
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
