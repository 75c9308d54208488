"""A changefeed's configuration in TiCDC's form, as far as its words exist here.

A word that TiCDC has and Headrace has not is refused, unless its value says that it is off; so is one that neither has.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import msgspec

from headrace.capture.selection import ColumnRules, ColumnSelector, Selection
from headrace.errors import ConfigInvalid
from headrace.runtime.settings import Settings
from headrace.simple.bootstrap import BootstrapSettings
from headrace.simple.dispatch import Dispatcher, DispatchRule
from headrace.simple.values import Encoding

PROTOCOL: Final = "simple"


class Changefeed(msgspec.Struct, frozen=True):
    """What a changefeed file says.

    ``rules``: the table filter. ``selectors``: which columns go out. What follows is for the output to Kafka, not for the
    feed: where messages go, when schemas are sent again, how messages are written.
    """

    rules: tuple[str, ...] = ("*.*",)
    case_sensitive: bool = False
    selectors: tuple[ColumnSelector, ...] = ()
    dispatchers: tuple[DispatchRule, ...] = ()
    bootstrap: BootstrapSettings = BootstrapSettings()
    encoding: Encoding = Encoding.JSON


class _Foreign(NamedTuple):
    """A word of TiCDC's that means nothing here: why, and the values that ask for nothing."""

    why: str
    off: tuple[object, ...] = ()


_Words = Mapping[str, "_Words | _Foreign | None"]
"""The words of one table: None is a value that is taken, a mapping a table (or a list of tables)."""

_TUNING: Final = _Foreign("it tunes TiCDC's own processes")
_OTHER_SINK: Final = _Foreign("it belongs to another sink")
_OTHER_PROTOCOL: Final = _Foreign("it belongs to another protocol")
_BROKER: Final = _Foreign("how Kafka is reached is said where messages are sent to Kafka")

