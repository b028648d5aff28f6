"""The backend that needs no engine: bubblewrap boxes where they work, else plain processes that seal nothing."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from typing_extensions import override

from mlgym_core.errors import BackendUnavailableError, InfrastructureError, SandboxLostError
from mlgym_core.sandbox import toolfiles
from mlgym_core.sandbox.base import Backend, BoxSpec, Connection, PreparedImage, Progress, Role
from mlgym_core.sandbox.closing import Closing
from mlgym_core.sandbox.local import bubblewrap, cgroups, environments, processes, scratch, workspace
from mlgym_core.sandbox.local.box import BOX_VARIABLE, Box, open_isolated, open_plain
from mlgym_core.sandbox.paths import HOME, PEER_WORKDIR, SHELL_STATE, WORKSPACE
from mlgym_core.sandbox.shell.environment import base_environment
from mlgym_core.sandbox.shell.life import supervisor_argv
from mlgym_core.sandbox.shellbox import ShellSandbox
from mlgym_core.sandbox.threads import threads
from mlgym_core.sandbox.tmpfs import Sizes
from mlgym_core.task.task import Capability, Image

_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_SEALING = frozenset({Capability.ISOLATION, Capability.NETWORK_NONE})


class LocalBackend(Backend):
    """Opens boxes on this machine.

    Args:
        isolate: ``True`` insists on bubblewrap, ``False`` takes plain processes, ``None`` takes what works.

    Raises:
        BackendUnavailableError: bubblewrap is insisted on and does not work, or this is not Linux.
    """

    name = "local"

    def __init__(self, isolate: bool | None = None) -> None:
        if not sys.platform.startswith("linux"):
            raise BackendUnavailableError("the local backend needs Linux; use --backend docker or podman here")
        self._probe = bubblewrap.probe() if isolate is not False else bubblewrap.Probe("switched off by the caller")
        if isolate and not self._probe.works:
            raise BackendUnavailableError(f"no isolated local boxes: {self._probe.reason}")

    @property
    def isolates(self) -> bool:
        """Whether boxes are namespaces rather than plain processes."""
        return self._probe.works

    @override
    def capabilities(self) -> frozenset[Capability]:
        gpu = frozenset({Capability.GPU}) if Path("/dev/nvidiactl").exists() else frozenset()
        return cgroups.available() | gpu | (_SEALING if self.isolates else frozenset())

    @override
    def describe(self) -> str:
        if not self.isolates:
            return f"plain processes, not isolated ({self._probe.reason})"
        user = f", user id {bubblewrap.uid()} instead of root" if os.geteuid() == 0 else ""
        return f"{self._probe.version}{user}"

    @override
    def prepare_image(self, image: Image, role: Role, progress: Progress, build: bool = True) -> PreparedImage:
        return environments.prepare(image, role, progress, build)

    @override
    def open_sandbox(self, spec: BoxSpec) -> LocalSandbox:
        return LocalSandbox(spec, self.isolates)

    @override
    def open_peer(self, spec: BoxSpec, program: str) -> LocalPeer:
        spec.check_peer()
        return LocalPeer(spec, self.isolates, program)

    @override
    def reap(self) -> Sequence[str]:
        removed = []
        for folder in scratch.leftovers():
            processes.kill(processes.carrying(BOX_VARIABLE, folder.name))
            cgroups.leftover(folder.name).close()
            scratch.remove(folder)
            removed.append(str(folder))
        return removed


class _Place:
    """A box's scratch folder, its control groups, and how to start processes in it."""

    def __init__(self, spec: BoxSpec, isolate: bool) -> None:
        self.spec = spec
        self.isolate = isolate
        if isolate and os.geteuid() == 0:
            workspace.check_readable(spec.mounts)
        self.folder = scratch.create(spec.run_id, spec.role)
        try:
            self.group = cgroups.Group.create(self.folder.name, spec.resources)
        except InfrastructureError:
            scratch.remove(self.folder)
            raise
        bubblewrap.write_etc(self.folder, spec.network)
        for name in ("home", "tmp"):
            (self.folder / name).mkdir()

    def start(self, argv: Sequence[str], env: Mapping[str, str], workdir: str, workspace_: Path | None) -> Box:
        name = self.folder.name
        if not self.isolate:
            return open_plain(argv, env, Path(workdir), name, self.group)
        spec = self.spec
        layout = bubblewrap.Layout(
            etc=self.folder,
            workdir=workdir,
            workspace=workspace_,
            mounts=spec.mounts,
            environment=Path(spec.image.reference) if environments.is_environment(spec.image) else None,
            network=spec.network,
            sizes=(Sizes.of_peer if workspace_ is None else Sizes.of_sandbox)(spec.resources),
            gpus=spec.resources.gpus,
            tools=self.folder / "tools" if spec.tools else None,
        )
        return open_isolated(layout, argv, {"PATH": env["PATH"]}, name, self.group)

    def environment(self, workdir: str) -> dict[str, str]:
        """Initial environment of what runs here; nothing of the caller's own gets in."""
        binaries = environments.interpreter(self.spec.image).parent
        path = f"{binaries}:{bubblewrap.EXTRA_BIN}:{_SYSTEM_PATH}"
        home = HOME if self.isolate else str(self.folder / "home")
        env = base_environment(home, path) | threads(self.spec.resources)
        if not self.isolate:
            env |= {"TMPDIR": str(self.folder / "tmp"), BOX_VARIABLE: self.folder.name}
        if environments.is_environment(self.spec.image):
            env["VIRTUAL_ENV"] = self.spec.image.reference
        return env | {"PWD": workdir} | dict(self.spec.env)

    def remove(self, keep: bool = False) -> None:
        self.group.close()
        if keep:
            scratch.remove(scratch.memory_folder(self.folder))
            scratch.keep(self.folder)
        else:
            scratch.remove(self.folder)


