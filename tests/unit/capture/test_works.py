"""The lag that a capture tells is one that is known: no number before the first look, none while the source is silent."""

from __future__ import annotations

from headrace.capture.position import SourcePosition
from headrace.capture.session import CopyStand
from headrace.capture.works import CaptureWorks
from headrace.errors import SourceUnavailable
from headrace.runtime.progress import Progress
from headrace.testing.clock import ManualClock

COPIED = CopyStand(0, "", "")
LAG = "headrace_capture_lag_seconds"


def test_a_lag_is_told_only_while_it_is_known() -> None:
    clock = ManualClock()
    progress = Progress(clock=clock)
    works = CaptureWorks(progress, "shop")
    assert progress.facts() == {}, "nobody has looked at the source yet"
    committed_s = clock.wall_ms() // 1000 - 90
    works.note_durable(
        SourcePosition(
            gtid="0-1-7", file="b.1", offset=4, server_id=1, commit_ts=7, table_id=2, time_s=committed_s
        ),
        2,
        8,
    )
    assert progress.facts() == {}, "what the feed holds says nothing of what the source has"

    works.note_step(2, COPIED, brought=2)
    assert progress.facts() == {LAG: 90.0}
    works.note_step(0, COPIED, brought=0)
    assert progress.facts() == {LAG: 0.0}

    works.note_trouble(SourceUnavailable("it does not answer"))
    assert progress.facts() == {}, "it may have committed anything since"
    works.note_step(0, COPIED, brought=1)
    assert progress.facts() == {LAG: 90.0}
    works.note_step(0, COPIED, brought=0)
    assert progress.facts() == {LAG: 0.0}


def test_behind_by_nobody_knows_how_much_is_no_number() -> None:
    progress = Progress(clock=ManualClock())
    works = CaptureWorks(progress, "shop")
    works.note_step(1, COPIED, brought=1)
    assert progress.facts() == {}, "the source's time there is not known"
