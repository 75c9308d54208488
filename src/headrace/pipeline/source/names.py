"""What the source is called, and where it looks for a server that nobody names."""

from __future__ import annotations

from typing import Final

FORMAT: Final = "headrace"
DEFAULT_SERVER: Final = "http://127.0.0.1:8470"
