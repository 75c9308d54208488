"""What the writer counts of its groups, for metrics. A group costs a few searches, however many entries it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from headrace.errors import HeadraceError
from headrace.log.requests import Appended, Outcome
from headrace.runtime.histogram import COUNTS, SECONDS, Histogram


class AppendMeasures:
    """Counts since the process's start; only the thread that writes adds, any thread may read."""

    def __init__(self) -> None:
        """Begin at nothing."""
        self.latency = Histogram(SECONDS)
        """From queueing a request to its answer, refusals included."""
        self.requests = Histogram(COUNTS)
        """Requests that were answered together."""
        self.entries = Histogram(COUNTS)
        """Entries of an append that was written."""
        self.puts = Histogram(SECONDS)
        """How long the store took to make a group durable and show it."""
        self.outcomes: Counter[str] = Counter(appended=0, duplicate=0, refused=0, control=0)
        """Requests by what became of them. Registrations, releases and settings are ``control``."""

    def note(self, since: Sequence[float], outcomes: Sequence[Outcome | HeadraceError], now: float) -> None:
        """Count one group that is answered ``now``; ``since``: when each of its requests was queued, in that order."""
        self.latency.add_since(since, now)
        self.requests.add(len(outcomes))
        appended = [
            outcome.last_sequence_id - outcome.first_sequence_id + 1
            for outcome in outcomes
            if isinstance(outcome, Appended) and not outcome.duplicate
        ]
        self.entries.add_all(appended)
        self.outcomes["appended"] += len(appended)
        if len(appended) < len(outcomes):
            self._note_others(outcomes)

    def _note_others(self, outcomes: Sequence[Outcome | HeadraceError]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, HeadraceError):
                self.outcomes["refused"] += 1
            elif not isinstance(outcome, Appended):
                self.outcomes["control"] += 1
            elif outcome.duplicate:
                self.outcomes["duplicate"] += 1
