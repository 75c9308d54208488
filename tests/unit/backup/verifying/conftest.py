"""The archive that the tests of this folder damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.small_archives import Small


@pytest.fixture
def small(tmp_path: Path) -> Small:
    """A small archive, sound."""
    return Small(tmp_path / "wal")
