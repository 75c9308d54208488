"""TiDB's table filter: which tables a list of patterns accepts, as dispatch rules and ``[filter]`` sections write them.

A pattern is ``schema.table``. Each part is a name, a wildcard (``*``, ``?``, ``[a-z]``, ``[!a-z]``), a name in double quotes
or backquotes, or a regular expression between slashes. A backslash takes its meaning from a special character. ``!`` in
front refuses what the pattern matches. The last pattern that matches decides; what none matches is refused. Empty ones and
``#`` comments count for nothing. Patterns in other files (``@file``) are not read here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from headrace.errors import ConfigInvalid
from headrace.simple.filter_regexp import GoRegexpUnknown, translated

_QUOTED: Final = {'"': re.compile(r'"((?:""|[^"])+)"'), "`": re.compile(r"`((?:``|[^`])+)`")}
_REGEXP: Final = re.compile(r"/((?:\\.|[^/])+)/")
_CLASS: Final = re.compile(r"\[(!?)((?:\\[^0-9a-zA-Z]|[^\\\]])+)\]", re.DOTALL)
_CLASS_ITEM: Final = re.compile(r"\\?(.)(?:-\\?(.))?", re.DOTALL)
_PLAIN: Final = re.compile(r"[0-9a-zA-Z$_\u0080-\U0010ffff]")
_ASCII_ALPHANUMERIC: Final = re.compile(r"[0-9a-zA-Z]")

Matcher = Callable[[str], bool]


class _Rule(NamedTuple):
    schema: Matcher
    table: Matcher
    accepts: bool


class TableFilter:
    """A parsed list of patterns. Unless ``case_sensitive``, upper and lower case are the same, in names and patterns."""

    def __init__(self, patterns: Iterable[str], *, case_sensitive: bool = False) -> None:
        """Parse ``patterns``; ConfigInvalid names the pattern that is none, and what is wrong with it."""
        self._fold = _as_is if case_sensitive else lowered
        parser = _Parser(case_sensitive=case_sensitive)
        self._rules = [rule for pattern in patterns if (rule := parser.rule(pattern)) is not None]
        self._rules.reverse()

    def accepts(self, schema: str, table: str) -> bool:
        """Return whether the table is accepted."""
        schema, table = self._fold(schema), self._fold(table)
        for rule in self._rules:
            if rule.schema(schema) and rule.table(table):
                return rule.accepts
        return False


def lowered(text: str) -> str:
    """Return ``text`` in lower case, one character for one: a letter's form does not depend on its neighbours."""
    return text.lower() if text.isascii() else "".join(character.lower()[0] for character in text)


def _as_is(text: str) -> str:
    return text


class _Parser:
    def __init__(self, *, case_sensitive: bool) -> None:
        self.fold = _as_is if case_sensitive else lowered
        self.flags = re.NOFLAG if case_sensitive else re.IGNORECASE

    def rule(self, pattern: str) -> _Rule | None:
        text = pattern.strip(" \t")
        if not text or text.startswith("#"):
            return None
        if text.startswith("@"):
            raise _invalid(pattern, "patterns in another file are not read; put them here")
        accepts = not text.startswith("!")
        schema, rest = self._part(pattern, text if accepts else text[1:])
        if not rest:
            raise _invalid(pattern, "it needs a pattern for the table: schema.table")
        if not rest.startswith("."):
            raise _invalid(pattern, f"there must be a '.' between schema and table, not {rest[0]!r}")
        table, rest = self._part(pattern, rest[1:])
        if rest:
            raise _invalid(pattern, f"nothing may follow the table's pattern, but {rest!r} does")
        return _Rule(schema, table, accepts)

    def _part(self, pattern: str, text: str) -> tuple[Matcher, str]:
        """Return the matcher of the part that ``text`` begins with, and what follows it."""
        if not text:
            raise _invalid(pattern, "a pattern is missing")
        if text[0] == "/":
            found = _REGEXP.match(text)
            if found is None:
                raise _invalid(pattern, "the regular expression does not end; write '/' in it as '\\/'")
            return self._regexp(pattern, found[1]), text[found.end() :]
        if text[0] in _QUOTED:
            found = _QUOTED[text[0]].match(text)
            if found is None:
                raise _invalid(pattern, "the quoted name does not end")
            return self._name(found[1].replace(text[0] * 2, text[0])), text[found.end() :]
        return self._wildcard(pattern, text)

    def _name(self, name: str) -> Matcher:
        return self.fold(name).__eq__

    def _regexp(self, pattern: str, text: str) -> Matcher:
        try:
            found = re.compile(translated(text), self.flags)
        except GoRegexpUnknown as error:
            raise _invalid(pattern, str(error)) from None
        except (re.error, OverflowError, RecursionError) as error:
            raise _invalid(pattern, f"{text!r} is no regular expression: {error}") from None
        return lambda name: found.search(name) is not None

    def _wildcard(self, pattern: str, text: str) -> tuple[Matcher, str]:
        name, expression, place = [], [], 0
        literal = True
        while place < len(text) and text[place] != ".":
            character = text[place]
            width = 1
            if character == "\\":
                character = _escaped(pattern, text, place)
                name.append(character)
                expression.append(re.escape(character))
                width = 2
            elif character in "*?":
                literal = False
                expression.append(".*" if character == "*" else ".")
            elif character == "[":
                literal = False
                part, width = _class(pattern, text, place)
                expression.append(part)
            elif _PLAIN.match(character):
                name.append(character)
                expression.append(re.escape(character))
            else:
                raise _invalid(
                    pattern, f"{character!r} has no meaning; write '\\{character}', or quote the name"
                )
            place += width
        if literal:
            return self._name("".join(name)), text[place:]
        found = re.compile("".join(expression), self.flags | re.DOTALL)
        return (lambda name: found.fullmatch(name) is not None), text[place:]


def _escaped(pattern: str, text: str, place: int) -> str:
    if place + 1 == len(text):
        raise _invalid(pattern, "it must not end in '\\'")
    character = text[place + 1]
    if _ASCII_ALPHANUMERIC.match(character):
        raise _invalid(pattern, f"'\\{character}' has no meaning: letters and digits are not escaped")
    return character


def _class(pattern: str, text: str, place: int) -> tuple[str, int]:
    """Return the class of characters at ``place`` as Python writes it, and how many characters it takes."""
    found = _CLASS.match(text, place)
    if found is None or (not found[1] and found[2] == "!"):
        raise _invalid(pattern, "a class of characters is [abc], [a-z] or [!a-z], and not empty")
    items = []
    for item in _CLASS_ITEM.finditer(found[2]):
        first, last = item[1], item[2]
        if last is not None and first > last:
            raise _invalid(pattern, f"{first!r} comes after {last!r} in the range {item[0]!r}")
        items.append(re.escape(first) if last is None else f"{re.escape(first)}-{re.escape(last)}")
    return f"[{'^' if found[1] else ''}{''.join(items)}]", len(found[0])


def _invalid(pattern: str, why: str) -> ConfigInvalid:
    return ConfigInvalid(f"the table filter {pattern!r}: {why}", pattern=pattern)
