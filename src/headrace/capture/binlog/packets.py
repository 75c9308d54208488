"""Splits what comes over a MySQL connection into packets: 3 bytes of length, 1 of sequence, the payload."""

from __future__ import annotations

from typing import Final

from headrace.errors import BinlogInvalid

_HEADER: Final = 4
_LENGTH_MASK: Final = 0xFFFFFF
"""Also the length of a packet whose payload goes on in the next one."""


class PacketSplitter:
    """Takes bytes as they arrive, however cut, and gives whole payloads; those that need several packets are joined.

    Of what is not whole it keeps one copy, so it holds at most the largest payload and what was fed last.
    """

    def __init__(self, sequence: int = 0) -> None:
        """``sequence``: the number that the next packet must have (u8, it wraps)."""
        self._sequence = sequence
        self._waiting = bytearray()
        self._needed = 0
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """Return the payloads that ``data`` completes, in order. BinlogInvalid: a packet is missing or came twice."""
        if self._waiting:
            self._waiting += data
            if len(self._waiting) < self._needed:
                return []
            data = bytes(self._waiting)
            self._waiting.clear()
        payloads: list[bytes] = []
        size, start, sequence, parts = len(data), 0, self._sequence, self._parts
        while (begin := start + _HEADER) <= size:
            word = int.from_bytes(data[start:begin], "little")
            length = word & _LENGTH_MASK
            end = begin + length
            if end > size:
                break
            if word >> 24 != sequence:
                raise BinlogInvalid(f"the server sent packet {word >> 24}, but packet {sequence} was to come")
            sequence = (sequence + 1) & 0xFF
            start = end
            if length == _LENGTH_MASK:
                parts.append(data[begin:end])
            elif parts:
                payloads.append(b"".join((*parts, data[begin:end])))
                parts.clear()
            else:
                payloads.append(data[begin:end])
        self._sequence = sequence
        if start < size:
            self._waiting += data[start:]
            known = len(self._waiting) >= _HEADER
            self._needed = _HEADER + (int.from_bytes(self._waiting[:3], "little") if known else 0)
        return payloads
