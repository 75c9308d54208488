"""What Kafka's own client is told: its properties, on workers and on the driver. Pure but for reading PEM files."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from headrace.errors import ConfigInvalid
from headrace.pipeline.kafka.sink import Delivery, KafkaSink

RECORD_OVERHEAD_BYTES: Final = 36
"""What TiCDC adds to a message's key and value when it looks at ``max-message-bytes``."""
BATCH_OVERHEAD_BYTES: Final = 128
"""What TiCDC leaves for the batch around a message below a topic's ``max.message.bytes``."""
BATCH_BYTES: Final = 256 << 10
"""Bytes of one partition that go out together: larger ones are compressed better and cost fewer requests."""
LINGER_MS: Final = 5
"""So long a batch waits for more rows; a job writes many at once, so it is full long before."""
BUFFER_BYTES: Final = 64 << 20
"""Rows that wait in one worker's client, all partitions together."""
PATIENCE_S: Final = 120.0
"""How long brokers may take nothing before a batch is given up, to be begun again."""

_REQUEST_MS_MAX: Final = 30_000
"""How long one request may take; the client repeats it then."""
_NEVER_MS: Final = (1 << 31) - 1
"""Kafka's longest time, 24 days."""

ATTEMPT: Final = "headrace.attempt"
"""A property that Kafka's client does not know, and passes over."""

_LOGIN: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def connection_properties(sink: KafkaSink) -> dict[str, str]:
    """Return how the brokers are reached. Certificates are in it as text, since workers don't have the driver's files.

    ConfigInvalid if a PEM file can't be read.
    """
    delivery = sink.delivery
    protocol = ("SASL_" if delivery.sasl_mechanism else "") + ("SSL" if delivery.enable_tls else "PLAINTEXT")
    found = {
        "bootstrap.servers": sink.brokers,
        "client.id": delivery.kafka_client_id,
        "security.protocol": protocol,
    }
    if delivery.enable_tls:
        found |= _tls(delivery)
    if delivery.sasl_mechanism:
        user, password = _quoted(delivery.sasl_user), _quoted(delivery.sasl_password)
        module = _LOGIN[delivery.sasl_mechanism]
        found["sasl.mechanism"] = delivery.sasl_mechanism
        found["sasl.jaas.config"] = f'{module} required username="{user}" password="{password}";'
    return found


def producer_properties(sink: KafkaSink, patience_s: float = PATIENCE_S) -> dict[str, str]:
    """Return what a writer of messages is told besides: every message durable on all replicas in sync, in order, once.

    The client sends again by itself, for ``patience_s``, and its broker drops what came twice: so order within a partition
    holds with several requests under way. A message whose time is over is given up alone, and those behind it are still
    sent: who writes more than one message to a partition needs :func:`row_properties`.
    """
    patience_ms = round(patience_s * 1000)
    return connection_properties(sink) | {
        "max.block.ms": str(patience_ms),
        "delivery.timeout.ms": str(patience_ms),
        "request.timeout.ms": str(min(_REQUEST_MS_MAX, patience_ms - LINGER_MS)),
        "acks": "all",
        "enable.idempotence": "true",
        "max.in.flight.requests.per.connection": "5",
        "compression.type": sink.delivery.compression,
        "linger.ms": str(LINGER_MS),
        "batch.size": str(BATCH_BYTES),
        "buffer.memory": str(max(BUFFER_BYTES, 4 * sink.delivery.max_message_bytes)),
        "max.request.size": str(sink.delivery.max_message_bytes + BATCH_OVERHEAD_BYTES),
    }


def row_properties(sink: KafkaSink, patience_s: float = PATIENCE_S) -> dict[str, str]:
    """Return what a writer of rows is told: no row is ever given up while those behind it go out.

    So what reaches a partition of one writer is always the beginning of what it was given, in order, and a batch that is
    sent again keeps the order once repeats are removed. It waits without end: who writes must watch
    (:mod:`headrace.pipeline.kafka.watching`).
    """
    return producer_properties(sink, patience_s) | {"delivery.timeout.ms": str(_NEVER_MS)}


def connector_options(sink: KafkaSink, patience_s: float = PATIENCE_S, attempt: str = "") -> dict[str, str]:
    """Return :func:`row_properties` as options of Spark's Kafka connector.

    Spark keeps a client for each set of options, and what an attempt that failed left in it. Another ``attempt`` has
    another client.
    """
    properties = row_properties(sink, patience_s) | {ATTEMPT: attempt}
    return {f"kafka.{name}": value for name, value in properties.items()}


def _tls(delivery: Delivery) -> dict[str, str]:
    found = {}
    if delivery.ca:
        found["ssl.truststore.type"] = "PEM"
        found["ssl.truststore.certificates"] = _pem(delivery.ca, "ca")
    if delivery.cert:
        found["ssl.keystore.type"] = "PEM"
        found["ssl.keystore.certificate.chain"] = _pem(delivery.cert, "cert")
        found["ssl.keystore.key"] = _pem(delivery.key, "key")
    return found


def _pem(path: str, word: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"{word}: {path} can't be read: {error}") from None


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
