"""The sink URI and the changefeed file: TiCDC's words, what is refused, and what Kafka's client is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.errors import ConfigInvalid
from headrace.pipeline.kafka.client import connection_properties, connector_options, producer_properties
from headrace.pipeline.kafka.sink import Delivery, parse_sink
from headrace.pipeline.session import SessionSettings, configuration
from headrace.simple.bootstrap import BootstrapSettings
from headrace.simple.dispatch import DispatchRule
from headrace.simple.values import Encoding

URI = "kafka://127.0.0.1:9092/changes"


def test_a_uri_alone() -> None:
    sink = parse_sink(URI)
    assert (sink.brokers, sink.topic, sink.delivery) == ("127.0.0.1:9092", "changes", Delivery())
    assert sink.changefeed.encoding is Encoding.JSON
    assert sink.delivery.max_message_bytes == 10 << 20


def test_several_brokers_and_their_default_port() -> None:
    assert parse_sink("kafka://a,b:1,[::1]:2/t").brokers == "a:9092,b:1,[::1]:2"


def test_every_word_of_the_uri() -> None:
    words = (
        "protocol=simple&encoding-format=avro&partition-num=8&replication-factor=3&max-message-bytes=1000&compression=zstd"
        "&kafka-client-id=me&auto-create-topic=false&required-acks=-1&enable-tls=true&ca=a.pem&cert=c.pem&key=k.pem"
        "&sasl-user=u&sasl-password=p%26&sasl-mechanism=scram-sha-256"
    )
    sink = parse_sink(f"{URI}?{words}")
    assert sink.changefeed.encoding is Encoding.AVRO
    assert sink.delivery == Delivery(
        partition_num=8,
        replication_factor=3,
        max_message_bytes=1000,
        compression="zstd",
        kafka_client_id="me",
        auto_create_topic=False,
        enable_tls=True,
        ca="a.pem",
        cert="c.pem",
        key="k.pem",
        sasl_user="u",
        sasl_password="p&",
        sasl_mechanism="SCRAM-SHA-256",
    )


def test_a_word_of_the_uri_wins_over_the_file() -> None:
    file = """
    [sink]
    send-bootstrap-interval-in-sec = 5
    send-bootstrap-in-msg-count = 7
    send-bootstrap-to-all-partition = false
    dispatchers = [{matcher = ["a.*"], partition = "ts", topic = "{schema}"}]
    [sink.kafka-config]
    partition-num = 4
    replication-factor = 2
    [sink.kafka-config.codec-config]
    encoding-format = "avro"
    """
    sink = parse_sink(f"{URI}?partition-num=8&encoding-format=json", file)
    assert sink.delivery == Delivery(partition_num=8, replication_factor=2)
    assert sink.changefeed.encoding is Encoding.JSON
    assert sink.changefeed.bootstrap == BootstrapSettings(5, 7, False)
    assert sink.changefeed.dispatchers == (DispatchRule(("a.*",), "ts", topic="{schema}"),)


def test_tls_by_the_scheme() -> None:
    assert parse_sink("kafka+ssl://h:1/t").delivery.enable_tls


def test_words_that_are_off_count_for_nothing() -> None:
    off = "insecure-skip-verify=false&enable-tidb-extension=false&large-message-handle-option=none&max-batch-size=1"
    file = "[sink.kafka-config]\ninsecure-skip-verify = false\nsasl-gssapi-disable-pafxfast = false"
    assert parse_sink(f"{URI}?{off}", file) == parse_sink(URI)


@pytest.mark.parametrize(
    ("uri", "named"),
    [
        ("mysql://h:1/t", "kafka://"),
        ("kafka://h:1", "topic"),
        ("kafka://h:1/a/b", "'a/b'"),
        ("kafka://h:1/{schema}", "topic"),
        ("kafka:///t", "kafka://"),
        ("kafka://user:secret@h:1/t", "kafka://"),
        (f"{URI}?partition-num=0", "partition-num"),
        (f"{URI}?partition-num=x", "partition-num"),
        (f"{URI}?partition-num=1&partition-num=2", "twice"),
        (f"{URI}?partition-num", "sink URI"),
        (f"{URI}?nonsense=1", "nonsense"),
        (f"{URI}?protocol=canal-json", "canal-json"),
        (f"{URI}?encoding-format=xml", "xml"),
        (f"{URI}?required-acks=1", "required-acks"),
        (f"{URI}?compression=rar", "compression"),
        (f"{URI}?kafka-version=2.4.0", "kafka-version"),
        (f"{URI}?insecure-skip-verify=true", "insecure-skip-verify"),
        (f"{URI}?claim-check-storage-uri=file:///x", "claim-check-storage-uri"),
        (f"{URI}?large-message-handle-option=claim-check", "large-message-handle-option"),
        (f"{URI}?ca=x.pem", "enable-tls"),
        (f"{URI}?enable-tls=true&cert=x.pem", "cert and key"),
        (f"{URI}?sasl-user=u&sasl-password=secret", "sasl-mechanism"),
        (f"{URI}?sasl-mechanism=GSSAPI&sasl-user=u&sasl-password=secret", "sasl-mechanism"),
        (f"{URI}?sasl-oauth-client-id=x", "sasl-oauth-client-id"),
    ],
)
def test_what_is_refused_is_named(uri: str, named: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse_sink(uri)
    assert named in caught.value.detail
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("[sink", "not TOML"),
        ("[sink.kafka-config]\nnonsense = 1", "sink.kafka-config.nonsense"),
        ("[sink.kafka-config]\npartition-num = 'a'", "partition-num"),
        ("[sink.kafka-config]\ndial-timeout = '10s'", "sink.kafka-config: dial-timeout"),
        ("[sink]\nkafka-config = 1", "sink.kafka-config"),
        (
            "[sink.kafka-config.large-message-handle]\nlarge-message-handle-option = 'claim-check'",
            "large-message",
        ),
        ("nonsense = 1", "nonsense"),
    ],
)
def test_what_a_file_can_not_say(file: str, named: str) -> None:
    with pytest.raises(ConfigInvalid, match=named):
        parse_sink(URI, file)


def test_every_message_must_be_durable_and_in_order() -> None:
    told = connector_options(parse_sink(f"{URI}?compression=lz4&max-message-bytes=2000000"))
    assert told["kafka.acks"] == "all"
    assert told["kafka.enable.idempotence"] == "true"
    assert int(told["kafka.max.in.flight.requests.per.connection"]) <= 5
    assert told["kafka.compression.type"] == "lz4"
    assert int(told["kafka.max.request.size"]) > 2_000_000
    assert told["kafka.security.protocol"] == "PLAINTEXT"
    assert int(told["kafka.delivery.timeout.ms"]) == (1 << 31) - 1, (
        "a row that expires lets later ones pass it"
    )


def test_certificates_go_as_text_and_passwords_are_quoted(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(f"text of {name}")
    files = "&".join(f"{name}={tmp_path / name}" for name in ("ca", "cert", "key"))
    words = f'sasl-user=u&sasl-password=a"b\\&sasl-mechanism=PLAIN&enable-tls=true&{files}'
    told = producer_properties(parse_sink(f"{URI}?{words}"))
    assert told["security.protocol"] == "SASL_SSL"
    assert told["ssl.truststore.certificates"] == "text of ca"
    assert told["ssl.keystore.certificate.chain"] == "text of cert"
    assert told["ssl.keystore.key"] == "text of key"
    assert told["sasl.jaas.config"].endswith('username="u" password="a\\"b\\\\";')
    secret = re.compile(configuration(SessionSettings(log_file=tmp_path), [])["spark.redaction.regex"])
    texts = ("text of key", "text of cert", 'a\\"b')
    shown = [
        name for name, text in told.items() if any(one in text for one in texts) and not secret.search(name)
    ]
    assert shown == [], "plans would show them"
    assert "a" + '"b' not in repr(parse_sink(f"{URI}?{words}").delivery)


def test_a_certificate_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigInvalid, match=r"ca: /nowhere\.pem"):
        connection_properties(parse_sink(f"{URI}?enable-tls=true&ca=/nowhere.pem"))
