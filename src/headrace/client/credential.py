"""The bearer token: from ``--token-file`` or ``HEADRACE_TOKEN``; never printed."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.errors import ConfigInvalid


def read_token(file: Path | None) -> str | None:
    """Return the token in ``file``, else that of the environment, else None; ConfigInvalid if the file can't be read."""
    if file is None:
        return os.environ.get("HEADRACE_TOKEN") or None
    try:
        return file.read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"--token-file {file}: can't be read: {error}", hint="Check the path.") from None
