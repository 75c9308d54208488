"""The words of a replication command or of a small query. Pure; no regular expression here can be made slow by its input."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

from headrace.server.pg.sqlstate import PgError, SqlState

TOKENS_MAX: Final = 2_000
"""Most words of a statement: a slot's options are a few dozen."""


class Kind(StrEnum):
    """What a word is."""

    WORD = "word"
    QUOTED = "quoted"
    TEXT = "text"
    NUMBER = "number"
    LSN = "lsn"
    SIGN = "sign"


class Token(NamedTuple):
    """A word: ``value`` without quotes, an unquoted name in lower case. ``at``: where it begins, in characters."""

    kind: Kind
    value: str
    at: int

    def is_word(self, *words: str) -> bool:
        """Tell whether it is one of these unquoted words, which are in lower case."""
        return self.kind is Kind.WORD and self.value in words

    def is_sign(self, sign: str) -> bool:
        """Tell whether it is this sign."""
        return self.kind is Kind.SIGN and self.value == sign


_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|--[^\n]*)
    |(?P<lsn>[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8})
    |(?P<text>[eE]?'(?:[^']|'')*')
    |(?P<quoted>"(?:[^"]|"")+")
    |(?P<number>-?[0-9]+(?:\.[0-9]+)?)
    |(?P<word>[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*)
    |(?P<sign>::|!=|<>|<=|>=|[()*,;.=<>+-])""",
    re.VERBOSE,
)


def tokens_of(statement: str) -> list[Token]:
    """Return the words of a statement; PgError (42601) at a character that begins none, and for too many of them."""
    found: list[Token] = []
    at = 0
    while at < len(statement):
        match = _TOKEN.match(statement, at)
        if match is None:
            raise syntax_error(statement[at : at + 20])
        kind, text = str(match.lastgroup), match[0]
        if kind != "space":
            found.append(Token(Kind(kind), _value(kind, text), at))
        if len(found) > TOKENS_MAX:
            raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, f"a statement has more than {TOKENS_MAX} words")
        at = match.end()
    return found


def _value(kind: str, text: str) -> str:
    if kind == "text":
        return text[text.index("'") + 1 : -1].replace("''", "'")
    if kind == "quoted":
        return text[1:-1].replace('""', '"')
    return text.lower() if kind == "word" else text


def syntax_error(near: str) -> PgError:
    """Return what is said of a statement that can't be read, in PostgreSQL's words."""
    if not near:
        return PgError(SqlState.SYNTAX_ERROR, "syntax error at end of input")
    return PgError(SqlState.SYNTAX_ERROR, f'syntax error at or near "{near}"')


class Reader:
    """The words of one statement, taken one after another."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._next = 0

    @property
    def at_end(self) -> bool:
        """Whether nothing is left, but for semicolons."""
        return all(token.is_sign(";") for token in self._tokens[self._next :])

    def peek(self) -> Token | None:
        """Return the next word without taking it; None at the end."""
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def take(self) -> Token:
        """Take the next word; PgError at the end."""
        token = self.peek()
        if token is None:
            raise syntax_error("")
        self._next += 1
        return token

    def take_if(self, *words: str) -> bool:
        """Take the next word if it is one of these unquoted ones."""
        token = self.peek()
        if token is None or not token.is_word(*words):
            return False
        self._next += 1
        return True

    def sign_if(self, sign: str) -> bool:
        """Take the next word if it is this sign."""
        token = self.peek()
        if token is None or not token.is_sign(sign):
            return False
        self._next += 1
        return True

    def expect(self, *words: str) -> str:
        """Take one of these unquoted words; PgError for another."""
        token = self.take()
        if not token.is_word(*words):
            raise syntax_error(token.value)
        return token.value

    def expect_sign(self, sign: str) -> None:
        """Take this sign; PgError for anything else."""
        token = self.take()
        if not token.is_sign(sign):
            raise syntax_error(token.value)

    def name(self) -> str:
        """Take a name, quoted or not; PgError."""
        token = self.take()
        if token.kind not in {Kind.WORD, Kind.QUOTED}:
            raise syntax_error(token.value)
        return token.value

    def value(self) -> str:
        """Take a text, a number or a word; PgError."""
        token = self.take()
        if token.kind in {Kind.SIGN, Kind.LSN}:
            raise syntax_error(token.value)
        return token.value

    def end(self) -> None:
        """PgError unless nothing is left."""
        if not self.at_end:
            raise syntax_error(self.take().value)
