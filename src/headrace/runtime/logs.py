"""Structured logs on stderr: constant message, fields apart, JSON unless a person is watching.

``HEADRACE_LOG_FORMAT`` and ``HEADRACE_LOG_LEVEL`` say otherwise, for every command: docs/reference/logs.md.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import Any, Final, TextIO, cast

import structlog

from headrace.errors import ConfigInvalid

FORMAT: Final = "HEADRACE_LOG_FORMAT"
LEVEL: Final = "HEADRACE_LOG_LEVEL"
FORMATS: Final = ("json", "console")
LEVELS: Final = ("debug", "info", "warning", "error")


class _Stderr:
    """Whatever ``sys.stderr`` is when a line is written: it may have been replaced since the logger was made."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


_PROCESSORS: Final[list[Any]] = []
"""One list for the life of the process: loggers that were used before keep it, and so follow a later configuration."""


def configure_logs(
    *,
    level: str | None = None,
    as_json: bool | None = None,
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Send every log line of this process to stderr at ``level``; JSON unless stderr is a terminal.

    What is not given is as ``environment`` says; ConfigInvalid for a word there that means nothing.
    """
    level = level or _chosen(environment, LEVEL, LEVELS) or "info"
    form = _chosen(environment, FORMAT, FORMATS)
    if as_json is None and form:
        as_json = form == "json"
    json_lines = as_json if as_json is not None else not sys.stderr.isatty()
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if json_lines
        else structlog.dev.ConsoleRenderer(
            # Local variables hold bodies and rows: they are nobody's business on a terminal.
            exception_formatter=structlog.dev.RichTracebackFormatter(show_locals=False)
        )
    )
    _PROCESSORS[:] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info if json_lines else structlog.dev.set_exc_info,
        renderer,
    ]
    structlog.configure(
        processors=_PROCESSORS,
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(file=cast(TextIO, _Stderr())),
        cache_logger_on_first_use=True,
    )


def _chosen(environment: Mapping[str, str], name: str, words: tuple[str, ...]) -> str:
    """Return the word that ``name`` has; empty if it is not set."""
    word = environment.get(name, "").strip().lower()
    if word and word not in words:
        raise ConfigInvalid(
            f"{name}: {word[:80]!r} is none of {', '.join(words)}", hint=f"Write {name}={words[0]}."
        )
    return word


def get_logger(room: str) -> Any:
    """Return a logger whose lines carry ``room``; modules make theirs before :func:`configure_logs` is called.

    So nothing may be bound here: a bound logger keeps the configuration of that moment, which writes to stdout.
    """
    return structlog.get_logger(room=room)
