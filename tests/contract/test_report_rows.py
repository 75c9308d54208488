"""What every metadata database promises of reports (``log/metadata/contract.py``, ``ReportRows``)."""

from __future__ import annotations

from headrace.log.metadata.contract import Metadata, ReportRow
from tests.contract.test_metadata import metadata

__all__ = ["metadata"]


def test_the_last_report_of_a_process_stands_in_its_order(metadata: Metadata) -> None:
    reports = metadata.reports
    reports.keep([ReportRow("listener", "a", "s", 5, "{}"), ReportRow("agent", "b", "s", 6, '{"ü":1}')])
    reports.keep([ReportRow("agent", "a", "s", 7, "1")])
    reports.keep([ReportRow("agent", "b", "t", 9, "newer"), ReportRow("listener", "a", "s", 4, "older")])
    assert reports.all() == [
        ("agent", "a", "s", 7, "1"),
        ("agent", "b", "t", 9, "newer"),
        ("listener", "a", "s", 5, "{}"),
    ]


def test_old_reports_are_forgotten_so_many_at_once(metadata: Metadata) -> None:
    metadata.reports.keep([ReportRow("agent", f"a{number}", "s", number, "{}") for number in range(5)])
    assert metadata.reports.forget(3, 2) == [("agent", "a0"), ("agent", "a1")]
    assert metadata.reports.forget(3, 9) == [("agent", "a2")]
    assert [row.name for row in metadata.reports.all()] == ["a3", "a4"]
    assert metadata.check() == []


def test_a_report_can_be_dropped(metadata: Metadata) -> None:
    rows = [ReportRow(kind, name, "s", 5, "{}") for kind in ("agent", "listener") for name in ("a", "b")]
    metadata.reports.keep(rows)
    metadata.reports.drop("agent", "b")
    metadata.reports.drop("agent", "nobody")
    assert [row[:2] for row in metadata.reports.all()] == [
        ("agent", "a"),
        ("listener", "a"),
        ("listener", "b"),
    ]
