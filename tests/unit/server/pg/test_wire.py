"""A connection of which the reader says how much it takes."""

from __future__ import annotations

import asyncio
import struct

import pytest

from headrace.server.pg.session import PASSWORD_BYTES_MAX
from headrace.server.pg.sqlstate import PgError
from headrace.server.pg.terms import PgTerms
from headrace.server.pg.wire import Wire


async def test_a_password_that_is_too_long_is_refused_by_its_length() -> None:
    """None of it is read: who has not logged in yet takes no memory."""
    wire = Wire(PgTerms())
    server = await asyncio.get_running_loop().create_server(lambda: wire, "127.0.0.1", 0)
    async with server:
        _, client = await asyncio.open_connection(*server.sockets[0].getsockname())
        client.write(b"p" + struct.pack(">I", 4 + 3) + b"ok\0")
        assert await wire.read_message(PASSWORD_BYTES_MAX) == (b"p", b"ok\0")
        client.write(b"p" + struct.pack(">I", PASSWORD_BYTES_MAX + 1))
        with pytest.raises(PgError, match="invalid message length") as refused:
            await wire.read_message(PASSWORD_BYTES_MAX)
        assert refused.value.fatal
        client.close()
        wire.abort()
