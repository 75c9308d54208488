"""Paths that users name, made absolute on the driver: workers run in folders of their own, where a relative one is another.

Called where options are read. Pure but for the present folder, the user's home and the environment.
"""

from __future__ import annotations

import os
from pathlib import Path


def absolute_file(path: str) -> str:
    """Return a file's path from the root on; empty if it is empty."""
    return str(Path(path).absolute()) if path else ""


def identity_file(path: str) -> str:
    """Return the path of the file with age identities from the root on; of ``HEADRACE_IDENTITY`` if it is empty."""
    return absolute_file(path or os.environ.get("HEADRACE_IDENTITY", ""))


def absolute_folder(address: str) -> str:
    """Return the address of a folder, as fsspec takes it: a local path from the root on, anything with a scheme as it is."""
    if not address or "://" in address or "::" in address:
        return address
    path = Path(address)
    return str((path.expanduser() if address.startswith("~/") else path).absolute())
