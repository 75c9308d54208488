"""Table filters accept what TiDB's do."""

from __future__ import annotations

import pytest

from headrace.errors import ConfigInvalid
from headrace.simple.table_filter import TableFilter

YES, NO = True, False

CASES = [
    # patterns, [(schema, table, case counts, case does not count)]
    ([], [("foo", "bar", NO, NO)]),
    (["*.*"], [("foo", "bar", YES, YES)]),
    (["foo.*"], [("foo", "bar", YES, YES), ("foo1", "bar", NO, NO)]),
    (["*.*", "!foo1.*"], [("foo", "bar", YES, YES), ("foo1", "bar", NO, NO), ("foo2", "bar", YES, YES)]),
    (["!*.secret"], [("a", "b", NO, NO)]),
    (
        ["db*.*", "!*.cfg*", "*.cfgsample"],
        [
            ("other", "t", NO, NO),
            ("db1", "t", YES, YES),
            ("db1", "cfg1", NO, NO),
            ("db1", "cfgsample", YES, YES),
            ("else", "cfgsample", YES, YES),
        ],
    ),
    (
        ["*.*", "!foo[bar].*", "!bar?.*", r"!special\\.*"],
        [
            ("foor", "a", NO, NO),
            ("foo[bar]", "b", YES, YES),
            ("ba", "c", YES, YES),
            ("bar?", "d", NO, NO),
            ("special\\", "e", NO, NO),
            ("special\\\\", "f", YES, YES),
            ("afooa", "g", YES, YES),
        ],
    ),
    ([r"\\\..*"], [("\\.", "a", YES, YES), ("\\a", "c", NO, NO)]),
    (
        ["[!a-z].[^a-z]"],
        [
            ("!", "z", YES, YES),
            ("1", "^", YES, YES),
            ("!", "9", NO, NO),
            ("a", "z", NO, NO),
        ],
    ),
    (
        [r"a[\]\-x].b"],
        [("a]", "b", YES, YES), ("a-", "b", YES, YES), ("ax", "b", YES, YES), ("ay", "b", NO, NO)],
    ),
    (["a[&&|b].c"], [("a&", "c", YES, YES), ("ab", "c", YES, YES), ("aa", "c", NO, NO)]),
    (["BAR.*"], [("bar", "a", NO, YES), ("BAR", "a", YES, YES)]),
    (["*.*", "!a*.A*"], [("aB", "Ab", NO, NO), ("AaB", "aab", YES, NO)]),
    (["s[A-C].t"], [("sb", "t", NO, YES), ("sB", "t", YES, YES), ("sd", "t", NO, NO)]),
    (["ÄRGER.*"], [("ärger", "a", NO, YES)]),
    (
        ["p_123$.45", "中文.表?"],
        [("p_123$", "45", YES, YES), ("中文", "表名", YES, YES), ("中", "表名", NO, NO)],
    ),
    (
        ['"some ""quoted""".`id``s?`'],
        [
            ('some "quoted"', "id`s?", YES, YES),
            ('SOME "QUOTED"', "ID`S?", NO, YES),
            ('some "quoted"', "id`s!", NO, NO),
        ],
    ),
    (
        ["# comment", "x.y", "  \t", "  a.b\t"],
        [("x", "y", YES, YES), ("a", "b", YES, YES), ("#", "y", NO, NO)],
    ),
    (
        ["/^foo/.*", r"!/^foo/./^sb-\d/"],
        [("foo", "sb", YES, YES), ("foo1", "sb-1", NO, NO), ("fff", "b", NO, NO)],
    ),
    (
        ["*.*", "!/^FOO/.*", "!*./FoO$/"],
        [("foo2", "b", YES, NO), ("BoO3", "cFoO", NO, NO), ("5", "5", YES, YES)],
    ),
    ([r"/a\/b/.*"], [("xa/by", "t", YES, YES), ("ab", "t", NO, NO)]),
    ([r"/^\w\d$/.*"], [("a1", "t", YES, YES), ("é1", "t", NO, NO), ("a٣", "t", NO, NO)]),
    ([r"/^a$/.*"], [("a", "t", YES, YES), ("a\n", "t", NO, NO)]),
    ([r"/^\Qa.b\E+[]x[&&]\z/.*"], [("a.b]", "t", YES, YES), ("a.bb&", "t", YES, YES), ("axbx", "t", NO, NO)]),
    ([r"/(?i)^a(?P<n>b|c)(?:d)\x41\x{42}$/.t"], [("ABDAB", "t", YES, YES), ("aedab", "t", NO, NO)]),
    (["*.t"], [("a.b\n", "t", YES, YES)]),
]


@pytest.mark.parametrize(("patterns", "tables"), CASES, ids=lambda case: str(case)[:40])
def test_accepts(patterns: list[str], tables: list[tuple[str, str, bool, bool]]) -> None:
    strict = TableFilter(patterns, case_sensitive=True)
    loose = TableFilter(patterns)
    for schema, table, in_case, any_case in tables:
        assert strict.accepts(schema, table) is in_case, (schema, table)
        assert loose.accepts(schema, table) is any_case, (schema, table)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("/^t((?!_copy).)*$/.*", "no look-around"),
        ("/sp(?=copy)/.*", "no look-around"),
        (r"/(a)\1/.*", "no back-references"),
        (r"/\pL/.*", "no \\p"),
        ("/[[:alpha:]]/.*", "classes with names"),
        ("/a*+/.*", "quantifiers"),
        ("/(/.*", "no regular expression"),
        ("a.b.c", "nothing may follow"),
        ("a%b.c", "'%' has no meaning"),
        (r"a\tb.c", "letters and digits are not escaped"),
        ("[].*", "class of characters"),
        ("[!].*", "class of characters"),
        ("[.*", "class of characters"),
        (r"[\d\D].*", "class of characters"),
        ("[z-a].*", "'z' comes after 'a'"),
        ("db", "pattern for the table"),
        ("db.", "a pattern is missing"),
        ("!", "a pattern is missing"),
        ("`db`*.*", "there must be a '.'"),
        ("/db.*", "does not end"),
        ("`db.*", "does not end"),
        ('"db.*', "does not end"),
        ("db\\", "must not end"),
        ("db.tbl#no comment", "'#' has no meaning"),
        ("@file.txt", "another file"),
    ],
)
def test_what_is_no_pattern_is_named(pattern: str, why: str) -> None:
    with pytest.raises(ConfigInvalid, match="table filter") as caught:
        TableFilter(["*.*", pattern])
    assert why in caught.value.detail
    assert repr(pattern) in caught.value.detail
