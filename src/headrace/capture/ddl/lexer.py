"""SQL text -> tokens, as MariaDB's own lexer cuts it: comments gone, executable ones opened, names without their quotes.

Time is linear in the text, whatever stands in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from headrace.capture.ddl.statement import quoted


class Unread(Exception):
    """The text is no statement that this package knows. It never leaves the package: the statement then says so."""


class TokenKind(Enum):
    """What a token can stand for."""

    WORD = "word"
    """A keyword, a bare name or a number."""
    NAME = "name"
    """A name in quotes: never a keyword."""
    STRING = "string"
    SYMBOL = "symbol"


class Token(NamedTuple):
    """One token. ``text`` is a name without its quotes, anything else as it stands; ``start``, ``end``: characters."""

    kind: TokenKind
    text: str
    start: int
    end: int

    @property
    def keyword(self) -> str:
        """The token in upper case if it can be a keyword or a symbol, else ''."""
        return self.text.upper() if self.kind in (TokenKind.WORD, TokenKind.SYMBOL) else ""


class Quoting(NamedTuple):
    """What a session's ``sql_mode`` says of quotes."""

    ansi_quotes: bool = False
    """ANSI_QUOTES: ``"…"`` is a name."""
    backslash_escapes: bool = True
    """False with NO_BACKSLASH_ESCAPES."""


PLAIN: Final = Quoting()
"""Without either mode, as every reader takes SQL."""


_PATTERN: Final = r"""
  (?P<space>[ \t\n\v\f\r]+)
| (?P<line>\#[^\n]*|--(?=[\x00-\x20\x7f]|\Z)[^\n]*)
| (?P<open>/\*M?!(?P<version>[0-9]{{5,6}})?)
| (?P<comment>/\*.*?\*/)
| (?P<close>\*/)
| (?P<backtick>`(?:[^`]++|``)*+`)
| (?P<single>'(?:[^'{backslash}]++|''{escape})*+')
| (?P<double>"(?:[^"{backslash}]++|""{escape})*+")
| (?P<word>[0-9A-Za-z_$\x80-\U0010ffff]+)
| (?P<symbol>.)
"""
_ESCAPING: Final = re.compile(_PATTERN.format(backslash=r"\\", escape=r"|\\."), re.VERBOSE | re.DOTALL)
_LITERAL: Final = re.compile(_PATTERN.format(backslash="", escape=""), re.VERBOSE | re.DOTALL)
_COMMENT_EDGE: Final = re.compile(r"/\*|\*/")
_UNLOGGED_ACTION: Final = re.compile(r"ON (?:DELETE|UPDATE) (?:CASCADE|SET (?:NULL|DEFAULT))\b")
_MYSQL_ONLY: Final = range(50_700, 100_000)
"""``/*!50700`` up to ``/*!99999`` speaks to MySQL 5.7 and later: MariaDB takes it for a comment."""


def tokens(sql: str, quoting: Quoting = PLAIN) -> Iterator[Token]:
    """Return the tokens of ``sql``, one by one. Unread where a quote or a comment is not closed."""
    pattern = _LITERAL if not quoting.backslash_escapes else _ESCAPING
    at = 0
    opened = False
    while found := pattern.match(sql, at):
        start, at = found.span()
        match found.lastgroup:
            case "space" | "line" | "comment":
                pass
            case "open" | "version":
                if found["version"] and int(found["version"]) in _MYSQL_ONLY and "M" not in found["open"]:
                    at = _comment_end(sql, at)
                else:
                    opened = True
            case "close" if opened:
                opened = False
            case "backtick":
                yield Token(TokenKind.NAME, found[0][1:-1].replace("``", "`"), start, at)
            case "double" if quoting.ansi_quotes:
                yield Token(TokenKind.NAME, found[0][1:-1].replace('""', '"'), start, at)
            case "single" | "double":
                yield Token(TokenKind.STRING, found[0], start, at)
            case "word":
                yield Token(TokenKind.WORD, found[0], start, at)
            case _:
                if found[0] in "'\"`" or sql.startswith("/*", start):
                    raise Unread
                yield Token(TokenKind.SYMBOL, found[0], start, at)
    if opened:
        raise Unread


def plainly_quoted(sql: str, quoting: Quoting) -> str:
    """Return ``sql`` as it is written without these modes: a reader does not know the session's."""
    if quoting == PLAIN:
        return sql
    parts: list[str] = []
    at = 0
    for token in tokens(sql, quoting):
        if token.kind is TokenKind.NAME:
            written = quoted(token.text)
        elif token.kind is TokenKind.STRING and not quoting.backslash_escapes:
            written = token.text.replace("\\", "\\\\")
        else:
            continue
        parts += sql[at : token.start], written
        at = token.end
    return "".join((*parts, sql[at:]))


def _comment_end(sql: str, at: int) -> int:
    """Return where a comment that is open at ``at`` ends, with the comments inside of it."""
    depth = 1
    for edge in _COMMENT_EDGE.finditer(sql, at):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    raise Unread


class Words:
    """A place in a row of tokens, which moves on as they are taken."""

    def __init__(self, items: list[Token]) -> None:
        self._items = items
        self._at = 0

    def peek(self, ahead: int = 0) -> str:
        """Return the keyword or symbol that stands ``ahead`` of the place; '' if none does."""
        token = self.token(ahead)
        return token.keyword if token is not None else ""

    def token(self, ahead: int = 0) -> Token | None:
        """Return the token that stands ``ahead`` of the place, if there is one."""
        at = self._at + ahead
        return self._items[at] if at < len(self._items) else None

    def take(self, *keywords: str) -> bool:
        """Go past ``keywords`` if they come next, all of them."""
        if all(self.peek(ahead) == keyword for ahead, keyword in enumerate(keywords)):
            self._at += len(keywords)
            return True
        return False

    def take_any(self, *keywords: str) -> str:
        """Go past the next keyword if it is one of ``keywords``, and return it; else ''."""
        keyword = self.peek()
        if not keyword or keyword not in keywords:
            return ""
        self._at += 1
        return keyword

    def need(self, *keywords: str) -> None:
        """Go past ``keywords``; Unread if something else comes next."""
        if not self.take(*keywords):
            raise Unread

    def next(self) -> Token:
        """Return the next token and go past it; Unread at the end."""
        token = self.token()
        if token is None:
            raise Unread
        self._at += 1
        return token

    def name(self) -> str:
        """Return the next token as a name; Unread if it can't be one."""
        token = self.next()
        if token.kind not in (TokenKind.WORD, TokenKind.NAME) or not token.text:
            raise Unread
        return token.text

    def rest(self) -> list[Token]:
        """Return the tokens that were not taken."""
        return self._items[self._at :]

    def unlogged_actions(self) -> tuple[str, ...]:
        """Return what is left of actions of foreign keys that InnoDB carries out by itself, as SQL says them."""
        words = [item.keyword for item in self.rest()]
        runs = (" ".join(words[at : at + 4]) for at, word in enumerate(words) if word == "ON")
        return tuple(found[0] for run in runs if (found := _UNLOGGED_ACTION.match(run)))

    def ended(self) -> bool:
        """Whether nothing but semicolons is left."""
        return all(token.keyword == ";" for token in self.rest())
