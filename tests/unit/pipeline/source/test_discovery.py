"""What Spark looks for when a data source is first asked for: modules named ``pyspark_…`` with a DefaultSource."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules

from pyspark.sql.datasource import DataSource

LOOK = """
import sys
from importlib import import_module
for name in sys.argv[1:]:
    import_module(name)
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"numpy", "pyarrow", "fsspec", "pandas", "httpx"}))
"""


def ours() -> list[str]:
    """Our modules among those that Spark would import."""
    return sorted(found.name for found in iter_modules() if found.name.startswith("pyspark_headrace"))


def test_each_format_has_a_module() -> None:
    names = {}
    for module in ours():
        source = import_module(module).DefaultSource
        assert issubclass(source, DataSource)
        names[module] = source.name()
    assert names == {
        "pyspark_headrace": "headrace",
        "pyspark_headrace_tables": "headrace.tables",
        "pyspark_headrace_wal": "headrace.wal",
    }


def test_finding_them_takes_no_package_that_may_be_missing() -> None:
    words = [sys.executable, "-c", LOOK, *ours()]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == []
