"""Makes a folder of KWAL segments with their manifests: two feeds, ids beyond 32 bits, a second history, a registry."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from headrace.entries.entry import Change, Op
from headrace.wire.kwal import Sealed
from headrace.wire.kwal_manifest import Manifest, RegisteredFeed
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
    told = [manifest_of(first, near=FIRST), manifest_of(second, before=first, near=FIRST)]
    (vm, orders), (old, new) = told[0].feeds, told[1].feeds
    orders = replace(orders, first_sequence_id=1, last_sequence_id=1)
    told[0] = replace(told[0], feeds=(vm, orders))
    told[1] = replace(told[1], feeds=(old, replace(new, incarnation="second-life")), registry=REGISTRY)
    return list(zip([first, second], told, strict=True))


def make_kwal(folder: Path) -> None:
    """Write the folder."""
    for segment, manifest in segments():
        write(folder, segment, manifest)
