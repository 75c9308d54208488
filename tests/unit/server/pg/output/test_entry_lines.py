"""Lines of the plugin ``headrace`` where they are no plain ones; what holds for all stands in tests/property."""

from __future__ import annotations

import pytest

from headrace.entries.entry import Change, Op
from headrace.errors import InvalidRequest
from headrace.server.pg.output.contract import Piece
from headrace.server.pg.output.registry import OUTPUTS
from tests.pg_pieces import FEED, INCARNATION, GivenSchemas, Place, documents, frame_of, http_lines, rendered

PLAIN = [Change(b'{"n":%d,"note":"%b"}' % (n, b"x" * 100), key=b"key-%d" % n) for n in range(1_500)]


def test_a_large_frame_of_plain_puts() -> None:
    """The way of most entries; among them one of each kind that takes another one."""
    for other in (
        Change(b'{"note":"\xc3\xa9"}', key=b"k"),
        Change(b'{"note":\n"' + b"x" * 100 + b'"}', key=b"k"),
        Change(b'{"note":"' + b"x" * 100, key=b"k"),
        Change(b'"' + b"\xff" * 100 + b'"', key=b"k"),
        Change(b'{"note":"' + b"x" * 100 + b'"}', key=b'"\\\n%b'),
        Change(b'{"note":"' + b"x" * 100 + b'"}', key=b"\xff"),
        Change(b'{"note":"' + b"x" * 100 + b'"}'),
        Change(b'{"note":"' + b"x" * 20_000 + b'"}', key=b"k" * 200),
        Change(b"1" * 100, key=b"k"),
        Change(b"", key=b"k" * 100, op=Op.DELETE),
    ):
        entries = [*PLAIN[:700], other, *PLAIN[700:]]
        place = Place(first=999_500, position=(1 << 32) - 1_000)
        assert documents(rendered("headrace", entries, place=place).payloads) == http_lines(
            frame_of(entries, place)
        )


def test_values_that_are_json_only_when_they_are_joined() -> None:
    entries = [Change(b'{"a":"' + b"x" * 100, key=b"a"), Change(b'x"}' + b" " * 100, key=b"b")]
    assert documents(rendered("headrace", entries).payloads) == http_lines(frame_of(entries))


def test_begin_and_commit_where_they_are_asked_for() -> None:
    output = OUTPUTS["headrace"]({"include-transaction": "on"}, GivenSchemas({}))
    frame = frame_of(PLAIN[:4])
    first = output.render(Piece(FEED, INCARNATION, frame, 1, 2, True, False, 9, wanted=[2]))
    assert first.entries == [1, 2]
    begin = {"feed": FEED, "transaction": "begin", "xid": 9, "incarnation": INCARNATION}
    assert documents(first.payloads)[0] == begin
    last = output.render(Piece(FEED, INCARNATION, frame, 1, 2, False, True, 9))
    assert last.entries == [1, 2, 2]
    assert documents(last.payloads)[2] == begin | {"transaction": "commit"}


@pytest.mark.parametrize("options", [{"include-xids": "on"}, {"include-transaction": "perhaps"}])
def test_options_that_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match=next(iter(options))):
        OUTPUTS["headrace"](options, GivenSchemas({}))
