"""Closing boxes: once, again where it was interrupted, and by itself when opening fails half-way."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator

from mlgym_core.errors import InfrastructureError, SandboxLostError


class Closing(abc.ABC):
    """A box that ends once, however often it is closed."""

    _closing = False  #: closing has begun: nothing may be started any more
    _closed = False

    def close(self, keep: bool = False) -> None:
        """End the box; what an interrupt has cut short, the next call finishes."""
        if not self._closed:
            self._closing = True
            self._end(keep)
            self._closed = True  # last, so that it stays false when closing is interrupted

    @abc.abstractmethod
    def _end(self, keep: bool) -> None:
        """Remove whatever there is by now, all of it or the rest."""

    @contextlib.contextmanager
    def _opening(self) -> Iterator[None]:
        """Close the box when the block fails."""
        try:
            yield
        except BaseException as error:
            self.close()
            if isinstance(error, SandboxLostError):  # lost before anybody had it
                raise InfrastructureError(str(error)) from error
            raise
