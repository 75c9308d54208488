"""Which letters a character set of MySQL holds: text that is moved to one that lacks a letter gets ``?`` for it.

In strict mode that is an error, but no message says which mode a session had. Of character sets that are not listed the
letters of ASCII alone are sure. Pure.
"""

from __future__ import annotations

import re
from typing import Final

from headrace.pipeline.tables.simple.expressions import literal

_WHOLE: Final = frozenset({"utf8mb4", "utf16", "utf16le", "utf32"})
_PLANE: Final = frozenset({"utf8", "utf8mb3", "ucs2"})
_WIDE: Final = frozenset({"ucs2", "utf16", "utf16le", "utf32"})
"""Character sets in which a letter of ASCII is not its own byte."""
_SIZES: Final = ("ascii", "latin1", "utf8mb3", "utf8mb4")
"""Each holds the letters of those before it."""
# Windows-1252, but for the five letters that it has no agreed ones for, and for its 0x80 to 0x9F as control characters.
_LATIN: Final = (
    "\\x{0}-\\x{7F}\\x{A0}-\\x{FF}\\x{20AC}\\x{201A}\\x{192}\\x{201E}\\x{2026}\\x{2020}\\x{2021}\\x{2C6}\\x{2030}\\x{160}"
    "\\x{2039}\\x{152}\\x{17D}\\x{2018}\\x{2019}\\x{201C}\\x{201D}\\x{2022}\\x{2013}\\x{2014}\\x{2DC}\\x{2122}\\x{161}"
    "\\x{203A}\\x{153}\\x{17E}\\x{178}"
)
_CLASSES: Final = {
    "ascii": "\\x{0}-\\x{7F}",
    "latin1": _LATIN,
    "utf8mb3": "\\x{0}-\\x{FFFF}",
    "utf8mb4": "\\x{0}-\\x{10FFFF}",
}
_PATTERNS: Final = {
    name: re.compile(re.sub(r"\\x\{(\w+)\}", lambda found: f"\\U{int(found[1], 16):08x}", f"[{letters}]*"))
    for name, letters in _CLASSES.items()
}


def is_held(text: str, charset: str) -> bool:
    """Tell whether a column of ``charset`` holds ``text`` as it is; ``''``: its character set is not known."""
    return _PATTERNS[_size_of(charset)].fullmatch(text) is not None


def is_within(old: str, new: str) -> bool:
    """Tell whether the character set ``new`` has every letter of ``old``; ``''``: it is not known."""
    if old and old == new:
        return True
    size = _SIZES.index(_size_of(new))
    if old in _SIZES or old in _WHOLE | _PLANE:
        return _SIZES.index(_size_of(old)) <= size
    # Whatever else a server has, its letters are in Unicode's first plane.
    return size >= _SIZES.index("utf8mb3") if old else new in _WHOLE


def sql_held(sql: str, charset: str) -> str:
    """Return Spark SQL that tells of the text ``sql`` what :func:`is_held` does."""
    return f"NOT {sql} RLIKE {literal(f'[^{_CLASSES[_size_of(charset)]}]')}"


def has_own_bytes(charset: str) -> bool:
    """Tell whether the letters of ASCII are their own bytes in a character set that is known."""
    return bool(charset) and charset not in _WIDE


def _size_of(charset: str) -> str:
    """Return the greatest of the sizes that ``charset`` is sure to have."""
    if charset in _WHOLE:
        return "utf8mb4"
    if charset in _PLANE:
        return "utf8mb3"
    return "latin1" if charset == "latin1" else "ascii"
