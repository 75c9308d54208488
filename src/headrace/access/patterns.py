"""Feed patterns: a change-feed-id in which ``*`` stands for any characters, none included. Pure, and linear in time."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from headrace.entries.feed import NAME_CHARS_MAX
from headrace.errors import InvalidRequest

PATTERNS_MAX: Final = 100
"""Most patterns of one token: each is tried at each call."""

_PATTERN: Final = re.compile(r"[A-Za-z0-9._:@+~*-]{1,200}")


def check_pattern(text: str) -> str:
    """Return ``text`` if it can be a feed pattern, else raise InvalidRequest."""
    if not _PATTERN.fullmatch(text):
        raise InvalidRequest(
            f"feeds: {text[:80]!r} is no feed pattern",
            hint=f"Use 1 to {NAME_CHARS_MAX} of: letters, digits and . _ : @ + ~ - and * for any characters.",
            member="feeds",
        )
    return text


def matches(pattern: str, feed: str) -> bool:
    """Does ``feed`` fit ``pattern``? No other character than ``*`` is special, and case counts."""
    first, *rest = pattern.split("*")
    if not rest:
        return feed == pattern
    last = rest.pop()
    if len(feed) < len(first) + len(last) or not (feed.startswith(first) and feed.endswith(last)):
        return False
    place, end = len(first), len(feed) - len(last)
    for part in rest:
        found = feed.find(part, place, end)
        if found < 0:
            return False
        place = found + len(part)
    return True


def matches_any(patterns: Iterable[str], feed: str) -> bool:
    """Does ``feed`` fit one of ``patterns``? None of no patterns."""
    return any(matches(pattern, feed) for pattern in patterns)
