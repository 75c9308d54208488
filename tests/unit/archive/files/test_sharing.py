"""Manifests that are read together hold equal values once, and are what was written."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from headrace.archive.files.folder import Folder
from headrace.wire.kwal_manifest import RegisteredFeed
from headrace.wire.lost_lsns import LostLsns
from tests.archive_model import SMALL, SMALL_CUTS
from tests.kwal import manifest_of, write


def registered(at: int) -> tuple[RegisteredFeed, ...]:
    """Return two feeds as the server had them at a segment: one goes on, of the other nothing changes."""
    return tuple(
        RegisteredFeed(
            feed=f"shop::{region}",
            region_id=region,
            tenant_id="acme",
            mode="owned",
            owner="agent",
            epoch=1,
            next_sequence_id=1 + (at if region == 7 else 0),
            incarnation=f"incarnation {region}",
            first_sequence_id=1,
            settings={"retention_s": 86_400, "more": ["a", "b"]} if at < 3 else {"retention_s": 1},
            lost_lsns=(LostLsns("1.1.1", "2.1.1"),),
        )
        for region in (7, 8)
    )


def test_manifests_of_one_reading_share_what_is_equal(tmp_path: Path) -> None:
    segments = SMALL.segments(SMALL_CUTS)
    written = []
    for at, (before, segment) in enumerate(zip([None, *segments], segments, strict=False)):
        manifest = replace(manifest_of(segment, before=before), registry=registered(at))
        written.append(manifest)
        write(tmp_path, segment, manifest)
    folder = Folder(str(tmp_path))
    found = list(folder.manifests(folder.segments()).values())
    assert found == written
    first, second = found[0].registry, found[1].registry
    assert first[0].settings is second[0].settings
    assert first[0].lost_lsns is second[0].lost_lsns
    assert first[1] is second[1]
    assert found[3].registry[0].settings == {"retention_s": 1}
    texts = {id(part.incarnation) for one in found for part in one.feeds}
    assert len(texts) == len({part.incarnation for one in found for part in one.feeds})
