"""What a repair would do: steps in words and as calls, and what is lost by them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from headrace.log.damage import Damage
from headrace.log.files.findings import Findings
from headrace.log.tail import LostRange
from headrace.runtime.clock import Clock
from headrace.runtime.disk import Disk
from headrace.wire.mark import Mark


class Mode(StrEnum):
    """What becomes of a frame that can't be read."""

    NONE = "none"
    SKIP = "skip"
    CUT = "cut"


@dataclass(slots=True)
class Step:
    """One thing to do, in words and as a call. ``file``: the one that it writes in place, if it does."""

    text: str
    do: Callable[[], None]
    file: Path | None = None


@dataclass(slots=True)
class Plan:
    """What a repair would do, in order, and which entries are lost by it. ``unmended``: damages that need a mode."""

    steps: list[Step] = field(default_factory=list)
    lost: dict[str, list[LostRange]] = field(default_factory=dict)
    recreated: list[str] = field(default_factory=list)
    unmended: list[Damage] = field(default_factory=list)


@dataclass(slots=True)
class Repairing:
    """A repair while its plan is made and carried out. ``mark``: as it will be when the steps planned so far are done."""

    disk: Disk
    folder: Path
    clock: Clock
    findings: Findings
    mark: Mark | None
    made: Plan = field(default_factory=Plan)

    def step(self, text: str, do: Callable[[], None], *, file: Path | None = None) -> None:
        """Add a step to the plan; ``file``: the one that it writes in place."""
        self.made.steps.append(Step(text, do, file))

    def kept(self, name: str) -> Path:
        """Return where something that is removed is kept."""
        return self.folder / f"removed-{name}"

    def counter(self) -> int:
        """Return the counter of the next mark."""
        return self.mark.counter + 1 if self.mark is not None else 1
