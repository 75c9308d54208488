"""Of every type one row whose one cell becomes its nearest neighbour: what an audit must see, column by column."""

from __future__ import annotations

from typing import Final

FIRST_ID: Final = 1000

CELLS: Final = {
    "n_tiny": ("1", "-1"),
    "n_bool": ("1", "0"),
    "n_small": ("10", "1"),
    "n_medium": ("-100", "-101"),
    "n_int": ("7", "70"),
    "n_big": ("18446744073709551615", "18446744073709551614"),
    "n_year": ("2020", "2021"),
    "n_bit": ("b'1010'", "b'1011'"),
    "n_bits": ("-1", "b'1'"),
    "n_decimal": ("1.5", "1.500001"),
    "n_numeric": ("-12345", "12345"),
    "n_zerofill": ("1.5", "1.6"),
    "n_float": ("0.1", "0.1001"),
    "n_double": ("0.3", "0.31"),
    "n_real": ("0.3e0", "0.30000000000000004e0"),
    "s_char": ("'é'", "'e'"),
    "s_national": ("'a'", "'A'"),
    "s_varchar": ("'a'", "'a '"),
    "s_bin": ("'a'", "' a'"),
    "s_gbk": ("'中'", "'国'"),
    "s_tiny": ("'ß'", "'ss'"),
    "s_text": ("'k'", "'K'"),
    "s_medium": ("''", "'0'"),
    "s_long": ("'00'", "'0'"),
    "s_json": ("'{\"a\": 1}'", "'{\"a\":1}'"),
    "b_binary": ("x'00'", "x'01'"),
    "b_char": ("x'0a'", "x'0b'"),
    "b_varbinary": ("''", "x'00'"),
    "b_tiny": ("x'0a'", "x'a0'"),
    "b_blob": ("x'ff00'", "x'ff'"),
    "b_medium": ("x'41'", "x'61'"),
    "b_long": ("x'00'", "NULL"),
    "z_varchar": ("'a'", "'ä'"),
    "z_varbinary": ("x'00'", "x'0000'"),
    "z_text": ("'1.50'", "'1.5'"),
    "z_blob": ("x'80'", "x'81'"),
    "e_enum": ("'a'", "'b''c'"),
    "e_set": ("''", "'x'"),
    "t_date": ("'2020-02-00'", "'2020-02-01'"),
    "t_datetime": ("'0000-00-00'", "'0000-00-00 00:00:01'"),
    "t_datetime3": ("'2020-01-01 00:00:00'", "'2020-01-01 00:00:00.001'"),
    "t_timestamp": ("'2020-01-02 03:04:05'", "'2020-01-02 03:04:50'"),
    "t_timestamp6": ("'2020-01-02 03:04:05'", "'2020-01-02 03:04:05.000001'"),
    "t_time": ("'00:00:01'", "'-00:00:01'"),
    "t_time2": ("'12:00:00.1'", "'12:00:00.01'"),
    "m_uuid": ("'00112233-4455-6677-8899-aabbccddeeff'", "'00112233-4455-6677-8899-aabbccddeefe'"),
    "m_inet4": ("'1.1.1.1'", "'1.1.1.11'"),
    "m_inet6": ("'::1'", "'::2'"),
    "x_default": ("3", "4"),
    "x_text": ("'ab'", "NULL"),
    "x_invisible": ("3", "-3"),
    "x_auto": ("5000", "5001"),
}
"""Column of ``every`` -> SQL of its value, and of the one that it becomes."""

_EMPTY: Final = "''"


def rows() -> list[str]:
    """The statements that make the rows, each with one of the values, by id from :data:`FIRST_ID`."""
    return [
        f"INSERT INTO every SET {_pairs({'id': str(number), 'b_medium': _EMPTY} | {name: value})}"
        for number, (name, (value, _)) in enumerate(CELLS.items(), FIRST_ID)
    ]


def changes() -> list[str]:
    """The statements that change one cell of each row, and nothing else."""
    return [
        f"UPDATE every SET {_pairs({'t_timestamp6': 't_timestamp6'} | {name: value})} WHERE id = {number}"
        for number, (name, (_, value)) in enumerate(CELLS.items(), FIRST_ID)
    ]


def _pairs(values: dict[str, str]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())
