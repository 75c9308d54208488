"""Values of rows that are there, after a change of their table's columns: as values here, as SQL for Spark."""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.pipeline.tables.rows import quoted
from headrace.pipeline.tables.schemas import OWN_PREFIX

Scalar = int | float | str | bytes | None
"""A constant. Dates and timestamps are the numbers that their columns hold, decimals their digits."""

_DAY_MICROS: Final = 86_400_000_000
_LABEL: Final = f"{OWN_PREFIX}label"
"""A name that no column has, which would hide behind it."""


class Field(msgspec.Struct, frozen=True):
    """A column's value, by the name that the column has before the change."""

    name: str

    def sql(self) -> str:
        """Return it as Spark SQL."""
        return quoted(self.name)


class Constant(msgspec.Struct, frozen=True):
    """The same value in every row, of the Spark type ``kind``."""

    value: Scalar
    kind: str

    def sql(self) -> str:
        """Return it as Spark SQL."""
        value = self.value
        if isinstance(value, int) and self.kind == "date":
            return f"date_from_unix_date({value})"
        if isinstance(value, int) and self.kind == "timestamp":
            return f"timestamp_micros({value})"
        if isinstance(value, int) and self.kind == "timestamp_ntz":
            days, micros = divmod(value, _DAY_MICROS)
            since = f"make_dt_interval(0, 0, 0, CAST({micros} AS DECIMAL(18,6)) / 1000000)"
            return f"CAST(date_from_unix_date({days}) AS TIMESTAMP_NTZ) + {since}"
        if value is None:
            text = "NULL"
        elif isinstance(value, bytes):
            text = f"X'{value.hex()}'"
        else:
            text = literal(str(value) if isinstance(value, str | int) else repr(value))
        return f"CAST({text} AS {self.kind})"


class Cast(msgspec.Struct, frozen=True):
    """A value as another type holds it."""

    value: Expression
    kind: str

    def sql(self) -> str:
        """Return it as Spark SQL."""
        return f"CAST({self.value.sql()} AS {self.kind})"


class Encoded(msgspec.Struct, frozen=True):
    """Text as its bytes in UTF-8."""

    value: Expression

    def sql(self) -> str:
        """Return it as Spark SQL."""
        return f"encode({self.value.sql()}, 'UTF-8')"


class Padded(msgspec.Struct, frozen=True):
    """Bytes with zero bytes behind them, up to ``size``."""

    value: Expression
    size: int

    def sql(self) -> str:
        """Return it as Spark SQL."""
        return f"rpad({self.value.sql()}, {self.size}, X'00')"


class Ordered(msgspec.Struct, frozen=True):
    """The labels of a SET, joined by commas, in the order of ``labels``."""

    value: Expression
    labels: tuple[str, ...]

    def sql(self) -> str:
        """Return it as Spark SQL."""
        value = self.value.sql()
        present = (
            f"filter({label_array(self.labels)}, {_LABEL} -> array_contains(split({value}, ','), {_LABEL}))"
        )
        # Without the condition NULL would be a SET without labels.
        return f"CASE WHEN {value} IS NOT NULL THEN array_join({present}, ',') END"


Expression = Field | Constant | Cast | Encoded | Padded | Ordered
"""What a column's value is made of."""


def literal(text: str) -> str:
    """Return ``text`` as a string of Spark SQL."""
    return "'{}'".format(text.replace("\\", "\\\\").replace("'", "\\'"))


def label_array(labels: tuple[str, ...]) -> str:
    """Return labels as an array of Spark SQL."""
    return f"array({', '.join(map(literal, labels))})"
