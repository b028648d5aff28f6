"""The Docker backend keeps the contract of every backend, on a real engine, and some promises of its own."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from mlgym_core.authoring.testing.backends import BackendContract
from mlgym_core.authoring.testing.boxes import eventually
from mlgym_core.errors import BackendUnavailableError, InfrastructureError, SandboxLostError
from mlgym_core.sandbox.base import ActionStatus, BoxSpec, PreparedImage
from mlgym_core.sandbox.engine.docker import DockerBackend, DockerSandbox
from mlgym_core.sandbox.engine.images import BuildOptions, ImageStore
from mlgym_core.task.task import Capability, Image, Resources

SETUP = "from mlgym_core.sandbox.engine.docker import DockerBackend; backend = DockerBackend()"
SLEEP = "import time; time.sleep(600)"
#: Others may test on the same engine at the same time.
RUN = f"docker-test-{os.getpid()}"
pytestmark = pytest.mark.engine


@pytest.fixture(scope="session")
def engine() -> DockerBackend:
    try:
        return DockerBackend()
    except BackendUnavailableError as error:
        pytest.skip(str(error))


def image_folder(folder: Path, dockerfile: str = "FROM debian:bookworm-slim\n") -> Path:
    folder.mkdir(parents=True)
    (folder / "Dockerfile").write_text(dockerfile)
    return folder


@pytest.fixture
def prepared(engine: DockerBackend, tmp_path: Path) -> PreparedImage:
    return engine.prepare_image(Image(folder=image_folder(tmp_path / "plain" / "image")), "agent", lambda _: None)


@pytest.fixture
def opened(engine: DockerBackend, prepared: PreparedImage) -> Iterator[Callable[..., DockerSandbox]]:
    boxes: list[DockerSandbox] = []

    def go(image: PreparedImage = prepared, **resources: Any) -> DockerSandbox:
        spec = BoxSpec(RUN, "agent", image, Resources(**{"memory_mb": 512, **resources}))
        boxes.append(engine.open_sandbox(spec))
        return boxes[-1]

    yield go
    for box in boxes:
        box.close()


def containers(engine: DockerBackend) -> list[str]:
    return [c["Id"] for c in engine.client.api.containers(all=True, filters={"label": f"mlgym.run={RUN}"})]


class TestDocker(BackendContract):
    runner_setup = SETUP

    @pytest.fixture
    def backend(self, engine: DockerBackend) -> DockerBackend:
        return engine

    @pytest.fixture
    def image_folder(self, tmp_path: Path) -> Path:
        return image_folder(tmp_path / "contract" / "image")


# --- BusyBox -------------------------------------------------------------------------------------------------


@pytest.fixture
def busybox(engine: DockerBackend, tmp_path: Path) -> PreparedImage:
    program = shutil.which("busybox")
    if program is None:
        pytest.skip("no static busybox on this machine; on Debian: apt install busybox-static")
    folder = image_folder(tmp_path / "busybox" / "image", "FROM scratch\nADD root.tar /\n")
    with tarfile.open(folder / "root.tar", "w") as root:
        root.add(program, "bin/busybox")
        for name in ("sh", "sleep", "cat", "head", "base64", "sha256sum", "setsid", "env", "mkdir", "ls", "dd", "wc"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            root.addfile(link)
    return engine.prepare_image(Image(folder=folder), "agent", lambda _: None)


@pytest.mark.parametrize(
    "command",
    [
        "sleep 600 & trap '' TERM; echo begun; while :; do :; done",
        "setsid sh -c 'setsid sleep 600; sleep 600' & echo begun; sleep 600",
    ],
)
def test_deadlines_hold_in_a_busybox_image(
    opened: Callable[..., DockerSandbox], busybox: PreparedImage, command: str
) -> None:
    box = opened(busybox)
    box.run("mkdir -p /tmp/d; cd /tmp/d; export KEPT=yes", 30)
    result = box.run(command, 2)
    assert (result.status, result.stdout.head) == (ActionStatus.TIMED_OUT, b"begun\n")
    assert result.seconds < 10
    assert box.run("pwd; echo $KEPT", 30).stdout.head == b"/tmp/d\nyes\n"
    assert b"sleep 600" not in box.run("for f in /proc/[0-9]*/cmdline; do cat $f; echo; done", 30).stdout.head


def test_files_and_shell_ends_in_a_busybox_image(opened: Callable[..., DockerSandbox], busybox: PreparedImage) -> None:
    box = opened(busybox)
    data = bytes(range(256)) * 400
    box.write_file("a file", data)
    assert box.read_file("a file", len(data)) == data
    assert box.run("cd /tmp; exit 4", 30).exit_code == 4
    assert box.run("pwd", 30).stdout.head == b"/tmp\n"


# --- losses -----------------------------------------------------------------------------------------------------------


def test_a_killed_container_is_started_again_with_its_workspace(
    opened: Callable[..., DockerSandbox], engine: DockerBackend
) -> None:
    box = opened()
    box.run("echo kept > file", 30)
    engine.client.api.kill(containers(engine)[0])
    result = box.run("echo unseen", 30)
    assert result.status is ActionStatus.SHELL_ENDED
    assert any("lost" in note for note in result.notes)
    assert box.run("cat file", 30).stdout.head == b"kept\n"


def test_a_removed_container_is_a_lost_sandbox(opened: Callable[..., DockerSandbox], engine: DockerBackend) -> None:
    box = opened()
    engine.client.api.remove_container(containers(engine)[0], force=True)
    with pytest.raises(SandboxLostError):
        box.run("echo", 30)


def test_a_fork_bomb_ends_with_its_action(opened: Callable[..., DockerSandbox]) -> None:
    box = opened(pids=128)
    box.run("export KEPT=yes", 30)
    result = box.run("bomb() { bomb | bomb & }; bomb; sleep 600", 3)
    assert result.status is ActionStatus.TIMED_OUT
    assert box.run("echo $KEPT", 60).stdout.head == b"yes\n"


def test_killing_the_warden_leaves_deadlines_intact(opened: Callable[..., DockerSandbox]) -> None:
    box = opened()
    box.run("kill -9 -1", 30)
    assert box.run("sleep 600", 1).status is ActionStatus.TIMED_OUT
    assert box.run("echo fine", 30).stdout.head == b"fine\n"


def test_only_containers_of_dead_runners_are_reaped(
    opened: Callable[..., DockerSandbox], engine: DockerBackend, prepared: PreparedImage
) -> None:
    live = opened()
    script = (
        f"{SETUP}; from mlgym_core.sandbox.base import *; from mlgym_core.task.task import Resources; import sys\n"
        f"image = PreparedImage({prepared.reference!r}, {prepared.digest!r})\n"
        f"box = backend.open_sandbox(BoxSpec({RUN!r}, 'agent', image, Resources(memory_mb=256)))\n"
        "print('ready', flush=True); sys.stdin.read()"
    )
    runner = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert runner.stdout is not None
    assert runner.stdin is not None
    foreign = engine.client.api.create_container(prepared.reference, ["sleep", "60"])["Id"]
    try:
        assert runner.stdout.readline() == b"ready\n"
        assert len(containers(engine)) == 2
        engine.reap()
        assert len(containers(engine)) == 2
        runner.kill()
        runner.wait()
        engine.reap()
        assert eventually(lambda: len(containers(engine)) == 1)
        assert live.run("echo alive", 30).stdout.head == b"alive\n"
        engine.client.api.inspect_container(foreign)
    finally:
        runner.kill()
        runner.stdout.close()
        runner.stdin.close()
        engine.remove(foreign)


def test_removing_twice_is_fine(engine: DockerBackend, prepared: PreparedImage) -> None:
    container = engine.client.api.create_container(prepared.reference, ["true"])["Id"]
    assert engine.remove(container)
    assert not engine.remove(container)


def test_a_kept_sandbox_can_be_entered(opened: Callable[..., DockerSandbox], engine: DockerBackend) -> None:
    box = opened()
    box.run("echo mine > note", 30)
    hint = box.enter_hint()
    box.close(keep=True)
    name = hint.split()[3]
    try:
        found = engine.client.api.exec_create(name, ["cat", "/workspace/note"])
        assert engine.client.api.exec_start(found["Id"]) == b"mine\n"
        engine.reap()
        assert engine.client.api.inspect_container(name)["State"]["Running"]
    finally:
        image = engine.client.api.inspect_container(name)["Image"]
        engine.remove(name)
        engine.client.api.remove_image(image, force=True)


def test_an_interrupted_close_can_be_repeated(
    opened: Callable[..., DockerSandbox],
    engine: DockerBackend,
    prepared: PreparedImage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box = opened()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    for step in ("warden.Warden.close", "docker.DockerBackend.remove"):
        with monkeypatch.context() as patch:
            patch.setattr(f"mlgym_core.sandbox.engine.{step}", interrupted)
            with pytest.raises(KeyboardInterrupt):
                box.close()
        assert len(containers(engine)) == 1
    box.close()
    assert containers(engine) == []
    peer = engine.open_peer(BoxSpec(RUN, "grader", prepared, Resources(memory_mb=256)), SLEEP)
    with monkeypatch.context() as patch:
        patch.setattr(type(peer.connection), "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            peer.close()
    peer.close()
    assert eventually(lambda: containers(engine) == [])


def descriptors() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def test_an_image_without_a_shell_says_so_and_leaves_nothing(engine: DockerBackend, tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "empty" / "image", "FROM scratch\nCOPY nothing /nothing\n")
    (folder / "nothing").touch()
    image = engine.prepare_image(Image(folder=folder), "agent", lambda _: None)
    spec = BoxSpec(RUN, "agent", image, Resources(memory_mb=256))
    counts = []
    # The client keeps a few connections open for later.
    for _ in range(6):
        with pytest.raises(InfrastructureError, match="could not start a container"):
            engine.open_sandbox(spec)
        with pytest.raises(InfrastructureError, match="could not start a container"):
            engine.open_peer(spec, "pass")
        counts.append(descriptors())
    assert counts[-1] <= counts[2]
    assert containers(engine) == []


@pytest.mark.slow
def test_a_hundred_boxes_leave_nothing(engine: DockerBackend, prepared: PreparedImage) -> None:
    spec = BoxSpec(RUN, "agent", prepared, Resources(memory_mb=128))
    threads, counts = threading.active_count(), []
    for _ in range(50):
        box, peer = engine.open_sandbox(spec), engine.open_peer(spec, SLEEP)
        box.run("echo", 30)
        peer.close()
        box.close()
        assert eventually(lambda: threading.active_count() <= threads)
        counts.append(descriptors())
    assert counts[-1] <= max(counts[:10])
    assert containers(engine) == []


def test_an_engine_that_filters_no_calls_is_not_said_to_isolate(
    engine: DockerBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Capability.ISOLATION in engine.capabilities()
    for options in ([], ["name=apparmor", "name=seccomp,profile=unconfined"], None):
        monkeypatch.setitem(engine._info, "SecurityOptions", options)
        assert Capability.ISOLATION not in engine.capabilities()
        assert "not isolated" in engine.describe()


# --- images -----------------------------------------------------------------------------------------------------------


def test_the_images_own_path_and_variables_hold_in_every_box(engine: DockerBackend, tmp_path: Path) -> None:
    dockerfile = (
        "FROM debian:bookworm-slim\nRUN mkdir /opt/own && ln -s /usr/bin/python3 /opt/own/python3\n"
        "ENV PATH=/opt/own:$PATH OWN=yes\n"
    )
    image = engine.prepare_image(Image(folder=image_folder(tmp_path / "own" / "image", dockerfile)), "grader", str)
    look = "import os, shutil; print(shutil.which('python3'), os.environ['OWN'], os.environ['HOME'], flush=True)"
    spec = BoxSpec(RUN, "grader", image, Resources(memory_mb=256))
    peer = engine.open_peer(spec, look)
    try:
        deadline = time.monotonic() + 30
        assert b"".join(data for _, data in peer.connection.receive(deadline)) == b"/opt/own/python3 yes /home/agent\n"
    finally:
        peer.close()
    sandbox = engine.open_sandbox(attrs.evolve(spec, role="agent"))
    try:
        assert sandbox.run("command -v python3; echo $OWN", 30).stdout.head == b"/opt/own/python3\nyes\n"
    finally:
        sandbox.close()


def test_an_image_is_built_once_and_found_again(engine: DockerBackend, tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "once" / "image", f"FROM debian:bookworm-slim\nLABEL t={time.time_ns()}\n")
    said: list[str] = []
    first = engine.prepare_image(Image(folder=folder), "agent", said.append)
    assert any("building image" in line for line in said)
    again = engine.prepare_image(Image(folder=folder), "grader", pytest.fail, build=False)
    assert again == first
    assert first.reference in [one["tag"] for one in engine.images.listed()]
    engine.images.remove(first.reference)
    with pytest.raises(InfrastructureError, match=r"has not been built.*mlgym image build"):
        engine.prepare_image(Image(folder=folder), "agent", said.append, build=False)
    with pytest.raises(InfrastructureError, match="cannot be removed"):
        engine.images.remove(first.reference)


def test_a_failing_build_shows_the_end_of_its_log(engine: DockerBackend, tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "bad" / "image", "FROM debian:bookworm-slim\nRUN echo some-words && false\n")
    with pytest.raises(InfrastructureError, match=r"(?s)could not be built.*some-words"):
        engine.prepare_image(Image(folder=folder), "agent", lambda _: None)


def test_a_missing_dockerfile_is_named(engine: DockerBackend, tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match=r"Dockerfile is missing"):
        engine.prepare_image(Image(folder=tmp_path), "agent", lambda _: None)


def test_builds_trust_a_given_bundle_from_every_stage_on(engine: DockerBackend, tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text("certificates\n")
    folder = image_folder(
        tmp_path / "ca" / "image",
        "FROM debian:bookworm-slim AS first\nRUN cat $PIP_CERT > /seen\nFROM debian:bookworm-slim\n"
        f"COPY --from=first /seen /seen\nRUN cat $SSL_CERT_FILE >> /seen && echo {time.time_ns()}\n",
    )
    store = ImageStore(engine.client, BuildOptions(ca_bundle=bundle))
    image = store.prepare(Image(folder=folder), lambda _: None, build=True)
    output = engine.client.containers.run(image.reference, ["cat", "/seen"], remove=True, network_mode="none")
    assert output == b"certificates\ncertificates\n"
    store.remove(image.reference)


def test_build_arguments_reach_the_build_and_share_the_tag(engine: DockerBackend, tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "arg" / "image", "FROM debian:bookworm-slim\nARG WORD=none\nENV SAID=$WORD\n")
    first = ImageStore(engine.client).build(Image(folder=folder), lambda _: None)
    again = ImageStore(engine.client, BuildOptions(arguments={"WORD": "hello"})).build(Image(folder=folder), str)
    assert first.reference == again.reference
    assert "SAID=hello" in engine.client.api.inspect_image(again.reference)["Config"]["Env"]


def test_nothing_but_the_image_folder_is_in_an_image(engine: DockerBackend, tmp_path: Path) -> None:
    """Case 10: a canary in the private files is in no layer and no history."""
    canary = b"CANARY-4f1c9e77"
    folder = image_folder(tmp_path / "task" / "image", "FROM debian:bookworm-slim\nCOPY . /image\n")
    (folder.parent / "private").mkdir()
    (folder.parent / "private" / "answers.csv").write_bytes(canary)
    (folder / "public.txt").write_text("findable-4f1c9e77")
    image = engine.prepare_image(Image(folder=folder), "agent", lambda _: None)
    saved = b"".join(engine.client.images.get(image.reference).save())
    assert b"findable-4f1c9e77" in saved, "the search must find what is there"
    assert canary not in saved
    assert canary.decode() not in str(engine.client.api.history(image.reference))


# --- no engine --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("host", "said"), [("unix:///nonexistent/docker.sock", "no such socket")])
def test_a_run_without_an_engine_exits_3_and_says_what_was_tried(tmp_path: Path, host: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mlgym_core", "run", "battle-of-sexes", "--backend", "docker"],
        env={**os.environ, "DOCKER_HOST": host, "MLGYM_RUNS": str(tmp_path / "runs")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    assert said in done.stderr
    assert "DOCKER_HOST" in done.stderr
    assert "--backend local" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()
