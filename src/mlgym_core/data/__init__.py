"""The data room: a task's public and private data, prepared once and kept in a cache keyed by what they came from."""

from __future__ import annotations

from mlgym_core.data.cache import Damage, Entry, list_entries, remove, verify
from mlgym_core.data.prepare import Out, Prepared, prepare
from mlgym_core.data.source import Source, parse_source

__all__ = [
    "Damage",
    "Entry",
    "Out",
    "Prepared",
    "Source",
    "list_entries",
    "parse_source",
    "prepare",
    "remove",
    "verify",
]
