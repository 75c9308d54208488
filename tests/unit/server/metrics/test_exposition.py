"""Metrics that a clock decides: who is gone, how old a report is, what is ready; and the index, compared with the store."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from headrace.server.metrics.exposition import exposition
from headrace.server.metrics.page import every_metric
from headrace.server.reports import GONE_AFTER_S
from headrace.wire.report_documents import ReportIn
from tests.reports import report
from tests.samples import Exposed, exposed
from tests.unit.server.retention.benches import Bench, opened

WHO = {"kind": "pipeline", "name": "tables"}


async def metrics(bench: Bench) -> Exposed:
    return exposed((await exposition(bench.service.measured)).decode())


async def test_a_process_that_says_nothing_is_gone_with_its_numbers(tmp_path: Path) -> None:
    async with opened(tmp_path) as bench:
        sent = {**report(waiting=3, state="stuck"), "facts": {"headrace_pipeline_rows_total": 40}}
        await bench.service.reports.keep("pipeline", "tables", msgspec.convert(sent, ReportIn))
        work = {**WHO, "work": "relay shop", "feed": "shop"}
        found = await metrics(bench)
        assert found.of("headrace_process_up", **WHO) == 1
        assert found.of("headrace_process_stuck", **work) == 1
        assert found.of("headrace_alarms", code="stalled") == 1
        assert found.of("headrace_pipeline_rows_total", **WHO) == 40
        bench.wait((GONE_AFTER_S + 1) / 3600)
        found = await metrics(bench)
        assert found.of("headrace_process_up", **WHO) == 0
        assert found.of("headrace_process_report_age_seconds", **WHO) == GONE_AFTER_S + 1
        assert found.get("headrace_process_stuck", **work) is None
        assert found.get("headrace_pipeline_rows_total", **WHO) is None
        assert found.of("headrace_alarms", code="stalled") == 1, "what it was stuck with is not over"


async def test_ready_and_index_are_those_of_the_log(tmp_path: Path) -> None:
    async with opened(tmp_path) as bench:
        await bench.write("a", 50)
        found = await metrics(bench)
        assert found.of("headrace_ready") == 1
        assert found.of("kdb_wal_retention_index_bytes") == bench.log.store.index_bytes() > 0
        assert found.of("headrace_append_entries_sum") == 50
        assert found.of("headrace_journal_written_bytes_total") == bench.log.store.end() - 0x100
        bench.service.stop_waiting()
        assert (await metrics(bench)).of("headrace_ready") == 0


def test_names_follow_the_conventions() -> None:
    for one in every_metric():
        assert re.fullmatch(r"(headrace|kdb_wal|process)_[a-z0-9_]+[a-z0-9]", one.name), one.name
        assert not re.search(r"_(ms|millis|milliseconds|kb|mb|minutes|percent)(_|$)", one.name), one.name
        assert one.meaning.strip().endswith("."), one.name
        assert all(re.fullmatch(r"[a-z_]+", label) for label in one.labels), one.name
