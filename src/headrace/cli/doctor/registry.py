"""Every check of ``headrace doctor``, in the order in which they are made. One more is one function and one line here."""

from __future__ import annotations

from typing import Final

from headrace.cli.doctor.clocks import check_clock, check_log_clock, check_server_clock, check_source_clock
from headrace.cli.doctor.configuration import (
    check_agent_settings,
    check_capture_settings,
    check_serve_options,
)
from headrace.cli.doctor.disks import check_file_system, check_room, check_sync
from headrace.cli.doctor.finding import Check
from headrace.cli.doctor.here import check_current_folder
from headrace.cli.doctor.integrity import check_log, check_store
from headrace.cli.doctor.reach import (
    check_archive,
    check_captured_source,
    check_grpc,
    check_server,
    check_source,
)
from headrace.cli.doctor.versions import (
    check_bytecode,
    check_packages,
    check_python,
    check_server_version,
    check_spark,
)

CHECKS: Final[dict[str, Check]] = {
    "current-folder": check_current_folder,
    "agent-settings": check_agent_settings,
    "capture-settings": check_capture_settings,
    "serve-options": check_serve_options,
    "python": check_python,
    "packages": check_packages,
    "bytecode": check_bytecode,
    "spark": check_spark,
    "disk-room": check_room,
    "fsync": check_sync,
    "file-system": check_file_system,
    "log": check_log,
    "store": check_store,
    "server": check_server,
    "server-version": check_server_version,
    "grpc": check_grpc,
    "source": check_source,
    "captured-source": check_captured_source,
    "archive": check_archive,
    "log-clock": check_log_clock,
    "server-clock": check_server_clock,
    "source-clock": check_source_clock,
    "clock": check_clock,
}
"""Name -> check. The last one looks whether the clock leapt while the others were at work."""
