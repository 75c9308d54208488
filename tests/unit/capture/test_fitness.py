"""The verdict on a server and its tables, from facts alone."""

from __future__ import annotations

import msgspec
import pytest

from headrace.capture.mariadb.facts import BinlogFilters, ColumnFacts, Facts, TableFacts, UniqueKey, Wishes
from headrace.capture.mariadb.fitness import Finding, Severity, judge
from headrace.capture.mariadb.foreign_keys import ForeignKey, parse_foreign_keys
from headrace.capture.mariadb.server import ServerFacts
from headrace.errors import SourceUnfit

VARIABLES = {
    "version": "10.11.19-MariaDB-log",
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "binlog_expire_logs_seconds": "0",
    "log_slave_updates": "OFF",
    "gtid_slave_pos": "",
    "gtid_strict_mode": "ON",
    "sync_binlog": "1",
    "innodb_flush_log_at_trx_commit": "1",
    "binlog_checksum": "CRC32",
}
SERVER = ServerFacts("10.11.19-MariaDB-log", 1, "uid", "db1", 3306, 0, VARIABLES)
TABLE = TableFacts(
    "shop",
    "orders",
    "BASE TABLE",
    "InnoDB",
    (ColumnFacts("id", "int"),),
    (UniqueKey("PRIMARY", False, False),),
    (),
)
FACTS = Facts(SERVER, "'c'@'%'", True, BinlogFilters((), ()), (TABLE,))
WISHES = Wishes(lambda database, table: True, 86_400.0)


def with_variables(changed: dict[str, str], slaves_running: int = 0) -> Facts:
    version = changed.get("version", SERVER.version)
    server = msgspec.structs.replace(
        SERVER, version=version, slaves_running=slaves_running, variables={**VARIABLES, **changed}
    )
    return msgspec.structs.replace(FACTS, server=server)


def severities(findings: list[Finding]) -> dict[str, Severity]:
    return {one.subject: one.severity for one in findings}


def test_a_fit_server_has_no_finding() -> None:
    assert judge(FACTS, WISHES) == []


@pytest.mark.parametrize(
    ("changed", "subject", "severity"),
    [
        ({"version": "10.5.29-MariaDB"}, "version", Severity.ERROR),
        ({"version": "10.6.21-MariaDB"}, "version", Severity.NOTE),
        ({"version": "unknown MariaDB"}, "version", Severity.ERROR),
        ({"binlog_row_image": "FULL_NODUP"}, "binlog_row_image", Severity.ERROR),
        ({"wsrep_on": "ON"}, "log_slave_updates", Severity.ERROR),
        ({"max_binlog_total_size": "1000000"}, "max_binlog_total_size", Severity.WARNING),
        ({"binlog_row_event_max_size": "1048832"}, "binlog_row_event_max_size", Severity.WARNING),
    ],
)
def test_what_the_server_at_hand_cannot_show(
    changed: dict[str, str], subject: str, severity: Severity
) -> None:
    assert severities(judge(with_variables(changed), WISHES)) == {subject: severity}


def test_a_variable_that_an_old_server_has_not_is_missing_by_name() -> None:
    variables = {name: value for name, value in VARIABLES.items() if name != "binlog_row_metadata"}
    server = msgspec.structs.replace(SERVER, variables=variables)
    (found,) = judge(msgspec.structs.replace(FACTS, server=server), WISHES)
    assert found.detail.startswith("not there")


@pytest.mark.parametrize("changed", [{"wsrep_on": "ON"}, {"gtid_slave_pos": "0-2-5"}])
def test_what_comes_from_elsewhere_and_is_logged_here_is_fine(changed: dict[str, str]) -> None:
    assert judge(with_variables({**changed, "log_slave_updates": "ON"}, 1), WISHES) == []


def test_filters_that_let_the_captured_databases_pass_are_a_warning() -> None:
    def found(filters: BinlogFilters) -> dict[str, Severity]:
        return severities(judge(msgspec.structs.replace(FACTS, filters=filters), WISHES))

    assert found(BinlogFilters(("shop",), ())) == {"binlog-do-db": Severity.WARNING}
    assert found(BinlogFilters(("other",), ())) == {"binlog-do-db": Severity.ERROR}
    assert found(BinlogFilters((), ("shop", "other"))) == {"binlog-ignore-db": Severity.ERROR}


DEFINITION = """CREATE TABLE `c` (
  `a` int(11) NOT NULL,
  `b` text DEFAULT '\\n  CONSTRAINT `x` FOREIGN KEY (`a`)',
  PRIMARY KEY (`a`),
  CONSTRAINT `one` FOREIGN KEY (`a`, `b``, (`) REFERENCES `p` (`x`, `y`) ON DELETE CASCADE,
  CONSTRAINT `two
lines` FOREIGN KEY (`a`) REFERENCES `other`.`p``` (`x`) ON UPDATE SET NULL,
  CONSTRAINT `three` FOREIGN KEY (`a`) REFERENCES `p` (`x`) ON DELETE NO ACTION ON UPDATE NO ACTION,
  CONSTRAINT `four` FOREIGN KEY (`a`) REFERENCES `p` (`x`),
  CONSTRAINT `five` CHECK (`a` > 0)
) ENGINE=InnoDB"""


def test_foreign_keys_are_read_from_a_definition() -> None:
    found = parse_foreign_keys(DEFINITION, "shop", "c")
    assert found == (
        ForeignKey("one", ("a", "b`, ("), ("shop", "p"), "CASCADE", "RESTRICT"),
        ForeignKey("two\nlines", ("a",), ("other", "p`"), "RESTRICT", "SET NULL"),
        ForeignKey("three", ("a",), ("shop", "p"), "NO ACTION", "NO ACTION"),
        ForeignKey("four", ("a",), ("shop", "p"), "RESTRICT", "RESTRICT"),
    )
    assert [one.unlogged for one in found] == [("ON DELETE CASCADE",), ("ON UPDATE SET NULL",), (), ()]


def test_a_foreign_key_in_a_form_that_is_not_known_is_an_error() -> None:
    with pytest.raises(SourceUnfit, match=r"shop\.c"):
        parse_foreign_keys(DEFINITION.replace("ON DELETE CASCADE", "ON DELETE EXPLODE"), "shop", "c")
