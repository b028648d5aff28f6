"""Boxes made of Linux namespaces by bubblewrap: whether that works here, and the command line of a box.

As root no user namespace is made: the first program inside gives up root for good. bubblewrap alone would leave an
agent with the host's root identity, able to read whatever root reads.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from attrs import field, frozen

from mlgym_core import inside
from mlgym_core.errors import InfrastructureError
from mlgym_core.sandbox import toolfiles
from mlgym_core.sandbox.base import Mount, Network
from mlgym_core.sandbox.local import seccomp
from mlgym_core.sandbox.paths import HOME, WORKSPACE
from mlgym_core.sandbox.tmpfs import Sizes
from mlgym_core.task.task import Resources

EXTRA_BIN = "/opt/mlgym/bin"
DROPPED_UID = 61000
_PROBE_SECONDS = 20.0

_TOP_LEVEL = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_ETC = (
    "ld.so.cache",
    "alternatives",
    "ssl/certs",
    "ssl/openssl.cnf",
    "ca-certificates",
    "pki/tls/certs",
    "pki/ca-trust",
    "localtime",
    "nsswitch.conf",
)
_ETC_NETWORK = ("resolv.conf",)
_HOSTNAME = "mlgym"
_PACKAGES = ("lib*/python*/site-packages", "lib*/python*/dist-packages", "local/lib*/python*/dist-packages")


@frozen
class Layout:
    """What one box shows.

    Attributes:
        etc: host folder with the generated ``passwd``, ``group`` and ``hosts``.
        workdir: absolute path inside.
        workspace: host folder bound there, writable; ``None`` for an empty tmpfs.
        mounts: read-only folders, relative to ``workdir``.
        environment: a virtual environment, at its own path; ``None`` for the base interpreter alone.
        network: ``none`` or ``full``.
        sizes: limits of each writable tmpfs.
        gpus: whether the NVIDIA devices are shown.
        tools: host folder with the agent's tools.
    """

    etc: Path
    workdir: str = WORKSPACE
    workspace: Path | None = None
    mounts: Sequence[Mount] = ()
    environment: Path | None = None
    network: Network = "none"
    sizes: Sizes = field(factory=lambda: Sizes.of_peer(Resources()))
    gpus: int = 0
    tools: Path | None = None


@frozen
class Probe:
    """Whether boxes can be made here.

    Attributes:
        reason: why not; empty when they can.
        version: bubblewrap's own words.
    """

    reason: str
    version: str = ""

    @property
    def works(self) -> bool:
        """Whether there is no reason why not."""
        return not self.reason


def uid() -> int:
    """User and group id of the processes in a box, as seen on the host."""
    return DROPPED_UID if os.geteuid() == 0 else os.geteuid()


@functools.lru_cache(maxsize=1)
def probe() -> Probe:
    """Make a box, once per process, and look at it from inside."""
    program = shutil.which("bwrap")
    if program is None:
        return Probe("bubblewrap is not installed (the program bwrap is not on PATH)")
    if os.geteuid() == 0 and shutil.which("setpriv", path="/usr/bin:/bin") is None:
        return Probe("running as root without setpriv (util-linux): an agent would keep root's identity")
    if not seccomp.is_known():
        return Probe(
            f"no filter of system calls is known for {seccomp.machine()}, and boxes would share kernel keyrings"
        )
    try:
        version = _run([program, "--version"])
        with tempfile.TemporaryDirectory(prefix="mlgym-probe-") as folder, seccomp.descriptor() as calls:
            write_etc(Path(folder))
            argv = command(Layout(etc=Path(folder)), ["/bin/sh", "-c", inside.program(__package__, "look.sh")], calls)
            done = _run(argv, calls)
    except (OSError, subprocess.SubprocessError, InfrastructureError) as error:
        return Probe(f"bubblewrap could not be run: {error}")
    if done.returncode != 0:
        return Probe(f"bubblewrap cannot make namespaces here: {done.stderr.strip()[-300:] or done.returncode}")
    seen = done.stdout.split()
    if seen != [str(uid()), "0" * 16, "1", "2"]:
        return Probe(f"a bubblewrap box keeps privileges here: {' '.join(seen)}")
    return Probe("", version.stdout.strip())


def _run(argv: Sequence[str], *inherited: int) -> subprocess.CompletedProcess[str]:
    env = {"PATH": "/usr/bin:/bin"}
    return subprocess.run(
        argv, check=False, env=env, capture_output=True, text=True, timeout=_PROBE_SECONDS, pass_fds=inherited
    )


def write_etc(folder: Path, network: Network = "none") -> None:
    """Generate the ``passwd``, ``group`` and ``hosts`` of a box in ``folder``; with a network, the host's names too."""
    ids = uid()
    passwd = f"root:x:0:0:root:/root:/usr/sbin/nologin\nagent:x:{ids}:{ids}:agent:{HOME}:/bin/bash\n"
    hosts = f"127.0.0.1 localhost {_HOSTNAME}\n::1 localhost ip6-localhost ip6-loopback\n"
    if network == "full":
        with contextlib.suppress(OSError):
            hosts += Path("/etc/hosts").read_text("utf-8", "replace")
    for name, text in (("passwd", passwd), ("group", f"root:x:0:\nagent:x:{ids}:\n"), ("hosts", hosts)):
        path = folder / name
        path.write_text(text)
        path.chmod(0o644)


