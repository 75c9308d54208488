"""Options of commands that run for long: where they tell their health, and when they count as stuck."""

from __future__ import annotations

from dataclasses import dataclass

from cyclopts import Parameter

from headrace.runtime.health import HealthTerms


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class HealthOptions:
    """Whether it moves, for machines (docs/howto/health.md).

    Parameters
    ----------
    health
        Serve /healthz, /readyz and /metrics at this address, such as 127.0.0.1:8475. Default: nowhere.
    stalled_after
        It is stuck when something waits and nothing moves for so long.
    """

    health: str | None = None
    stalled_after: str = "60s"

    def terms(self) -> HealthTerms:
        """Return what the options mean; ConfigInvalid names the one that is wrong."""
        return HealthTerms.parse(self.health, self.stalled_after, "--")
