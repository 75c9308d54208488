"""Events by hand -> appends: whole transactions, exact positions, schemas before rows."""

from __future__ import annotations

import random

import pytest

from headrace.capture.binlog.event import (
    Begin,
    Format,
    Heartbeat,
    Incident,
    Place,
    Rotate,
    XaPrepared,
)
from headrace.capture.tables import Copying, Unknown
from headrace.errors import BinlogInvalid, BinlogUnsupported, SourceReplaced
from headrace.simple import json_codec
from headrace.simple.message import Dml
from tests.unit.capture.binlog_story import (
    FILE,
    START,
    Story,
    assembler,
    behind,
    changes_of,
    named,
    schemas_of,
    shown,
    told,
)


def test_small_transactions_share_an_append_and_its_position_is_behind_them() -> None:
    story = Story(t=("id", "v"))
    story.inserted("shop.t", (1, 10), (2, 20))
    story.begin()
    story.rows("shop.t", ((1, 10), (1, 11)))
    story.rows("shop.t", ((2, 20), None))
    story.commit()
    (append,) = told(assembler(story), story.events)
    assert shown([append]) == [
        "schema",
        'put ["shop","t","1"]',
        'put ["shop","t","2"].',
        'put ["shop","t","1"]',
        'delete ["shop","t","2"].',
    ]
    _, *rows = changes_of([append])
    assert [(row.source_tx, row.tx_index) for row in rows] == [
        (b"0-1-2", 0), (b"0-1-2", 1), (b"0-1-3", 0), (b"0-1-3", 1)
    ]  # fmt: skip
    position = append.position
    assert (position.gtid, position.file, position.offset) == ("0-1-3", FILE, story.events[-1].end)
    assert (position.under_way, position.table_id) == ("", 1)
    message = json_codec.decode(rows[-1].value)
    assert isinstance(message, Dml)
    assert position.commit_ts == message.commit_ts
    assert message.old == {"id": "2", "v": "20"}


def test_what_nobody_captures_only_moves_the_position() -> None:
    story = Story(t=("id",))
    story.create("other.x", "id")
    story.inserted("other.x", (1,))
    story.ddl("CREATE TABLE other.y (id INT)")
    story.ddl("FLUSH TABLES")
    made = assembler(story)
    assert told(made, story.events) == []
    assert made.position.gtid == "0-1-4"
    assert made.between_transactions


def random_story(seed: int) -> Story:
    """Transactions of all sizes over two tables and one that is not captured, with DDL, savepoints and rollbacks."""
    chance = random.Random(seed)
    story = Story(a=("id", "v"), b=("id",))
    story.create("other.x", "id")
    columns = 2
    for number in range(40):
        kind = chance.random()
        if kind < 0.1:
            columns = 3 if columns == 2 else 2
            story.create("shop.a", *("id", "v", "w")[:columns])
            story.ddl("ALTER TABLE a ADD COLUMN w INT" if columns == 3 else "ALTER TABLE a DROP COLUMN w")
        elif kind < 0.15:
            story.ddl("TRUNCATE b")
        elif kind < 0.2:
            story.create(f"shop.c{number}", "id")
            story.begin()
            story.statement(f"CREATE TABLE c{number} (id INT PRIMARY KEY)")
            story.insert(f"shop.c{number}", *((one,) for one in range(chance.randrange(1, 9))))
            story.insert(f"shop.c{number}", (99,))
            story.commit()
        else:
            story.begin()
            for event in range(chance.choice((1, 1, 2, 9, 30))):
                row = tuple(chance.randrange(1000) for _ in range(columns))
                match chance.randrange(6):
                    case 0:
                        story.insert("other.x", (event,))
                    case 1:
                        story.rows("shop.a", (row, (row[0] + chance.randrange(2), *row[1:])))
                    case 2:
                        story.rows("shop.b", (row[:1], None), (row[1:2], None))
                    case 3 if event < 5:
                        story.statement("SAVEPOINT s")
                        story.insert("shop.a", row)
                        story.statement("ROLLBACK TO s")
                    case _:
                        story.insert("shop.a", row, row)
            story.commit()
    return story


