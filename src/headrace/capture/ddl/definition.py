"""One column's definition in a statement, ``c INT UNSIGNED NOT NULL DEFAULT 5``: its type, and what old rows get."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from headrace.capture.ddl.lexer import Token, TokenKind, Unread, Words
from headrace.simple.mysql_types import default_length
from headrace.simple.schema import DataType


class DefaultKind(StrEnum):
    """What stands behind DEFAULT."""

    NULL = "null"
    TEXT = "text"
    NUMBER = "number"
    BYTES = "bytes"
    NOW = "now"
    EXPRESSION = "expression"


class Default(NamedTuple):
    """A column's default. ``text``: of a TEXT without its quotes and escapes, of a NUMBER as written, of BYTES in hex."""

    kind: DefaultKind
    text: str = ""


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column as a statement defines it."""

    name: str
    data_type: DataType | None
    """As messages name it; None for a type that is not known here. ``charset`` is '' where the statement does not say it:
    then it is the table's, which may be ``binary``."""
    nullable: bool | None
    """None where the statement does not say: then NULL is allowed, but for TIMESTAMP, where it hangs on a setting."""
    default: Default | None
    generated: bool = False
    auto_increment: bool = False


_TYPES: Final = {
    **{name: name.lower() for name in ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "BIT", "YEAR")},
    **{name: name.lower() for name in ("DATE", "TIME", "DATETIME", "TIMESTAMP", "JSON", "VECTOR")},
    **{name: name.lower() for name in ("TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "ENUM", "SET")},
    **{name: name.lower() for name in ("TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB", "BINARY", "VARBINARY")},
    **dict.fromkeys(("INT1", "BOOL", "BOOLEAN"), "tinyint"),
    "INT2": "smallint",
    **dict.fromkeys(("INT3", "MIDDLEINT"), "mediumint"),
    **dict.fromkeys(("INTEGER", "INT4"), "int"),
    **dict.fromkeys(("INT8", "SERIAL"), "bigint"),
    **dict.fromkeys(("DECIMAL", "DEC", "NUMERIC", "FIXED", "NUMBER"), "decimal"),
    **dict.fromkeys(("FLOAT", "FLOAT4"), "float"),
    **dict.fromkeys(("DOUBLE", "FLOAT8", "REAL"), "double"),
    **dict.fromkeys(("CHAR", "CHARACTER", "NCHAR"), "char"),
    **dict.fromkeys(("VARCHAR", "VARCHARACTER", "NVARCHAR"), "varchar"),
    **dict.fromkeys(("UUID",), "char"),
    **dict.fromkeys(("INET4", "INET6"), "varchar"),
}
_TEXT_LENGTHS: Final = {"UUID": 36, "INET4": 15, "INET6": 39}
"""Types of MariaDB's own that messages tell as text of so many characters."""
_SIZED: Final = {
    base: [
        (f"{size}{base}", room)
        for size, room in (("tiny", 0xFF), ("", 0xFFFF), ("medium", 0xFFFFFF), ("long", 1 << 64))
    ]
    for base in ("text", "blob")
}
_BINARY_OF: Final = {
    "char": "binary",
    "varchar": "varbinary",
    "tinytext": "tinyblob",
    "text": "blob",
    "mediumtext": "mediumblob",
    "longtext": "longblob",
}
_NUMBERS: Final = frozenset(
    {"tinyint", "smallint", "mediumint", "int", "bigint", "float", "double", "decimal"}
)
_ATTRIBUTE: Final = re.compile(
    "UNSIGNED|SIGNED|ZEROFILL|CHARACTER|CHARSET|CHAR|ASCII|UNICODE|BYTE|BINARY|COLLATE|NOT|NULL|DEFAULT|ON|AUTO_INCREMENT|"
    "AUTO_RANDOM|PRIMARY|KEY|UNIQUE|COMMENT|SERIAL|COLUMN_FORMAT|STORAGE|INVISIBLE|VISIBLE|COMPRESSED|REFERENCES|CHECK|"
    "CONSTRAINT|AFTER|GENERATED|AS|VIRTUAL|STORED|PERSISTENT|FIRST|WITH|WITHOUT"
)
"""What ends a default."""
_NOW: Final = frozenset({"CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP"})
_INTRODUCERS: Final = frozenset({"N", "_UTF8", "_UTF8MB3", "_UTF8MB4", "_LATIN1", "_ASCII"})
"""What may stand before a string of ASCII without changing what it says; the bytes of other letters mean others then."""
_WRITTEN_OUT: Final = {
    "DATE": re.compile(r"\d{4}-\d\d-\d\d", re.ASCII),
    "TIME": re.compile(r"\d\d:\d\d:\d\d", re.ASCII),
    "TIMESTAMP": re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", re.ASCII),
}
"""What may stand before a string, and how the string is then written by the server too."""
_PREFIXES: Final = _INTRODUCERS | _WRITTEN_OUT.keys()
_NUMBER: Final = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_WIDTH: Final = re.compile(r"\d{1,10}", re.ASCII)
_ESCAPES: Final = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_ESCAPED: Final = re.compile(r"\\(.)|''", re.DOTALL)
_ESCAPED_DOUBLE: Final = re.compile(r'\\(.)|""', re.DOTALL)
_SINGLE_PRECISION_BITS_MAX: Final = 24


def read_definition(name: str, words: Words) -> ColumnDefinition:
    """Return the definition of the column ``name``; ``words`` stands behind the name. Unread where no type follows."""
    serial = words.peek() == "SERIAL"
    data_type = _Type(words).read()
    rest = _Attributes(words, data_type)
    rest.read()
    if serial:
        rest.nullable, rest.auto_increment = False, True
    return ColumnDefinition(
        name,
        rest.data_type,
        rest.nullable,
        rest.default,
        generated=rest.generated,
        auto_increment=rest.auto_increment,
    )


def text_of(token: Token) -> str:
    """Return what a string in quotes says."""
    pattern = _ESCAPED if token.text[0] == "'" else _ESCAPED_DOUBLE

    def plain(found: re.Match[str]) -> str:
        return found[0][0] if found[1] is None else _ESCAPES.get(found[1], found[1])

    return pattern.sub(plain, token.text[1:-1])


class _Type:
    """Reads a type with what stands in parentheses behind it."""

    def __init__(self, words: Words) -> None:
        self.words = words

    def read(self) -> DataType | None:
        words = self.words
        word = words.next().keyword
        name = _TYPES.get(word, "")
        if word == "NATIONAL":
            word = words.next().keyword
            name = {"CHAR": "char", "CHARACTER": "char", "VARCHAR": "varchar", "VARCHARACTER": "varchar"}.get(
                word, ""
            )
        if word == "LONG":
            name = "mediumblob" if words.take("VARBINARY") else "mediumtext"
            _ = words.take("VARCHAR") or words.take("CHAR", "VARYING") or words.take("VARCHARACTER")
        if word == "DOUBLE":
            words.take("PRECISION")
        if name == "char" and (words.take("VARYING") or words.take_any("VARCHAR", "VARCHARACTER")):
            name = "varchar"
        inside = _inside(words)
        if not name:
            return None
        if name in {"enum", "set"}:
            labels = tuple(text_of(token).rstrip(" ") for token in inside if token.kind is TokenKind.STRING)
            return DataType(name, "", "", default_length(name, elements=labels), 0, labels)
        numbers = [int(token.text) for token in inside if _WIDTH.fullmatch(token.text)]
        return self._sized(word, name, numbers)

    @staticmethod
    def _sized(word: str, name: str, numbers: list[int]) -> DataType:
        if name == "float" and len(numbers) == 1:  # bits of precision, which say how wide it is and no more
            name = "float" if numbers[0] <= _SINGLE_PRECISION_BITS_MAX else "double"
            numbers = []
        if word in {"BOOL", "BOOLEAN"}:
            numbers = [1]
        unsigned = word == "SERIAL" or name in {"bit", "year"}
        if name in {"datetime", "timestamp", "time"}:
            fraction = numbers[0] if numbers else 0
            return DataType(name, "binary", "binary", default_length(name, fraction=fraction), fraction)
        length = numbers[0] if numbers else _TEXT_LENGTHS.get(word, default_length(name, unsigned=unsigned))
        if numbers and name in {"text", "blob"}:
            # The least type that has room, as if a character were a byte: the server may have taken a larger one.
            name = next(one for one, room in _SIZED[name] if numbers[0] <= room)
            length = default_length(name)
        decimal = numbers[1] if len(numbers) > 1 else 0
        charset = "" if name in _BINARY_OF else "binary"
        charset = "ascii" if word in _TEXT_LENGTHS else charset
        return DataType(name, charset, charset, length, decimal, (), unsigned, zerofill=name == "year")


class _Attributes:
    """Reads what stands behind a type."""

    def __init__(self, words: Words, data_type: DataType | None) -> None:
        self.words = words
        self.data_type = data_type
        self.nullable: bool | None = None
        self.default: Default | None = None
        self.generated = False
        self.auto_increment = False

    def read(self) -> None:
        words = self.words
        while (token := words.token()) is not None:
            words.next()
            match token.keyword:
                case "(":
                    _skip_parentheses(words)
                case "UNSIGNED":
                    self._typed(unsigned=True)
                case "ZEROFILL":
                    self._typed(unsigned=True, zerofill=True)
                case "CHARACTER" | "CHAR":
                    words.need("SET")
                    self._in_charset(words.next())
                case "CHARSET":
                    self._in_charset(words.next())
                case "ASCII":
                    self._charset("latin1")
                case "UNICODE":
                    self._charset("ucs2")
                case "BYTE":
                    self._charset("binary")
                case "COLLATE":
                    self._collated(words.next())
                case "NOT":
                    words.need("NULL")
                    self.nullable = False
                case "NULL":
                    self.nullable = True
                case "PRIMARY":
                    self.nullable = False
                case "SERIAL":  # DEFAULT VALUE follows
                    words.take("DEFAULT", "VALUE")
                    self.nullable, self.auto_increment = False, True
                case "AUTO_INCREMENT" | "AUTO_RANDOM":
                    self.auto_increment = True
                case "DEFAULT":
                    self._defaulted()
                case "ON":
                    self._skip_action()
                case "GENERATED" | "AS":
                    self.generated = True
                case "AFTER" | "COMMENT" | "COLUMN_FORMAT" | "STORAGE":
                    words.next()

    def _typed(self, *, unsigned: bool, zerofill: bool = False) -> None:
        kind = self.data_type
        if kind is None or kind.mysql_type not in _NUMBERS:
            return
        length = kind.length
        if length == default_length(kind.mysql_type):
            length = default_length(kind.mysql_type, unsigned=unsigned)
        self.data_type = DataType(
            kind.mysql_type,
            kind.charset,
            kind.collate,
            length,
            kind.decimal,
            (),
            unsigned,
            zerofill or kind.zerofill,
        )

    def _in_charset(self, token: Token) -> None:
        self._charset((text_of(token) if token.kind is TokenKind.STRING else token.text).lower())

    def _collated(self, token: Token) -> None:
        name = (text_of(token) if token.kind is TokenKind.STRING else token.text).lower()
        if self.data_type is not None and not self.data_type.charset:
            self._charset(name.partition("_")[0])

    def _charset(self, charset: str) -> None:
        kind = self.data_type
        if kind is None or not (kind.mysql_type in _BINARY_OF or kind.elements):
            return
        name = _BINARY_OF.get(kind.mysql_type, kind.mysql_type) if charset == "binary" else kind.mysql_type
        self.data_type = DataType(name, charset, charset, kind.length, kind.decimal, kind.elements)

    def _defaulted(self) -> None:
        words = self.words
        if words.peek() == "(":
            words.next()
            items = list(_to_closing(words))
            inner = _literal(items)
            self.default = inner if inner is not None else Default(DefaultKind.EXPRESSION)
            return
        items = [words.next()]
        if items[0].keyword in {"+", "-"}:
            items.append(words.next())
        depth = 0
        while (token := words.token()) is not None:
            if depth == 0 and _ATTRIBUTE.fullmatch(token.keyword):
                break
            depth += (token.keyword == "(") - (token.keyword == ")")
            items.append(words.next())
        self.default = _literal(items) or Default(DefaultKind.EXPRESSION)

    def _skip_action(self) -> None:
        """Go past ``ON UPDATE CURRENT_TIMESTAMP``, or the action of a foreign key: its NULL is none of the column's."""
        words = self.words
        words.next()
        if words.take_any("SET", "NO"):
            words.next()


def _inside(words: Words) -> list[Token]:
    """Take the tokens in the parentheses that may come next."""
    return list(_to_closing(words)) if words.take("(") else []


def _skip_parentheses(words: Words) -> None:
    for _ in _to_closing(words):
        pass


def _to_closing(words: Words) -> Iterator[Token]:
    """Take the tokens up to the parenthesis that closes the one just taken; Unread if none does."""
    depth = 1
    while True:
        token = words.next()
        depth += (token.keyword == "(") - (token.keyword == ")")
        if depth == 0:
            return
        yield token


def _literal(items: list[Token]) -> Default | None:
    """Return the default that these tokens are, if they are one that every reader knows the value of."""
    first = items[0] if items else None
    if first is None:
        raise Unread
    words = [item.keyword for item in items]
    if words[0] in _NOW and (len(items) == 1 or (words[1], words[-1]) == ("(", ")")):
        return Default(DefaultKind.NOW, next((item.text for item in items if item.text.isdigit()), ""))
    if words == ["NULL"]:
        return Default(DefaultKind.NULL)
    if words in (["TRUE"], ["FALSE"]):
        return Default(DefaultKind.NUMBER, "1" if words == ["TRUE"] else "0")
    strings = [item for item in items if item.kind is TokenKind.STRING]
    if len(strings) == len(items):
        return Default(DefaultKind.TEXT, "".join(map(text_of, strings)))
    if (
        len(items) == 2
        and strings == items[1:]
        and (bits := _bits(words[0], text_of(strings[0]))) is not None
    ):
        return Default(DefaultKind.BYTES, bits)
    if strings and strings == items[1:]:
        said, form = "".join(map(text_of, strings)), _WRITTEN_OUT.get(words[0])
        known = said.isascii() if form is None else form.fullmatch(said) is not None
        return Default(DefaultKind.TEXT, said) if known and words[0] in _PREFIXES else None
    text = "".join(item.text for item in items)
    if _NUMBER.fullmatch(text):
        return Default(DefaultKind.NUMBER, text)
    if len(items) == 1 and first.text[:2] in {"0x", "0b"} and first.kind is TokenKind.WORD:
        bits = _bits("X" if first.text[1] == "x" else "B", first.text[2:])
        return None if bits is None else Default(DefaultKind.BYTES, bits)
    return None


def _bits(prefix: str, digits: str) -> str | None:
    """Return the bytes that ``x'…'`` or ``b'…'`` stands for, in hex; None if it stands for none."""
    try:
        if prefix == "X":
            return bytes.fromhex(digits if len(digits) % 2 == 0 else f"0{digits}").hex()
        if prefix == "B":
            return int(digits or "0", 2).to_bytes((len(digits) + 7) // 8).hex()
    except ValueError:
        return None
    return None
