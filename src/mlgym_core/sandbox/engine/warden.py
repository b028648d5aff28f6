"""The killer inside a container: a process, started ahead, that ends what an action has started."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from attrs import define, field

from mlgym_core.inside import program
from mlgym_core.sandbox.base import STDOUT, ConnectionClosed
from mlgym_core.sandbox.engine.sockets import SocketConnection

if TYPE_CHECKING:
    from docker import DockerClient

SECONDS = 10.0  #: that it may take to answer


@define
class Warden:
    """One for each container.

    Attributes:
        client: of the container's engine.
        container: its id.
    """

    client: DockerClient
    container: str
    _connection: SocketConnection | None = None
    _offset: float = 0.0
    _lock: threading.Lock = field(factory=threading.Lock)

    def arm(self) -> None:
        """Start it.

        Raises:
            OSError: the container takes no new process.
        """
        api = self.client.api
        script = program(__package__, "warden.sh")
        try:
            created = api.exec_create(self.container, ["sh", "-c", script, "mlgym-warden"], stdin=True)
            self._connection = SocketConnection(api.exec_start(created["Id"], socket=True))
            words = self._answer(b"ready ").split()
            # Read a moment before it arrived here: what is counted from it is early rather than late.
            self._offset = int(words[-1]) / 100 - time.monotonic()
        except (TimeoutError, ConnectionClosed) as error:
            self.close()
            raise OSError("no process can be started in the container") from error
        except Exception as error:
            self.close()
            raise OSError(f"no process can be started in the container: {error}") from error

    def kill(self, supervisor: int, shell: int, since: float) -> None:
        """Kill an action; see :data:`~mlgym_core.sandbox.shell.life.KillAction`."""
        for attempt in (1, 2):
            try:
                if self._connection is None:
                    self.arm()
                assert self._connection is not None
                request = f"{supervisor} {shell} {self._inside(since)}\n".encode()
                self._connection.send(request, time.monotonic() + SECONDS)
                self._answer(b"done")
                return
            except (TimeoutError, ConnectionClosed) as error:
                self.close()
                if attempt == 2:
                    raise OSError("the container's processes could not be killed") from error

    def close(self) -> None:
        """Let it go; whatever it could still kill goes with it."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _inside(self, moment: float) -> int:
        """A :func:`time.monotonic` value in hundredths of a second of the container's clock."""
        return max(1, int((moment + self._offset) * 100)) if moment > float("-inf") else 1

    def _answer(self, beginning: bytes) -> bytes:
        """The line that begins like this."""
        assert self._connection is not None
        said = b""
        deadline = time.monotonic() + SECONDS
        while True:
            for line in said.splitlines(keepends=True):
                if line.startswith(beginning) and line.endswith(b"\n"):
                    return line
            for stream, data in self._connection.receive(deadline):
                said += data if stream == STDOUT else b""
