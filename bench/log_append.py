"""Appending in batches of 1,000 entries with values of 256 bytes, each batch on disk before it is acknowledged.

The bare limit writes the same values in the same batches to a file, with one ``fdatasync`` each. Beside it: one producer
over gRPC to a Headrace server, a Kafka broker that flushes each batch (and, for comparison, one with its default, which
does not), and PostgreSQL's COPY, a transaction a batch. All servers run all the time, all on the same disk.

COPY and the arms called ``-in-turn`` send a batch after the one before is acknowledged; the others have eight on their way.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from bench.support.harness import DURABILITY, Bench, Figures, arguments, publish
from bench.support.journal import VALUE_BYTES
from bench.support.producing import append_batches
from tests.kafka import Broker
from tests.postgres import Cluster
from tests.servers import ServerProcess

ARMS = (
    "write",
    "headrace",
    "kafka-flushed",
    "kafka",
    "headrace-in-turn",
    "kafka-flushed-in-turn",
    "postgres-copy",
)
IN_TURN = "-in-turn"
BATCH = 1000
KEY = b"key-%08d"
BATCHES_AHEAD = 8
"""Batches that a producer sends before the first is acknowledged, in the arms that are not in turn."""
SETTINGS = {"fsync": "on", "synchronous_commit": "on", "shared_buffers": "512MB", "max_wal_size": "8GB"}


class Arms:
    """The systems, each ready to take batches."""

    def __init__(
        self, folder: Path, server: ServerProcess, brokers: dict[str, Broker], cluster: Cluster
    ) -> None:
        self.folder = folder
        self.server = server
        self.brokers = brokers
        self.cluster = cluster
        self.values = [os.urandom(VALUE_BYTES) for _ in range(BATCH)]
        self.number = 0
        cluster.create_database("bench")
        cluster.connect("bench").execute(
            "CREATE TABLE entry (id bigserial PRIMARY KEY, key text, value bytea)"
        )

    def measure(self, arm: str, seconds: float) -> Figures:
        """Append batches for so long; entries a second, acknowledged."""
        self.number += 1
        begun = time.perf_counter()
        batches = self._run(arm, begun + seconds)
        took = time.perf_counter() - begun
        return {"entries/s": batches * BATCH / took}

    def _run(self, arm: str, until: float) -> int:
        if arm == "write":
            return self._write(until)
        if arm == "postgres-copy":
            return self._copy(until)
        ahead = 1 if arm.endswith(IN_TURN) else BATCHES_AHEAD
        system = arm.removesuffix(IN_TURN)
        if system == "headrace":
            feed = f"bench-{self.number}"
            return asyncio.run(append_batches(self.server, [feed], self.values, until, ahead))
        return self._produce(self.brokers[system], until, ahead)

    def _write(self, until: float) -> int:
        path, count = self.folder / f"write-{self.number}", 0
        batch = b"".join(self.values)
        with path.open("wb", buffering=0) as file:
            while time.perf_counter() < until:
                file.write(batch)
                os.fdatasync(file.fileno())
                count += 1
        path.unlink()
        return count

    def _copy(self, until: float) -> int:
        count = 0
        with self.cluster.connect("bench") as connection, connection.cursor() as cursor:
            while time.perf_counter() < until:
                with cursor.copy("COPY entry (key, value) FROM STDIN (FORMAT binary)") as copy:
                    copy.set_types(["text", "bytea"])
                    for number, value in enumerate(self.values):
                        copy.write_row(((KEY % number).decode(), value))
                count += 1
        return count

    def _produce(self, broker: Broker, until: float, ahead: int) -> int:
        acknowledged = 0

        def told(error: Any, _: Any) -> None:
            nonlocal acknowledged
            assert error is None, error
            acknowledged += 1

        producer = Producer(
            {
                "bootstrap.servers": broker.address,
                "acks": "all",
                "enable.idempotence": True,
                "batch.num.messages": BATCH,
                "batch.size": 4 << 20,
                "linger.ms": 5,  # a batch leaves as soon as it is full
                "queue.buffering.max.messages": BATCH * BATCHES_AHEAD,
            }
        )
        topic = f"bench-{self.number}"
        for number, (key, value) in enumerate(self._endless(until), 1):
            while True:
                try:
                    producer.produce(topic, value, key, on_delivery=told)
                    break
                except BufferError:
                    producer.poll(0.01)
            producer.poll(0)
            if ahead == 1 and number % BATCH == 0:
                producer.flush(60)
        assert producer.flush(60) == 0, "Kafka did not take everything"
        return acknowledged // BATCH

    def _endless(self, until: float) -> Iterator[tuple[bytes, bytes]]:
        while time.perf_counter() < until:
            for number, value in enumerate(self.values):
                yield KEY % number, value


def main() -> None:
    """Start everything, measure by turns, and print what was found."""
    given = arguments(__doc__, seconds=5, rounds=5).parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        server = ServerProcess(folder / "server", grpc=True)
        server.start()
        stack.callback(server.kill)
        brokers = {
            "kafka-flushed": stack.enter_context(Broker({"log.flush.interval.messages": "1"})),
            "kafka": stack.enter_context(Broker()),
        }
        cluster = stack.enter_context(Cluster(settings=SETTINGS))
        arms = Arms(folder, server, brokers, cluster)
        conditions = {"durability": DURABILITY, "batch": BATCH, "value-bytes": VALUE_BYTES}
        bench = Bench("log_append", ARMS, {**conditions, "seconds": given.seconds})
        bench.run(lambda arm: arms.measure(arm, given.seconds), given.rounds)
    publish([bench], ["entries/s"], given.json)


if __name__ == "__main__":
    main()