def command(layout: Layout, argv: Sequence[str], calls: int, info: int | None = None) -> list[str]:
    """The command line that runs ``argv`` as pid 1 of a box.

    Args:
        layout: what the box shows.
        argv: program inside, and its arguments.
        calls: inherited descriptor that yields the filter of system calls (:func:`seccomp.descriptor`).
        info: inherited descriptor on which bubblewrap tells the box's process id (``--info-fd``).

    Raises:
        InfrastructureError: the interpreter lives where the box puts something else.
    """
    root = os.geteuid() == 0
    program = shutil.which("bwrap") or "bwrap"
    result = [program, "--die-with-parent", "--as-pid-1", "--new-session", "--hostname", _HOSTNAME]
    result += ["--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"]
    if layout.network == "none":
        result.append("--unshare-net")
    if root:
        result += ["--cap-drop", "ALL"]
        for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):
            result += ["--cap-add", capability]
    else:
        result.append("--unshare-user")
    result += ["--seccomp", str(calls)]
    if info is not None:
        result += ["--info-fd", str(info)]
    result += _Tree(layout).arguments()
    if not root:
        return [*result, "--chdir", layout.workdir, "--", *argv]
    # Root without its capabilities may not enter what an agent has closed to others; the agent's own user may.
    return [*result, "--chdir", "/", "--", *_drop(), "/bin/sh", "-c", 'cd -- "$0" && exec "$@"', layout.workdir, *argv]


def _drop() -> list[str]:
    program = shutil.which("setpriv", path="/usr/bin:/bin") or "setpriv"
    # Changing the user clears the parent-death signal; "keep" sets it again.
    return [
        program,
        f"--reuid={DROPPED_UID}",
        f"--regid={DROPPED_UID}",
        "--clear-groups",
        "--inh-caps=-all",
        "--bounding-set=-all",
        "--no-new-privs",
        "--pdeathsig=keep",
        "--",
    ]


