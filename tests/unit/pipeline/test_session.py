"""Spark's settings for a session: on this machine, and on a cluster, whose machines need not have what this one has."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from headrace.cli.spark_jobs import SparkOptions
from headrace.errors import Usage
from headrace.pipeline.checkpoint_folder import LOCAL_MANAGER, MANAGER
from headrace.pipeline.session import Py4jApart, SessionSettings, configuration, python_of_workers

LOG = Path("spark.log")
SOCKETS = "spark.python.unix.domain.socket.dir"


def test_on_this_machine_everything_stays_on_it() -> None:
    found = configuration(SessionSettings(log_file=LOG, master="local[2]"), ["a.jar", "b.jar"])
    assert found["spark.driver.host"] == found["spark.driver.bindAddress"] == "127.0.0.1"
    assert Path(found[SOCKETS]).is_dir()
    assert found["spark.jars"] == "a.jar,b.jar"
    assert "spark.executor.memory" not in found


def test_a_cluster_is_told_nothing_that_only_this_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/srv/ours")
    settings = SessionSettings(
        log_file=LOG, master="spark://host:7077", memory="1g", executor_memory="5g", cores_max=24
    )
    found = configuration(settings, [])
    assert {SOCKETS, "spark.driver.host", "spark.driver.bindAddress"}.isdisjoint(found)
    assert found["spark.executor.memory"] == "5g"
    assert found["spark.driver.memory"] == "1g"
    assert found["spark.cores.max"] == found["spark.sql.shuffle.partitions"] == "24"
    assert found["spark.executorEnv.PYTHONPATH"] == "/srv/ours"
    monkeypatch.delenv("PYTHONPATH")
    plain = configuration(SessionSettings(log_file=LOG, master="yarn"), [])
    assert {"spark.executorEnv.PYTHONPATH", "spark.cores.max"}.isdisjoint(plain)
    assert plain["spark.sql.shuffle.partitions"] == "8"
    assert found["spark.hadoop.fs.defaultFS"] == "file:///"
    assert "spark.hadoop.fs.defaultFS" not in plain


@pytest.mark.parametrize(
    ("master", "more", "environment", "python"),
    [
        ("spark://host:7077", {}, {}, sys.executable),
        ("spark://host:7077", {}, {"PYSPARK_PYTHON": "/opt/python"}, "/opt/python"),
        ("yarn", {"spark.pyspark.python": "/srv/python"}, {"PYSPARK_PYTHON": "/opt/python"}, "/srv/python"),
        ("local[2]", {}, {"PYSPARK_PYTHON": "python3"}, sys.executable),
        ("local[2]", {"spark.pyspark.python": "/srv/python"}, {}, "/srv/python"),
    ],
)
def test_the_python_of_the_workers(
    master: str, more: dict[str, str], environment: dict[str, str], python: str
) -> None:
    settings = SessionSettings(log_file=LOG, master=master, more=more)
    assert python_of_workers(settings, environment) == python


@pytest.mark.parametrize(
    ("checkpoint", "manager"), [("", None), ("/data/checkpoint", LOCAL_MANAGER), ("s3a://bucket/x", None)]
)
def test_the_quick_way_of_keeping_checkpoints_is_for_a_local_one(
    checkpoint: str, manager: str | None
) -> None:
    found = configuration(SessionSettings(log_file=LOG, checkpoint=checkpoint), [])
    assert found.get(MANAGER) == manager


def test_options_of_a_command_reach_spark_and_win() -> None:
    given = SparkOptions(
        master="spark://host:7077", cores_max=3, conf=("spark.driver.host=10.0.0.1", "spark.x=a=b")
    )
    settings = given.session("a job", LOG, checkpoint="/data/checkpoint", kafka=True)
    found = configuration(settings, [])
    assert (settings.name, settings.kafka, settings.short_lived) == ("a job", True, False)
    assert found["spark.driver.host"] == "10.0.0.1"
    assert found["spark.x"] == "a=b"
    assert found["spark.cores.max"] == "3"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (SparkOptions(conf=("spark.x",)), "--conf 'spark.x' is not NAME=VALUE"),
        (SparkOptions(conf=("log4j=x",)), "with a name of Spark's"),
        (SparkOptions(cores_max=0), "--cores-max must be at least 1"),
    ],
    ids=["no-value", "no-name", "no-cores"],
)
def test_a_wrong_option_is_named(options: SparkOptions, said: str) -> None:
    with pytest.raises(Usage, match=said):
        options.session("a job", LOG, checkpoint="")


def test_what_py4j_logs_goes_to_the_file_and_nothing_else_does(tmp_path: Path) -> None:
    def record(path: str) -> logging.LogRecord:
        return logging.LogRecord("root", logging.ERROR, path, 1, "said in %s", (path,), None)

    apart = Py4jApart(tmp_path / "spark.log")
    try:
        assert apart.filter(record("/ours/py4jx/gateway.py"))
        assert not apart.filter(record("/site-packages/py4j/java_gateway.py"))
    finally:
        apart.file.close()
    assert (tmp_path / "spark.log").read_text() == "said in /site-packages/py4j/java_gateway.py\n"
