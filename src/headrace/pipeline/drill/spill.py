"""Records spread by a hash of their key over files, so that each part fits in memory. For the drill's own fold."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

PART_BYTES: Final = 128 << 20
"""Bytes of records that are compared at once; a part that has more is spread again."""
PARTS_MAX: Final = 64
"""Files of one spill, open at once while they are written."""
LEVELS_MAX: Final = 3
"""How often records are spread: 262,144 parts at last. Only a part of very few keys has more bytes then."""
_ENCODE: Final = msgspec.msgpack.Encoder().encode
_SIZE: Final = 4


class Spill:
    """Parts of records in files of ``folder``. Written first, then sealed, then read, each part once."""

    def __init__(self, folder: Path, name: str, parts: int, *, levels: Sequence[int] = ()) -> None:
        """``levels``: into how many parts the records were spread before this."""
        self.parts = parts
        self.levels = (*levels, parts)
        self.sizes = [0] * parts
        self._folder, self._name = folder, name
        self._divisor = 1
        for one in levels:
            self._divisor *= one
        self._paths = [folder / f"{name}-{part}" for part in range(parts)]
        self._files: list[BinaryIO] = [path.open("wb") for path in self._paths]

    def add(self, record: Sequence[Any]) -> None:
        """Add a record to the part that its key is of: its second member."""
        part = zlib.crc32(record[1]) // self._divisor % self.parts
        data = _ENCODE(record)
        self._files[part].write(len(data).to_bytes(_SIZE, "little"))
        self._files[part].write(data)
        self.sizes[part] += _SIZE + len(data)

    def seal(self) -> None:
        """Close the files: nothing is added any more."""
        for file in self._files:
            file.close()

    def read(self, part: int) -> Iterator[Any]:
        """Yield a part's records in the order in which they came, and remove its file."""
        with self._paths[part].open("rb") as file:
            while head := file.read(_SIZE):
                yield msgspec.msgpack.decode(file.read(int.from_bytes(head, "little")))
        self._paths[part].unlink()

    def spread(self, part: int) -> Spill:
        """Return the records of one part, sealed, in parts of their own."""
        finer = Spill(self._folder, f"{self._name}-{part}", PARTS_MAX, levels=self.levels)
        try:
            for record in self.read(part):
                finer.add(record)
        finally:
            finer.seal()
        return finer


def parts_for(size: int) -> int:
    """Return into how many parts the records of an archive of ``size`` bytes are spread at first."""
    return min(PARTS_MAX, max(1, -(-size // PART_BYTES)))


def each_part(spills: Sequence[Spill]) -> Iterator[list[Iterator[Any]]]:
    """Yield the records of the spills part by part, of each those of the same keys: together PART_BYTES at most.

    The spills have equally many parts. Read a part's records before you take the next part.
    """
    for part in range(spills[0].parts):
        size = sum(one.sizes[part] for one in spills)
        if size <= PART_BYTES or len(spills[0].levels) == LEVELS_MAX:
            yield [one.read(part) for one in spills]
        else:
            yield from each_part([one.spread(part) for one in spills])
