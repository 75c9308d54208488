"""HTTP connections of the agent's face: bounded as the server's are, and they can be cut with what waits to be sent."""

from __future__ import annotations

import asyncio
from typing import Any

from headrace.access import connection
from headrace.access.asgi import Scope
from headrace.access.connection import TRANSPORT


class Connection(connection.Connection):
    """The server's connection, which says when it is idle and when it has ended. ``lost``: set at its end."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.lost = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        """Say that it has ended."""
        super().connection_lost(exc)
        self.lost.set()


def cut(scope: Scope) -> None:
    """End the call's connection at once. Closing it would wait for a listener that takes nothing."""
    scope[TRANSPORT].abort()
