"""A kept digest vouches for a producer's last frame, but not where a repair skipped it or its bytes are damaged."""

from __future__ import annotations

import msgspec
import pytest

from headrace.errors import OffsetMismatch
from headrace.log.requests import Appended
from headrace.log.tail import LostRange
from tests.bench import expecting
from tests.unit.log.court import FEED, Court


def test_retry_of_a_frame_that_was_dropped_is_a_duplicate_and_of_one_that_was_skipped_is_not() -> None:
    court = Court()
    court.register()
    retry = expecting(FEED, 1, "a", "b")
    assert isinstance(court.one(retry), Appended)
    court.drop(2)
    gone = court.tail()
    repeated = court.one(retry)
    assert isinstance(repeated, Appended)
    assert repeated.duplicate
    for hurt in (
        msgspec.structs.replace(gone, lost=(LostRange(2, 2),)),
        msgspec.structs.replace(gone, damaged_sequence_id=2),
        msgspec.structs.replace(gone, damaged_sequence_id=1),
    ):
        court.tails[FEED] = hurt
        with pytest.raises(OffsetMismatch) as refusal:
            court.one(retry)
        assert refusal.value.members["side-effects"] == "possible"
