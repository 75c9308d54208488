"""Payloads out of a stream of packets, however the bytes arrive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.capture.binlog.packets import PacketSplitter
from headrace.errors import BinlogInvalid

LARGEST = 0xFFFFFF


def packets(*payloads: bytes, sequence: int = 0) -> bytes:
    parts = []
    for payload in payloads:
        for start in range(0, len(payload) + 1, LARGEST):
            part = payload[start : start + LARGEST]
            parts.append(len(part).to_bytes(3, "little") + bytes([sequence & 255]) + part)
            sequence += 1
    return b"".join(parts)


@given(
    st.lists(st.binary(max_size=40), max_size=30),
    st.lists(st.integers(min_value=0, max_value=60), max_size=50),
    st.integers(min_value=0, max_value=255),
)
def test_payloads_come_out_whole_however_the_bytes_are_cut(
    payloads: list[bytes], cuts: list[int], sequence: int
) -> None:
    data, splitter, found = packets(*payloads, sequence=sequence), PacketSplitter(sequence), []
    for cut in cuts:
        found += splitter.feed(data[:cut])
        data = data[cut:]
    assert found + splitter.feed(data) == payloads


@pytest.mark.parametrize("size", [LARGEST - 1, LARGEST, LARGEST + 5])
def test_a_payload_of_several_packets_is_joined(size: int) -> None:
    payload = bytes(size)
    data, splitter = packets(b"a", payload, b"b"), PacketSplitter()
    found = [
        whole
        for start in range(0, len(data), 1 << 20)
        for whole in splitter.feed(data[start : start + (1 << 20)])
    ]
    assert found == [b"a", payload, b"b"]


def test_a_packet_that_is_missing_is_noticed() -> None:
    splitter = PacketSplitter()
    assert splitter.feed(packets(b"a")) == [b"a"]
    with pytest.raises(BinlogInvalid, match="sent packet 2, but packet 1 was to come"):
        splitter.feed(packets(b"b", sequence=2))
