"""File descriptors: connections and files share a process's limit, and the store must never find it used up."""

from __future__ import annotations

import sys
from typing import Final

if sys.platform != "win32":
    import resource

KEPT: Final = 256
"""How many are kept from connections, for the store, databases and answers; a quarter of a limit that is small."""
WANTED_MAX: Final = 1 << 20
"""As many as are asked for where the hard limit is higher."""


def raise_limit() -> int:
    """Raise this process's limit to what it may have, and return it."""
    if sys.platform == "win32":
        return KEPT * 2
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_MAX if hard == resource.RLIM_INFINITY else min(hard, WANTED_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return WANTED_MAX if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def connections_max(limit: int) -> int:
    """Return how many connections a process with this limit may hold."""
    return max(1, limit - min(KEPT, limit // 4))
