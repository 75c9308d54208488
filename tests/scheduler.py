"""Which worker of a run gets which files: on two cores one begins with those that keep Spark busy, and one takes them later.

A session of Spark takes half a minute of the processor to start and to warm up, and keeps more than one core busy: when
several run at once each of them takes up to twice as much of the processor for the same. Meanwhile the other workers run
the tests that start servers and wait for them. Chosen by ``--dist loadfile``: a file is run as a whole.
"""

from __future__ import annotations

import os
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

SPARK: Final = "tests/integration/pipeline/"
"""The files whose tests share a session of Spark, but for those that start all of their own."""
OWN_SPARK: Final = f"{SPARK}cluster/"

_CORES: Final = len(os.sched_getaffinity(0))


class FewSparks(LoadFileScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Gives as many workers as half of the cores Spark's files first, and all others the others'.

    No more workers than cores ever have a Spark, and of several the last one never has.
    """

    def _reschedule(self, node: WorkerController) -> None:
        if self.workqueue and self._next_for(node) is None and not node.shutting_down:
            node.shutdown()
        else:
            super()._reschedule(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        file = self._next_for(node)
        if file is not None:
            self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)

    def _next_for(self, node: WorkerController) -> str | None:
        """Return the file that a worker is to take next; None if there is none for it."""
        # One that takes the place of a dead worker has a number beyond those that the run began with.
        number = int(node.gateway.id.removeprefix("gw"))
        sparks_first = number < max(1, _CORES // 2)
        files: list[str] = list(self.workqueue)
        own = [file for file in files if _shares_spark(file) == sparks_first]
        if not own and (number == 0 or number < min(_CORES, self.numnodes - 1)):
            own = files
        return own[0] if own else None


def _shares_spark(file: str) -> bool:
    return file.startswith(SPARK) and not file.startswith(OWN_SPARK)


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FewSparks | None:
    """Take the place of ``loadfile``."""
    return FewSparks(config, log) if config.getvalue("dist") == "loadfile" else None
