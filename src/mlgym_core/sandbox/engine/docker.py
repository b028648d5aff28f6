"""The Docker backend; podman uses it too, over the same API."""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any

from mlgym_core import settings, storage
from mlgym_core.errors import InfrastructureError, SandboxLostError, UsageError
from mlgym_core.sandbox import archives, toolfiles
from mlgym_core.sandbox.base import (
    ActionResult,
    BoxSpec,
    Connection,
    PreparedImage,
    Progress,
    Role,
)
from mlgym_core.sandbox.engine import endpoints, warden
from mlgym_core.sandbox.engine.archives import copy, with_line
from mlgym_core.sandbox.engine.images import BuildOptions, ImageStore
from mlgym_core.sandbox.engine.sockets import SocketConnection
from mlgym_core.sandbox.engine.warden import Warden
from mlgym_core.sandbox.owner import Owner
from mlgym_core.sandbox.shell.environment import base_environment
from mlgym_core.sandbox.shell.life import supervisor_argv
from mlgym_core.sandbox.shell.shell import Shell
from mlgym_core.sandbox.threads import threads
from mlgym_core.sandbox.tmpfs import Sizes
from mlgym_core.task.task import Capability, Image

if TYPE_CHECKING:
    from docker import DockerClient

WORKSPACE = "/workspace"
_PEER_WORKDIR = "/box"
_HOME = "/home/agent"
_HOSTNAME = "mlgym"
_UID = 1000
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Without a PATH: the image's own holds, where its interpreter may come first.
_ENVIRONMENT = {name: value for name, value in base_environment(_HOME, "").items() if name != "PATH"}
_STATE = "/dev/shm/.mlgym-shell"
_LABEL = "mlgym.run"
_EXPIRES = "mlgym.expires"
_OWNER = "mlgym.owner."
_LIFETIME_SECONDS = 14 * 24 * 3600
_KEPT_SECONDS = 24 * 3600
_REMOVE_ATTEMPTS = 5
_ATTACH = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
_EXPORT_IN_MEMORY = 16 * 1024 * 1024

REMEDY = (
    "Start Docker (systemctl start docker, or Docker Desktop), set DOCKER_HOST, or choose another backend with "
    "--backend local"
)


def _explained(what: str) -> _Explained:
    return _Explained(what)


