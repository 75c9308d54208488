"""The model of ``test_log_model`` on the PostgreSQL store. No power is lost there: sessions are, and servers change."""

from __future__ import annotations

from pathlib import Path

from hypothesis import settings
from hypothesis.stateful import rule, run_state_machine_as_test

from headrace.log.postgres.connection import parse_address
from headrace.log.postgres.store import PostgresStore
from tests.bench import Bench
from tests.postgres import Cluster
from tests.property import test_log_model
from tests.scale import scaled, sized
from tests.stores import database_of


class PostgresMachine(test_log_model.LogMachine):
    """The same requests; what happens to the server is another matter."""

    cluster: Cluster

    def _opened(self, folder: Path) -> Bench:
        self.folder = folder
        address = parse_address(database_of(self.cluster, folder))
        return Bench(PostgresStore(address, segment_bytes=test_log_model.SEGMENT_BYTES), self.clock)

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "folder"):
            self.cluster.drop_database(database_of(self.cluster, self.folder).rpartition("/")[2])

    def lose_power(self, mark_written_back: bool) -> None:
        """PostgreSQL's own affair."""

    @rule()
    def lose_sessions(self) -> None:
        """Every connection is ended by the other side; the next group goes on without a word."""
        self.flush()
        name = database_of(self.cluster, self.folder).rpartition("/")[2]
        self.cluster.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")

    @rule()
    def change_server(self) -> None:
        """Another server takes the next requests, while the first one is still there."""
        self.flush()
        before = self.bench
        self.bench = self._opened(self.folder)
        before.store.close()


def test_log_on_postgres_is_what_the_model_says(cluster: Cluster) -> None:
    PostgresMachine.cluster = cluster
    run_state_machine_as_test(
        PostgresMachine,
        settings=settings(
            max_examples=sized(scaled(2), soak=scaled(5)), stateful_step_count=30, deadline=None
        ),
    )
