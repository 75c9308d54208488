"""A history that is long enough for a worker to die in the middle of its restore, and its archive, encrypted."""

from __future__ import annotations

import random

from headrace.archive.files.folder import Folder
from headrace.archive.files.settling import prepare, put_segment
from headrace.entries.lsn import Lsn
from tests.integration.pipeline.restore.history import (
    MS,
    ORDERS,
    VM,
    History,
    T,
    batch,
    delete,
    patch,
    put,
    truncate,
)
from tests.kwal import manifest_of, sealed
from tests.scale import SEED

APPENDS = 48
"""Of each feed."""
SEGMENT_APPENDS = 12


def long_history() -> tuple[History, Lsn, Lsn]:
    """Appends to two feeds with every operation; the places of a base, and of a target that is not the end."""
    chance, made = random.Random(SEED), History()
    cleared = {APPENDS // 4, 3 * APPENDS // 4}
    for number in range(APPENDS):
        keys = [f"k{chance.randrange(60)}" for _ in range(chance.randint(1, 6))]
        rows = [delete(key) if chance.random() < 0.2 else put(key, number) for key in keys]
        patched = patch(f"k{chance.randrange(60)}", f'{{"p":{number},"n":null}}')
        made.append(VM, *rows, patched, ts=2 * number * MS)
        rows = [put(f"o{chance.randrange(60)}", number, table=T) for _ in range(chance.randint(1, 6))]
        several = batch((f"b{number % 7}", b"%d" % number), (f"b{number % 5}", None))
        first = [truncate(*T)] if number in cleared else []
        made.append(ORDERS, *first, *rows, several, ts=(2 * number + 1) * MS)
    return made, made.appends[APPENDS].lsns[-1], made.appends[-3].lsns[-1]


def put_archive(history: History, url: str, recipient: str) -> None:
    """Put the history's segments there, encrypted to ``recipient``."""
    folder, before = Folder(url), None
    for at in range(0, len(history.appends), SEGMENT_APPENDS):
        segment = sealed([one.stamped for one in history.appends[at : at + SEGMENT_APPENDS]])
        files = prepare(segment, manifest_of(segment, before=before), [recipient])
        put_segment(folder, files, lambda: None)
        before = segment
