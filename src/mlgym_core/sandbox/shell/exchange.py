"""One request to a shell: what comes back of it, and where and how it ended."""

from __future__ import annotations

import re

from attrs import frozen

from mlgym_core.sandbox.base import STDOUT, Captured
from mlgym_core.sandbox.shell.output import Capture, MarkerScanner, new_token

_FIELD = b"\x1f"


@frozen
class Place:
    """Where a shell stands between two requests.

    Attributes:
        directory: absolute, as seen inside.
        state: of the tools; see :class:`~mlgym_core.sandbox.base.ActionResult`.
    """

    directory: str
    state: str = ""


class Exchange:
    """One request's output: two bounded streams, and the markers that end them.

    Args:
        token: of the supervisor's markers.
        captures: take standard output and standard error.
        late: take what comes behind the markers.

    Attributes:
        nonce: of the shell's own markers, fresh.
    """

    __slots__ = ("_captures", "_scanners", "_token", "nonce")

    def __init__(self, token: bytes, captures: tuple[Capture, Capture], late: tuple[Capture, Capture]) -> None:
        self.nonce = new_token()
        self._captures = captures
        self._token = token
        self._scanners = tuple(
            MarkerScanner((self.nonce, token), capture.feed, after.feed)
            for capture, after in zip(captures, late, strict=True)
        )

    def feed(self, stream: int, data: bytes) -> None:
        """Take the next piece of a stream."""
        self._scanners[stream != STDOUT].feed(data)

    def keep_late(self) -> None:
        """What comes behind the markers is this request's own: what it has started dies after the shell does."""
        for scanner in self._scanners:
            scanner.keep_late()

    @property
    def completed(self) -> bool:
        """The command has ended and the shell lives."""
        out, err = self._scanners
        return self.nonce in out.found and self.nonce in err.found

    @property
    def shell_ended(self) -> bool:
        """The supervisor has said that the shell is gone."""
        out, err = self._scanners
        return self._token in out.found and self._token in err.found

    @property
    def over(self) -> bool:
        """Either of the two."""
        return self.completed or self.shell_ended

    @property
    def eval_broken(self) -> bool:
        """The command left the shell unable to run another one; the shell ends by itself, perhaps already."""
        return self.own()[2:3] == ["eval"]

    def own(self) -> list[str]:
        """Fields of the shell's own marker on standard output."""
        return _numbers(self._scanners[0].found.get(self.nonce, b""))

    def payload(self) -> list[str]:
        """Fields of the marker on standard output, the supervisor's if it spoke; hostile code can forge the shell's."""
        found = self._scanners[0].found
        return _numbers(found.get(self._token, found.get(self.nonce, b"")))

    def place(self, before: Place) -> Place:
        """Where the shell stood at the end; what its marker does not tell is as it was ``before``."""
        fields = self._scanners[0].found.get(self.nonce, b"").split(_FIELD)
        directory = fields[1].decode("utf-8", "surrogateescape") if len(fields) > 1 else ""
        state = fields[2].decode("utf-8", "replace") if len(fields) > 2 else before.state
        return Place(directory or before.directory, state)

    def results(self) -> tuple[Captured, Captured]:
        """Both streams, once no more of them will come."""
        for scanner in self._scanners:
            scanner.flush()
        return self._captures[0].result(), self._captures[1].result()


def number(text: str) -> int | None:
    """The number that a field stands for; ``None`` when it is none."""
    return int(text) if text.isdigit() else None


def message(stderr: Captured) -> str:
    """What a shell said on its standard error, fit for an error message."""
    text = (stderr.head + stderr.tail).decode("utf-8", "replace").strip()[-500:]
    return re.sub(r"^\S+: line \d+: ", "", text)


def _numbers(payload: bytes) -> list[str]:
    return payload.partition(_FIELD)[0].decode("ascii", "replace").split(":")
