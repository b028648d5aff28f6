"""What programs find inside a box: names that resolve, the processors they may use, a workspace that opens again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import write_task

from mlgym_core.errors import BackendUnavailableError
from mlgym_core.plugins.loading import Registry
from mlgym_core.runner import backends
from mlgym_core.sandbox.base import ActionStatus, BoxSpec, Network, Sandbox
from mlgym_core.sandbox.local.backend import LocalSandbox
from mlgym_core.task.task import Image, Resources

BACKENDS = [
    pytest.param("docker", marks=pytest.mark.engine),
    pytest.param("local", marks=pytest.mark.isolation),
]


def opened(name: str, folder: Path, network: Network = "none", cpus: float = 1.5) -> Sandbox:
    try:
        backend = backends.choose(Registry(), name).backend
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    (folder / "Dockerfile").write_text("FROM debian:bookworm-slim\n")
    image = backend.prepare_image(Image(folder=folder), "agent", print)
    spec = BoxSpec("inside", "agent", image, Resources(cpus=cpus, memory_mb=512, pids=128), network=network)
    return backend.open_sandbox(spec)


@pytest.fixture(params=[(name, network) for name in ("docker", "local") for network in ("none", "full")])
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sandbox]:
    sandbox = opened(*request.param[:1], tmp_path, network=request.param[1])
    yield sandbox
    sandbox.close()


def said(box: Sandbox, command: str) -> str:
    result = box.run(command, 30)
    return (result.stdout.head + result.stderr.head).decode().strip()


@pytest.mark.engine
@pytest.mark.isolation
@pytest.mark.parametrize("name", ["localhost", "$(hostname)"])
def test_this_machine_has_its_names_with_a_network_or_without(box: Sandbox, name: str) -> None:
    look = f'python3 -c "import socket, sys; print(socket.gethostbyname(sys.argv[1]))" {name}'
    assert said(box, look).startswith("127.")


@pytest.mark.engine
@pytest.mark.isolation
def test_the_agents_user_and_group_have_names_and_libraries_are_told_their_processors(box: Sandbox) -> None:
    assert said(box, "id -un; id -gn").split() == ["agent", "agent"]
    assert said(box, "echo $OMP_NUM_THREADS $OPENBLAS_NUM_THREADS $PYTHON_CPU_COUNT") == "2 2 2"


@pytest.mark.isolation
def test_a_workspace_that_the_agent_has_closed_opens_again_when_its_box_is_lost(tmp_path: Path) -> None:
    sandbox = opened("local", tmp_path)
    assert isinstance(sandbox, LocalSandbox)
    try:
        said(sandbox, "echo kept > file; chmod 700 .")
        assert sandbox._box is not None
        os.kill(sandbox._box.root, signal.SIGKILL)  # as the kernel does when memory runs out
        # An action may still be done while the box is dying; the one after it finds the box gone.
        statuses = [sandbox.run("sleep 0.2", 20).status for _ in range(2)]
        assert ActionStatus.SHELL_ENDED in statuses
        assert said(sandbox, "cat file") == "kept"
    finally:
        sandbox.close()


@pytest.mark.isolation
@pytest.mark.parametrize("umask", [0o027, 0o077])
def test_a_run_works_under_any_umask(tmp_path: Path, umask: int) -> None:
    folder = write_task(tmp_path / "task")
    (folder / "public" / "deep").mkdir(parents=True)
    (folder / "public" / "deep" / "file.txt").write_text("x")
    words = [sys.executable, "-m", "mlgym_core", "run", str(folder), "--backend", "local", "--out", str(tmp_path / "r")]
    done = subprocess.run(words, umask=umask, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
