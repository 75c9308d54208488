"""A base snapshot, as golden files: a manifest, control entries and rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from msgspec.structs import replace

from headrace.entries.lsn import Lsn
from headrace.pipeline.bases.writing import CONTROL_FOLDER, Place, write_files
from headrace.wire.base_manifest import (
    MANIFEST,
    BaseFeed,
    BaseFile,
    BaseGap,
    BaseManifest,
    base_folder,
    encode_base,
)
from headrace.wire.kwal_columns import SCHEMA
from headrace.wire.kwal_manifest import RegisteredFeed
from tests.kwal import INCARNATION, TS

LAST: Final = Lsn(TS + 9, 7, 68)
ROWS: Final[list[dict[str, Any]]] = [
    {
        "feed": "vmapi::vm",
        "sequence_id": sequence_id,
        "lsn": str(Lsn(TS + sequence_id - 59, 7, sequence_id)),
        "commit_ts": TS + sequence_id - 59,
        "committed_at": (TS + sequence_id - 59 >> 18) * 1000,
        "tenant_id": "acme",
        "op": op,
        "key": key,
        "value": value,
        "control": control,
        "table": ["main", "account"],
        "source_tx": b"tx-7",
        "tx_last": sequence_id == 68,
        "append_end": True,
        "copy": False,
        "source_time": 1_759_999_999_000_000,
        "incarnation": INCARNATION,
    }
    for sequence_id, op, key, value, control in (
        (63, "put", b"\0schema/main/account/1", b'{"columns":[]}', "schema"),
        (66, "put", b'["main","account",1]', b'{"n":1}', None),
        (68, "patch", b'["main","account",2]', b'{"n":2}', None),
    )
]
"""A control entry and two rows; a file for each of the two kinds."""
PATHS: Final = ("control/part-4506ea5eafd2-1.parquet", "bucket=3/part-4506ea5eafd2-2.parquet")


def manifest_of(files: tuple[BaseFile, ...]) -> BaseManifest:
    """The base's manifest over these files."""
    return BaseManifest(
        lsn=str(LAST),
        committed_at_ms=LAST.committed_at_ms,
        created_at_ms=1_800_000_600_000,
        previous=str(Lsn(TS + 4, 7, 63)),
        segments_from=f"kdb-wal-{Lsn(TS + 5, 7, 64)}-{Lsn(TS + 7, 7, 66)}.bin",
        segments_to=f"kdb-wal-{Lsn(TS + 8, 7, 67)}-{LAST}.bin",
        buckets=4,
        feeds=(
            BaseFeed(
                feed="vmapi::vm",
                region_id=7,
                incarnation=INCARNATION,
                first_sequence_id=63,
                sequence_id=68,
                lsn=str(LAST),
                entries=3,
            ),
        ),
        files=files,
        registry=(
            RegisteredFeed(
                feed="vmapi::vm",
                region_id=7,
                tenant_id="acme",
                mode="owned",
                owner="agent-1",
                epoch=3,
                next_sequence_id=69,
                incarnation=INCARNATION,
                first_sequence_id=63,
                settings={"changes": "delta"},
            ),
        ),
        gaps=(
            BaseGap(
                after_lsn=str(Lsn(TS + 1, 7, 63)),
                before_lsn=str(Lsn(TS + 3, 7, 64)),
                reasons=("ops@backup-1: the disk of host backup-2 died",),
            ),
        ),
    )


def make_base(path: Path) -> None:
    """Write an archive that has the base alone."""
    folder = path / base_folder(LAST)
    files = []
    for name, rows in zip(PATHS, (ROWS[:1], ROWS[1:]), strict=True):
        place = Place(str(path), base_folder(LAST), "golden")
        bucket = 0 if name.startswith(CONTROL_FOLDER) else 3
        batches = pa.Table.from_pylist(rows, schema=SCHEMA).to_batches()
        (written,) = write_files(iter(batches), place, f"{name.partition('/')[0]}/", bucket)
        (folder / written.path).rename(folder / name)
        files.append(
            BaseFile(path=name, size=written.size, crc=written.crc, rows=written.rows, bucket=bucket)
        )
    (folder / MANIFEST).write_bytes(encode_base(manifest_of(tuple(files))))


def example() -> bytes:
    """The manifest of the page, whose files are two of any bytes."""
    files = (
        BaseFile(path=PATHS[0], size=4096, crc=2570872697, rows=1, bucket=0),
        BaseFile(path=PATHS[1], size=4985, crc=2903032364, rows=2, bucket=3),
    )
    manifest = manifest_of(files)
    (feed,) = manifest.feeds
    return encode_base(replace(manifest, feeds=(replace(feed, other_keys=()),)))
