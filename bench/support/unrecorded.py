"""``headrace`` whose server writes down nobody's progress: the other arm of ``bench/trace_cost.py``."""

from __future__ import annotations

import sys

from headrace.cli.app import main
from headrace.server import service
from headrace.server.recording import Recorder, Step, Traveller


class Silent(Recorder):
    """Notes nothing and writes nothing."""

    async def start(self) -> None:
        """Begin nothing."""

    def asked(self, who: Traveller, step: Step, place: int, incarnation: str = "", wanted: str = "") -> None:
        """Note nothing."""

    def passed(self, who: Traveller, step: Step, place: int, incarnation: str = "", wanted: str = "") -> None:
        """Note nothing."""


if __name__ == "__main__":
    vars(service)["Recorder"] = Silent
    sys.exit(main())
