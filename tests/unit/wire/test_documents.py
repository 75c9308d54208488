"""Times of the HTTP documents in both directions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire.documents import ms_of_rfc3339, rfc3339


@given(st.integers(-30_610_224_000_000, 253_402_300_799_999))
def test_ms_come_back(ms: int) -> None:
    """From the year 1000 to the end of 9999."""
    assert ms_of_rfc3339(rfc3339(ms)) == ms


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2026-11-21T01:20:00.123Z", "2026-11-21T01:20:00.123Z"),
        ("2026-11-21t01:20:00z", "2026-11-21T01:20:00.000Z"),
        ("2026-11-21 01:20:00+00:00", "2026-11-21T01:20:00.000Z"),
        ("2026-11-21T01:20:00-05:30", "2026-11-21T06:50:00.000Z"),
        ("2026-11-21T01:20:00.1Z", "2026-11-21T01:20:00.100Z"),
        ("2026-11-21T01:20:00.123456789Z", "2026-11-21T01:20:00.123Z"),
        ("2024-02-29T23:59:59.999Z", "2024-02-29T23:59:59.999Z"),
        ("1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999Z"),
    ],
)
def test_forms_of_rfc_3339(text: str, same: str) -> None:
    assert rfc3339(ms_of_rfc3339(text)) == same


@pytest.mark.parametrize(
    "text",
    [
        "", "now", "2026-11-21", "2026-11-21T01:20:00", "2026-11-21T01:20Z", "2026-W47-6", "20261121T012000Z",
        "2026-11-21T01:20:00,5Z", "2026-02-30T00:00:00Z", "2026-11-21T24:00:00Z", "2026-11-21T01:20:61Z",
        "2026-11-21T01:20:00+1", "2026-11-21T01:20:00+01:00:30", "2026-11-21T01:20:00Z\n", "1763688000000",
        "\uff12\uff10\uff12\uff16-11-21T01:20:00Z",
    ],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        ms_of_rfc3339(text)
