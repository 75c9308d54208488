r"""Regular expressions of table filters: Go's dialect in Python's.

Go's ``\d``, ``\w``, ``\s`` and ``\b`` know ASCII alone, its ``$`` is the very end, and it has no look-around and no
back-references. What the two read differently is translated or refused, never left to chance.
"""

from __future__ import annotations

import re
from typing import Final

_OUTSIDE: Final = {
    "d": "[0-9]",
    "D": "[^0-9]",
    "w": "[0-9A-Za-z_]",
    "W": "[^0-9A-Za-z_]",
    "s": r"[\t\n\f\r ]",
    "S": r"[^\t\n\f\r ]",
    "b": r"(?a:\b)",
    "B": r"(?a:\B)",
    "A": r"\A",
    "z": r"\Z",
}
_INSIDE: Final = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t\n\f\r "}
_CONTROLS: Final = frozenset("afnrtv")
_GROUP: Final = re.compile(r"\(\?(?:P?<[A-Za-z_][A-Za-z0-9_]*>|[is]*(?:-[is]+)?:|:)")
_GLOBAL_FLAGS: Final = re.compile(r"\(\?[is]+\)")
_HEXADECIMAL: Final = re.compile(r"\\x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,6})\})")
_TOKEN: Final = re.compile(r"\\.|.", re.DOTALL)


class GoRegexpUnknown(Exception):
    """The expression has something that Go does not know, or that is not translated; the text says what."""


def translated(text: str) -> str:
    """Return Go's regular expression ``text`` as Python writes it.

    GoRegexpUnknown where that can't be done; whether the rest of it is right is left to ``re.compile``.
    """
    out: list[str] = []
    place = 0
    flags = _GLOBAL_FLAGS.match(text)
    if flags is not None:
        out.append(flags[0])
        place = flags.end()
    inside = False
    class_begins = -1
    while place < len(text):
        token = _TOKEN.match(text, place)
        assert token is not None  # noqa: S101  # there is one character at least
        part, width = token[0], token.end() - place
        if part[0] == "\\":
            part, width = _escape(text, place, inside=inside)
        elif inside:
            inside = not (part == "]" and place > class_begins)
            part = _in_class(text, place) if inside else part
        elif part == "[":
            inside = True
            class_begins = place + 1 + text.startswith("^", place + 1)
        elif part == "$":
            part = r"\Z"
        elif text.startswith("(?", place):
            part = _group(text, place)
            width = len(part)
            part = part.replace("(?<", "(?P<")
        elif part in "*+?}" and text.startswith("+", place + 1):
            raise GoRegexpUnknown(f"two quantifiers, {text[place : place + 2]!r}, behind each other")
        out.append(part)
        place += width
    return "".join(out)


def _group(text: str, place: int) -> str:
    group = _GROUP.match(text, place)
    if group is None:
        raise GoRegexpUnknown(
            f"the group {text[place : place + 4]!r} is not known: no look-around, flags i and s alone"
        )
    return group[0]


def _in_class(text: str, place: int) -> str:
    if text[place] == "[" and text.startswith(":", place + 1):
        raise GoRegexpUnknown("classes with names, [[:alpha:]], are not read; write [a-zA-Z]")
    return "\\" + text[place] if text[place] in "[&|~" else text[place]


def _escape(text: str, place: int, *, inside: bool) -> tuple[str, int]:
    if place + 1 == len(text):
        raise GoRegexpUnknown("it must not end in '\\'")
    character = text[place + 1]
    if character == "x":
        number = _HEXADECIMAL.match(text, place)
        code = int(number[1] or number[2], 16) if number else -1
        if number is None or not 0 <= code <= 0x10FFFF:
            raise GoRegexpUnknown(r"\x must be \x7f or \x{10ffff}")
        return re.escape(chr(code)), len(number[0])
    if character == "Q" and not inside:
        end = text.find("\\E", place)
        quoted = text[place + 2 : end if end >= 0 else len(text)]
        return re.escape(quoted), len(quoted) + (4 if end >= 0 else 2)
    known = (_INSIDE if inside else _OUTSIDE).get(character)
    if known is not None:
        return known, 2
    if character in _CONTROLS or not (character.isascii() and character.isalnum()):
        return "\\" + character if character.isascii() else re.escape(character), 2
    raise GoRegexpUnknown(f"'\\{character}' is not known: no back-references, no \\p")
