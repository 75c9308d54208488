"""The consumer's fold: the same rows as the pipeline's, truncation, and snapshots that take all rows' place at once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from headrace.client.snapshot_body import SnapshotRow
from headrace.entries.bookmark import Bookmark
from headrace.listener import Change, Fold, SnapshotBegin, SnapshotEnd, SnapshotRows
from headrace.pipeline.tables.patches import KeyChange
from headrace.pipeline.tables.patches import fold as pipeline_fold
from headrace.wire.documents import EntryOut
from tests.unit.wire.test_merge_patch import dumps, values


def change(number: int, op: str, text: bytes, key: str = "k", **members: Any) -> Change:
    entry = EntryOut(
        sequence_id=number,
        lsn=f"{number}.1.{number}",
        committed_at="t",
        op=op,
        key=key,
        changes=Raw(text),
        **members,
    )
    return Change("i", entry)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "patch", "delete"]), st.dictionaries(st.sampled_from("ab"), values)
        ),
        min_size=1,
    )
)
def test_consumers_and_the_pipeline_fold_alike(steps: list[tuple[str, dict[str, Any]]]) -> None:
    fold = Fold()
    for number, (op, value) in enumerate(steps, 1):
        fold.change(change(number, op, dumps(value)))
    wanted = pipeline_fold(KeyChange(number, op, dumps(value)) for number, (op, value) in enumerate(steps, 1))
    if wanted.op == "delete":
        assert fold.rows() == {}
    else:
        assert json.loads(fold.rows()["k"]) == json.loads(wanted.value)


def test_truncate_clears_one_table() -> None:
    fold = Fold()
    fold.change(change(1, "put", b"{}", "a", table=["main", "vm"]))
    fold.change(change(2, "put", b"{}", "b", table=["main", "nic"]))
    fold.change(
        change(3, "put", b'{"database":"main","table":"vm"}', "\0truncate/main/vm/1", control="truncate")
    )
    fold.change(change(4, "put", b"{}", "\0schema/main/vm/2", control="schema"))
    assert set(fold.rows()) == {"b"}


def test_snapshot_takes_the_place_of_all_rows_at_its_end() -> None:
    fold = Fold()
    fold.change(change(1, "put", b'{"old":1}', "a"))
    part = SnapshotRows(
        [
            SnapshotRow("b", Raw(b'{"n":1.10}'), ["main", "vm"]),
            SnapshotRow("\0schema/x", Raw(b"{}"), UNSET, "schema"),
        ]
    )
    end = SnapshotEnd(Bookmark("i", 5, None, "s2"), None, "s2", 1)  # type: ignore[arg-type]  # no listener is needed here
    with pytest.raises(ValueError, match="begins"):
        fold.snapshot(part)
    fold.snapshot(SnapshotBegin("s1", 4, "i"))
    fold.snapshot(SnapshotRows([SnapshotRow("void", Raw(b"{}"))]))
    fold.snapshot(SnapshotBegin("s2", 5, "i"))
    fold.snapshot(part)
    assert set(fold.rows()) == {"a"}
    fold.snapshot(end)
    assert fold.rows() == {"b": b'{"n":1.10}'}
    fold.change(change(6, "patch", b'{"x":2}', "b"))
    assert fold.rows() == {"b": b'{"n":1.10,"x":2}'}


@pytest.mark.parametrize(
    "odd",
    [change(1, "batch", b"{}"), Change("i", EntryOut(1, "1.1.1", "t", key="k"))],
    ids=["batch", "bytes"],
)
def test_what_is_no_row_is_refused(odd: Change) -> None:
    with pytest.raises(ValueError, match="entry 1"):
        Fold().change(odd)
