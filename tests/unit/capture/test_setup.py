"""Without the driver of MariaDB the commands of capture say what to install."""

from __future__ import annotations

import subprocess
import sys


def test_a_missing_driver_is_named() -> None:
    script = (
        "import sys; sys.modules['pymysql'] = None; from headrace.cli.app import main;"
        "sys.exit(main(['capture', 'check']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "pymysql, which is not installed" in done.stderr
    assert "pip install 'headrace[mysql]'" in done.stderr
    assert "Traceback" not in done.stderr
