"""Changefeed files in TiCDC's form: what is taken, what is refused as TiCDC's alone, and what nobody knows."""

from __future__ import annotations

import pytest

from headrace.capture.changefeed import Changefeed, parse_changefeed
from headrace.capture.selection import ColumnSelector
from headrace.errors import ConfigInvalid
from headrace.simple.bootstrap import BootstrapSettings
from headrace.simple.dispatch import DispatchRule
from headrace.simple.values import Encoding

OF_THE_PUBLIC_DOCUMENT = """
[sink]
protocol = "simple"
send-bootstrap-interval-in-sec = 120
send-bootstrap-in-msg-count = 10000
send-bootstrap-to-all-partition = true
[sink.kafka-config.codec-config]
encoding-format = "json"
"""

OFF = """
enable-old-value = true
force-replicate = false
ignore-ineligible-table = false
bdr-mode = false
enable-sync-point = false
[filter]
ignore-txn-start-ts = []
event-filters = []
[consistent]
level = "none"
[integrity]
integrity-check-level = "none"
corruption-handle-level = "warn"
[sink]
transaction-atomicity = "none"
only-output-updated-columns = false
delete-only-output-handle-key-columns = false
send-all-bootstrap-at-start = false
[sink.simple]
include-start-ts = false
[sink.kafka-config.large-message-handle]
large-message-handle-option = "none"
large-message-handle-compression = "none"
[sink.kafka-config.codec-config]
enable-tidb-extension = false
"""


def test_an_empty_file_captures_everything() -> None:
    assert parse_changefeed("") == Changefeed(
        ("*.*",), False, (), (), BootstrapSettings(120, 10_000, True), Encoding.JSON
    )


def test_the_sample_of_the_public_document() -> None:
    assert parse_changefeed(OF_THE_PUBLIC_DOCUMENT) == Changefeed()


def test_words_that_say_off_count_for_nothing() -> None:
    assert parse_changefeed(OFF) == Changefeed()


def test_everything_that_is_taken() -> None:
    text = """
    case-sensitive = true
    [filter]
    rules = ['*.*', '!test.*']
    [sink]
    protocol = "simple"
    dispatchers = [
        {matcher = ['test1.*', 'test2.*'], topic = "t_{schema}", partition = "ts"},
        {matcher = ['test3.*'], dispatcher = "rowid"},
        {matcher = ['test4.*'], partition = "columns", columns = ["a", "b"]},
        {matcher = ['test5.*'], partition = "index-value", index = "k"},
    ]
    column-selectors = [
        {matcher = ['test1.*'], columns = ['a', 'b']},
        {matcher = ['*.*'], columns = ['*', '!a']},
    ]
    send-bootstrap-interval-in-sec = 5
    send-bootstrap-in-msg-count = 0
    send-bootstrap-to-all-partition = false
    [sink.kafka-config.codec-config]
    encoding-format = "avro"
    """
    assert parse_changefeed(text) == Changefeed(
        rules=("*.*", "!test.*"),
        case_sensitive=True,
        selectors=(
            ColumnSelector(("test1.*",), ("a", "b")),
            ColumnSelector(("*.*",), ("*", "!a")),
        ),
        dispatchers=(
            DispatchRule(("test1.*", "test2.*"), "ts", topic="t_{schema}"),
            DispatchRule(("test3.*",), "rowid"),
            DispatchRule(("test4.*",), "columns", columns=("a", "b")),
            DispatchRule(("test5.*",), "index-value", index="k"),
        ),
        bootstrap=BootstrapSettings(5, 0, False),
        encoding=Encoding.AVRO,
    )


