"""How much of the journal is read, and held, to tell whether an append is a repeat: no more than settles it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from headrace.errors import OffsetMismatch, refusal_of
from headrace.log import history
from headrace.log.rules import places
from headrace.wire.frame import Frame
from headrace.wire.segment import FramePlace
from tests.bench import Bench, expecting, half
from tests.fault.journals import opened

LARGE = 200_000
COUNT = 40


class Reads:
    """What was read of the store since: bytes at once, and in all."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        read = bench.store.read

        def counted(found: Sequence[FramePlace]) -> Sequence[Frame]:
            self.sizes.append(sum(place.size for place in found))
            return read(found)

        monkeypatch.setattr(bench.store, "read", counted)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """The feed ``a`` with large entries in frames of their own, ``b`` with as many in one frame."""
    with opened(tmp_path, segment_bytes=64 << 20) as made:
        made.register("a")
        made.register("b")
        for number in range(COUNT):
            made.append("a", bytes([number]) * LARGE)
        made.append("b", *(bytes([number]) * LARGE for number in range(COUNT)))
        yield made


def refused(bench: Bench, feed: str, *values: bytes) -> str:
    with pytest.raises(OffsetMismatch) as refusal:
        bench.send(expecting(feed, 1, *values))
    return str(refusal_of(refusal.value).side_effects)


def test_what_is_of_another_size_is_not_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = Reads(bench, monkeypatch)
    assert refused(bench, "a", *[b"t"] * COUNT) == "none"
    assert refused(bench, "a", *[bytes(2 * LARGE)] * COUNT) == "none"
    assert refused(bench, "b", bytes(LARGE * (COUNT + 1))) == "none"
    assert reads.sizes == []


def test_what_differs_is_read_in_steps(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "STEP_BYTES", 5 * LARGE)
    reads = Reads(bench, monkeypatch)
    other = [bytes([number + 100]) * LARGE for number in range(COUNT)]
    assert refused(bench, "a", *other) == "none", "each was compared"
    assert len(reads.sizes) == COUNT // 4
    assert max(reads.sizes) <= 5 * LARGE
    repeated = bench.send(expecting("a", 1, *(bytes([number]) * LARGE for number in range(COUNT))))
    assert repeated.duplicate


def test_one_that_is_equal_and_one_that_is_not_settle_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "STEP_BYTES", 2 * LARGE)
    for first, second in ((0, 101), (101, 1)):
        reads = Reads(bench, monkeypatch)
        values = [bytes([first]) * LARGE, bytes([second]) * LARGE, *[bytes(LARGE)] * (COUNT - 2)]
        assert refused(bench, "a", *values) == "possible"
        assert sum(reads.sizes) < 3 * LARGE


def test_a_refusal_is_given_with_what_was_read_by_then(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has looked at the rest, so something of it may stand there."""
    monkeypatch.setattr(history, "STEP_BYTES", 2 * LARGE)
    monkeypatch.setattr(places, "COMPARED_BYTES_MAX", 10 * LARGE)
    reads = Reads(bench, monkeypatch)
    assert refused(bench, "a", *[bytes([101]) * LARGE] * COUNT) == "possible"
    assert sum(reads.sizes) <= 13 * LARGE


def test_sizes_leave_out_no_entry_that_is_equal(bench: Bench) -> None:
    for size in (0, 1, 127, 128, 70_000):
        bench.register(f"s{size}")
        bench.append(f"s{size}", bytes(size), source=b"s" * 16_384)
        assert bench.send(expecting(f"s{size}", 1, bytes(size))).duplicate
        tail = bench.tail(f"s{size}")
        (place,) = bench.store.places(tail.region_id, 1, 1, frames_max=1)
        assert place.size < len(half(bytes(size))) + history.AROUND_BYTES_MAX
