"""Hooks of schemathesis: of the requests that it makes up, some are made such that the server takes them.

A made-up body would name a feed's own publisher, its history or a place that is free by accident only.
"""

from __future__ import annotations

import os
import zlib
from typing import Any

import schemathesis

FEED = "written"
AGENT = "writer-1"
"""The publisher of :data:`FEED`. Neither is named in other calls: an entry that is in use would quarantine it for good."""
INCARNATION = "HEADRACE_TEST_INCARNATION"
"""Environment variable: the incarnation of the feed whose positions are reported."""
_FREE = ("changes", "before", "processed", "copy", "tx-last")
"""Members that an entry may have of any value that the description allows."""


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """Change every other body that is about entries, a registration or a position."""
    number = zlib.crc32(repr(body).encode())
    if not isinstance(body, dict) or number % 2:
        return body
    if isinstance(body.get("changes"), dict):
        return _entry(body)
    entries = body.get("entries")
    if (
        isinstance(entries, list)
        and entries
        and all(isinstance(one, dict) and "changes" in one for one in entries)
    ):
        return {**body, "entries": [_entry(one) for one in entries]}
    if body.keys() >= {"agent-id", "change-feed-id"}:
        return {"agent-id": AGENT, "change-feed-id": f"made-{number % 50}"}
    if body.keys() >= {"listener-id", "change-feed-id"}:
        return {"listener-id": f"made-{number % 50}", "change-feed-id": FEED}
    if body.keys() >= {"incarnation", "sequence-id"}:
        return {"incarnation": os.environ[INCARNATION], "sequence-id": number % 6}
    return body


@schemathesis.hook
def map_headers(context: Any, headers: Any) -> Any:
    """Take every other request's headers away: a made-up epoch, incarnation or time is nearly always refused."""
    return headers if not headers or zlib.crc32(repr(headers).encode()) % 2 else {}


def _entry(entry: dict[str, Any]) -> dict[str, Any]:
    return {**{name: entry[name] for name in _FREE if name in entry}, "agent-id": AGENT}
