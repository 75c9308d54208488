"""Looks at the brokers while rows are written, and cuts a write off that can't end by itself.

Kafka's client on workers never gives a row up, for the sake of order: see :mod:`headrace.pipeline.kafka.client`. Where
brokers are away or have too few replicas, or a topic is gone, a write would wait without a word. Used by
:mod:`headrace.pipeline.kafka.batches`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from py4j.protocol import Py4JError, Py4JJavaError

from headrace.errors import BrokerUnavailable, HeadraceError

LOOK_S: Final = 5.0
"""Longest time between two looks."""
THREAD: Final = "headrace-kafka-watch"
"""Name of a watch's thread."""

_JAVA_SAYS: Final = "Trace:"


def wait_writable(check: Callable[[], None], patience_s: float, *, look_s: float = 1.0) -> None:
    """Return once ``check`` raises nothing; BrokerUnavailable if that takes ``patience_s``, any other error at once."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return check()
        except BrokerUnavailable:
            if time.monotonic() + look_s > deadline:
                raise
        time.sleep(look_s)


class Watch:
    """Use it as a ``with`` around a write. ``error`` says why the write was cut off, None if it was not."""

    def __init__(self, check: Callable[[], None], cut: Callable[[], object], patience_s: float) -> None:
        """``check`` raises what is wrong with the brokers or the topics; ``cut`` ends the write, and may be called again.

        BrokerUnavailable counts once it has lasted ``patience_s``, and so does a check that can't be made; another error of
        ours counts at once. Both are called on a thread of the watch's own.
        """
        self._check = check
        self._cut = cut
        self._patience_s = patience_s
        self._look_s = min(LOOK_S, patience_s / 4)
        self._ended = threading.Event()
        self.error: HeadraceError | None = None

    def __enter__(self) -> Self:
        # Nobody waits for it: a look may take as long as the brokers let it.
        threading.Thread(target=self._run, name=THREAD, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()

    def _run(self) -> None:
        failing_since: float | None = None
        while self.error is None:
            if self._ended.wait(self._look_s):
                return
            began = time.monotonic()
            try:
                self._check()
                failing_since = None
            except Exception as error:  # noqa: BLE001  # who watches must not end by what he sees
                if _is_end_of_java(error):  # the write has ended with it
                    return
                found = _error_of_look(error)
                failing_since = began if failing_since is None else failing_since
                lasted = time.monotonic() - failing_since >= self._patience_s
                if lasted or not isinstance(found, BrokerUnavailable):
                    self.error = found
        # Again and again: a job of Spark's that is about to begin is not cut off by the first one.
        while not self._ended.is_set():
            try:
                self._cut()
            except Exception as error:  # noqa: BLE001  # as above: it is tried again
                if _is_end_of_java(error):
                    return
            self._ended.wait(self._look_s)


def _is_end_of_java(error: Exception) -> bool:
    """Tell a call that Java left unanswered from one that it refused."""
    if isinstance(error, Py4JError):
        return not isinstance(error, Py4JJavaError) and _JAVA_SAYS not in str(error)
    return isinstance(error, OSError)


def _error_of_look(error: Exception) -> HeadraceError:
    if isinstance(error, HeadraceError):
        return error
    said = str(error).partition("\n")[0]
    return BrokerUnavailable(f"the brokers can't be looked at: {type(error).__name__}: {said}")
