"""At which moment a base is made where a transaction pauses for long: never inside of it, unless that is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.archive.moments.target import Asked
from headrace.pipeline.bases.making import planned
from tests.archive_model import Append, History, write_archive

MINUTE = 60_000
HISTORY = History(
    [
        Append(7, 0),
        Append(8, 1, (("A", False),)),
        *(Append(7, at * MINUTE) for at in range(1, 20)),
        Append(8, 20 * MINUTE, (("A", False),)),
        Append(7, 21 * MINUTE),
    ]
)
"""Half of a transaction, nineteen minutes without it, more of it, and no end yet."""


@pytest.mark.parametrize("cuts", [[], [2, 6, 21]], ids=["one", "several"])
def test_a_base_is_made_in_front_of_it(tmp_path: Path, cuts: list[int]) -> None:
    write_archive(tmp_path, HISTORY.segments(cuts))
    entries = HISTORY.entries
    assert planned(str(tmp_path), "", None, "auto")[1].target_lsn == entries[0].lsn
    for one in entries[1:]:
        assert planned(str(tmp_path), "", one.lsn, "auto")[1].target_lsn == entries[0].lsn
    asked = Asked(to_lsn=entries[12].lsn, exact_entry=True)
    torn = planned(str(tmp_path), "", asked, "auto")[1]
    assert torn.target_lsn == entries[12].lsn
    assert any("not what the source ever had" in one for one in torn.warnings)


def test_while_nothing_more_of_it_is_archived_it_counts_as_ended(tmp_path: Path) -> None:
    write_archive(tmp_path, HISTORY.segments([2, 6, 18])[:3])
    _, found = planned(str(tmp_path), "", None, "auto")
    assert found.target_lsn == HISTORY.entries[17].lsn
    assert any("counts as ended" in one for one in found.warnings)
