"""Character sets of columns -> text, as MariaDB reads them: its names, Python's codecs, and where the two differ.

``tests/integration/capture/test_binlog_charsets.py`` compares every code with what a server makes of it.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from functools import lru_cache
from typing import Final

Read = Callable[[bytes], str]
"""Returns the text of a column's bytes; UnicodeDecodeError where they are none."""

_UNDEFINED: Final = "\ufffe"
"""What marks a byte without a character in a table of ``codecs.charmap_decode``."""

_WHOLE: Final = {
    "utf8": "utf-8",
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
    "ascii": "ascii",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "big5": "big5",
    "cp932": "cp932",
    "euckr": "cp949",
    "gb2312": "gb2312",
    "gbk": "gbk",
}
"""Read by Python's codec as it is."""

_BACKSLASH: Final = str.maketrans("\uff3c", "\\")
_OTHER_CHARACTERS: Final = {
    "sjis": ("shift_jis", _BACKSLASH),
    "ujis": ("euc_jp", _BACKSLASH),
}
"""Python's codec has another character for some codes; no other code stands for the character that it has."""

_BYTES: Final[dict[str, tuple[str, dict[int, str]]]] = {
    "latin1": ("cp1252", {code: chr(code) for code in (0x81, 0x8D, 0x8F, 0x90, 0x9D)}),
    "latin2": ("iso8859_2", {}),
    "latin5": ("iso8859_9", {}),
    "latin7": ("iso8859_13", {}),
    "cp850": ("cp850", {}),
    "cp852": ("cp852", {}),
    "cp866": ("cp866", {0xFC: "ⁿ", 0xFD: "²"}),
    "cp1250": ("cp1250", {}),
    "cp1251": ("cp1251", {}),
    "cp1256": ("cp1256", {}),
    "cp1257": ("cp1257", {}),
    "greek": ("iso8859_7", {0xA1: "\u02bd", 0xA2: "\u02bc"}),
    "hebrew": ("iso8859_8", {0xAF: "‾"}),
    "hp8": ("hp_roman8", {}),
    "koi8r": ("koi8_r", {}),
    "koi8u": ("koi8_u", {0x95: "•"}),
    "macce": ("mac_latin2", {}),
    "macroman": ("mac_roman", {}),
    "tis620": ("tis_620", {}),
}
"""One byte a character: Python's codec, and the bytes for which MariaDB has another character or any at all."""


def is_utf8(charset: str) -> bool:
    """Tell whether bytes of the character set are UTF-8 as they stand."""
    return _WHOLE.get(charset) == "utf-8"


@lru_cache(maxsize=64)
def reader_of(charset: str) -> Read | None:
    """Return what reads text of the character set that MariaDB calls ``charset``; None if this version can't read it."""
    if charset in _WHOLE:
        decode = codecs.getdecoder(_WHOLE[charset])
        return lambda data: decode(data, "strict")[0]
    if charset in _OTHER_CHARACTERS:
        codec, others = _OTHER_CHARACTERS[charset]
        decode_most = codecs.getdecoder(codec)
        return lambda data: decode_most(data, "strict")[0].translate(others)
    if charset in _BYTES:
        table = _table(*_BYTES[charset])
        return lambda data: codecs.charmap_decode(data, "strict", table)[0]
    return None


def labels_of(raw: tuple[bytes, ...], charset: str) -> tuple[str, ...]:
    """Return the labels of an ENUM or SET column; none at all if the character set can't be read or has not these bytes."""
    read = reader_of(charset)
    try:
        return tuple(map(read, raw)) if read is not None else ()
    except UnicodeDecodeError:
        return ()


def _table(codec: str, others: dict[int, str]) -> str:
    return "".join(
        others.get(code) or bytes([code]).decode(codec, "replace").replace("\ufffd", _UNDEFINED)
        for code in range(256)
    )
