"""Prometheus' text format, taken apart for tests."""

from __future__ import annotations

import re
from typing import NamedTuple

_SAMPLE = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Exposed(NamedTuple):
    """``kinds``: family -> its type; ``samples``: name and labels, as text in the labels' order by name -> value."""

    kinds: dict[str, str]
    samples: dict[str, float]

    def of(self, name: str, /, **labels: str) -> float:
        """Return the value of one sample."""
        return self.samples[_key(name, labels)]

    def get(self, name: str, /, **labels: str) -> float | None:
        """Return the value of one sample, None if it isn't there."""
        return self.samples.get(_key(name, labels))

    def labels_of(self, name: str) -> list[dict[str, str]]:
        """Return the labels of all samples of this name."""
        found = [key for key in self.samples if key == name or key.startswith(name + "{")]
        return [dict(_LABEL.findall(key)) for key in found]


def exposed(text: str) -> Exposed:
    """Return what a ``/metrics`` page says."""
    kinds: dict[str, str] = {}
    samples: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            kinds[name] = kind
        elif line and not line.startswith("#"):
            found = _SAMPLE.match(line)
            assert found is not None, line
            labels = dict(_LABEL.findall(found["labels"] or ""))
            samples[_key(found["name"], labels)] = float(found["value"])
    return Exposed(kinds, samples)


def _key(name: str, labels: dict[str, str]) -> str:
    inside = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}{{{inside}}}" if inside else name
