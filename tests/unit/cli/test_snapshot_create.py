"""What ``headrace snapshot create`` tells of a base: as a document and to a person."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.archive.files.bases import StoredBase
from headrace.cli.snapshot_create import PublisherOptions, document_of, lines_of
from headrace.errors import Usage
from headrace.pipeline.bases.making import CONTROLS_MANY, Created
from headrace.wire.base_manifest import BaseFile
from tests.golden.bases import LAST, PATHS, manifest_of


@pytest.mark.parametrize(("read", "warns"), [(CONTROLS_MANY, False), (CONTROLS_MANY + 1, True)])
def test_control_entries_are_counted_and_many_are_told(read: int, warns: bool) -> None:
    files = tuple(
        BaseFile(path=path, size=9, crc=0, rows=rows, bucket=0)
        for path, rows in zip(PATHS, (4, 7), strict=True)
    )
    made = Created(StoredBase(LAST, "a base", manifest_of(files)), True, 18, read, 1.0)
    told = document_of(made)
    assert (told["control-entries"], told["read-control-entries"]) == (4, read)
    assert bool(told["warnings"]) == warns
    assert [line for line in lines_of(made) if "control entries" in line] == told["warnings"]
    assert all(f"{read:,}" in line and "4 of them" in line for line in told["warnings"])


def test_a_scratch_folder_that_can_not_be_made_is_named() -> None:
    options = PublisherOptions(from_publishers=True)
    with (
        pytest.raises(Usage, match=r"no folder for snapshots can be made in /proc: "),
        options.publishers(Path("/proc/archive")),
    ):
        pass
