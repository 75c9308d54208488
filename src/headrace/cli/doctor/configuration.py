"""Checks of what was written down: ``agent.toml``, ``capture.toml``, and options as ``headrace serve`` takes them."""

from __future__ import annotations

import os

from headrace.capture.settings import load_capture_settings
from headrace.cli.doctor.finding import Asked, Finding, ok
from headrace.publisher.settings import load_agent_settings


def check_agent_settings(asked: Asked) -> list[Finding]:
    """Read the agent's settings, and the files that they name; nothing is connected."""
    if asked.agent_config is None:
        return []
    settings = load_agent_settings(asked.agent_config)
    dsn = settings.find_dsn(os.environ)
    settings.find_credential()
    settings.find_snapshots()
    feeds = ", ".join(settings.feeds)
    return [ok(f"{asked.agent_config}: agent {settings.agent_id} relays {dsn} to {feeds}")]


def check_capture_settings(asked: Asked) -> list[Finding]:
    """Read capture's settings, its rules, and the files that they name; nothing is connected."""
    if asked.capture_config is None:
        return []
    settings = load_capture_settings(asked.capture_config)
    dsn = settings.find_dsn(os.environ)
    settings.find_credential()
    settings.find_selection()
    return [ok(f"{asked.capture_config}: {dsn} is captured into {settings.feed}")]


def check_serve_options(asked: Asked) -> list[Finding]:
    """Take the options of ``headrace serve`` that were given, as it would."""
    asked.access.auth()
    asked.access.tls()
    asked.access.origins()
    asked.retention.settings()
    return [ok("the options of headrace serve can be used")]
