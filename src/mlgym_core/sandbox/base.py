"""The seam between MLGym and whatever isolates a run: Backend, Sandbox, Peer and what they exchange.

A *backend* opens two kinds of boxes and nothing else:

- a **sandbox** for the agent: a workspace and one persistent shell;
- a **peer** for grading: one Python process in a fresh, read-only box, spoken to over its
  standard streams (grader and player, see :mod:`mlgym_core.grading`).

Both are built on a :class:`Connection`, the one place that knows pipes from engine sockets.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Literal, Protocol, runtime_checkable

from attrs import field, frozen

from mlgym_core.errors import UsageError
from mlgym_core.task.task import Capability, Image, Resources

STDOUT = 1
STDERR = 2


Role = Literal["agent", "grader", "player"]
Network = Literal["none", "full"]


@frozen
class Mount:
    """A host folder shown read-only inside a box.

    Attributes:
        source: absolute path on the host.
        target: path inside, relative to the box's working directory (``data/train``).
    """

    source: Path
    target: str


@frozen
class PreparedImage:
    """What :meth:`Backend.prepare_image` returns and a :class:`BoxSpec` names.

    Attributes:
        reference: how the backend finds it again (an image tag, a virtual environment's folder).
        digest: identifies the content, for the record.
    """

    reference: str
    digest: str


@frozen
class BoxSpec:
    """Everything a backend needs to open one box.

    Attributes:
        run_id: labels the box, so that leftovers can be reaped.
        role: who will live in it.
        image: from :meth:`Backend.prepare_image`, for the same role.
        resources: limits; those the backend cannot enforce are in its missing capabilities.
        network: ``none`` unless the run asked for more.
        files: initial content of the working directory, path inside -> host file.
        mounts: read-only folders; never writable, never copied.
        env: extra environment variables.
        tools: the agent's tools, path below the tools' folder -> host file. That folder is outside the workspace,
            read-only for the agent and first on ``PATH``; files directly in it are executable. Peers have none.
    """

    run_id: str
    role: Role
    image: PreparedImage
    resources: Resources
    network: Network = "none"
    files: Mapping[str, Path] = field(factory=dict)
    mounts: Sequence[Mount] = ()
    env: Mapping[str, str] = field(factory=dict)
    tools: Mapping[str, Path] = field(factory=dict)

    def check_peer(self) -> None:
        """Check that a peer can be opened so.

        Raises:
            UsageError: it holds files or tools.
        """
        if self.files or self.tools:
            raise UsageError("a peer gets its files over its standard input, not from BoxSpec.files; it has no tools")


class ConnectionClosed(Exception):  # noqa: N818 - an event, not an error of the caller
    """The other end of a :class:`Connection` is gone."""


class Connection(Protocol):
    """A byte stream into a box and two out of it. Waiting is blocking I/O with a deadline: no polling, no sleeps.

    Deadlines are absolute values of :func:`time.monotonic`.
    """

    def send(self, data: bytes | memoryview, deadline: float) -> None:
        """Write all of ``data``.

        Raises:
            TimeoutError: the deadline passed.
            ConnectionClosed: the other end is gone.
        """

    def receive(self, deadline: float) -> Sequence[tuple[int, bytes]]:
        """Wait for output; returns ``(STDOUT or STDERR, data)`` pieces in order of arrival, at least one.

        Raises:
            TimeoutError: the deadline passed with nothing to read.
            ConnectionClosed: both streams ended.
        """

    def close(self) -> None:
        """Close this end; harmless when repeated."""


class ActionStatus(enum.StrEnum):
    """How a shell action ended."""

    COMPLETED = "completed"
    TIMED_OUT = "timed_out"  #: killed at its deadline; the output so far is kept
    SHELL_ENDED = "shell_ended"  #: the action ended the shell itself (``exit``, ``exec``, ``kill $$``)
    REFUSED = "refused"  #: never ran (a NUL byte in the command, for instance)


@frozen
class Captured:
    """One bounded output stream.

    Attributes:
        head: first bytes, raw.
        tail: last bytes, raw; empty when nothing was dropped and all fits in ``head``.
        total: bytes produced.
        spool: file holding what was produced beyond memory (capped), if any.
    """

    head: bytes = b""
    tail: bytes = b""
    total: int = 0
    spool: Path | None = None

    @property
    def dropped(self) -> int:
        """Bytes neither in ``head`` nor in ``tail``."""
        return self.total - len(self.head) - len(self.tail)

    @property
    def truncated(self) -> bool:
        """Whether bytes were dropped from memory."""
        return self.dropped > 0


@frozen
class ActionResult:
    """What one shell action did.

    Attributes:
        status: how it ended.
        exit_code: of the command; ``None`` when it was killed or never ran.
        stdout, stderr: bounded streams.
        seconds: wall-clock time of the action.
        notes: sentences for the agent about what the sandbox did (shell restarted, what was lost).
        directory: of the shell after the action, as last known.
        state: of the tools, as last known: the first line of the file that ``MLGYM_TOOLS_STATE`` names inside, raw,
            empty when it is longer than 2,048 characters or odd. The agent could have written anything there.
    """

    status: ActionStatus
    exit_code: int | None
    stdout: Captured
    stderr: Captured
    seconds: float
    notes: tuple[str, ...] = ()
    directory: str = ""
    state: str = ""


@runtime_checkable
class Sandbox(Protocol):
    """The agent's box: a workspace and one persistent shell."""

    workdir: str  #: absolute path of the workspace, as seen inside
    tools: str  #: absolute path of the tools' folder, as seen inside

    def run(self, command: str, timeout: float, spool: Path | None = None) -> ActionResult:
        """Run one action in the persistent shell.

        Args:
            command: shell text of any size.
            timeout: seconds until the action's whole process tree is killed.
            spool: stem for files that take output beyond memory (``<stem>.stdout``).

        Raises:
            SandboxLostError: the box died and could not be brought back.
        """

    def write_file(self, path: str, data: bytes) -> None:
        """Write a file as the agent's user, byte for byte; relative paths start at the shell's directory.

        Raises:
            OSError: the write failed; the message is the sandbox's own.
        """

    def read_file(self, path: str, limit: int) -> bytes:
        """Read at most ``limit`` bytes of a file as the agent's user.

        Raises:
            OSError: unreadable, or larger than ``limit``.
        """

    def export(self, paths: Sequence[str], max_bytes: int = 2**40) -> IO[bytes]:
        """A tar stream of workspace paths (files or folders), as they are: links stay links.

        The content is the agent's: hostile until :mod:`mlgym_core.grading.archive` has read it.
        A path that does not exist is left out. A backend that copies stops at ``max_bytes`` of content: a sparse file
        may claim any size. One that streams may leave that to the reader.

        Raises:
            ExportError: at once or while it is read: something cannot be read, is too deep or too large.
            InfrastructureError: the box does not answer.
        """

    def stop_processes(self) -> None:
        """Kill everything the agent left running; the workspace stays."""

    def enter_hint(self) -> str:
        """A command with which a person can look inside a kept sandbox."""

    def close(self, keep: bool = False) -> None:
        """End the box and everything in it, or leave it for debugging; harmless when repeated."""


class Peer(Protocol):
    """One process of the grading, in a fresh box; see ``grading/peer.py`` for what is said over it."""

    @property
    def workdir(self) -> str:
        """Absolute path of its working directory, as seen inside."""

    @property
    def connection(self) -> Connection:
        """Its standard streams."""

    def close(self) -> None:
        """End the box; harmless when repeated. May return before the engine has finished removing it."""


Progress = Callable[[str], None]


@runtime_checkable
class Backend(Protocol):
    """Opens boxes. One object may serve many runs, from several threads."""

    name: str

    def capabilities(self) -> frozenset[Capability]:
        """What this backend enforces on this machine, probed, not assumed."""

    def describe(self) -> str:
        """One line on how boxes are made here (``bubblewrap 0.8.0``, ``docker 20.10.24``)."""

    def prepare_image(self, image: Image, role: Role, progress: Progress, build: bool = True) -> PreparedImage:
        """Build the task's environment if it is not here yet.

        Raises:
            InfrastructureError: it is absent and ``build`` is false, or the build failed.
        """

    def open_sandbox(self, spec: BoxSpec) -> Sandbox:
        """Open the agent's box.

        Raises:
            InfrastructureError: the engine refused.
        """

    def open_peer(self, spec: BoxSpec, program: str) -> Peer:
        """Start ``python -I -c <program> <workdir>`` in a fresh box: read-only root, empty writable working directory.

        Raises:
            InfrastructureError: the engine refused.
        """

    def reap(self) -> Sequence[str]:
        """Remove what dead runs left behind on this machine; returns what was removed."""
