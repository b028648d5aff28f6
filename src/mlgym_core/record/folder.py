"""A run's folder: what lies where, and its name."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

SCHEMA = 1  #: of manifest and result
MANIFEST = "run.json"
EVENTS = "events.jsonl"
RESULT = "result.json"
OUTPUT = "output"
SUBMISSIONS = "submissions"


def new_run_id(task: str) -> str:
    """A sortable, unique name: task, UTC time, random."""
    return f"{task}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
