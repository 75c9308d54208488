"""The home that Spark is given: links to the installed one, without the zip of PySpark."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.pipeline.session import SessionSettings, home_for
from headrace.pipeline.spark_home import pyspark_folder, spark_home


def test_home_links_what_is_installed_but_for_its_python(tmp_path: Path) -> None:
    home, installed = spark_home({"XDG_CACHE_HOME": str(tmp_path)}), pyspark_folder()
    assert home is not None
    assert installed is not None
    assert home.is_relative_to(tmp_path)
    assert (home / "bin" / "spark-submit").samefile(installed / "bin" / "spark-submit")
    assert (home / "jars").samefile(installed / "jars")
    assert not (home / "python").exists()


def test_many_who_make_it_at_once_get_one_and_leave_nothing_else(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        homes = set(threads.map(lambda _: spark_home({"XDG_CACHE_HOME": str(tmp_path)}), range(32)))
    (home,) = homes
    assert home is not None
    assert list((tmp_path / "headrace").iterdir()) == [home]


def test_cache_that_is_no_folder_is_gone_without(tmp_path: Path) -> None:
    (tmp_path / "headrace").write_text("in the way", encoding="utf-8")
    assert spark_home({"XDG_CACHE_HOME": str(tmp_path)}) is None


@pytest.mark.parametrize(
    ("master", "python", "given", "chosen"),
    [
        ("local[2]", "", None, "ours"),
        ("spark://host:7077", "", None, "ours"),
        ("yarn", "", None, None),
        ("local[2]", "/opt/other/python", None, None),
        ("local[2]", "", "/opt/spark", "/opt/spark"),
    ],
)
def test_who_gets_our_home(
    tmp_path: Path, *, master: str, python: str, given: str | None, chosen: str | None
) -> None:
    """YARN refuses a home without the zip, another Python may lack PySpark, and what the user names is the user's."""
    environment = {"XDG_CACHE_HOME": str(tmp_path)} | ({"SPARK_HOME": given} if given else {})
    more = {"spark.pyspark.python": python} if python else {}
    home = home_for(SessionSettings(log_file=tmp_path / "log", master=master, more=more), environment)
    assert home == (str(spark_home(environment)) if chosen == "ours" else chosen)
