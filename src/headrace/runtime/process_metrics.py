"""Metrics of a process whatever it does: its version, and what it takes of the machine. For every ``/metrics``."""

from __future__ import annotations

import platform
from typing import Final

from prometheus_client import ProcessCollector
from prometheus_client.core import Metric

from headrace import __version__
from headrace.runtime.metric import counter, gauge

BUILD: Final = gauge(
    "headrace_build_info",
    "1; the labels say which version runs, on which Python.",
    "version",
    "python_version",
)
PROCESS: Final = (
    gauge("process_virtual_memory_bytes", "Virtual memory."),
    gauge("process_resident_memory_bytes", "Memory in use."),
    gauge("process_start_time_seconds", "When the process started, in seconds since 1970."),
    counter("process_cpu_seconds_total", "Time that the processor spent on it, in user and system mode."),
    gauge("process_open_fds", "Open file descriptors."),
    gauge("process_max_fds", "The most that may be open."),
)
"""Under the names that every Prometheus client uses; from ``/proc``, so on Linux alone."""
METRICS: Final = (BUILD, *PROCESS)
_process: Final = ProcessCollector(registry=None)


def collect() -> list[Metric]:
    """Return the metrics of this process as they are now."""
    return [BUILD.of([((__version__, platform.python_version()), 1)]), *_process.collect()]
