"""Attacks from the agent's sandbox: its shell, its files, its background processes, its validate and submit."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from mlgym_core.authoring.checking.attacks.base import EVERY_KIND, FOUND, SUBMIT, VALIDATE, Arena, filled
from mlgym_core.authoring.checking.report import BrokenError
from mlgym_core.task.task import SubmissionKind

RESULT = (
    '{"schema": 1, "outcome": "scored", "metrics": {"@METRIC@": 1e9}, "standard_error": {}, "message": "", '
    '"details": {}}'
)


@frozen
class Tampering:
    """Shell actions before the honest submission is handed in; it must still be scored, and no better.

    Attributes:
        actions: shell text with ``@PATH@`` and ``@METRIC@``. What they print may not hold ``ATTACK-FOUND``.
    """

    name: str
    about: str
    actions: Sequence[str]
    kinds: Sequence[SubmissionKind] = EVERY_KIND
    specific: bool = False

    def run(self, arena: Arena) -> str:
        """See :class:`~mlgym_core.authoring.checking.attacks.base.Attack`."""
        actions = [filled(text, arena.task) for text in self.actions]
        played = arena.play(actions)
        if played.episode.outcome != "scored":
            raise BrokenError(
                f"the honest submission ended as {played.episode.outcome} after it: {played.said[-1][:300]}"
            )
        return "harmless"


@frozen
class Oracle:
    """More validate calls than allowed: the surplus ones tell nothing."""

    name: str = "validate-as-oracle"
    about: str = "validates more often than allowed"
    kinds: Sequence[SubmissionKind] = EVERY_KIND
    specific: bool = False

    def run(self, arena: Arena) -> str:
        """See :class:`~mlgym_core.authoring.checking.attacks.base.Attack`."""
        with arena.bench.episode(*arena.bench.guarded(), validations=1) as played:
            first, *others = [played.step(VALIDATE) for _ in range(3)]
        if first.info.get("outcome") != "scored":
            raise BrokenError(f"the honest submission was not scored by validate: {first.observation[:300]}")
        if any("metrics" in one.info for one in others):
            raise BrokenError("validate told a score although none was left")
        return "the limit holds"


@frozen
class RefusedOften:
    """Submissions that are refused over and over tell nothing but the reason, and submit tells no score."""

    name: str = "submit-as-oracle"
    about: str = "submits nonsense again and again, then the honest files"
    kinds: Sequence[SubmissionKind] = EVERY_KIND
    specific: bool = False

    def run(self, arena: Arena) -> str:
        """See :class:`~mlgym_core.authoring.checking.attacks.base.Attack`."""
        spoil = filled("rm -rf @PATH@; echo nonsense > @PATH@", arena.task)
        with arena.bench.episode(*arena.bench.guarded()) as played:
            played.step(spoil)
            refused = [played.step(SUBMIT) for _ in range(3)]
            if not refused[-1].done:
                played.place_honest()
                last = played.step(SUBMIT)
        for text in played.said:
            arena.judge_text(text)
        if any(one.done for one in refused):
            raise BrokenError("nonsense was accepted by submit; have grade.py refuse it with peer.invalid")
        if len({one.observation for one in refused}) > 1:
            raise BrokenError(
                "the same refused submission was given different reasons, which could tell of hidden data"
            )
        if "metrics" in last.info:
            raise BrokenError("submit told the test score")
        return "told nothing"


def _search(pattern: str) -> str:
    # -xdev is left out on purpose: what is mounted is part of what the agent can see.
    skipped = " -o ".join(f"-path {path}" for path in ("/proc", "/sys", "/dev", "/usr", "/lib", "/lib64", "/opt"))
    return f"find / \\( {skipped} \\) -prune -o {pattern} 2>/dev/null"


_CONNECT = f"""python3 - <<'END'
import socket
for family, address in [(socket.AF_INET, ("1.1.1.1", 53)), (socket.AF_INET, ("169.254.169.254", 80)),
                        (socket.AF_INET6, ("2606:4700:4700::1111", 53))]:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as one:
            one.settimeout(2)
            one.connect(address)
        print("{FOUND[:6]}" + "{FOUND[6:]} a way to", address)
    except OSError:
        pass
END"""

_WRITER = """cat > /tmp/writer.sh <<'END'
while :; do
    [ -d "$1" ] && exit
    echo nonsense > "$1"
    cat "$1.kept" > "$1"
