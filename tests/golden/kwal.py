"""Makes a folder of KWAL segments with their manifests: two feeds, ids beyond 32 bits, a second history, a registry.

And one of them encrypted, with the key; and what an owner of an object store says of itself.
"""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from headrace.archive.files.settling import prepare
from headrace.archive.rights.lease import Holder, encode_holder
from headrace.archive.rights.processes import ProcessMark
from headrace.entries.entry import Change, Op
from headrace.wire.kwal import Sealed
from headrace.wire.kwal_left_open import LeftOpen
from headrace.wire.kwal_manifest import Manifest, RegisteredFeed, encode_manifest
from tests.identities import age_identity
from tests.kwal import TS, manifest_of, sealed, stamped, write

FIRST = (1 << 32) - 2
CHANGES = [
    Change(
        b'{"n":1}', key=b"k", source_tx=b"tx-7", source_time_ms=1_759_999_999_000, table=("main", "account")
    ),
    Change(b'{"n":2}', key=b"k", op=Op.PATCH, source_tx=b"tx-7", tx_index=1, tx_last=True, changed=("n",)),
    Change(b'{"n":2}', key=b"k", op=Op.DELETE, before=b'{"n":1}', copy=True),
    Change(b'{"columns":[]}', key=b"\x00schema/main/account/1", control="schema"),
]
REGISTRY = (
    RegisteredFeed(
        feed="vmapi::vm",
        region_id=7,
        tenant_id="acme",
        mode="owned",
        owner="agent-1",
        epoch=3,
        next_sequence_id=FIRST + 8,
        settings={"changes": "delta"},
    ),
)


def segments() -> list[tuple[Sealed, Manifest]]:
    """Two segments that follow one another; the second has the feed's second history, too."""
    first = sealed(
        [
            stamped(CHANGES, FIRST, ts=TS),
            stamped([Change(b"x" * 300)], 1, ts=TS + 9, region=8, feed="orders"),
        ]
    )
    second = sealed([stamped(CHANGES, FIRST + 4, ts=TS + 10), stamped(CHANGES[:2], FIRST + 1, ts=TS + 20)])
    left = LeftOpen()
    told = [
        manifest_of(first, near=FIRST, left=left),
        manifest_of(second, before=first, near=FIRST, left=left),
    ]
    (vm, orders), (old, new) = told[0].feeds, told[1].feeds
    orders = replace(orders, first_sequence_id=1, last_sequence_id=1)
    told[0] = replace(told[0], feeds=(vm, orders))
    told[1] = replace(told[1], feeds=(old, replace(new, incarnation="second-life")), registry=REGISTRY)
    return list(zip([first, second], told, strict=True))


def make_kwal(folder: Path) -> None:
    """Write the folder."""
    for segment, manifest in segments():
        write(folder, segment, manifest)


OWNER = Holder(
    written_as=1,
    readable_from=1,
    what="backup",
    holder="6f1c2f0e5d8c4c0f9c57b0b6e2a0c9d1",
    number=42,
    lease_s=30.0,
    process=ProcessMark("backup-1", 4711, "0f51df02-0f90-4a37-8d45-f5361904a602 pid:[4026531836]", 8_558_351),
    released=True,
)


def make_kwal_encrypted(folder: Path) -> None:
    """Write the first of the segments, encrypted, and ``identity.txt``, which opens it."""
    folder.mkdir(parents=True)
    recipient = age_identity(folder / "identity.txt")
    segment, manifest = segments()[0]
    files = prepare(segment, manifest, [recipient])
    (folder / files.manifest.file).write_bytes(b"".join(files.pieces))
    (folder / segment.name.manifest).write_bytes(encode_manifest(files.manifest))


def make_owner(path: Path) -> None:
    """Write what an owner says of itself."""
    path.write_bytes(encode_holder(OWNER))
