"""An engine that dies in the middle of a run, and one that may not be spoken to."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from mlgym_core.errors import BackendUnavailableError
from mlgym_core.record.events import End
from mlgym_core.record.reader import events_of, read_result
from mlgym_core.runner.tasks import load_task
from mlgym_core.sandbox.engine import endpoints
from mlgym_core.sandbox.engine.docker import DockerBackend

pytestmark = [pytest.mark.engine, pytest.mark.slow]


def wait_for(what: object, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def running() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def children(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(path.parent.name))
    return found


class Engine:
    """A Docker engine of the test's own, which it may kill.

    It lives in a network namespace of its own: with no bridge wanted, it would take the main engine's away.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "d.sock"
        self.log = (folder / "log").open("wb")
        places = [f"--data-root={folder}/data", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid"]
        self.process = subprocess.Popen(
            [
                "unshare",
                "--net",
                "dockerd",
                *places,
                "-H",
                f"unix://{self.socket}",
                "--bridge=none",
                "--iptables=false",
            ],
            stdout=self.log,
            stderr=self.log,
        )

    def kill(self) -> None:
        """End the engine and its helpers at once, shims of containers included."""
        family = [self.process.pid, *children(self.process.pid)]
        family += [pid for pid in running() if f"{self.folder}/exec".encode() in command(pid)]
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()


@pytest.fixture
def engine() -> Iterator[Engine]:
    import tempfile

    try:
        main = DockerBackend()
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("an engine of the test's own needs root and dockerd")
    folder = Path(tempfile.mkdtemp(prefix="mlgym-engine-"))
    engine = Engine(folder)
    try:
        wait_for(engine.socket.exists)
        client, _ = endpoints.connect("docker", [endpoints.Endpoint(f"unix://{engine.socket}", "the test's own")], "")
        image = main.prepare_image(load_task("battle-of-sexes").image, "agent", print).reference
        client.images.load(b"".join(main.client.images.get(image).save(named=image)))
        client.close()
        yield engine
    finally:
        engine.kill()
        for mount in reversed(Path("/proc/mounts").read_text().splitlines()):
            if str(folder) in mount:
                subprocess.run(["umount", "-l", mount.split()[1]], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def test_an_engine_that_dies_in_a_run_is_a_clear_end(engine: Engine, tmp_path: Path) -> None:
    mark = f"6543.{os.getpid()}"
    script = tmp_path / "script.yaml"
    script.write_text(yaml.safe_dump(["echo begun", f"sleep {mark}", {"tool": "submit"}]))
    options = ["--size", "tiny", "--json", "--no-build", "--backend", f"docker:unix://{engine.socket}"]
    options += ["--model", f"scripted:{script}", "--out", str(tmp_path / "r")]
    run = subprocess.Popen(
        [sys.executable, "-m", "mlgym_core", "run", "battle-of-sexes", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    asleep: list[int] = []

    def sleeping() -> bool:
        assert run.poll() is None, run.communicate()
        asleep.extend(pid for pid in running() if command(pid) == f"sleep\0{mark}\0".encode())
        return bool(asleep)

    try:
        wait_for(sleeping, 110)
        engine.kill()
        output, errors = run.communicate(timeout=60)
    finally:
        run.kill()
        for pid in asleep:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert run.returncode == 3, errors
    document = json.loads(output)
    assert document.get("reason") == "sandbox_lost" or document.get("status") == "infra_error", (document, errors)
    assert document["message"]
    assert "Traceback" not in errors
    (folder,) = (tmp_path / "r").iterdir()
    assert read_result(folder)["status"] == document["status"]
    assert list(events_of(folder, End))