_EVENTS: Final = _Foreign(
    "changes are not filtered by what they are: every change of a captured table stands in the feed", ([],)
)
_DISPATCHER: Final[_Words] = dict.fromkeys(
    ("matcher", "partition", "dispatcher", "topic", "columns", "index")
)
_LARGE: Final[_Words] = {
    "large-message-handle-option": _Foreign("large messages are not handled apart", ("none", "")),
    "large-message-handle-compression": _Foreign("messages are not compressed", ("none", "")),
    "claim-check-storage-uri": _Foreign("large messages are not handled apart", ("",)),
    "claim-check-raw-value": _Foreign("large messages are not handled apart", (False,)),
    "claim-check-compression": _Foreign("messages are not compressed", ("none", "")),
}
_CODEC: Final[_Words] = {
    "encoding-format": None,
    "enable-tidb-extension": _Foreign("the Simple Protocol has no extension fields", (False,)),
    "max-batch-size": _Foreign("a message of the Simple Protocol holds one event", (1,)),
    "avro-enable-watermark": _OTHER_PROTOCOL,
    "avro-decimal-handling-mode": _OTHER_PROTOCOL,
    "avro-bigint-unsigned-handling-mode": _OTHER_PROTOCOL,
}
_KAFKA: Final[_Words] = {
    "codec-config": _CODEC,
    "large-message-handle": _LARGE,
    "glue-schema-registry-config": _OTHER_PROTOCOL,
    **dict.fromkeys(
        (
            *("partition-num", "replication-factor", "kafka-version", "max-message-bytes", "compression"),
            *("kafka-client-id", "auto-create-topic", "dial-timeout", "write-timeout", "read-timeout"),
            *("required-acks", "sasl-user", "sasl-password", "sasl-mechanism", "sasl-gssapi-auth-type"),
            *("sasl-gssapi-keytab-path", "sasl-gssapi-kerberos-config-path", "sasl-gssapi-service-name"),
            *(
                "sasl-gssapi-user",
                "sasl-gssapi-password",
                "sasl-gssapi-realm",
                "sasl-gssapi-disable-pafxfast",
            ),
            *(
                "sasl-oauth-client-id",
                "sasl-oauth-client-secret",
                "sasl-oauth-token-url",
                "sasl-oauth-scopes",
            ),
            *("sasl-oauth-grant-type", "sasl-oauth-audience", "enable-tls", "ca", "cert", "key"),
            "insecure-skip-verify",
        ),
        _BROKER,
    ),
}
_SINK: Final[_Words] = {
    "protocol": None,
    "dispatchers": _DISPATCHER,
    "column-selectors": {"matcher": None, "columns": None},
    "send-bootstrap-interval-in-sec": None,
    "send-bootstrap-in-msg-count": None,
    "send-bootstrap-to-all-partition": None,
    "kafka-config": _KAFKA,
    "send-all-bootstrap-at-start": _Foreign("each table's schema is sent before its first row", (False,)),
    "simple": {"include-start-ts": _Foreign("a binlog tells no start of a transaction", (False,))},
    "transaction-atomicity": _Foreign("a transaction's rows always stand together", ("none",)),
    "only-output-updated-columns": _Foreign("the Simple Protocol sends whole rows", (False,)),
    "delete-only-output-handle-key-columns": _Foreign("the Simple Protocol sends whole rows", (False,)),
    "schema-registry": _OTHER_PROTOCOL,
    "content-compatible": _OTHER_PROTOCOL,
    "debezium-disable-schema": _OTHER_PROTOCOL,
    "debezium": _OTHER_PROTOCOL,
    "open": _OTHER_PROTOCOL,
    "encoder-concurrency": _TUNING,
    "advance-timeout-in-sec": _TUNING,
    "enable-kafka-sink-v2": _TUNING,
    **dict.fromkeys(
        (
            *("csv", "terminator", "date-separator", "enable-partition-separator", "file-index-digit"),
            *("file-index-width", "cloud-storage-config", "pulsar-config", "mysql-config", "safe-mode"),
        ),
        _OTHER_SINK,
    ),
}
_FILTER: Final[_Words] = {
    "rules": None,
    "event-filters": _EVENTS,
    "ignore-txn-start-ts": _Foreign("a binlog tells no start of a transaction", ([],)),
    **dict.fromkeys(("do-dbs", "do-tables", "ignore-dbs", "ignore-tables"), _Foreign("write it as rules")),
}
_FILE: Final[_Words] = {
    "case-sensitive": None,
    "filter": _FILTER,
    "sink": _SINK,
    "enable-old-value": _Foreign("the Simple Protocol always has old values", (True,)),
    "force-replicate": _Foreign("a table without a handle key can't be captured", (False,)),
    "ignore-ineligible-table": _Foreign("leave such tables out by rules", (False,)),
    "bdr-mode": _Foreign("capture only reads", (False,)),
    "enable-sync-point": _Foreign("it needs a database behind it; WATERMARKs say the same", (False,)),
    "sync-point-interval": _Foreign("it needs a database behind it"),
    "sync-point-retention": _Foreign("it needs a database behind it"),
    "consistent": {
        "level": _Foreign("the feed is the log", ("none",)),
        **dict.fromkeys(
            (
                *("max-log-size", "flush-interval", "meta-flush-interval", "encoding-worker-num"),
                *("flush-worker-num", "storage", "use-file-backend", "compression", "memory-usage"),
            ),
            _Foreign("the feed is the log"),
        ),
    },
    "integrity": {
        "integrity-check-level": _Foreign("MariaDB has no row checksums", ("none",)),
        "corruption-handle-level": _Foreign("MariaDB has no row checksums", ("warn",)),
    },
    "sql-mode": _Foreign("each statement's own sql_mode stands in the binlog"),
    "cyclic-replication": _Foreign("capture only reads"),
    **dict.fromkeys(
        (
            *("memory-quota", "check-gc-safe-point", "mounter", "scheduler", "synced-status"),
            *("changefeed-error-stuck-duration", "enable-table-monitor"),
        ),
        _TUNING,
    ),
}


class _Dispatcher(Settings, frozen=True):
    matcher: tuple[str, ...]
    partition: str = ""
    dispatcher: str = ""
    topic: str = ""
    columns: tuple[str, ...] = ()
    index: str = ""


class _Codec(Settings, frozen=True):
    encoding_format: Encoding = Encoding.JSON


class _KafkaConfig(Settings, frozen=True):
    codec_config: _Codec = _Codec()


class _Sink(Settings, frozen=True):
    protocol: str = PROTOCOL
    dispatchers: tuple[_Dispatcher, ...] = ()
    column_selectors: tuple[ColumnSelector, ...] = ()
    send_bootstrap_interval_in_sec: int = BootstrapSettings().interval_s
    send_bootstrap_in_msg_count: int = BootstrapSettings().messages
    send_bootstrap_to_all_partition: bool = BootstrapSettings().to_all_partitions
    kafka_config: _KafkaConfig = _KafkaConfig()


class _Filter(Settings, frozen=True):
    rules: tuple[str, ...] = Changefeed().rules


class _File(Settings, frozen=True):
    case_sensitive: bool = False
    filter: _Filter = _Filter()
    sink: _Sink = _Sink()


