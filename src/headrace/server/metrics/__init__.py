"""Metrics for Prometheus at ``GET /metrics``: one file a subject, one line in ``exposition.SUBJECTS``."""
