"""Whether Spark is about to push filters: it is not, in a process that is none of its own."""

from __future__ import annotations

from headrace.pipeline.pushing import offered


def test_nobody_pushes_filters_here() -> None:
    assert not offered()
