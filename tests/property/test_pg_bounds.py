"""Whatever the filters leave of a transaction, wherever it is cut: its bounds are sent both or neither."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.entries.entry import Change
from headrace.entries.lsn import ZERO
from headrace.server.pg.output.registry import OUTPUTS
from headrace.server.pg.positions import PIECE_ENTRIES_MAX, Named, records_of
from headrace.server.pg.transactions import Transactions
from headrace.wire.frame import FIRST_POSITION, Frame
from tests.pg_pieces import FEED, GLOBAL_TS, INCARNATION, GivenSchemas, Place, frame_of

BOUNDS = {"begin": "begin", "B": "begin", "commit": "commit", "C": "commit"}
OPTIONS: Mapping[str, Sequence[Mapping[str, str]]] = {
    "headrace": [{"include-transaction": "on"}, {}],
    "wal2json": [
        {},
        {"include-transaction": "off"},
        {"filter-tables": "s.out"},
        {"actions": "delete"},
        {"include-lsn": "on"},
    ],
}
ENTRIES = st.builds(
    lambda tx, last, table: Change(
        b"{}", key=b"k", source_tx=tx, tx_last=bool(tx) and last, table=("s", table) if table else ()
    ),
    st.sampled_from([b"", b"a", b"a", b"b"]),
    st.booleans(),
    st.sampled_from(["in", "out", ""]),
)


def frames_of(appends: Sequence[Sequence[Change]]) -> list[Frame]:
    """The frames of these appends, one behind another."""
    frames: list[Frame] = []
    first, position = 1, FIRST_POSITION
    for number, changes in enumerate(appends):
        frames.append(frame_of(changes, Place(first, position, GLOBAL_TS + (number << 18))))
        first, position = first + len(changes), frames[-1].header.end
    return frames


def sent(
    plugin: str, options: Mapping[str, str], frames: Sequence[Frame], wanted: Sequence[Sequence[int]]
) -> list[tuple[int, dict[str, Any]]]:
    """What a stream sends of all that ends in these frames: positions and documents."""
    output, open_now, found = OUTPUTS[plugin](options, GivenSchemas({})), Transactions(ZERO), []
    by_position = {frame.header.position: frame for frame in frames}
    for frame, chosen in zip(frames, wanted, strict=True):
        for records in records_of(
            frame,
            open_now.follow(frame, chosen),
            name=lambda _: Named(FEED, INCARNATION),
            read=by_position.__getitem__,
            render=output.render,
        ):
            found += [(one.position, json.loads(one.payload)) for one in records]
    return found


def bound_of(document: Mapping[str, Any]) -> str:
    """``begin`` or ``commit``; empty for any other record."""
    return BOUNDS.get(document.get("transaction") or document.get("action") or "", "")


def check_bounds(documents: Sequence[Mapping[str, Any]]) -> None:
    """Assert that each begin is followed by records and then its commit."""
    inside, records = False, 0
    for document in documents:
        bound = bound_of(document)
        if not bound:
            assert inside
            records += 1
            continue
        assert inside == (bound == "commit")
        assert records or bound == "begin", "a transaction of which nothing is sent has no bounds"
        inside, records = not inside, 0
    assert not inside


@given(st.lists(st.lists(ENTRIES, min_size=1, max_size=5), min_size=1, max_size=8), st.data())
def test_bounds_are_sent_both_or_neither(appends: list[list[Change]], data: st.DataObject) -> None:
    plugin = data.draw(st.sampled_from(sorted(OPTIONS)))
    options = data.draw(st.sampled_from(OPTIONS[plugin]))
    frames = frames_of(appends)
    wanted = [sorted(data.draw(st.sets(st.integers(0, len(changes) - 1)))) for changes in appends]
    found = sent(plugin, options, frames, wanted)
    assert [position for position, _ in found] == sorted(position for position, _ in found)
    documents = [document for _, document in found]
    if options.get("include-transaction", "on" if plugin == "wal2json" else "off") == "on":
        check_bounds(documents)
    else:
        assert not any(map(bound_of, documents))
    # A replay is the same bytes, and what the bounds enclose is what is sent without them.
    assert sent(plugin, options, frames, wanted) == found
    plain = sent(plugin, {**options, "include-transaction": "off"}, frames, wanted)
    assert [one for one in documents if not bound_of(one)] == [document for _, document in plain]


@pytest.mark.parametrize("plugin", sorted(OPTIONS))
@pytest.mark.parametrize("at", [0, PIECE_ENTRIES_MAX - 1, PIECE_ENTRIES_MAX, 2 * PIECE_ENTRIES_MAX])
def test_bounds_of_an_append_of_several_pieces(plugin: str, at: int) -> None:
    changes = [Change(b"{}", key=b"k") for _ in range(2 * PIECE_ENTRIES_MAX + 1)]
    (bare,) = frames_of([changes])
    assert sent("wal2json", {}, [bare], [range(len(changes))]) == []
    changes[at] = Change(b"{}", key=b"k", table=("s", "t"))
    (frame,) = frames_of([changes])
    found = [document for _, document in sent(plugin, OPTIONS[plugin][0], [frame], [[at]])]
    assert [bound_of(document) for document in found] == ["begin", "", "commit"]


def test_a_transaction_of_which_one_frame_is_wanted() -> None:
    frames = frames_of(
        [[Change(b"{}", key=b"k", source_tx=b"t")], [Change(b"{}", key=b"k", source_tx=b"t", tx_last=True)]]
    )
    for wanted in ([[0], []], [[], [0]]):
        found = sent("headrace", {"include-transaction": "on"}, frames, wanted)
        assert [bound_of(document) for _, document in found] == ["begin", "", "commit"]
        assert found[-1][0] == frames[1].header.end
