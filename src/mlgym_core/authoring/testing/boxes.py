"""What the backend contract's tests stand on: fixtures that open boxes, and ways to look at them. Needs pytest."""

from __future__ import annotations

import contextlib
import secrets
import tarfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from mlgym_core.sandbox.base import (
    STDOUT,
    ActionResult,
    ActionStatus,
    Backend,
    BoxSpec,
    Peer,
    PreparedImage,
    Role,
    Sandbox,
)
from mlgym_core.task.task import Capability, Image, Resources

OpenSandbox = Callable[..., Sandbox]
OpenPeer = Callable[..., Peer]

_PEER = textwrap.dedent(
    """
    import json, os, sys, time
    workdir = sys.argv[1]
    source, sink = sys.stdin.buffer, sys.stdout.buffer

    def writable(path):
        try:
            open(path, "w").close()
            return True
        except OSError:
            return False

    while line := source.readline():
        verb, *rest = line.split()
        if verb == b"echo":
            left = int(rest[0])
            while left:
                data = source.read1(min(left, 1 << 16))
                left -= len(data)
                sink.write(data)
                sink.flush()
        elif verb == b"flood":
            for _ in range(80):
                os.write(2, b"x" * (1 << 16))
            sink.write(b"done\\n")
        elif verb == b"look":
            seen = {"uid": os.getuid(), "entries": os.listdir(workdir), "args": sys.argv[1:],
                    "workdir": writable(workdir + "/new"), "root": writable("/new"), "usr": writable("/usr/new"),
                    "workspace": os.path.exists("/workspace")}
            sink.write(json.dumps(seen).encode() + b"\\n")
        elif verb == b"space":
            folders = [os.statvfs(path) for path in (workdir, "/tmp", "/dev/shm", os.environ["HOME"])]
            sink.write(b"%d\\n" % sum(one.f_blocks * one.f_frsize for one in folders))
        elif verb == b"read":
            sink.write(open(os.path.join(workdir, rest[0].decode()), "rb").read() + b"\\n")
        elif verb == b"hang":
            time.sleep(10_000)
        elif verb == b"end":
            break
        sink.flush()
    """
)

RUNNER = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from mlgym_core.sandbox.base import BoxSpec
    from mlgym_core.task.task import Capability, Image, Resources
    {setup}
    image = backend.prepare_image(Image(folder=Path({folder!r})), "agent", lambda line: None)
    sandbox = backend.open_sandbox(BoxSpec("contract", "agent", image, Resources(memory_mb=512)))
    sandbox.run("setsid sleep {mark} & sleep {mark} & echo", 30)
    print("ready", flush=True)
    sandbox.run({busy!r}, 600) if {busy!r} else sys.stdin.read()
    """
)


class BoxFixtures:
    """Fixtures for tests that open boxes of one backend.

    Attributes:
        runner_setup: Python text that binds ``backend`` in a fresh process, for the tests in which the runner is
            killed; empty to skip them.
        flood_bytes: size of the large output.
    """

    runner_setup = ""
    flood_bytes = 200_000_000

    # What a subclass may replace.

    @pytest.fixture
    def backend(self) -> Backend:
        """The backend under test."""
        raise NotImplementedError("provide a fixture named backend")

    @pytest.fixture
    def image_folder(self, tmp_path: Path) -> Path:
        """A task's ``image/`` folder; engines need a Dockerfile with bash, python3 and git in it."""
        folder = tmp_path / "image"
        folder.mkdir()
        (folder / "Dockerfile").write_text("FROM python:3.11-bookworm\n")
        return folder

    def alive(self, mark: str) -> bool:
        """Whether a process with ``mark`` in its arguments runs; looks at this machine's ``/proc``."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if mark.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                        return True
        return False

    # Fixtures.

    @pytest.fixture
    def prepared(self, backend: Backend, image_folder: Path) -> Callable[[Role], PreparedImage]:
        """Prepares the image for a role."""
        return lambda role: backend.prepare_image(Image(folder=image_folder), role, lambda _: None)

    @pytest.fixture
    def open_sandbox(self, backend: Backend, prepared: Callable[[Role], PreparedImage]) -> Iterator[OpenSandbox]:
        """Opens sandboxes, with fields of the BoxSpec as arguments, and closes them."""
        with contextlib.ExitStack() as stack:

            def opened(resources: Resources = Resources(memory_mb=1024), **fields: object) -> Sandbox:  # noqa: B008
                spec = BoxSpec("contract", "agent", prepared("agent"), resources, **fields)  # type: ignore[arg-type]
                sandbox = backend.open_sandbox(spec)
                stack.callback(sandbox.close)
                return sandbox

            yield opened

    @pytest.fixture
    def sandbox(self, open_sandbox: OpenSandbox) -> Sandbox:
        """A fresh sandbox."""
        return open_sandbox()

    @pytest.fixture
    def open_peer(self, backend: Backend, prepared: Callable[[Role], PreparedImage]) -> Iterator[OpenPeer]:
        """Opens peers that run the contract's own program."""
        with contextlib.ExitStack() as stack:

            def opened(role: Role = "grader", **fields: object) -> Peer:
                spec = BoxSpec("contract", role, prepared(role), Resources(memory_mb=512), **fields)  # type: ignore[arg-type]
                peer = backend.open_peer(spec, _PEER)
                stack.callback(peer.close)
                return peer

            yield opened

    @pytest.fixture
    def require(self, backend: Backend) -> Callable[[Capability], None]:
        """Skips the test when the backend does not declare a capability."""

        def check(capability: Capability) -> None:
            if capability not in backend.capabilities():
                pytest.skip(f"{backend.name} does not declare {capability.value}: {backend.describe()}")

        return check

    def inside(self, sandbox: Sandbox, mark: str) -> bool:
        """Whether the sandbox's own process list holds ``sleep <mark>``."""
        look = "for d in /proc/[0-9]*; do tr '\\0' ' ' <$d/cmdline; echo; done 2>/dev/null"
        return sandbox.run(f"{look} | grep -c '^sleep {mark} '", 30).stdout.head != b"0\n"


def seen(result: ActionResult) -> tuple[ActionStatus, int | None, bytes, bytes]:
    """What an action shows in its entirety."""
    return (
        result.status,
        result.exit_code,
        result.stdout.head + result.stdout.tail,
        result.stderr.head + result.stderr.tail,
    )


def fresh_mark() -> str:
    """A number of seconds to sleep that no other process sleeps."""
    return str(60_000_000 + secrets.randbelow(10_000_000))


def eventually(check: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether a condition of another process comes true in time."""
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def listed(stream: IO[bytes]) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    """Members of a tar stream with their content."""
    with stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        found = {}
        for member in archive:
            extracted = archive.extractfile(member) if member.isreg() else None
            found[member.name] = (member, extracted.read() if extracted else b"")
        return found


def receive(peer: Peer, size: int, seconds: float = 60.0) -> bytes:
    """``size`` bytes of a peer's standard output."""
    deadline = time.monotonic() + seconds
    data = b""
    while len(data) < size:
        data += b"".join(piece for stream, piece in peer.connection.receive(deadline) if stream == STDOUT)
        if time.monotonic() > deadline and len(data) < size:
            raise TimeoutError
    return data


def ask(peer: Peer, request: bytes) -> bytes:
    """A peer's answer of one line."""
    peer.connection.send(request, time.monotonic() + 30)
    deadline = time.monotonic() + 60
    line = b""
    while not line.endswith(b"\n"):
        line += b"".join(piece for stream, piece in peer.connection.receive(deadline) if stream == STDOUT)
    return line
