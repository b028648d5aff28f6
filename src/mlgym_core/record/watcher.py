"""Tells whoever watches a run of its events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

#: Sees an event as it is written; :func:`mlgym_core.record.eventjson.from_json` makes it one of the vocabulary's.
Listener = Callable[[Mapping[str, Any]], None]


class Watcher:
    """Tells a listener of events. Watching never changes a run: one that raises is left out from then on.

    Args:
        listener: told of every event; ``None`` for nobody.
    """

    def __init__(self, listener: Listener | None) -> None:
        self._listener = listener

    def __call__(self, event: Mapping[str, Any]) -> str:
        """Tell of one event; returns what is to be noted of a listener that has just failed."""
        if self._listener is None:
            return ""
        try:
            self._listener(event)
        except (Exception, SystemExit) as error:
            self._listener = None
            failure = f"the listener raised {error!r:.200}; it is told nothing more, the run goes on"
            logging.getLogger(__name__).warning(failure)
            return failure
        return ""
