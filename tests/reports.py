"""Reports as a process sends them, for tests."""

from __future__ import annotations

from typing import Any


def report(feed: str = "shop", state: str = "moving", **work: Any) -> dict[str, Any]:
    """A whole report of one work at ``feed``; ``work``: further members of it, with underscores."""
    return {
        "version": "0.1",
        "host": "db1",
        "pid": 7,
        "started-at": "2026-01-01T00:00:00Z",
        "state": state,
        "works": [
            {
                "name": f"relay {feed}",
                "feed": feed,
                "state": "moving" if state in {"ending", "failed"} else state,
                "since": "2026-01-01T00:00:00Z",
                **{name.replace("_", "-"): value for name, value in work.items()},
            }
        ],
    }
