"""Memory, pids and cpu limits through control groups, where this user may make them; nothing is claimed elsewhere."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import frozen

from mlgym_core.errors import InfrastructureError
from mlgym_core.inside import program
from mlgym_core.sandbox.local import processes
from mlgym_core.task.task import Capability, Resources

_PREFIX = "mlgym-"
_CONTROLLERS = {"memory": Capability.MEMORY, "pids": Capability.PIDS, "cpu": Capability.CPU}
_PERIOD_US = 100_000
_REMOVE_SECONDS = 3.0


@functools.lru_cache(maxsize=1)
def parents() -> Mapping[str, Path]:
    """Controller -> the group under which this process may make limited groups; probed by making one."""
    unified, legacy = _mounts()
    own = _own_groups()
    found: dict[str, Path] = {}
    for controller in _CONTROLLERS:
        candidates = []
        if controller in legacy:
            candidates = _candidates(legacy[controller], own.get(controller, "/"))[:1]
        elif unified is not None:
            # A group with processes of its own cannot limit its children, but its parent may be delegated to us.
            candidates = [
                folder
                for folder in _candidates(unified, own.get("", "/"))
                if controller in _read(folder / "cgroup.subtree_control").split()
            ]
        usable = next((folder for folder in candidates if _can_make(folder, _limits(controller, 1.0, 64, 64))), None)
        if usable is not None:
            found[controller] = usable
    return found


def available() -> frozenset[Capability]:
    """The limits that hold on this machine for this user."""
    return frozenset(_CONTROLLERS[controller] for controller in parents())


@frozen
class Group:
    """The control groups of one box.

    Attributes:
        folders: one group for each hierarchy in use.
    """

    folders: tuple[Path, ...]

    @classmethod
    def create(cls, name: str, resources: Resources) -> Group:
        """Make groups that limit a box.

        Raises:
            InfrastructureError: the kernel refused a limit that the probe found to work.
        """
        folders = []
        try:
            for controller, parent in parents().items():
                folder = parent / f"{_PREFIX}{name}"
                folder.mkdir(exist_ok=True)
                folders.append(folder)
                limits = _limits(controller, resources.cpus, resources.memory_mb << 20, resources.pids)
                _apply(folder, limits)
        except OSError as error:
            cls(tuple(folders)).close()
            raise InfrastructureError(f"control group refused: {error}; check the limits of this machine") from error
        return cls(tuple(dict.fromkeys(folders)))

    def join(self, argv: Sequence[str]) -> list[str]:
        """The command that enters the groups and then becomes ``argv``."""
        if not self.folders:
            return list(argv)
        return ["/bin/sh", "-c", program(__package__, "join.sh"), "join", *map(str, self.folders), "--", *argv]

    def members(self) -> set[int]:
        """Processes in any of the groups."""
        return {int(pid) for folder in self.folders for pid in _read(folder / "cgroup.procs").split()}

    def close(self) -> None:
        """Kill what is left in the groups and remove them; harmless when repeated."""
        deadline = time.monotonic() + _REMOVE_SECONDS
        while any(folder.exists() for folder in self.folders):
            processes.kill(self.members() - {os.getpid()})
            for folder in self.folders:
                with contextlib.suppress(OSError):
                    folder.rmdir()
            if time.monotonic() >= deadline:
                return
            # The kernel gives no event when the last process has left; this is the end of a box, not a step.
            if any(folder.exists() for folder in self.folders):
                time.sleep(0.002)


def leftover(name: str) -> Group:
    """The groups of a box by its name, as far as they still exist."""
    folders = (parent / f"{_PREFIX}{name}" for parent in parents().values())
    return Group(tuple(dict.fromkeys(folder for folder in folders if folder.is_dir())))


def _limits(controller: str, cpus: float, memory: int, pids: int) -> list[tuple[str, str, bool]]:
    """File, value and whether it must exist; the two versions of control groups name them differently."""
    quota = max(1000, int(cpus * _PERIOD_US))
    return {
        "memory": [
            ("memory.max", str(memory), True),
            ("memory.swap.max", "0", False),
            ("memory.limit_in_bytes", str(memory), True),
            ("memory.memsw.limit_in_bytes", str(memory), False),
        ],
        "pids": [("pids.max", str(pids), True)],
        "cpu": [
            ("cpu.max", f"{quota} {_PERIOD_US}", True),
            ("cpu.cfs_period_us", str(_PERIOD_US), True),
            ("cpu.cfs_quota_us", str(quota), True),
        ],
    }[controller]


def _apply(folder: Path, limits: Sequence[tuple[str, str, bool]]) -> None:
    applied = 0
    for file, value, needed in limits:
        path = folder / file
        if not path.exists():
            continue
        try:
            path.write_text(value)
        except OSError:
            if needed:
                raise
        else:
            applied += needed
    if not applied:
        raise OSError(f"{folder} has none of {', '.join(file for file, _, _ in limits)}")


def _can_make(parent: Path, limits: Sequence[tuple[str, str, bool]]) -> bool:
    folder = parent / f"{_PREFIX}probe-{os.getpid()}-{time.monotonic_ns()}"
    try:
        folder.mkdir()
    except OSError:
        return False
    try:
        _apply(folder, limits)
        return os.access(folder / "cgroup.procs", os.W_OK)
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _candidates(mount: Path, own: str) -> list[Path]:
    """Where a group could be made: below our own group, else beside it."""
    here = mount / own.lstrip("/")
    if not here.is_dir():  # a container sees only its own part of the hierarchy
        here = mount
    return [here] if here == mount else [here, here.parent]


def _mounts() -> tuple[Path | None, dict[str, Path]]:
    """The unified hierarchy and the legacy one of each controller."""
    unified, legacy = None, {}
    for line in _read(Path("/proc/self/mounts")).splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "cgroup2":
            unified = Path(where)
        elif kind == "cgroup":
            legacy.update({name: Path(where) for name in options.split(",") if name in _CONTROLLERS})
    return unified, legacy


def _own_groups() -> dict[str, str]:
    """Controller -> our group; the unified hierarchy has the empty name."""
    groups = {}
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _, names, path = line.split(":", 2)
        groups.update(dict.fromkeys(names.split(","), path))
    return groups


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
