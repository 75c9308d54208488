"""docs/formats/kwal.md: its example is what the code writes and reads, and its tables name everything there is."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from headrace.archive.rights.lease import Holder, encode_holder
from headrace.archive.rights.processes import ProcessMark
from headrace.pipeline.wal.options import OPTIONS
from headrace.wire import versions
from headrace.wire.kwal import decode_head, places_of
from headrace.wire.kwal_columns import Segment
from headrace.wire.kwal_left_open import LeftOpen
from headrace.wire.kwal_manifest import (
    Encryption,
    FeedRange,
    Manifest,
    Predecessor,
    RegisteredFeed,
    decode_manifest,
    encode_manifest,
)
from tests.kwal import bytes_of, manifest_of, sealed, stamped
from tests.unit.docs.test_byte_tables import CHANGES, TS, example

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "formats" / "kwal.md").read_text(encoding="utf-8")
SEGMENT = sealed([stamped(CHANGES, 63, ts=TS, feed="vm")])


def test_example_is_what_the_code_writes() -> None:
    assert example("kwal") == bytes_of(SEGMENT)
    assert f"`{SEGMENT.name}`" in PAGE
    assert len(Segment(example("kwal"), where="the page", name=SEGMENT.name)) == 2


def test_explained_bytes_stand_where_the_page_says() -> None:
    data = example("kwal")
    rows = re.findall(r"^\| `([0-9a-f]{4})` \| `([0-9a-f ]+)`", PAGE, re.MULTILINE)
    assert len(rows) == 9
    for offset, shown in rows:
        wanted = bytes.fromhex(shown)
        assert data[int(offset, 16) :][: len(wanted)] == wanted, offset
    places = list(places_of(data, decode_head(data, "the page"), "the page"))
    assert [f"{place.head:04x}" for place in places] == ["002b", "008c"]
    sizes = re.findall(r"one has (\d+) bytes", PAGE)
    assert [place.end - place.start for place in places] == list(map(int, sizes))


def test_the_manifest_is_what_the_code_writes() -> None:
    block = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    manifest = manifest_of(SEGMENT, near=63, left=LeftOpen())
    assert encode_manifest(manifest) == block[1].encode()
    assert decode_manifest(block[1].encode(), "the page") == manifest


@pytest.mark.parametrize(
    "kind", [Manifest, Encryption, FeedRange, Predecessor, RegisteredFeed, Holder, ProcessMark]
)
def test_every_member_is_explained(kind: type[Manifest]) -> None:
    for member in kind.__struct_encode_fields__:
        assert f"`{member}`" in PAGE, member


def test_the_owner_is_what_the_code_writes() -> None:
    block = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)[1].encode()
    holder = msgspec.json.decode(block, type=Holder)
    assert (holder.written_as, holder.readable_from) == versions.LEASE
    assert (holder.what, holder.number, holder.process.pid, holder.released) == ("backup", 42, 4711, False)
    assert encode_holder(holder) == block


def test_versions_and_options_are_those_of_the_code() -> None:
    for kind in (versions.KWAL, versions.KWAL_MANIFEST, versions.LEASE):
        assert f"Format version {kind.written_as}, readable from {kind.readable_from}" in " ".join(
            PAGE.split()
        )
    howto = (DOCS / "howto" / "read-segments.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| (`[^|]+`) \| [^|]+ \| [^|]+ \|$", howto, re.MULTILINE)
    assert set(re.findall(r"`([a-z-]+)`", " ".join(told))) == set(OPTIONS)