@pytest.mark.parametrize("seed", range(3))
def test_whoever_begins_at_any_position_tells_what_came_after_it(seed: int) -> None:
    story = random_story(seed)
    appends = told(assembler(story, bytes_max=2500), story.events)
    assert any(append.position.under_way for append in appends)
    whole = [entry for append in appends for entry in append.fields]
    for count in range(1, len(appends), 2):
        position = appends[count - 1].position
        again = assembler(story, position, schemas_of(appends[:count]), bytes_max=2500)
        rest = told(again, behind(story.events, position))
        assert [entry for append in rest for entry in append.fields] == whole[
            sum(len(append.fields) for append in appends[:count]) :
        ]
        assert rest[-1].position == appends[-1].position


def test_rows_that_follow_a_statement_in_its_group_are_a_transaction_of_their_own() -> None:
    """A consumer takes rows of one commitTs before a statement of the same: these would come before their table."""
    story = Story()
    story.create("shop.t", "id")
    story.begin()
    story.statement("CREATE TABLE t (id INT PRIMARY KEY)")
    story.insert("shop.t", (1,))
    story.commit()
    created, rows = told(assembler(story), story.events)
    assert shown([created, rows]) == ["ddl", "schema.", 'put ["shop","t","1"].']
    assert (created.position.parts, created.position.entries) == (1, 2)
    again = assembler(story, created.position, schemas_of([created]))
    for append in (rows, *told(again, story.events)):
        message = json_codec.decode(changes_of([append])[0].value)
        assert isinstance(message, Dml)
        assert message.commit_ts == append.position.commit_ts > created.position.commit_ts


def test_a_stream_that_goes_on_elsewhere_than_within_the_transaction_is_refused() -> None:
    story = random_story(0)
    appends = told(assembler(story, bytes_max=2500), story.events)
    position = next(append.position for append in appends if append.position.under_way)
    made = assembler(story, position)
    assert not made.between_transactions
    events = behind(story.events, position)
    with pytest.raises(SourceReplaced, match="within the transaction"):
        told(made, events[[isinstance(event, Begin) for event in events].index(True, 1) :])


def test_rows_that_are_rolled_back_are_not_told() -> None:
    story = Story(t=("id",))
    story.begin()
    story.insert("shop.t", (1,))
    story.statement("SAVEPOINT `s`")
    story.insert("shop.t", (2,))
    story.statement("ROLLBACK TO `s`")
    story.insert("shop.t", (3,))
    story.commit()
    story.begin()
    story.insert("shop.t", (4,))
    story.statement("ROLLBACK")
    appends = told(assembler(story), story.events)
    assert shown(appends) == ["schema", 'put ["shop","t","1"]', 'put ["shop","t","3"].']
    assert appends[-1].position.gtid == "0-1-3"


def test_a_schema_that_the_catalogue_does_not_have_any_more_is_the_rows_own() -> None:
    story = Story(t=("id", "v"))
    story.inserted("shop.t", (1, 1))
    story.create("shop.t", "id", "v", "later")
    story.ddl("ALTER TABLE t ADD COLUMN w INT")
    story.shape("shop.t", "id", "v", "w")
    story.inserted("shop.t", (2, 2, 2))
    story.inserted("shop.t", (3, 3, 3))
    appends = told(assembler(story), story.events)
    assert [text for text in shown(appends) if not text.startswith("put")] == [
        "schema",
        "ddl",
        "schema.",
        "schema",
    ]
    message = json_codec.decode(changes_of(appends)[-1].value)
    assert isinstance(message, Dml)
    assert message.data == {"id": "3", "v": "3", "w": "3"}
    (schema,) = schemas_of(appends)
    assert message.schema_version == schema.version
    assert schema.table_id == 1


def test_rows_of_a_table_that_nobody_knows_wait_for_its_snapshot_or_stop_it() -> None:
    story = Story(t=("id",))
    story.inserted("shop.t", (1,))
    waiting = assembler(story, unknown=Unknown.COPIED_LATER)
    assert told(waiting, story.events) == []
    del story.tables[named("shop.t")]
    stopping = assembler(story, unknown=Unknown.STOPS)
    assert shown(told(stopping, story.events)) == ["stopped"]
    assert list(stopping.position.stopped) == ["shop.t"]


def test_a_feed_that_holds_a_part_of_a_table_is_told_the_changes_of_that_part() -> None:
    story = Story(t=("id", "v"))
    story.inserted("shop.t", (0, 0))
    made = assembler(story)
    told(made, story.events)
    made.tables.copies[named("shop.t")] = Copying(number=1, last=("10",))
    story.events.clear()
    story.begin()
    story.insert("shop.t", (9, 0), (11, 0), (10, 0))
    story.rows("shop.t", ((5, 0), (5, 1)), ((15, 0), (15, 1)), ((6, 0), (16, 0)), ((17, 0), (7, 0)))
    story.rows("shop.t", ((12, 0), None), ((2, 0), None))
    story.commit()
    assert shown(told(made, story.events)) == [
        'put ["shop","t","9"]',
        'put ["shop","t","10"]',
        'put ["shop","t","5"]',
        'delete ["shop","t","6"]',
        'put ["shop","t","7"]',
        'delete ["shop","t","2"].',
    ]


