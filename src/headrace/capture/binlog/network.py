"""MariaDB's INET4, INET6 and UUID -> the text that it prints. In the binlog they look like BINARY of their size."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Form(StrEnum):
    """What the bytes of a binary column stand for; the binlog does not say it, the catalogue does."""

    INET4 = "inet4"
    INET6 = "inet6"
    UUID = "uuid"


SIZES: Final = {Form.INET4: 4, Form.INET6: 16, Form.UUID: 16}
_WORDS: Final = 8
_UUID_PARTS: Final = (slice(0, 4), slice(4, 6), slice(6, 8), slice(8, 10), slice(10, 16))
"""The binlog has a UUID in the order of its text, whichever order it has in the table."""


def form_text(form: Form, data: bytes) -> str:
    """Return the text of ``SIZES[form]`` bytes."""
    match form:
        case Form.INET4:
            return ".".join(map(str, data))
        case Form.INET6:
            return _inet6(data)
        case Form.UUID:
            return "-".join(data[part].hex() for part in _UUID_PARTS)


def _inet6(data: bytes) -> str:
    """Of the longest zeros the first are left out, a single one too, unlike RFC 5952 §4.2.2."""
    words = [data[at] << 8 | data[at + 1] for at in range(0, 2 * _WORDS, 2)]
    start, length = _longest_zeros(words)
    if start == 0 and (length == 6 or (length == 5 and words[5] == 0xFFFF)):
        head = "::ffff:" if length == 5 else "::"
        return head + ".".join(map(str, data[12:]))
    if not length:
        return ":".join(f"{word:x}" for word in words)
    left = ":".join(f"{word:x}" for word in words[:start])
    right = ":".join(f"{word:x}" for word in words[start + length :])
    return f"{left}::{right}"


def _longest_zeros(words: list[int]) -> tuple[int, int]:
    best, start = (0, 0), None
    for place, word in enumerate((*words, 1)):
        if word:
            if start is not None and place - start > best[1]:
                best = (start, place - start)
            start = None
        elif start is None:
            start = place
    return best
