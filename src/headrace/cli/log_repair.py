"""``headrace log repair``: mend a damaged journal, on demand only."""

from __future__ import annotations

import json as json_text
import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headrace.cli.byte_progress import byte_progress
from headrace.errors import JournalCorrupt, SequenceLost, Usage
from headrace.log.damage import Damage, DamageKind
from headrace.log.files.examine import examine
from headrace.log.files.plan import Mode, Plan, Step
from headrace.log.files.repair import Repair
from headrace.log.metadata.check import check_metadata
from headrace.log.metadata.sqlite import METADATA_NAME, SqliteMetadata
from headrace.log.opening import StoreAddress, damaged_rows_of_address, examine_address, parse_store
from headrace.runtime.clock import SystemClock

Flag = Annotated[bool, Parameter(negative=())]


def repair_command(
    *,
    data_dir: Path = Path("headrace-data"),
    store: Annotated[str | None, Parameter(env_var="HEADRACE_STORE")] = None,
    skip: Flag = False,
    cut: Flag = False,
    yes: Flag = False,
    json: Flag = False,
) -> int:
    """Say what would mend the journal; with --yes, do it. The server must be stopped.

    What can be made again without loss (an index, one copy of a frame's header or of the mark, a segment's start) needs
    neither --skip nor --cut, nor do damaged rows of the metadata database, which are removed. Each feed that loses entries
    gets a new incarnation, so that all its readers find out. What is removed from the journal is kept beside it in files
    named removed-…. Exit code 0: mended, or nothing to do (also for a dry run that leaves nothing unmended); 1: damage is
    left.

    Parameters
    ----------
    data_dir
        The server's folder.
    store
        Mend a log in a database instead: postgresql://USER@HOST/DATABASE. Only damaged metadata rows can be removed there;
        servers may run meanwhile.
    skip
        Leave out damaged frames; everything after them stays. Readers of the lost range get 410 sequence-lost.
    cut
        End the journal before the first damage; everything after it goes, of all feeds.
    yes
        Do it. Without this nothing is changed.
    json
        Print one JSON document.
    """
    if skip and cut:
        raise Usage("--skip and --cut exclude each other")
    mode = Mode.SKIP if skip else Mode.CUT if cut else Mode.NONE
    if store is not None:
        plan, left = _repair_store(parse_store(store), mode, yes=yes)
    else:
        plan, left = _repair_folder(data_dir, mode, yes=yes)
    _show(plan, done=yes, left=left, as_json=json)
    return 1 if left else 0


def _repair_folder(data_dir: Path, mode: Mode, *, yes: bool) -> tuple[Plan, int]:
    """Plan, and with ``yes`` carry it out; returns the plan and how many damages are left."""
    database = data_dir / METADATA_NAME
    with closing(Repair(data_dir)) as repair:
        if repair.finished_earlier:
            print("an earlier repair was not finished; it is now", file=sys.stderr)
        with byte_progress("checking") as progress:
            findings = examine(data_dir, progress=progress)
        with closing(findings):
            plan = repair.plan(findings, mode)
            _plan_metadata(plan, database)
            if yes:
                repair.apply(plan, lambda text: print(text, file=sys.stderr))
        if not yes:
            return plan, len(plan.unmended)
        with (
            byte_progress("checking again") as progress,
            closing(examine(data_dir, progress=progress)) as after,
        ):
            left = len(after.damages)
        _tell_operators(data_dir, plan, left)
        return plan, left + len(check_metadata(database).problems)


def _plan_metadata(plan: Plan, database: Path) -> None:
    """Rows that can't be read are removed; a database that can't be opened is for the operator to move away."""
    found = check_metadata(database)
    for problem in found.structure:
        plan.unmended.append(Damage(DamageKind.METADATA, database, 0, problem))
    if found.rows and not found.structure:
        plan.steps += [Step(f"remove the row: {damage.detail}", lambda: None) for damage in found.rows[1:]]
        plan.steps.append(Step(f"remove the row: {found.rows[0].detail}", lambda: _forget_damaged(database)))


def _forget_damaged(database: Path) -> None:
    with closing(SqliteMetadata(database)) as metadata:
        metadata.forget_damaged()


def _repair_store(address: StoreAddress, mode: Mode, *, yes: bool) -> tuple[Plan, int]:
    """The same for a log in a database: damaged metadata rows are removed, the rest is named."""
    if mode != Mode.NONE:
        raise Usage(
            "the journal in a database can't be cut, and nothing in it can be skipped",
            hint="Restore the whole schema headrace_log from one backup, as of one moment: docs/howto/damaged-log.md.",
        )
    with byte_progress("checking") as progress:
        found = examine_address(address, progress=progress)
    unmended = [damage for damage in found.damages if damage.kind != DamageKind.METADATA]
    rows = damaged_rows_of_address(address, remove=yes)
    steps = [Step(f"remove the row: {damage.detail}", lambda: None) for damage in rows]
    return Plan(steps=steps, unmended=unmended), len(unmended)


def _tell_operators(data_dir: Path, plan: Plan, left: int) -> None:
    """The alarms of the damage are cleared, and what each feed lost is noted among them: cleared, because it is decided."""
    database = data_dir / METADATA_NAME
    if not database.exists():
        return
    now_ms = SystemClock().wall_ms()
    try:
        with closing(SqliteMetadata(database)) as metadata:
            if not left:
                metadata.clear_alarms(JournalCorrupt.code, agent_id="", now_ms=now_ms)
            for feed in plan.recreated:
                detail = f"headrace log repair: {_loss(plan, feed)}; the feed has a new incarnation"
                metadata.raise_alarm(SequenceLost.code, detail, now_ms, feed=feed)
            metadata.clear_alarms(SequenceLost.code, agent_id="", now_ms=now_ms)
    except JournalCorrupt as error:
        print(f"warning: {error.detail}", file=sys.stderr)


def _loss(plan: Plan, feed: str) -> str:
    ranges = [f"{gap.first_sequence_id} to {gap.last_sequence_id}" for gap in plan.lost.get(feed, [])]
    return f"lost the sequence ids {', '.join(ranges)}" if ranges else "may have lost its newest entries"


def _show(plan: Plan, *, done: bool, left: int, as_json: bool) -> None:
    if as_json:
        lost = {
            feed: [[gap.first_sequence_id, gap.last_sequence_id] for gap in gaps]
            for feed, gaps in plan.lost.items()
        }
        found = {"done": done, "steps": [step.text for step in plan.steps], "lost": lost}
        found |= {"new-incarnations": plan.recreated, "damages-left": left}
        print(json_text.dumps(found))
        return
    if not done:
        for step in plan.steps:
            print(f"would: {step.text}")
    for feed in plan.recreated:
        print(f"feed {feed} {_loss(plan, feed)}, and gets a new incarnation")
    for damage in plan.unmended:
        print(f"{_needs(damage)}: {damage.detail}")
    if not plan.steps and not plan.unmended:
        print("nothing to mend")
    elif done:
        print(f"done; {left} damages are left")
    else:
        print("nothing was changed; --yes does it")


def _needs(damage: Damage) -> str:
    if damage.kind == DamageKind.METADATA:
        return "move the file away (docs/howto/damaged-log.md says what is lost)"
    if damage.is_of_table:
        return "restore the schema from a backup (docs/howto/damaged-log.md)"
    return "needs --skip or --cut"
