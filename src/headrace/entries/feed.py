"""Names: feed ids, agents, tenants, server regions; and the key prefix that is made of them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from headrace.errors import InvalidRequest

NAME_CHARS_MAX: Final = 200
"""Longest name of a feed, agent, listener, tenant or region; keeps every key prefix well below a frame's fields."""

_NAMES_KEPT: Final = 4096
"""Names that were found to be valid lately: each append names its feed and its producer."""

# "." and ".." would be taken for steps in a path: clients remove them from an address before they send it.
_FEED = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._:@+~-]{1,200}")
_TENANT = re.compile(r"[A-Za-z0-9._-]{1,200}")
_AGENT = re.compile(r"(?!\.{1,2}\Z)[\x21-\x7e]{1,200}")


@lru_cache(maxsize=_NAMES_KEPT)
def check_feed_id(text: str) -> str:
    """Return ``text`` if it can name a feed (letters, digits and ``._:@+~-``), else raise InvalidRequest."""
    return _check(_FEED, text, "change-feed-id", "letters, digits and . _ : @ + ~ - (but not . or .. alone)")


def check_tenant(text: str, member: str = "tenant-id") -> str:
    """Return ``text`` if it can name a tenant or a server region, else raise InvalidRequest."""
    return _check(_TENANT, text, member, "letters, digits and . _ -")


@lru_cache(maxsize=_NAMES_KEPT)
def check_agent_id(text: str, member: str = "agent-id") -> str:
    """Return ``text`` if it can name an agent, an instance or a listener, else raise InvalidRequest."""
    return _check(_AGENT, text, member, "printable ASCII characters without spaces (but not . or .. alone)")


def key_prefix(region: str, tenant: str, feed: str) -> str:
    """Return ``{server region}:{tenant}:{change-feed-id}:``, which a ``key_prefix_filter`` is matched against."""
    return f"{region}:{tenant}:{feed}:"


def _check(pattern: re.Pattern[str], text: str, member: str, allowed: str) -> str:
    if not pattern.fullmatch(text):
        raise InvalidRequest(
            f"{member}: {text[:80]!r} is not a valid name",
            hint=f"Use 1 to {NAME_CHARS_MAX} of: {allowed}.",
            member=member,
        )
    return text
