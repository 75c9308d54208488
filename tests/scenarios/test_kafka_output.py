"""MariaDB under load and DDL, captured, sent to Kafka: the job and the broker are killed, and a consumer misses nothing.

The consumer knows ``headrace.simple`` alone. From eight partitions, in JSON and in Avro, it must rebuild what the source
holds, column by column.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from headrace.simple import json_codec
from headrace.simple.assembler import Assembler
from headrace.simple.message import Watermark
from headrace.simple.values import Encoding
from tests.integration.pipeline.kafka.topic_reader import Record, check_first_sendings, read_topic
from tests.kafka import Broker
from tests.mariadb import CAPTURE_OPTIONS, Server
from tests.proxy import Proxy
from tests.scenarios.captured_load import DATABASE, Load
from tests.scenarios.captured_process import CaptureProcess
from tests.scenarios.captured_replica import Replica, contents
from tests.scenarios.history import seeded
from tests.scenarios.spark_process import MASTER, STEP_S_MAX, SparkProcess
from tests.scenarios.test_capture import compare, say
from tests.servers import Feed, ServerProcess, serving
from tests.waiting import wait_until

PARTITIONS = 8
TOPIC = "shop"
BY_KEY = "[sink]\ndispatchers = [{matcher = ['*.*'], partition = 'index-value'}]\n"
SLOWER = 10.0
"""The load of the capture's test, a tenth as quick: each statement is a step of its own for the job."""

ENTRIES_BETWEEN = 500
"""Messages that reach the topic between two kills, at least."""


class KafkaJob(SparkProcess):
    """``headrace pipeline kafka``; small batches while it runs, so that there are many."""

    def __init__(self, folder: Path, server: ServerProcess, broker: Broker, encoding: Encoding) -> None:
        self.topic = f"{TOPIC}-{encoding}"
        config = folder / "changefeed.toml"
        config.write_text(BY_KEY)
        uri = f"kafka://{broker.address}/{self.topic}?partition-num={PARTITIONS}&encoding-format={encoding}"
        words = ["kafka", "--json", "--feed", CaptureProcess.feed, "--server", server.url, "--sink-uri", uri]
        words += ["--config", str(config), "--checkpoint", str(folder / self.topic), *MASTER]
        log = folder / f"{self.topic}.log"
        super().__init__(folder, words, running=("--max-entries", "500"), spark_log=log)


class TopicReplica(Replica):
    """A replica of several partitions, read in any interleaving."""

    def read(self, partitions: Sequence[Sequence[Record]], chance: random.Random) -> None:
        """Read the partitions to their ends."""
        self._assembler = Assembler(len(partitions))
        places = [0] * len(partitions)
        while unread := [at for at in self._assembler.readable if places[at] < len(partitions[at])]:
            at = chance.choice(unread)
            record = partitions[at][places[at]]
            places[at] += 1
            self._do(self._assembler.take(at, record.message, size=len(record.value), position=record.offset))


