"""How times and numbers that a process may have made up are written: none of them keeps a page from being shown."""

from __future__ import annotations

import math

import pytest

from headrace.server.console.drawing import UNKNOWN, ago, moment, span
from headrace.wire.documents import TIME_MS_MAX


def test_a_moment_is_a_time_of_rfc_3339() -> None:
    assert moment(0) == "1970-01-01T00:00:00.000Z"
    assert moment(1_790_000_000.5) == "2026-09-21T14:13:20.500Z"
    assert moment(TIME_MS_MAX / 1000).startswith("9999-12-31T")


@pytest.mark.parametrize(
    "seconds", [-1.0, -1e300, TIME_MS_MAX / 1000 + 1, 1e300, 1.7e308, math.inf, math.nan]
)
def test_what_is_no_such_time_is_unknown(seconds: float) -> None:
    assert moment(seconds) == UNKNOWN


@pytest.mark.parametrize(
    "text", ["", "yesterday", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "9" * 300]
)
def test_what_is_no_time_is_no_time_ago(text: str) -> None:
    assert ago(text) == UNKNOWN or ago(text).endswith("ago") or ago(text) == "just now"


def test_a_span_of_any_number_can_be_written() -> None:
    assert span(math.nan) == UNKNOWN
    assert span(-1e300) == "0 s"
    assert span(1e300)