FOREIGN = [
    ("memory-quota = 1024", "memory-quota"),
    ("bdr-mode = true", "bdr-mode"),
    ("enable-sync-point = true", "enable-sync-point"),
    ('sync-point-interval = "5m"', "sync-point-interval"),
    ("force-replicate = true", "force-replicate"),
    ("[mounter]\nworker-num = 16", "mounter"),
    ("[scheduler]\nenable-table-across-nodes = true", "scheduler"),
    ('[consistent]\nlevel = "eventual"', r"consistent\.level"),
    ('[integrity]\nintegrity-check-level = "correctness"', r"integrity\.integrity-check-level"),
    ("[filter]\nignore-txn-start-ts = [1, 2]", r"filter\.ignore-txn-start-ts"),
    ('[[filter.event-filters]]\nmatcher = ["a.b"]\nignore-event = ["insert"]', r"filter\.event-filters"),
    ('[filter]\ndo-dbs = ["a"]', r"filter\.do-dbs"),
    ('[sink]\nterminator = ""', r"sink\.terminator"),
    ("[sink.csv]\ndelimiter = ','", r"sink\.csv"),
    ("[sink]\nonly-output-updated-columns = true", r"sink\.only-output-updated-columns"),
    ("[sink.kafka-config]\npartition-num = 3", r"sink\.kafka-config\.partition-num"),
    (
        '[sink.kafka-config.large-message-handle]\nlarge-message-handle-option = "claim-check"',
        r"sink\.kafka-config\.large-message-handle\.large-message-handle-option",
    ),
    (
        "[sink.kafka-config.codec-config]\nenable-tidb-extension = true",
        r"sink\.kafka-config\.codec-config\.enable-tidb-extension",
    ),
]


@pytest.mark.parametrize(("text", "named"), FOREIGN)
def test_a_word_of_ticdc_alone_is_refused_as_such(text: str, named: str) -> None:
    with pytest.raises(ConfigInvalid, match=f"^{named}: TiCDC's word, which means nothing here") as caught:
        parse_changefeed(text)
    assert caught.value.advice.startswith("Take ")


@pytest.mark.parametrize(
    ("text", "named", "hint"),
    [
        ("case-sensitiv = true", "case-sensitiv", "case-sensitive"),
        ("[sink]\ndispatcher = []", r"sink\.dispatcher", "dispatchers"),
        ("[filter]\nzzz = 1", r"filter\.zzz", "rules"),
        ("[sink.kafka-config.codec-config]\nencoding = 'json'", "sink.*encoding", "encoding-format"),
        (
            "[sink]\ndispatchers = [{matcher = ['*.*'], topik = 'a'}]",
            r"sink\.dispatchers\[1\]\.topik",
            "topic",
        ),
    ],
)
def test_a_word_that_nobody_knows(text: str, named: str, hint: str) -> None:
    with pytest.raises(ConfigInvalid, match=f"^{named}: neither TiCDC nor Headrace") as caught:
        parse_changefeed(text)
    assert hint in caught.value.advice


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[sink", "not TOML"),
        ("sink = 3", "sink"),
        ("[sink]\nprotocol = 'canal-json'", r"sink\.protocol: 'canal-json'"),
        ("[sink]\nprotocol = 7", r"sink\.protocol"),
        ("[filter]\nrules = 'a.*'", r"filter\.rules"),
        ("[filter]\nrules = ['a']", r"'a'.*schema\.table"),
        ("[sink]\ndispatchers = [{partition = 'ts'}]", "matcher"),
        ("[sink]\ndispatchers = [{matcher = ['a.*'], partition = 'ts', dispatcher = 'ts'}]", "dispatcher"),
        ("[sink]\ndispatchers = [{matcher = ['a.*'], partition = 'columns'}]", "columns"),
        ("[sink]\ndispatchers = [{matcher = ['a.*'], partition = 'hash'}]", r"sink\.dispatchers.*'hash'"),
        (
            "[sink]\ndispatchers = [{matcher = ['a.*'], partition = 'ts', index = 'k'}]",
            "index counts for nothing",
        ),
        ("[sink]\ndispatchers = ['a.*']", r"sink\.dispatchers\[1\]: must be a table"),
        ("[sink]\ndispatchers = [{matcher = ['a'], partition = 'ts'}]", r"'a'.*schema\.table"),
        ("[sink]\ndispatchers = [{matcher = ['a.*'], topic = 'no topic'}]", "no topic"),
        ("[sink]\ncolumn-selectors = [{matcher = ['a.*'], columns = ['/(/']}]", "regular expression"),
        ("[sink]\nsend-bootstrap-in-msg-count = 'many'", "send-bootstrap-in-msg-count"),
        ("[sink.kafka-config.codec-config]\nencoding-format = 'xml'", "encoding-format"),
    ],
)
def test_a_wrong_value_is_named(text: str, named: str) -> None:
    with pytest.raises(ConfigInvalid, match=named):
        parse_changefeed(text)