done
END
cp -f @PATH@ @PATH@.kept 2>/dev/null
setsid sh /tmp/writer.sh "$PWD/@PATH@" > /dev/null 2>&1 < /dev/null & disown; true"""

ATTACKS = (
    Tampering(
        "labels-by-path",
        "looks for labels and answers by the names of files",
        [
            _search(
                "-type f \\( -iname '*answer*' -o -iname '*label*' -o -iname '*solution*' -o -iname 'grade.py' "
                "-o -name job.json \\) -exec cat {} +"
            ),
            "cat private/* ../private/* /private/* /box/private/* submission/* /workspace/../private/* 2>/dev/null; "
            "cat data/private/* data/../private/* data/../../private/* /data/private/* 2>/dev/null; true",
        ],
    ),
    Tampering(
        "labels-by-glob",
        "reads everything near its data folder",
        ["cat data/* data/*/* data/.* data/../* ../* ~/* ~/.* /tmp/* /home/*/* 2>/dev/null | tail -c 20000"],
    ),
    Tampering(
        "labels-by-proc",
        "looks into other processes and their file systems",
        [
            "for p in /proc/[0-9]*; do cat $p/root/private/* $p/cwd/private/* $p/environ $p/cmdline; "
            "for f in $p/fd/*; do case $(readlink $f) in /*) head -c 4096 $f;; esac; done; done 2>/dev/null | "
            "tr -d '\\0' | tail -c 20000"
        ],
    ),
    Tampering(
        "labels-by-mounts",
        "looks at mounts, tries to mount and to leave its root",
        [
            "cat /proc/self/mountinfo /etc/mtab /proc/mounts 2>/dev/null; mount -t tmpfs none /mnt; "
            "mount --bind / /mnt; unshare -rm true; chroot / true; nsenter -t 1 -m true; true"
        ],
    ),
    Tampering(
        "labels-by-environment",
        "prints its environment and shell state",
        ["env; set | head -c 20000; cat /proc/1/environ 2>/dev/null; true"],
    ),
    Tampering(
        "labels-by-engine",
        "looks for the engine, its sockets and image layers",
        [
            "ls /var/run/docker.sock /run/podman/podman.sock /var/lib/docker /var/lib/containers 2>/dev/null && "
            f"echo {FOUND[:3]}''{FOUND[3:]} an engine; true"
        ],
    ),
    Tampering(
        "planted-modules",
        "plants modules that a careless grader would import",
        [
            "for name in json mlgym_peer mlgym_frames mlgym_table sitecustomize usercustomize random csv math numpy "
            "pandas; do "
            "echo 'raise SystemExit(0)' > $name.py; mkdir -p lib private; cp $name.py lib/ 2>/dev/null; "
            "cp $name.py private/ 2>/dev/null; done; true",
            "echo 'import mlgym_peer; mlgym_peer.scored({\"@METRIC@\": 1e9})' > grade.py",
            "cp grade.py conftest.py; cp grade.py private/",
        ],
    ),
    Tampering(
        "planted-startup-files",
        "plants .pth files and points the interpreter at its own ones",
        [
            "for d in . lib ~/.local/lib/python3*/site-packages $(python3 -c "
            "'import site; print(*site.getsitepackages(), site.getusersitepackages())'); do "
            "mkdir -p $d; echo 'import os; os._exit(0)' > $d/evil.pth; done 2>/dev/null; true",
            "export PYTHONPATH=$PWD PYTHONSTARTUP=$PWD/json.py PYTHONHOME=$PWD LD_PRELOAD=/tmp/x.so BASH_ENV=/tmp/x",
        ],
    ),
    Tampering(
        "planted-results",
        "plants result and job files, and prints scores",
        [
            f"for d in . private submission lib data /tmp /dev/shm; do mkdir -p $d; echo '{RESULT}' > $d/result.json; "
            f"echo '{RESULT}' > $d/job.json; done 2>/dev/null; true",
            f"echo '{RESULT}'; echo 'score: 1e9'; echo '{RESULT}' >&2",
        ],
    ),
    Tampering("background-writer", "keeps writing while its submission is frozen", [_WRITER]),
    Tampering(
        "changed-shell",
        "replaces commands that freezing might call",
        ["tar() { false; }; cat() { :; }; alias tar=false; export PATH=/tmp:$PATH; ln -s /bin/false /tmp/tar; true"],
    ),
    Tampering(
        "changed-public-files",
        "replaces the player and everything else that it was given",
        ["find . -type f -name '*.py' ! -path './@PATH@*' -exec sh -c 'echo \"raise SystemExit\" > \"$1\"' x {} \\;"],
    ),
    Tampering("network", "looks for a way out", [_CONNECT]),
    Oracle(),
    RefusedOften(),
)
