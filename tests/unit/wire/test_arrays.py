"""Arrow arrays made without Arrow's own ways are what those make, and pandas is loaded by none of them."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire.arrays import (
    array_of,
    arrow_flags,
    arrow_ints,
    batch_of_rows,
    numpy_flags,
    numpy_ints,
    scalar_of,
)

moments = st.datetimes(datetime.fromisoformat("0001-01-02"), datetime.fromisoformat("9999-12-30"))
KINDS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "int": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "float": (pa.float64(), st.floats(allow_nan=False)),
    "bool": (pa.bool_(), st.booleans()),
    "text": (pa.string(), st.text(max_size=20)),
    "bytes": (pa.binary(), st.binary(max_size=20)),
    "date": (pa.date32(), st.dates()),
    "moment": (pa.timestamp("us"), moments),
    "zoned": (
        pa.timestamp("us", tz="UTC"),
        st.builds(
            lambda moment, hours: moment.replace(tzinfo=timezone(timedelta(hours=hours))),
            moments,
            st.integers(-20, 20),
        ),
    ),
    "decimal": (
        pa.decimal128(38, 7),
        st.integers(-(10**38) + 1, 10**38 - 1).map(
            lambda number: Decimal((number < 0, tuple(map(int, str(abs(number)))), -7))
        ),
    ),
    "texts": (pa.list_(pa.string()), st.lists(st.text(max_size=5), max_size=4)),
}


@given(st.sampled_from(sorted(KINDS)), st.data())
def test_arrays_are_what_pyarrow_makes(name: str, data: st.DataObject) -> None:
    kind, values = KINDS[name]
    given_ = data.draw(st.lists(st.one_of(st.none(), values), max_size=20))
    made = array_of(given_, kind)
    made.validate(full=True)
    assert made.equals(pa.array(given_, kind))
    assert [scalar_of(value, kind).as_py() for value in given_] == made.to_pylist()


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1)), st.data())
def test_numbers_and_flags_go_there_and_back(numbers: list[int], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(numbers)))
    ints = arrow_ints(np.array(numbers, np.int64)).slice(first)
    assert numpy_ints(ints).tolist() == ints.to_pylist() == numbers[first:]
    flags = arrow_flags(np.array([number % 2 for number in numbers], np.bool_)).slice(first)
    assert (
        numpy_flags(flags).tolist() == flags.to_pylist() == [bool(number % 2) for number in numbers[first:]]
    )


def test_rows_become_a_batch() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.list_(pa.field("element", pa.string())))])
    rows: list[dict[str, Any]] = [{"a": 1, "b": ["x", "y"]}, {"a": None, "b": None}]
    assert batch_of_rows(rows, schema).equals(pa.RecordBatch.from_pylist(rows, schema=schema))


PROGRAM = """
import sys
import numpy as np, pyarrow as pa, pyarrow.compute as pc
from headrace.wire.arrays import *
schema = pa.schema([("a", pa.int64()), ("b", pa.list_(pa.string())), ("c", pa.string()), ("d", pa.bool_())])
batch = batch_of_rows([{"a": 1, "b": ["x"], "c": "y", "d": True}, {"a": None, "b": None, "c": None, "d": None}], schema)
pc.equal(batch.column("c"), scalar_of("y"))
numpy_flags(pc.is_null(batch.column("a")))
numpy_ints(arrow_ints(np.zeros(3, np.int64)))
arrow_flags(np.ones(3, np.bool_))
print("pandas" in sys.modules)
"""


def test_nothing_of_it_loads_pandas() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
