"""The rules and the dashboard in ``deploy`` are taken by the real promtool, and name only what Headrace exposes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from headrace.runtime.metric import Kind
from headrace.server.metrics.page import every_metric

ROOT = Path(__file__).parents[3]
RULES = ROOT / "deploy" / "prometheus" / "headrace.rules.yml"
CASES = Path(__file__).parent / "headrace.rules.test.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "headrace.json"

METRIC = re.compile(r"\b(?:headrace|kdb_wal|process)_[a-z_]+")
OWN = {
    "kdb_wal_subscriber_lag_lsn",
    "kdb_wal_queue_depth",
    "kdb_wal_bytes_sent_total",
    "kdb_wal_retention_index_bytes",
}


def promtool(*words: str) -> str:
    """What promtool says; fails with that if it is not content."""
    program = shutil.which("promtool")
    assert program is not None, "promtool is missing: install Debian's package prometheus"
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def names_exposed() -> set[str]:
    """Every name that a sample of a declared metric can have."""
    found: set[str] = set()
    for one in every_metric():
        ends = ("_bucket", "_sum", "_count") if one.kind is Kind.HISTOGRAM else ("",)
        found |= {one.name + end for end in ends}
    return found


def alerts() -> list[str]:
    return re.findall(r"^ +- alert: (\w+)$", RULES.read_text("utf-8"), re.MULTILINE)


def expressions() -> list[str]:
    """The expressions of the dashboard, with its variables as they stand if everything is chosen."""
    dashboard: Any = json.loads(DASHBOARD.read_text("utf-8"))
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    return [
        re.sub(r"\$(job|instance|feed)\b", ".*", expression).replace("$__rate_interval", "5m")
        for expression in found
    ]


def test_promtool_takes_the_rules() -> None:
    said = promtool("check", "rules", str(RULES))
    assert f"{len(alerts())} rules found" in said
    assert len(set(alerts())) == len(alerts())


def test_every_alert_fires_where_it_should_and_not_where_it_should_not() -> None:
    assert "SUCCESS" in promtool("test", "rules", str(CASES))
    cases = CASES.read_text("utf-8").split("\n  - name: ")[1:]
    for alert in alerts():
        own = [case for case in cases if f"alertname: {alert}\n" in case]
        assert any("exp_alerts: []" in case for case in own), f"{alert} has no case in which it does not fire"
        assert any("exp_labels" in case for case in own), f"{alert} has no case in which it fires"


def test_the_rule_of_the_rfc_is_there_word_for_word() -> None:
    rule = RULES.read_text("utf-8").split("- alert: KdbWalSubscriberLag\n")[1].split("- alert:")[0]
    assert "expr: kdb_wal_subscriber_lag_lsn > 1000000\n" in rule
    assert "for: 5m\n" in rule
    assert "labels: {severity: warn}\n" in rule


def test_rules_and_dashboard_name_only_what_is_exposed() -> None:
    named = {
        name
        for line in re.findall(r"^ +(?:expr:|<|\().*$", RULES.read_text("utf-8"), re.MULTILINE)
        for name in METRIC.findall(line)
    }
    shown = {name for expression in expressions() for name in METRIC.findall(expression)}
    assert len(named) > 15
    assert not (named | shown) - names_exposed()
    assert names_exposed() >= OWN
    assert shown >= OWN


def test_every_alert_says_what_to_do() -> None:
    for rule in RULES.read_text("utf-8").split("- alert: ")[1:]:
        name = rule.partition("\n")[0]
        for annotation in ("summary", "description", "runbook"):
            assert f"\n          {annotation}: " in rule, f"{name}: {annotation}"
        (page,) = re.findall(r"runbook: docs/runbook/(.+)\.md\n", rule)
        if page != "{{ $labels.code }}":
            assert (ROOT / "docs" / "runbook" / f"{page}.md").exists(), f"{name}: {page}"


def test_every_page_of_an_alert_is_pointed_to() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "runbook" / "alerts").glob("*.md")}
    assert pages == set(re.findall(r"docs/runbook/alerts/([\w-]+)\.md", RULES.read_text("utf-8")))


def test_the_dashboard_is_whole_and_promtool_reads_its_expressions(tmp_path: Path) -> None:
    dashboard: Any = json.loads(DASHBOARD.read_text("utf-8"))
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert {variable["name"] for variable in dashboard["templating"]["list"]} == {
        "source",
        "job",
        "instance",
        "feed",
    }
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        taken = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        cells |= taken
        if panel["type"] != "row":
            assert panel["title"]
            assert panel["description"]
            assert panel["datasource"] == {"type": "prometheus", "uid": "${source}"}
            assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])
    rules = [
        {"record": f"dashboard:expression_{number}", "expr": one} for number, one in enumerate(expressions())
    ]
    assert len(rules) > 30
    written = tmp_path / "dashboard.yml"
    written.write_text(
        json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}), "utf-8"
    )  # YAML holds JSON
    assert f"{len(rules)} rules found" in promtool("check", "rules", str(written))