class _Explained:
    """Turns the engine's errors into one that says what was being done."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        import docker
        import requests

        if isinstance(error, docker.errors.APIError):
            raise InfrastructureError(f"the engine could not {self._what}: {error.explanation or error}") from error
        if isinstance(error, (docker.errors.DockerException, requests.RequestException, OSError)):
            raise InfrastructureError(f"the engine did not answer when asked to {self._what}: {error}") from error


class DockerBackend:
    """Opens boxes as containers.

    Args:
        client: a connected client; the first engine that answers when ``None``.
        options: of image builds; from the environment when ``None``.
        host: the engine's address, tried alone.

    Raises:
        BackendUnavailableError: no engine answers; the message lists what was tried.
    """

    name = "docker"

    def __init__(
        self, client: DockerClient | None = None, options: BuildOptions | None = None, host: str | None = None
    ) -> None:
        self.client = client or self._connect(host)
        weakref.finalize(self, self.client.close)
        self.images = ImageStore(self.client, options or BuildOptions.from_environment())
        with _explained("say what it can do"):
            self._info = self.client.info()
            self._version = self.client.version()["Version"]

    def _connect(self, host: str | None) -> DockerClient:
        places = endpoints.docker_endpoints(settings.environment(), storage.home_folder(), host)
        client, _ = endpoints.connect(self.name, places, REMEDY)
        return client

    def capabilities(self) -> frozenset[Capability]:
        """What the engine says that it enforces."""
        found = {Capability.NETWORK_NONE, Capability.SNAPSHOT}
        found |= {Capability.ISOLATION} if self._filters_calls() else set()
        found |= {Capability.MEMORY} if self._info.get("MemoryLimit") else set()
        found |= {Capability.PIDS} if self._info.get("PidsLimit") else set()
        found |= {Capability.CPU} if self._info.get("CpuCfsQuota") else set()
        found |= {Capability.GPU} if "nvidia" in (self._info.get("Runtimes") or {}) else set()
        return frozenset(found)

    def describe(self) -> str:
        """Name and version of the engine."""
        open_calls = "" if self._filters_calls() else ", not isolated: it filters no system calls"
        return f"{self.name} {self._version}{open_calls}"

    def _filters_calls(self) -> bool:
        """Whether containers get the engine's own seccomp profile; without one, all of them share kernel keyrings."""
        options = [str(option) for option in self._info.get("SecurityOptions") or ()]
        return any("name=seccomp" in option and "profile=unconfined" not in option for option in options)

    def prepare_image(self, image: Image, role: Role, progress: Progress, build: bool = True) -> PreparedImage:
        """The task's image; one for all roles, since nothing in it can be written."""
        del role
        with _explained("prepare the task's image"):
            return self.images.prepare(image, progress, build)

    def open_sandbox(self, spec: BoxSpec) -> DockerSandbox:
        """Open the agent's container."""
        return DockerSandbox(self, spec)

    def open_peer(self, spec: BoxSpec, program: str) -> DockerPeer:
        """Start a Python program in a container of its own."""
        if spec.files or spec.tools:
            raise UsageError("a peer gets its files over its standard input, not from BoxSpec.files; it has no tools")
        return DockerPeer(self, spec, program)

    def reap(self) -> Sequence[str]:
        """Remove containers whose runner is dead, or whose time is over."""
        removed = []
        with _explained("list the containers of earlier runs"):
            for found in self.client.api.containers(all=True, filters={"label": _LABEL}):
                if _is_left_over(found["Labels"]) and self.remove(found["Id"]):
                    removed.append(f"{self.name} container {found['Names'][0].lstrip('/')}")
        return removed

    def create(self, spec: BoxSpec, command: Sequence[str], **host: Any) -> str:
        """Create a container that fits the spec; returns its id."""
        api = self.client.api
        resources = spec.resources
        binds = {
            str(mount.source.resolve()): {"bind": f"{host['workdir']}/{mount.target}", "mode": "ro"}
            for mount in spec.mounts
        }
        workdir = host.pop("workdir")
        config = api.create_host_config(
            binds=binds,
            network_mode="none" if spec.network == "none" else "bridge",
            mem_limit=f"{resources.memory_mb}m" if self._info.get("MemoryLimit") else None,
            memswap_limit=f"{resources.memory_mb}m" if self._info.get("SwapLimit") else None,
            nano_cpus=int(min(resources.cpus, self._info.get("NCPU") or resources.cpus) * 1e9),
            pids_limit=resources.pids,
            extra_hosts={_HOSTNAME: "127.0.0.1"},
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            log_config={"Type": "none"},
            device_requests=self._gpus(resources.gpus) if spec.role != "grader" else None,
            **self.host_options(),
            **host,
        )
        with _explained("create a container"):
            created = api.create_container(
                spec.image.reference,
                list(command),
                user=f"{_UID}:{_UID}",
                working_dir=workdir,
                hostname=_HOSTNAME,
                stdin_open=True,
                environment={**_ENVIRONMENT, **threads(spec.resources), "PWD": workdir, **spec.env},
                labels=_labels(spec),
                entrypoint=[],
                host_config=config,
            )
        return str(created["Id"])

    def host_options(self) -> dict[str, Any]:
        """What another engine of the same API needs beside."""
        return {}

    def _gpus(self, count: int) -> list[Any] | None:
        from docker.types import DeviceRequest

        if count == 0 or Capability.GPU not in self.capabilities():
            return None
        return [DeviceRequest(count=count, capabilities=[["gpu"]])]

    def attach(self, container: str) -> SocketConnection:
        """Connect to a created container's streams and start it."""
        with _explained("start a container"):
            connection = SocketConnection(self.client.api.attach_socket(container, _ATTACH))
            try:
                self.client.api.start(container)
            except BaseException:
                connection.close()
                raise
        return connection

    def remove(self, container: str) -> bool:
        """Remove a container with everything in it; false when it was gone already."""
        import docker

        for attempt in range(_REMOVE_ATTEMPTS):
            try:
                self.client.api.remove_container(container, force=True, v=True)
            except docker.errors.NotFound:
                return False
            except docker.errors.APIError as error:
                # Removal may be in progress already, or the state in between two others.
                if attempt == _REMOVE_ATTEMPTS - 1 and "in progress" not in str(error):
                    raise
                continue
            return True
        return True


def _labels(spec: BoxSpec) -> dict[str, str]:
    owner = {f"{_OWNER}{name}": value for name, value in Owner.current().to_dict().items()}
    expires = str(int(time.time()) + _LIFETIME_SECONDS)
    return {_LABEL: spec.run_id, "mlgym.role": spec.role, _EXPIRES: expires, **owner}


