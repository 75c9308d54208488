"""``headrace pipeline kafka`` as a process that is killed, and a consumer that knows ``headrace.simple`` alone."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from headrace.simple import avro_codec, json_codec
from headrace.simple.assembler import Assembler
from headrace.simple.message import Watermark
from headrace.simple.values import Encoding
from tests.integration.pipeline.kafka.topic_reader import Record, check_first_sendings, read_topic
from tests.kafka import Broker
from tests.mariadb import Server
from tests.proxy import Proxy
from tests.scenarios.captured_load import DATABASE, Load
from tests.scenarios.captured_process import CaptureProcess
from tests.scenarios.captured_replica import Replica, contents
from tests.scenarios.history import seeded
from tests.scenarios.spark_process import MASTER, SparkProcess
from tests.scenarios.test_capture import compare, say
from tests.servers import Feed, ServerProcess

PARTITIONS = 8
TOPIC = "shop"
BY_KEY = "[sink]\ndispatchers = [{matcher = ['*.*'], partition = 'index-value'}]\n"


class KafkaJob(SparkProcess):
    """``headrace pipeline kafka``; small batches while it runs, so that there are many."""

    def __init__(self, folder: Path, server: ServerProcess, broker: Broker, encoding: Encoding) -> None:
        self.encoding = encoding
        self.topic = f"{TOPIC}-{encoding}"
        config = folder / "changefeed.toml"
        config.write_text(BY_KEY)
        uri = f"kafka://{broker.address}/{self.topic}?partition-num={PARTITIONS}&encoding-format={encoding}"
        words = ["kafka", "--json", "--feed", CaptureProcess.feed, "--server", server.url, "--sink-uri", uri]
        words += ["--config", str(config), "--checkpoint", str(folder / self.topic), *MASTER]
        log = folder / f"{self.topic}.log"
        super().__init__(folder, words, running=("--max-entries", "1000"), spark_log=log)


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


def last_watermark_sent(broker: Broker, job: KafkaJob) -> int:
    """The time of the WATERMARK that is the last message of the job's partition 0; 0 if another message is."""
    decode = json_codec.decode if job.encoding is Encoding.JSON else avro_codec.decode
    with looking(broker) as consumer:
        end = consumer.get_watermark_offsets(TopicPartition(job.topic, 0), timeout=30)[1]
        consumer.assign([TopicPartition(job.topic, 0, max(0, end - 1))])
        found = consumer.poll(30)
        value = found.value() if found is not None else None
        message = decode(value) if value is not None else None
        return message.commit_ts >> 18 if isinstance(message, Watermark) else 0


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


def last_watermark_ms(server: ServerProcess, capture: CaptureProcess) -> int:
    """The time of the feed's last WATERMARK, if it is among its last entries; else 0."""
    head = capture.head()
    entries = Feed(server, capture.feed).entries(max(1, head - 500), head) if head else []
    marks = [one["changes"]["commitTs"] >> 18 for one in entries if one.get("control") == "watermark"]
    return max(marks, default=0)


def check_rebuilt(mariadb: Server, broker: Broker, topics: Mapping[Encoding, str], scene: ExitStack) -> None:
    """Rebuild the tables from each topic in another server, and compare."""
    target = scene.enter_context(Server("--innodb-flush-log-at-trx-commit=0", "--max-allowed-packet=64M"))
    with closing(mariadb.connect_as_root()) as source, closing(target.connect_as_root()) as root:
        wanted = contents(source, DATABASE)
        for encoding, topic in topics.items():
            partitions = read_topic(broker.address, topic, encoding)
            check_first_sendings(partitions)
            replica = TopicReplica(root, DATABASE, encoding)
            replica.read(partitions, seeded())
            assert replica.settle() == 0, "rows lie behind the last WATERMARK"
            compare(contents(root, DATABASE), wanted)
            say(f"{encoding} rebuilt from {sum(map(len, partitions))} messages")
