"""The application never notices: under pgbench's load, attaching and copying fail no transaction and make no deadlock."""

from __future__ import annotations

from pathlib import Path

from tests.agents import headrace
from tests.integration.postgres.captured import captured
from tests.integration.postgres.shop import FEED
from tests.pgbench import Load, make_bank
from tests.postgres import Database
from tests.scale import sized

ACCOUNTS, SECONDS = sized((8_000, 3), soak=(100_000, 60))
"""More than are copied while pgbench connects, and longer than that takes on a quiet machine."""
RATE = sized(("-R", "400"), soak=())
"""Transactions of pgbench in a second; as many as it can in a soak."""
TABLES = ("pgbench_accounts", "pgbench_tellers", "pgbench_branches")


def test_pgbench_has_no_failed_transaction_while_tables_are_attached_and_copied(
    database: Database, tmp_path: Path
) -> None:
    cluster = database.cluster
    transaction = make_bank(cluster, database.name, ACCOUNTS, tmp_path)
    words = [word for table in TABLES for word in ("--table", table)]
    load_words = ("-n", "-c", "16", "-j", "2", "-T", str(SECONDS), *RATE, *transaction)
    with Load(cluster, database.name, *load_words) as load:
        headrace(["publisher", "attach", database.dsn, *words, "--feed", FEED])
        for table in TABLES:
            (done,) = headrace(["publisher", "copy", database.dsn, "--table", table])["copies"]
            assert done["state"] == "done"
        report = load.report(SECONDS)
    assert report.failed == 0
    assert report.transactions > 100
    with captured(database) as source:
        source.assert_equal(*TABLES)
    lines = [line for line in cluster.log().splitlines() if database.name in line]
    assert not [line for line in lines if "deadlock" in line]
