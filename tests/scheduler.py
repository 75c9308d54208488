"""Which worker of a run gets which files: those that keep Spark busy go to a few workers, one for each two cores.

A session of Spark takes half a minute of the processor to start and to warm up, and keeps more than one core busy: when
several run at once each of them takes twice as much of the processor for the same. The other workers run the tests that
start servers and wait for them. Chosen by ``--dist loadfile``: a file is run as a whole.
"""

from __future__ import annotations

from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

SPARK: Final = ("tests/integration/pipeline/", "tests/scenarios/test_pipeline_whole.py")


class FewSparks(LoadFileScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Gives each worker the first file of its own kind; when there is none left, Spark's workers take the others'."""

    def _reschedule(self, node: WorkerController) -> None:
        if self.workqueue and self._first_for(node) is None and not node.shutting_down:
            node.shutdown()
        else:
            super()._reschedule(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        first = self._first_for(node)
        if first is not None:
            self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)

    def _first_for(self, node: WorkerController) -> str | None:
        """Return the file that a worker is to take next."""
        wanted = self._takes_sparks(node)
        own = (file for file in self.workqueue if file.startswith(SPARK) == wanted)
        return next(own, next(iter(self.workqueue), None) if wanted else None)

    def _takes_sparks(self, node: WorkerController) -> bool:
        """Whether a worker takes them: half of those that the run began with, and who comes for one that died."""
        number = int(node.gateway.id.removeprefix("gw"))
        return not max(1, self.numnodes // 2) <= number < self.numnodes


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FewSparks | None:
    """Take the place of ``loadfile``."""
    return FewSparks(config, log) if config.getvalue("dist") == "loadfile" else None
