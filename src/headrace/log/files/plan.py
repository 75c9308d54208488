"""What a repair would do: steps in words and as calls, and what is lost by them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from headrace.log.files.examine import Damage
from headrace.log.tail import LostRange


class Mode(StrEnum):
    """What becomes of a frame that can't be read."""

    NONE = "none"
    SKIP = "skip"
    CUT = "cut"


@dataclass(slots=True)
class Step:
    """One thing to do, in words and as a call."""

    text: str
    do: Callable[[], None]


@dataclass(slots=True)
class Plan:
    """What a repair would do, in order, and which entries are lost by it. ``unmended``: damages that need a mode."""

    steps: list[Step] = field(default_factory=list)
    lost: dict[str, list[LostRange]] = field(default_factory=dict)
    recreated: list[str] = field(default_factory=list)
    unmended: list[Damage] = field(default_factory=list)
