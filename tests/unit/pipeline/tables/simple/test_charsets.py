"""Which letters character sets hold: in Python, and as the pattern that Spark looks with."""

from __future__ import annotations

import pytest

from headrace.pipeline.tables.simple.charsets import has_own_bytes, is_held, is_within, sql_held


@pytest.mark.parametrize(
    ("charset", "held", "lost"),
    [
        ("utf8mb4", "a\nя😀", ""),
        ("utf16", "😀", ""),
        ("utf8mb3", "a\nя\uffff", "😀"),
        ("ucs2", "я", "😀"),
        ("latin1", "a\x00\x7f\xa0ÿ€Ÿ", "\x80ĀяŸ😀"),
        ("ascii", "a\x7f", "\x80é"),
        ("cp1251", "a", "я"),
        ("", "a", "é"),
    ],
)
def test_letters(charset: str, held: str, lost: str) -> None:
    assert is_held(held, charset)
    assert is_held("", charset)
    assert [letter for letter in lost if is_held(letter, charset)] == [one for one in lost if one == "Ÿ"]


@pytest.mark.parametrize(
    ("old", "new", "within"),
    [
        ("latin1", "utf8mb3", True),
        ("utf8mb3", "latin1", False),
        ("utf8mb4", "utf8mb3", False),
        ("utf8mb4", "utf16", True),
        ("ucs2", "utf8mb3", True),
        ("gbk", "utf8mb3", True),
        ("gbk", "gbk", True),
        ("gbk", "latin1", False),
        ("latin1", "gbk", False),
        ("ascii", "gbk", True),
        ("", "utf8mb4", True),
        ("", "utf8mb3", False),
        ("", "", False),
        ("utf8mb4", "", False),
    ],
)
def test_one_within_another(old: str, new: str, within: bool) -> None:
    assert is_within(old, new) == within


def test_in_spark() -> None:
    assert sql_held("`c`", "utf8mb3") == "NOT `c` RLIKE '[^\\\\x{0}-\\\\x{FFFF}]'"
    assert "20AC" in sql_held("`c`", "latin1")


def test_bytes_of_ascii() -> None:
    assert [has_own_bytes(one) for one in ("latin1", "gbk", "ucs2", "")] == [True, True, False, False]