def _is_left_over(labels: Mapping[str, str]) -> bool:
    expires = labels.get(_EXPIRES, "")
    if expires.isdigit() and int(expires) < time.time():
        return True
    if "mlgym.kept" in labels:
        return False
    found = {name.removeprefix(_OWNER): value for name, value in labels.items() if name.startswith(_OWNER)}
    try:
        return Owner.from_dict(found).is_dead()
    except (KeyError, ValueError, TypeError):
        return False


class DockerSandbox:
    """The agent's container; see :class:`~mlgym_core.sandbox.base.Sandbox`."""

    workdir = WORKSPACE
    tools = toolfiles.FOLDER

    def __init__(self, backend: DockerBackend, spec: BoxSpec) -> None:
        self._backend = backend
        self._spec = spec
        self._api = backend.client.api
        self._started = False
        self._closing = self._closed = False
        sizes = Sizes.of_sandbox(spec.resources)
        self._container = backend.create(
            spec,
            supervisor_argv(),
            workdir=WORKSPACE,
            shm_size=sizes.shared,
            tmpfs={
                "/tmp": f"mode=1777,exec,size={sizes.tmp}",
                _HOME: f"mode=755,exec,uid={_UID},gid={_UID},size={sizes.home}",
            },
        )
        try:
            with _explained("put the task's files into a container"):
                self._api.put_archive(self._container, "/", self._initial_files())
            self._warden = Warden(backend.client, self._container)
            env = {**base_environment(_HOME, _PATH), **threads(spec.resources), **self._image_environment()}
            env |= {"PWD": WORKSPACE, **spec.env}
            env = toolfiles.first_on_path(self.tools, env) if spec.tools else env
            self._shell = Shell(self._connect, self._warden.kill, env=env, workdir=WORKSPACE, state_dir=_STATE)
            self._warden.arm()
        except BaseException as error:
            self.close()
            if isinstance(error, SandboxLostError):
                raise InfrastructureError(str(error)) from error
            raise

    def run(self, command: str, timeout: float, spool: Path | None = None) -> ActionResult:
        """Run one action."""
        return self._shell.run(command, timeout, spool)

    def write_file(self, path: str, data: bytes) -> None:
        """Write a file as the agent's user."""
        self._shell.write_file(path, data)

    def read_file(self, path: str, limit: int) -> bytes:
        """Read a file as the agent's user."""
        return self._shell.read_file(path, limit)

    def export(self, paths: Sequence[str], max_bytes: int = 2**40) -> IO[bytes]:
        """A tar stream of workspace paths, as the engine sees them; nothing in the container takes part."""
        import docker

        with contextlib.ExitStack() as stack:
            packed = stack.enter_context(tempfile.SpooledTemporaryFile(_EXPORT_IN_MEMORY))
            with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
                for path in paths:
                    with _explained("read the submission"), contextlib.suppress(docker.errors.NotFound):
                        max_bytes -= self._export_one(PurePosixPath(path), archive, max_bytes)
            packed.seek(0)
            stack.pop_all()  # the caller closes it
            return packed

    def _export_one(self, path: PurePosixPath, archive: tarfile.TarFile, max_bytes: int) -> int:
        """Add a path, or in its place the first link on the way to it, for the reader to refuse; returns its bytes."""
        for place in [*reversed(path.parents[:-1]), path]:
            target = self._link_target(f"{WORKSPACE}/{place}")
            if target:
                link = tarfile.TarInfo(str(place))
                link.type, link.linkname = tarfile.SYMTYPE, target
                archive.addfile(link)
                return 0
        with contextlib.closing(self._ask("get", f"{WORKSPACE}/{path}", stream=True)) as answer:
            return copy(answer.iter_content(1 << 18), path, archive, max_bytes)

    def _link_target(self, path: str) -> str:
        """Where a link in the container leads, empty for anything else."""
        from docker.utils import decode_json_header

        answer = self._ask("head", path)
        return str(decode_json_header(answer.headers["x-docker-container-path-stat"])["linkTarget"])

    def _ask(self, method: str, path: str, **options: Any) -> Any:
        """Ask the engine for a path; the client's own call can neither look without reading nor stop reading."""
        url = self._api._url("/containers/{0}/archive", self._container)
        answer = self._api.request(method, url, params={"path": path}, timeout=self._api.timeout, **options)
        self._api._raise_for_status(answer)
        return answer

    def stop_processes(self) -> None:
        """Kill everything the agent left running."""
        self._shell.stop()

    def enter_hint(self) -> str:
        """A command that opens a shell in a kept copy of the container."""
        return f"{self._backend.name} exec -it {self._kept_name} sh"

    def close(self, keep: bool = False) -> None:
        """Remove the container; ``keep`` leaves a copy of its files running for a day."""
        if self._closed:
            return
        self._closing = True
        if keep:
            with contextlib.suppress(InfrastructureError):
                self._keep()
        for part in ("_shell", "_warden"):
            if hasattr(self, part):
                getattr(self, part).close()
        with _explained("remove a container"):
            self._backend.remove(self._container)
        self._closed = True  # last, so that a close which was interrupted can be repeated

    @property
    def _kept_name(self) -> str:
        return f"mlgym-kept-{self._container[:12]}"

    def _keep(self) -> None:
        with _explained("keep the sandbox"):
            image = self._api.commit(self._container)["Id"]
            labels = {**_labels(self._spec), "mlgym.kept": "1", _EXPIRES: str(int(time.time()) + _KEPT_SECONDS)}
            config = self._api.create_host_config(network_mode="none", **self._backend.host_options())
            kept = self._api.create_container(
                image,
                ["sleep", str(_KEPT_SECONDS)],
                name=self._kept_name,
                user=f"{_UID}:{_UID}",
                working_dir=WORKSPACE,
                labels=labels,
                entrypoint=[],
                host_config=config,
            )
            self._api.start(kept["Id"])

    def _image_environment(self) -> dict[str, str]:
        with _explained("inspect the task's image"):
            lines = self._api.inspect_image(self._spec.image.reference)["Config"].get("Env") or []
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def _initial_files(self) -> bytes:
        """An archive for ``/``: the workspace, the tools, and the agent's name for its ids."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
            archives.add_folder(archive, WORKSPACE, _UID)
            for path, source in self._spec.files.items():
                for parent in reversed(PurePosixPath(path).parents[:-1]):
                    archives.add_folder(archive, f"{WORKSPACE}/{parent}", _UID)
                mode = 0o755 if os.access(source, os.X_OK) else 0o644
                archives.add_file(archive, f"{WORKSPACE}/{path}", source.read_bytes(), _UID, mode)
            toolfiles.pack(self._spec.tools, archive, toolfiles.state_file(_STATE))
            for path, line in (
                ("/etc/passwd", f"agent:x:{_UID}:{_UID}:agent:{_HOME}:/bin/sh"),
                ("/etc/group", f"agent:x:{_UID}:"),
            ):
                names = with_line(self._api, self._container, self._spec.image.digest, path, line)
                if names is not None:
                    archives.add_file(archive, path, names, 0, 0o644)
        return packed.getvalue()

    def _connect(self) -> Connection:
        if self._closing:
            raise SandboxLostError("the sandbox is closed")
        try:
            if self._started:
                with contextlib.suppress(Exception):
                    self._api.kill(self._container)
                self._api.wait(self._container, timeout=warden.SECONDS)
            connection = self._backend.attach(self._container)
        except Exception as error:
            raise SandboxLostError(f"the sandbox's container could not be started: {error}") from error
        self._started = True
        return connection


class DockerPeer:
    """One process of the grading in a container of its own; see :class:`~mlgym_core.sandbox.base.Peer`."""

    workdir = _PEER_WORKDIR

    def __init__(self, backend: DockerBackend, spec: BoxSpec, program: str) -> None:
        self._backend = backend
        self._closed = False
        sizes = Sizes.of_peer(spec.resources)
        self._container = backend.create(
            spec,
            ["python3", "-I", "-c", program, _PEER_WORKDIR],
            workdir=_PEER_WORKDIR,
            read_only=True,
            shm_size=sizes.shared,
            tmpfs={
                _PEER_WORKDIR: f"mode=755,exec,uid={_UID},gid={_UID},size={sizes.workdir}",
                "/tmp": f"mode=1777,exec,size={sizes.tmp}",
                _HOME: f"mode=1777,exec,size={sizes.home}",
            },
        )
        try:
            self.connection = backend.attach(self._container)
        except BaseException:
            backend.remove(self._container)
            raise

    def close(self) -> None:
        """End the container; it is removed in the background, before this process exits."""
        if self._closed:
            return
        self.connection.close()

        def remove() -> None:
            with contextlib.suppress(Exception):
                self._backend.remove(self._container)

        threading.Thread(target=remove, name="mlgym-remove").start()
        self._closed = True  # last, as in a sandbox
