"""Why a publisher's snapshot is not served, or not taken."""

from __future__ import annotations

from headrace.errors.answers import Refused, Unavailable


class NoSnapshot(Refused):
    """The publisher of this feed offers no snapshot."""

    code = "no-snapshot"
    side_effects = "none"
    hint = "Give the publisher's agent snapshot-listen and snapshot-url: docs/howto/snapshots.md."
    http_status = 404
    exit_code = 4


class SnapshotForbidden(Refused):
    """The publisher's snapshot is at an address that is not allowed here."""

    code = "snapshot-forbidden"
    side_effects = "none"
    hint = "Put the address on the server's allow-list if it is right."
    http_status = 403
    exit_code = 3


class SnapshotGone(Refused):
    """This snapshot is not kept any more."""

    code = "snapshot-gone"
    side_effects = "none"
    hint = "Begin anew: ask without snapshot-id; the newest snapshot is served, or a new one is made."
    http_status = 410


class SnapshotUnavailable(Unavailable):
    """No snapshot can be made just now."""

    code = "snapshot-unavailable"
    side_effects = "none"
    hint = "Try again later; `headrace agent status` and the agent's log say what stands in the way."


class SnapshotBroken(Unavailable):
    """What came is no whole snapshot."""

    code = "snapshot-broken"
    side_effects = "none"
    hint = "Fetch it again from its beginning."
