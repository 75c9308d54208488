"""The edge to a MariaDB server: its variables, its catalogue, its binlog, consistent chunks of its tables."""

from __future__ import annotations

from importlib.util import find_spec

from headrace.errors import SetupMissing

if find_spec("pymysql") is None:
    raise SetupMissing(
        "capture needs the package pymysql, which is not installed", hint="pip install 'headrace[mysql]'"
    )