def test_rows_of_an_xa_transaction_stop_the_capture_and_others_of_it_do_not() -> None:
    story = Story(t=("id",))
    story.create("other.x", "id")
    story.begin(xa=True)
    story.insert("other.x", (1,))
    story.add(XaPrepared, False)
    made = assembler(story)
    assert told(made, story.events) == []
    story.begin(xa=True)
    story.insert("shop.t", (1,))
    with pytest.raises(BinlogUnsupported, match="XA transaction"):
        told(made, story.events[4:])


def test_statements_that_change_rows_stop_the_capture_of_their_database() -> None:
    story = Story(t=("id",))
    story.begin()
    story.statement("INSERT INTO x VALUES (1)", database="other")
    story.commit()
    made = assembler(story)
    assert told(made, story.events) == []
    story.begin()
    story.statement("INSERT INTO t VALUES (1)")
    with pytest.raises(BinlogUnsupported, match="INSERT INTO t"):
        told(made, story.events[3:])


def test_events_in_an_order_that_can_not_be() -> None:
    for write, words in (
        (lambda story: story.insert("shop.t", (1,)), "outside of any transaction"),
        (lambda story: (story.begin(), story.begin()), "has not ended"),
        (lambda story: (story.begin(), story.add(Rotate, "binlog.000002", 4, False)), "has not ended"),
        (lambda story: (story.begin(), story.insert("shop.t", (1,)), story.events.pop(1)), "no TABLE_MAP"),
    ):
        story = Story(t=("id",))
        write(story)
        with pytest.raises(BinlogInvalid, match=words):
            told(assembler(story), story.events)


@pytest.mark.parametrize(("savepoint", "again"), [("Abc", "aBC"), ("é", "E")])
def test_names_of_savepoints_are_the_servers(savepoint: str, again: str) -> None:
    story = Story(t=("id",))
    story.begin()
    story.insert("shop.t", (1,))
    story.statement(f"SAVEPOINT `{savepoint}`")
    story.insert("shop.t", (2,))
    story.statement(f"ROLLBACK TO `{again}`")
    story.commit()
    assert shown(told(assembler(story), story.events)) == ["schema", 'put ["shop","t","1"].']


def test_a_savepoint_that_was_not_seen_stops_the_tables_of_its_transaction() -> None:
    story = Story(t=("id",), u=("id",))
    story.inserted("shop.u", (1,))
    story.begin()
    story.insert("shop.t", (1,))
    story.statement("ROLLBACK TO s")
    story.commit()
    story.inserted("shop.u", (2,))
    made = assembler(story)
    told(made, story.events)
    assert made.position.stopped == {"shop.t": "0-1-3 was rolled back, to s, which is no savepoint of it"}


def test_what_the_server_lost_stops_the_capture() -> None:
    story = Story()
    story.add(Incident, "LOST_EVENTS")
    with pytest.raises(BinlogUnsupported, match="LOST_EVENTS"):
        told(assembler(story), story.events)


def test_what_was_open_when_the_server_died_is_void() -> None:
    story = Story(t=("id",))
    story.begin()
    story.insert("shop.t", (1,))
    story.add(Format, "10.11", True)
    story.inserted("shop.t", (2,))
    assert shown(told(assembler(story), story.events)) == ["schema", 'put ["shop","t","2"].']


def test_the_place_reached_is_that_of_any_event_and_never_goes_back() -> None:
    story = Story(t=("id",))
    made = assembler(story, START)
    story.add(Rotate, FILE, 4, True)
    story.inserted("shop.t", (1,))
    told(made, story.events)
    assert made.place == Place(FILE, story.events[-1].end) == made.committed_place
    before = made.committed_place
    story.events.clear()
    story.add(Rotate, "binlog.000002", 4, False)
    told(made, story.events)
    assert (made.place, made.committed_place) == (Place("binlog.000002", 4), before)
    story.events.clear()
    story.add(Rotate, FILE, 4, True)
    story.add(Heartbeat, FILE)
    told(made, story.events)
    assert made.place == Place("binlog.000002", 4)
