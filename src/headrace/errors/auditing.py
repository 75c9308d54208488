"""Why an audit with a source can't say anything: it refuses, and never calls equal what it did not see at one moment."""

from __future__ import annotations

from headrace.errors.stops import Stopped


class SourceNotAudited(Stopped):
    """The tables' feed has no source that an audit can read."""

    code = "source-not-audited"
    hint = (
        "Only feeds of headrace capture have a source side; name the capture.toml that writes this feed, or leave "
        "--source out: then the tables are compared with the feed."
    )
    exit_code = 2


class AuditBehind(Stopped):
    """Capture, or the tables job, did not come to the source's moment in time."""

    code = "audit-behind"
    hint = "Start what is behind (headrace capture run, headrace pipeline tables), or give it more time with --wait."
    exit_code = 4


class SourceShifted(Stopped):
    """The source's tables were changed in shape, or copied into the feed, again and again while they were read."""

    code = "source-shifted"
    hint = "Audit again once no statement changes captured tables, and no copy is made, for as long as reading them takes."
    exit_code = 4


class PlaceUnknown(Stopped):
    """No place in the feed has exactly the transactions that the source's snapshot shows."""

    code = "audit-place-unknown"
    hint = "The server numbers transactions out of order: switch gtid_strict_mode on, and audit without --source until then."
    exit_code = 3
