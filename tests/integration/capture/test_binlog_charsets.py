"""Every code of every character set, as the server reads it and as the binlog's decoder does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.capture.binlog.charsets import reader_of
from tests.binlog import charsets_of
from tests.mariadb import Server

UNREAD = {"armscii8", "dec8", "eucjpms", "geostd8", "keybcs2", "swe7"}
"""Tables with columns of these stop, named."""
SERVER_ALONE: dict[str, Callable[[bytes], bool]] = {
    "big5": lambda code: b"\xf9\xd6" <= code <= b"\xf9\xdc",
    "tis620": lambda code: code >= b"\xa0",
    "ujis": lambda code: (
        code[:1] in {b"\xf5", b"\xf6", b"\xf7", b"\xf8", b"\xf9", b"\xfa", b"\xfb", b"\xfc", b"\xfd", b"\xfe"}
    ),
}
"""Codes that the server reads, some of them as U+FFFD, and Python's codec does not: a table with such a value stops."""
LOST = {"big5": "╴￣ˍ\uff0f\uff3c十卅"}
"""Characters that the server loses (they become U+FFFD), and that its binlog still has."""


def codes(bytes_max: int) -> list[bytes]:
    singles = [bytes([code]) for code in range(256)]
    if bytes_max == 1:
        return singles
    doubles = [bytes([lead, trail]) for lead in range(0x81, 0xFF) for trail in range(0x40, 0xFF)]
    return singles[:0x80] + [code for code in doubles if code[1] != 0x7F]


def test_every_code_is_the_character_that_the_server_has(mariadb: Server) -> None:
    whole = {"binary", "utf8mb3", "utf8mb4", "ucs2", "utf16", "utf16le", "utf32"}
    sets = mariadb.sql("SELECT character_set_name, maxlen FROM information_schema.character_sets")
    read = 0
    for name, bytes_max in sets:
        if name in whole:
            continue
        reader = reader_of(name)
        assert (reader is None) == (name in UNREAD), name
        if reader is None:
            continue
        for code, said in zip(codes(bytes_max), _said(mariadb, name, bytes_max), strict=True):
            if said is None or "?" in said.replace("?", "", code == b"?"):
                continue
            try:
                found = reader(code)
            except UnicodeDecodeError:
                assert name in SERVER_ALONE, (name, code)
                assert SERVER_ALONE[name](code), (name, code)
                continue
            assert found == said or (said == "\ufffd" and found in LOST[name]), (name, code)
            read += 1
    assert read > 100_000


def _said(server: Server, name: str, bytes_max: int) -> list[str | None]:
    """What the server makes of each code: each stands alone on a line."""
    wanted = codes(bytes_max)
    said: list[str | None] = []
    for start in range(0, len(wanted), 5000):
        some = wanted[start : start + 5000]
        lines = b"\n".join(code for code in some if code != b"\n").hex()
        [(text,)] = server.sql(f"SELECT HEX(CONVERT(CONVERT(x'{lines}' USING {name}) USING utf8mb4))")
        found = iter(bytes.fromhex(text).decode().split("\n"))
        said += ["\n" if code == b"\n" else next(found) for code in some]
    return said


@pytest.mark.parametrize(
    "name", ["utf8mb4", "utf8mb3", "ucs2", "utf16", "utf16le", "utf32", "latin1", "ascii"]
)
def test_text_is_what_the_server_reads(mariadb: Server, name: str) -> None:
    text = "aZ~" if name == "ascii" else "aé\u20ac~" if name == "latin1" else "aé\u20ac\u5341"
    [(stored,)] = mariadb.sql(
        f"SELECT HEX(CONVERT(CONVERT(x'{text.encode().hex()}' USING utf8mb4) USING {name}))"
    )
    reader = reader_of(name)
    assert reader is not None
    assert reader(bytes.fromhex(stored)) == text


def test_each_collation_has_a_character_set_that_is_known(mariadb: Server) -> None:
    assert set(charsets_of(mariadb).values()) - UNREAD - {"binary"} == {
        name for name in charsets_of(mariadb).values() if reader_of(name) is not None
    }