def load_changefeed(path: Path) -> Changefeed:
    """Read the file at ``path``; ConfigInvalid names the file and the word that is unknown, foreign or wrong."""
    try:
        return parse_changefeed(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"{path}: can't be read: {error}", hint="Check changefeed.") from None
    except ConfigInvalid as error:
        raise ConfigInvalid(f"{path}: {error.detail}", hint=error.advice) from None


def parse_changefeed(text: str) -> Changefeed:
    """Return what TOML in TiCDC's form says; ConfigInvalid names the word that is unknown, foreign or wrong."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigInvalid(f"not TOML: {error}") from None
    return changefeed_of(document)


def changefeed_of(document: Mapping[str, Any]) -> Changefeed:
    """Return what a file says that was parsed already; the same errors as :func:`parse_changefeed`."""
    try:
        file = msgspec.convert(_taken(document, _FILE, ""), _File)
    except msgspec.ValidationError as error:
        raise ConfigInvalid(str(error)) from None
    sink = file.sink
    if sink.protocol != PROTOCOL:
        raise ConfigInvalid(
            f"sink.protocol: {sink.protocol!r} is not written here", hint=f'Write protocol = "{PROTOCOL}".'
        )
    changefeed = Changefeed(
        rules=file.filter.rules,
        case_sensitive=file.case_sensitive,
        selectors=sink.column_selectors,
        dispatchers=tuple(_dispatch_rule(rule) for rule in sink.dispatchers),
        bootstrap=BootstrapSettings(
            sink.send_bootstrap_interval_in_sec,
            sink.send_bootstrap_in_msg_count,
            sink.send_bootstrap_to_all_partition,
        ),
        encoding=sink.kafka_config.codec_config.encoding_format,
    )
    # Their patterns are looked at now: nobody should learn of a wrong one when the first table comes.
    dispatcher = Dispatcher(changefeed.dispatchers, "default", case_sensitive=changefeed.case_sensitive)
    if dispatcher.warnings:
        raise ConfigInvalid(f"sink.dispatchers: {dispatcher.warnings[0]}")
    Selection(changefeed.rules, ColumnRules(selectors=changefeed.selectors))
    return changefeed


def taken_words() -> list[str]:
    """Return the words that mean something here, with dots between a table and what is in it."""
    return list(_leaves(_FILE, ""))


def _leaves(words: _Words, above: str) -> Iterator[str]:
    for name, meaning in words.items():
        if meaning is None:
            yield f"{above}{name}"
        elif not isinstance(meaning, _Foreign):
            yield from _leaves(meaning, f"{above}{name}.")


def _dispatch_rule(rule: _Dispatcher) -> DispatchRule:
    if rule.partition and rule.dispatcher:
        raise ConfigInvalid(
            "sink.dispatchers: partition and dispatcher are both given", hint="dispatcher is the old name."
        )
    return DispatchRule(
        matcher=rule.matcher,
        partition=rule.partition or rule.dispatcher or DispatchRule(()).partition,
        index=rule.index,
        columns=rule.columns,
        topic=rule.topic,
    )


def _taken(document: Mapping[str, Any], words: _Words, above: str) -> dict[str, Any]:
    """Return ``document`` without the foreign words that ask for nothing; ConfigInvalid for all others."""
    taken: dict[str, Any] = {}
    for name, value in document.items():
        path = f"{above}{name}"
        if name not in words:
            _refuse_unknown(path, name, words)
        match words[name]:
            case None:
                taken[name] = value
            case _Foreign(why, off):
                if value not in off:
                    raise ConfigInvalid(
                        f"{path}: TiCDC's word, which means nothing here: {why}", hint=f"Take {path} out."
                    )
            case below:
                inner = _within(value, below, path)
                if not all(isinstance(meaning, _Foreign) for meaning in below.values()):
                    taken[name] = inner
    return taken


def _within(value: object, words: _Words, path: str) -> object:
    if isinstance(value, list):
        return [_within(one, words, f"{path}[{place}]") for place, one in enumerate(value, 1)]
    if not isinstance(value, dict):
        raise ConfigInvalid(f"{path}: must be a table, not {value!r}")
    return _taken(value, words, f"{path}.")


def _refuse_unknown(path: str, name: str, words: _Words) -> NoReturn:
    close = difflib.get_close_matches(name, words, n=1)
    raise ConfigInvalid(
        f"{path}: neither TiCDC nor Headrace knows this word",
        hint=f"Did you mean {close[0]}?" if close else f"Known here: {', '.join(sorted(words))}.",
    )
