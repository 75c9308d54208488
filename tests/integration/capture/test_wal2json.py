"""``pg_recvlogical`` with the plugin ``wal2json`` on a captured MariaDB: snapshot, changes, DDL; its transactions whole."""

from __future__ import annotations

from pathlib import Path

from tests.integration.capture.commands import Capture
from tests.mariadb import Database
from tests.pg import Receiver, create_slot
from tests.ports import free_port
from tests.servers import serving
from tests.waiting import wait_until
from tests.wal2json import Replica

WAIT_S = 60.0


def test_a_captured_table_is_rebuilt_from_the_records(database: Database, tmp_path: Path) -> None:
    database.sql("CREATE TABLE t (id INT PRIMARY KEY, note VARCHAR(20), size DECIMAL(10, 2))")
    database.sql("INSERT INTO t SELECT seq, CONCAT('é', seq), seq / 4 FROM seq_1_to_30")
    pg = ["--pg", f"127.0.0.1:{free_port()}"]
    with serving(tmp_path / "server", grpc=True, args=pg) as server:
        create_slot(server, "s", plugin="wal2json")
        receiver = Receiver(server, "s", tmp_path / "out", "-o", "include-pk=1")
        lines = ('watermark-interval = "0.1s"', 'watermark-idle-interval = "0.1s"')
        capture = Capture(tmp_path, database, server, *lines).start("run")
        try:
            wait_until(lambda: len(receiver.lines()) >= 30, WAIT_S, what="the snapshot")
            with database.connect() as session, session.cursor() as cursor:
                cursor.execute("BEGIN")
                cursor.execute("UPDATE t SET size = NULL WHERE id <= 10")
                cursor.execute("DELETE FROM t WHERE id > 25")
                cursor.execute("UPDATE t SET id = id + 1000 WHERE id = 7")
                cursor.execute("COMMIT")
            database.sql("ALTER TABLE t ADD COLUMN more INT DEFAULT 5")
            database.sql("INSERT INTO t VALUES (2000, 'last', 0.5, NULL)")

            def told() -> bool:
                lines = receiver.lines()
                return b'"value":2000' in b"".join(lines) and b'"action":"C"' in lines[-1]

            wait_until(told, WAIT_S, what="the last row")
        finally:
            capture.terminate()
            assert capture.wait(WAIT_S) == 0
            capture.communicate()
        assert receiver.interrupt() == 0
        replica = Replica()
        replica.apply(receiver.lines())
    (rows,) = replica.tables.values()
    found = {
        key[0]: (row["note"], None if row["size"] is None else float(row["size"]))
        for key, row in rows.items()
    }
    wanted = {
        key: (note, None if size is None else float(size))
        for key, note, size in database.sql("SELECT id, note, size FROM t")
    }
    assert found == wanted
    assert 10 + 5 + 2 in replica.transactions, "the source's transaction, whole"
    assert rows[2000,] == {"id": 2000, "note": "last", "size": 0.5, "more": None}