class LocalSandbox(ShellSandbox):
    """The agent's box on this machine.

    When the whole box is lost, it is opened again on the same workspace.
    """

    def __init__(self, spec: BoxSpec, isolate: bool) -> None:
        super().__init__(spec)
        self._place = _Place(spec, isolate)
        self._workspace = self._place.folder / "workspace"
        self._box: Box | None = None
        self._isolate = isolate
        self.workdir = WORKSPACE if isolate else str(self._workspace)
        self.tools = toolfiles.FOLDER if isolate else str(self._place.folder / "tools")
        with self._opening():
            owner = bubblewrap.uid() if isolate and os.geteuid() == 0 else None
            workspace.fill(self._workspace, spec.files, spec.mounts, owner, link=not isolate)
            state = SHELL_STATE if isolate else str(scratch.memory_folder(self._place.folder))
            if spec.tools:
                toolfiles.copy(spec.tools, self._place.folder / "tools", toolfiles.state_file(state))
            self._start_shell(self._place.environment(self.workdir), state)

    @override
    def export(self, paths: Sequence[str], max_bytes: int = 2**40) -> IO[bytes]:
        del max_bytes  # it is made while it is read, so the reader says when it is enough
        return workspace.export(self._workspace, paths)

    @override
    def enter_hint(self) -> str:
        return f"cd {shlex.quote(str(self._workspace))}"

    @override
    def _end(self, keep: bool) -> None:
        if self._box is not None:
            self._box.kill()
        self._place.remove(keep)

    @override
    def _connect(self, again: bool) -> Connection:
        lost, self._box = self._box, None
        if lost is not None:
            lost.kill()
        if again and self._isolate and not workspace.places_intact(self._workspace, self._spec.mounts):
            raise SandboxLostError("the sandbox died, and its data folder was tampered with; it cannot be reopened")
        path = self._place.environment(self.workdir)["PATH"]
        try:
            self._box = self._place.start(supervisor_argv(), {"PATH": path}, self.workdir, self._workspace)
        except InfrastructureError as error:
            raise SandboxLostError(str(error)) from error
        return self._box.connection

    @override
    def _kill(self, supervisor: int, shell: int, since: float) -> None:
        if self._box is None:
            raise ProcessLookupError("the box is gone")
        self._box.kill_action(supervisor, shell, since)


class LocalPeer(Closing):
    """One process of the grading on this machine; see :class:`~mlgym_core.sandbox.base.Peer`."""

    def __init__(self, spec: BoxSpec, isolate: bool, program: str) -> None:
        self._place = _Place(spec, isolate)
        self._box: Box | None = None
        folder = self._place.folder / "box"
        self.workdir = PEER_WORKDIR if isolate else str(folder)
        with self._opening():
            if not isolate:
                workspace.fill(folder, {}, spec.mounts, None, link=True)
            argv = [str(environments.interpreter(spec.image)), "-I", "-c", program, self.workdir]
            env = self._place.environment(self.workdir)
            argv = ["env", "-i", *(f"{name}={value}" for name, value in env.items()), *argv]
            self._box = self._place.start(argv, env, self.workdir, None)
            self.connection = self._box.connection

    @override
    def _end(self, keep: bool) -> None:
        if self._box is not None:
            self._box.kill()
        self._place.remove(keep)
