"""How a listener works: what it asks for at once, when it writes its bookmark, when it gives up, how it shows itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.listener.handover import Refusals
from headrace.runtime.health import HealthTerms


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """How a listener asks and how often it writes its bookmark.

    ``bookmark_changes_max``, ``bookmark_s_max``: while single changes are taken, the bookmark is stored after so many of
    them or seconds, whichever comes first; so much comes again after a crash. ``failures_max``: give up after so many
    failures without progress; None never does. ``drain``: end at the head that the registration named. ``hold``: retention
    waits for this listener. ``change_filter``: go on with another filter than the bookmark was made with; what the old one
    took away up to there never comes. ``refusals``: what becomes of changes that ``on_change`` refuses
    (:meth:`Listener.run`).

    ``health`` (HOST:PORT): where health is served. A listener that does not move for ``stalled_after`` though something
    waits is stuck; with ``reports`` the server is told how it stands, every five seconds (docs/howto/health.md).
    """

    poll_timeout_ms: int = 30_000
    entries_max: int = 1_000
    bookmark_changes_max: int = 100
    bookmark_s_max: float = 1.0
    failures_max: int | None = None
    drain: bool = False
    hold: bool = False
    change_filter: bool = False
    refusals: Refusals = field(default_factory=Refusals)
    health: str | None = None
    stalled_after: str = "60s"
    reports: bool = False

    @property
    def health_terms(self) -> HealthTerms:
        """What ``health`` and ``stalled_after`` mean; ConfigInvalid."""
        return HealthTerms.parse(self.health, self.stalled_after)