@contextmanager
def looking(broker: Broker) -> Iterator[Consumer]:
    """A consumer that looks at one topic and goes."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "look", "log_level": 0})
    try:
        yield consumer
    finally:
        consumer.close()


def messages_in(broker: Broker, topic: str) -> int:
    """How many messages the topic has; 0 while it is not there, or its partitions have no leader yet."""
    with looking(broker) as consumer, suppress(KafkaException):
        found = consumer.list_topics(timeout=30).topics.get(topic)
        places = [TopicPartition(topic, at) for at in (found.partitions if found is not None else ())]
        return sum(consumer.get_watermark_offsets(place, timeout=30)[1] for place in places)
    return 0


def last_watermark_sent(broker: Broker, topic: str) -> int:
    """The time of the WATERMARK that is the last message of partition 0; 0 if another message is."""
    with looking(broker) as consumer:
        end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1]
        consumer.assign([TopicPartition(topic, 0, max(0, end - 1))])
        found = consumer.poll(30)
        value = found.value() if found is not None else None
        message = json_codec.decode(value) if value is not None else None
        return message.commit_ts >> 18 if isinstance(message, Watermark) else 0


@pytest.mark.timeout(900)
def test_a_consumer_of_the_topic_rebuilds_every_table(tmp_path: Path) -> None:
    chance = seeded()
    with ExitStack() as scene:
        mariadb = scene.enter_context(Server(*CAPTURE_OPTIONS))
        server = scene.enter_context(serving(tmp_path / "server", grpc=True))
        broker = scene.enter_context(Broker())
        load = Load(mariadb, chance.getrandbits(32), write_pause=SLOWER, alter_pause=SLOWER)
        capture = captured(tmp_path, load, mariadb, server, scene)
        job = KafkaJob(tmp_path, server, broker, Encoding.JSON)
        load.make_tables()
        load.start()
        scene.callback(load.stop)
        capture.start()
        scene.callback(capture.kill)
        wait_until(lambda: capture.head() > 0, STEP_S_MAX, what="the feed")
        job.start()
        scene.callback(job.end)
        progress(broker, job)
        job.kill()
        job.start()
        progress(broker, job)
        broker.kill()
        broker.start()
        progress(broker, job)
        end_ms = settle(load, capture, mariadb, server)
        wait_until(
            lambda: last_watermark_sent(broker, job.topic) >= end_ms,
            STEP_S_MAX,
            what="the last WATERMARK",
        )
        assert job.stop() == 0, job.errors()
        say(f"{capture.head()} entries became {messages_in(broker, job.topic)} messages")
        check_rebuilt(mariadb, broker, job.topic, Encoding.JSON, scene)
        avro = KafkaJob(tmp_path, server, broker, Encoding.AVRO)
        avro.finish()
        check_rebuilt(mariadb, broker, avro.topic, Encoding.AVRO, scene)


def captured(
    folder: Path, load: Load, mariadb: Server, server: ServerProcess, scene: ExitStack
) -> CaptureProcess:
    """A capture of the load's tables."""
    grpc_host, _, grpc_port = server.grpc_address.rpartition(":")
    http_host, _, http_port = server.address.rpartition(":")
    targets = {
        "source": ("127.0.0.1", mariadb.port),
        "http": (http_host, int(http_port)),
        "grpc": (grpc_host, int(grpc_port)),
    }
    proxies = {name: scene.enter_context(Proxy(*target)) for name, target in targets.items()}
    lines = (f'tables = ["{DATABASE}.*"]', 'watermark-interval = "0.2s"', 'watermark-idle-interval = "0.5s"')
    return CaptureProcess(folder, load.database, server, **proxies, lines=lines)


def progress(broker: Broker, job: KafkaJob) -> None:
    """Wait until the topic has grown."""
    wanted = messages_in(broker, job.topic) + ENTRIES_BETWEEN
    try:
        wait_until(lambda: messages_in(broker, job.topic) >= wanted, STEP_S_MAX, what=f"{wanted} messages")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{job.errors()}") from None


def settle(load: Load, capture: CaptureProcess, mariadb: Server, server: ServerProcess) -> int:
    """End the load, and the capture once it has all of it and a WATERMARK behind it; returns the load's end."""
    load.stop()
    ((end_ms,),) = mariadb.sql("SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS INT)")

    capture.wait(lambda: last_watermark_ms(server, capture) >= end_ms, what="a WATERMARK behind the load")
    assert capture.stop() == 0, capture.errors()[-4000:]
    return int(end_ms)


def last_watermark_ms(server: ServerProcess, capture: CaptureProcess) -> int:
    """The time of the feed's last WATERMARK, if it is among its last entries; else 0."""
    head = capture.head()
    entries = Feed(server, capture.feed).entries(max(1, head - 500), head) if head else []
    marks = [one["changes"]["commitTs"] >> 18 for one in entries if one.get("control") == "watermark"]
    return max(marks, default=0)


def check_rebuilt(mariadb: Server, broker: Broker, topic: str, encoding: Encoding, scene: ExitStack) -> None:
    """Rebuild the tables in another server, and compare."""
    partitions = read_topic(broker.address, topic, encoding)
    check_first_sendings(partitions)
    target = scene.enter_context(Server("--innodb-flush-log-at-trx-commit=0", "--max-allowed-packet=64M"))
    with closing(mariadb.connect_as_root()) as source, closing(target.connect_as_root()) as root:
        replica = TopicReplica(root, DATABASE, encoding)
        replica.read(partitions, seeded())
        assert replica.settle() == 0, "rows lie behind the last WATERMARK"
        compare(contents(root, DATABASE), contents(source, DATABASE))
    say(f"{encoding} rebuilt from {sum(map(len, partitions))} messages")
