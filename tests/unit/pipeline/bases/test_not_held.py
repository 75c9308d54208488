"""A base is made of an archive that is held, or not at all: what it was folded from might be pruned meanwhile."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ArchiveUnavailable
from headrace.pipeline.bases.making import create_base
from tests.archive_model import Append, History, write_archive
from tests.fault.volumes import small_volume

SPARK: Any = None
"""It is not come to."""


def test_no_base_is_made_where_nothing_can_be_written(tmp_path: Path) -> None:
    with small_volume(tmp_path / "volume") as mounted:
        assert mounted, "run this test where a volume may be mounted"
        archive = tmp_path / "volume" / "archive"
        archive.mkdir()
        write_archive(archive, History([Append(7, 0)]).segments([]))
        names = sorted(one.name for one in archive.iterdir())
        subprocess.run(["mount", "-o", "remount,ro", str(tmp_path / "volume")], check=True)
        with pytest.raises(ArchiveUnavailable, match="can't be held, so what is being read might be pruned"):
            create_base(SPARK, str(archive))
        assert sorted(one.name for one in archive.iterdir()) == names
