"""Free ports for servers that must find their port again when they are started anew."""

from __future__ import annotations

import os
import random
import socket

# Below the range from which Linux takes ports for outgoing connections: a stopped server's port stays its own.
_FIRST, _LAST = 20_000, 32_000
# Test processes that run side by side take ports of their own, so that a stopped server's port stays its own among them too.
_WORKERS_MAX = 8
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS_MAX
_random = random.SystemRandom()


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on now."""
    while True:
        port = _random.randrange(_FIRST + _WORKER, _LAST, _WORKERS_MAX)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
