"""One request to a shell: what comes back of it, and where and how it ended."""

from __future__ import annotations

from mlgym_core.sandbox.base import STDOUT, Captured
from mlgym_core.sandbox.shell.output import Capture, MarkerScanner

_FIELD = b"\x1f"


class Exchange:
    """One request's output: two bounded streams, and the markers that end them."""

    __slots__ = ("_late", "_nonce", "_scanners", "_token", "captures")

    def __init__(
        self,
        nonce: bytes,
        token: bytes,
        captures: tuple[Capture, Capture],
        late: tuple[Capture, Capture],
    ) -> None:
        self.captures = captures
        self._nonce = nonce
        self._token = token
        self._scanners = tuple(
            MarkerScanner((nonce, token), capture.feed, after.feed)
            for capture, after in zip(captures, late, strict=True)
        )

    def feed(self, stream: int, data: bytes) -> None:
        """Take the next piece of a stream."""
        self._scanners[stream != STDOUT].feed(data)

    @property
    def eval_broken(self) -> bool:
        """The command left the shell unable to run another one; the shell ends by itself, perhaps already."""
        return self.own()[2:3] == ["eval"]

    @property
    def completed(self) -> bool:
        """The command has ended and the shell lives."""
        out, err = self._scanners
        return self._nonce in out.found and self._nonce in err.found

    @property
    def shell_ended(self) -> bool:
        """The supervisor has said that the shell is gone."""
        out, err = self._scanners
        return self._token in out.found and self._token in err.found

    def own(self) -> list[str]:
        """Fields of the shell's own marker on standard output."""
        return _numbers(self._scanners[0].found.get(self._nonce, b""))

    @property
    def place(self) -> tuple[str, str | None]:
        """Directory at the end, empty if it could not be told, and tools' state, ``None`` if it has not changed."""
        fields = self._scanners[0].found.get(self._nonce, b"").split(_FIELD)
        directory = fields[1].decode("utf-8", "surrogateescape") if len(fields) > 1 else ""
        return directory, fields[2].decode("utf-8", "replace") if len(fields) > 2 else None

    def payload(self) -> list[str]:
        """Fields of the marker on standard output, the supervisor's if it spoke; hostile code can forge the shell's."""
        found = self._scanners[0].found
        return _numbers(found.get(self._token, found.get(self._nonce, b"")))

    def results(self) -> tuple[Captured, Captured]:
        """Both streams, once no more of them will come."""
        for scanner in self._scanners:
            scanner.flush()
        return self.captures[0].result(), self.captures[1].result()


def _numbers(payload: bytes) -> list[str]:
    return payload.partition(_FIELD)[0].decode("ascii", "replace").split(":")
