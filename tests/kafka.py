"""A real Kafka broker: one node in KRaft mode, in a temporary folder, on free ports.

``with Broker({"log.flush.interval.messages": "1"}) as broker: Producer({"bootstrap.servers": broker.address})``.
Its jars (``kafka_jars.txt``: group, artifact, version, bytes, SHA-256) are fetched once, beside those of Spark.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headrace.pipeline.jars import Jar, fetch, jars_folder
from headrace.pipeline.java import find_java
from tests.java_classes import QUICK
from tests.ports import free_port
from tests.waiting import wait_until

START_S_MAX: Final = 120.0
STOP_S_MAX: Final = 60.0
LIST: Final = Path(__file__).with_name("kafka_jars.txt")


def broker_jars() -> list[Jar]:
    """The broker and all that it needs, in the versions that were tried together."""
    lines = (line.split() for line in LIST.read_text(encoding="utf-8").splitlines())
    return [
        Jar(group, artifact, version, int(size), digest) for group, artifact, version, size, digest in lines
    ]


class Broker:
    """A broker with ``settings`` besides those that one node needs. It forgets everything at its end."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.settings = dict(settings or {})
        self.address = ""
        self.folder = Path()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Broker:
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-kafka-"))
        port, controller = free_port(), free_port()
        self.address = f"127.0.0.1:{port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self.settings,
        }
        config = self.folder / "server.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        try:
            self._format(config)
            self.start()
        except BaseException:
            self._end()
            raise
        return self

    def start(self) -> None:
        """Start the process where its folder is, and wait until it answers."""
        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(self.folder / "server.properties")),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        wait_until(self._answers, START_S_MAX, what="the Kafka broker to answer")

    def kill(self) -> None:
        """SIGKILL, whatever it is doing; ``start`` goes on with what it had."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_S_MAX)
            self._process = None

    def written(self, topic: str) -> int:
        """Bytes of a topic's messages on the disk; 0 while it is not there."""
        return sum(file.stat().st_size for file in self.folder.glob(f"data/{topic}-*/*.log"))

    def pause(self) -> None:
        """SIGSTOP: connections stand, and nothing is answered until ``resume``."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: it goes on with what came meanwhile."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def log(self) -> str:
        """What the broker wrote so far."""
        path = self.folder / "broker.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def _end(self) -> None:
        # In order it would hand over what nobody will ask for, which takes as long as its clients wait.
        self.kill()
        shutil.rmtree(self.folder)

    def _format(self, config: Path) -> None:
        words = self._java("kafka.tools.StorageTool", "format", "-t", str(uuid.uuid4()), "-c", str(config))
        done = subprocess.run(words, capture_output=True, text=True, timeout=START_S_MAX, check=False)
        assert done.returncode == 0, f"the broker's folder was not formatted: {done.stdout}{done.stderr}"

    def _java(self, *words: str) -> list[str]:
        java = find_java()
        folder = jars_folder() / "kafka-broker"
        fetch(folder, java, broker_jars(), say=lambda _: None)
        classpath = ":".join(str(folder / jar.file) for jar in broker_jars())
        return [str(java.java), *java.options, *QUICK, "-Xmx1g", "-cp", classpath, *words]

    def _answers(self) -> bool:
        ended = self._process is not None and self._process.poll() is not None
        assert not ended, f"the Kafka broker ended at once:\n{self.log()[-4000:]}"
        try:
            found = AdminClient({"bootstrap.servers": self.address, "log_level": 0}).list_topics(timeout=2)
        except KafkaException:
            return False
        return bool(found.brokers)