class _Tree:
    """Collects the file-system arguments in the order in which bubblewrap carries them out."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._arguments: list[str] = []
        self._made = {Path("/"), Path("/usr")}
        self._shown: list[Path] = []

    def arguments(self) -> list[str]:
        layout = self._layout
        self._system()
        self._etc()
        self._add("--proc", "/proc")
        self._add("--dev", "/dev")
        self._devices()
        if Path("/proc/keys").exists():
            self._add("--ro-bind", "/dev/null", "/proc/keys")
        sizes = layout.sizes
        for path, mode, size in (
            ("/tmp", "1777", sizes.tmp),
            ("/dev/shm", "1777", sizes.shared),
            (HOME, "0777", sizes.home),
        ):
            self._tmpfs(path, mode, size)
        self._interpreter()
        self._mask()
        if layout.environment is not None:
            self._read_only(layout.environment)
        if layout.tools is not None:
            self._read_only(layout.tools, Path(toolfiles.FOLDER))
        self._workdir()
        for path in ("/dev", "/"):
            self._add("--remount-ro", path)
        return self._arguments

    def _add(self, *arguments: str) -> None:
        self._arguments += arguments

    def _parents(self, path: Path) -> None:
        # Left to bubblewrap, missing parents may get a mode that shuts an unprivileged user out.
        for parent in reversed(path.parents):
            if parent not in self._made and not self._covered(parent):
                self._made.add(parent)
                self._add("--perms", "0755", "--dir", str(parent))

    def _covered(self, path: Path) -> bool:
        return any(path.is_relative_to(shown) for shown in self._shown)

    def _read_only(self, source: Path, target: Path | None = None) -> None:
        target = target or source
        self._parents(target)
        self._add("--ro-bind", str(source), str(target))
        self._shown.append(target)

    def _tmpfs(self, path: str, mode: str, size: int) -> None:
        self._parents(Path(path))
        self._made.add(Path(path))
        self._add("--perms", mode, "--size", str(size), "--tmpfs", path)

    def _system(self) -> None:
        self._read_only(Path("/usr"))
        for name in _TOP_LEVEL:
            path = Path("/", name)
            if path.is_symlink():
                self._add("--symlink", str(path.readlink()), str(path))
            elif path.is_dir():
                self._read_only(path)

    def _etc(self) -> None:
        names = _ETC + (_ETC_NETWORK if self._layout.network == "full" else ())
        for name in names:
            path = Path("/etc", name)
            if path.exists():
                self._read_only(path.resolve(), path)
        for name in ("passwd", "group", "hosts"):
            self._read_only(self._layout.etc / name, Path("/etc", name))

    def _devices(self) -> None:
        if self._layout.gpus:
            for device in sorted(Path("/dev").glob("nvidia*")):
                self._add("--dev-bind-try", str(device), str(device))
            self._add("--ro-bind-try", "/sys", "/sys")

    def _interpreter(self) -> None:
        prefix = Path(sys.base_prefix).resolve()
        for path in {Path(sys.base_prefix), prefix}:
            if path.is_relative_to(self._layout.workdir):
                raise InfrastructureError(
                    f"this Python is installed below {self._layout.workdir}, where a box has its workspace; "
                    "use an interpreter elsewhere"
                )
            if not self._covered(path):
                self._read_only(prefix, path)
        binaries = prefix / "bin"
        if not (binaries / "python").exists():
            self._parents(Path(EXTRA_BIN, "python"))
            self._add("--symlink", str(base_python()), f"{EXTRA_BIN}/python")

    def _mask(self) -> None:
        """Hide what is installed on the host: task packages carry their private files."""
        for path in package_folders(self._shown):
            self._add("--perms", "0755", "--tmpfs", str(path), "--remount-ro", str(path))

    def _workdir(self) -> None:
        layout = self._layout
        workdir = Path(layout.workdir)
        if layout.workspace is None:
            self._tmpfs(layout.workdir, "0777", layout.sizes.workdir)
        else:
            self._parents(workdir)
            self._add("--bind", str(layout.workspace), layout.workdir)
        for mount in layout.mounts:
            if layout.workspace is None:
                self._parents(workdir / mount.target)
            self._add("--ro-bind", str(mount.source), str(workdir / mount.target))


def base_python() -> Path:
    """The interpreter that this one's virtual environment, if any, is based on."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    binaries = Path(sys.base_prefix) / "bin"
    return next((path for path in (binaries / version, binaries / "python3") if path.exists()), Path(sys.executable))


def package_folders(shown: Iterable[Path]) -> list[Path]:
    """Folders below ``shown`` that hold packages installed on the host, or their sources."""
    found: list[Path] = []
    library = Path(os.__file__).parent.resolve()
    standard = {library, library / "lib-dynload"}
    importable = [path for entry in sys.path if entry and (path := Path(entry).resolve()).is_dir()]
    for root in dict.fromkeys(shown):
        real = root.resolve()
        if not real.is_dir():
            continue
        folders = [path for base in (real, real / "local") for pattern in _PACKAGES for path in base.glob(pattern)]
        folders += [path for path in (real / "src", real / "local" / "src") if root == Path("/usr")]
        folders += [path for path in importable if path.is_relative_to(real) and path not in standard]
        found += [
            root / path.resolve().relative_to(real)
            for path in folders
            if path.is_dir() and path.resolve().is_relative_to(real)
        ]
    outermost = [path for path in found if not any(path != other and path.is_relative_to(other) for other in found)]
    return list(dict.fromkeys(outermost))
