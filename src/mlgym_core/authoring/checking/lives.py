"""Checks that build, prepare, run and grade."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import attrs

from mlgym_core.authoring.checking import copies
from mlgym_core.authoring.checking.bench import Bench, beats, slack
from mlgym_core.authoring.checking.report import BrokenError, NotApplicableError, failing
from mlgym_core.episode.episode import Action
from mlgym_core.errors import InfrastructureError, InvalidSubmissionError
from mlgym_core.grading.grade import Grade
from mlgym_core.sandbox.base import BoxSpec, Sandbox

KNOWN_SHARE = 0.02  #: of a known score by which a new one may differ
KNOWN_ERRORS = 3.0  #: standard errors by which it may differ
BOX_SECONDS = 120.0
PRIVATE_TEXT = 200  #: characters of the grader's words that are quoted

# Written as a pattern, so that the search does not find itself. Kept to what the box itself can have been given.
_SEARCH = """\
needle='[{first}]{rest}'
skip="-path /proc -o -path /sys -o -path /dev -o -path /usr -o -path /lib -o -path /lib64 -o -path /bin -o -path /sbin"
find / \\( $skip \\) -prune -o -type f -size -65536k -exec grep -sl "$needle" {{}} + 2>/dev/null
find / \\( $skip \\) -prune -o -name "*$needle*" -print 2>/dev/null
cat /proc/*/environ /proc/*/cmdline /proc/*/maps /proc/*/mountinfo 2>/dev/null | tr '\\0' '\\n' | grep "$needle"
env | grep "$needle"
echo searched
"""


def image(bench: Bench) -> str:
    """The image builds, and a box made from it has a shell and a Python."""
    try:
        prepared = bench.backend.prepare_image(bench.task.image, "agent", bench.progress)
        bench.backend.prepare_image(bench.task.image, "grader", bench.progress)
    except InfrastructureError as error:
        raise BrokenError(f"image/: it does not build on {bench.backend.name}: {error}") from error
    with _Box(bench, {}) as sandbox:
        done = sandbox.run("python3 -c 'import sys; print(sys.version_info[:2] >= (3, 9))'", BOX_SECONDS)
    if done.stdout.head.strip() != b"True":
        raise BrokenError(
            "image/: the image has no python3 of version 3.9 or newer, which graders and players need; add it to the "
            f"Dockerfile ({done.stderr.head[-PRIVATE_TEXT:].decode(errors='replace').strip()})"
        )
    return prepared.reference


def compiles(bench: Bench) -> str:
    """Player and grader are programs for the image's Python."""
    task, public = bench.task, bench.task.public_files()
    files = {f"private/{name}": path for name, path in task.private_files().items() if name.endswith(".py")}
    if task.submission.player:
        files[f"public/{task.submission.player}"] = public[task.submission.player]
    program = (
        "import json, sys\n"
        "for name in json.loads(sys.argv[1]):\n"
        "    try:\n"
        "        compile(open('checked/' + name, 'rb').read(), name, 'exec')\n"
        "    except (SyntaxError, ValueError) as error:\n"
        "        print(f'{name}: line {getattr(error, \"lineno\", 1)}: {error}')\n"
        "print('compiled on', sys.version.split()[0])\n"
    )
    with _Box(bench, {f"checked/{name}": path for name, path in files.items()}) as sandbox:
        sandbox.write_file("compile_all.py", program.encode())
        done = sandbox.run(f"python3 compile_all.py '{json.dumps(list(files))}'", BOX_SECONDS)
    lines = done.stdout.head.decode(errors="replace").splitlines()
    if not lines or not lines[-1].startswith("compiled"):
        raise BrokenError(f"image/: python3 does not run there: {done.stderr.head[-500:].decode(errors='replace')}")
    if len(lines) > 1:
        raise BrokenError(f"{lines[0]}; the image has Python {lines[-1].split()[-1]}")
    return f"{len(files)} files, {lines[-1]}"


class _Box:
    """A sandbox that holds files of the task and no agent."""

    def __init__(self, bench: Bench, files: Mapping[str, Path]) -> None:
        task = bench.task
        prepared = bench.backend.prepare_image(task.image, "agent", bench.progress)
        spec = BoxSpec("check", "agent", prepared, attrs.evolve(task.resources, gpus=0), files=files)
        self._sandbox = bench.backend.open_sandbox(spec)

    def __enter__(self) -> Sandbox:
        return self._sandbox

    def __exit__(self, *_: object) -> None:
        self._sandbox.close()


def prepares(bench: Bench) -> str:
    """The data is prepared, and twice the same."""
    if bench.task.data is None:
        raise NotApplicableError("the task has no data")
    try:
        first = bench.prepared()
        second = _prepared_anew(bench)
    except InfrastructureError as error:
        cause = error.__cause__
        if cause is None or isinstance(cause, OSError):
            raise
        raise failing(bench.task, bench.task.data.module, str(error)) from error
    differing = sorted(name for name in {*first.checksums, *second} if first.checksums.get(name) != second.get(name))
    if differing:
        raise failing(
            bench.task,
            bench.task.data.module,
            f"preparing twice gave different files ({', '.join(differing[:3])}); derive all randomness from the seed "
            "and write nothing that depends on time, place or the order of a set",
        )
    if not first.private:
        raise failing(bench.task, bench.task.data.module, "it writes no private data, so there is nothing to score")
    return f"{len(first.checksums)} files"


_PREPARE = """
import json, sys
from pathlib import Path
from mlgym_core import data
from mlgym_core.task.taskfile import load_task_folder

folder, source, size, seed = json.loads(sys.argv[1])
found = data.prepare(load_task_folder(Path(folder)), source, size, seed)
print("\\n" + json.dumps(dict(found.checksums)))
"""


def _prepared_anew(bench: Bench) -> dict[str, str]:
    """Checksums of the data prepared once more, in a cache of its own, by a process whose sets iterate otherwise."""
    with tempfile.TemporaryDirectory(prefix="mlgym-check-") as cache:
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                _PREPARE,
                json.dumps([str(bench.task.folder), bench.source, bench.size, bench.seed]),
            ],
            env={**os.environ, "MLGYM_CACHE": cache, "PYTHONHASHSEED": "random"},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InfrastructureError(f"preparing the data a second time failed: {last}")
    checksums: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return checksums


def baseline(bench: Bench) -> str:
    """The baseline works, validates, submits and is scored in a whole run."""
    found = bench.baseline()
    limits = bench.task.limits
    if "dev" not in found.grades:
        raise BrokenError("the baseline's submission was not scored by validate; check what grade.py does with dev")
    if found.seconds > limits.action_seconds / 2:
        raise failing(
            bench.task,
            "task.yaml",
            f"the baseline alone takes {found.seconds:.0f} s of limits.action_seconds ({limits.action_seconds:g}); "
            "allow at least twice as much",
        )
    if found.test.seconds > limits.grading_seconds / 2:
        raise failing(
            bench.task,
            "task.yaml",
            f"grading the baseline takes {found.test.seconds:.0f} s of limits.grading_seconds "
            f"({limits.grading_seconds:g}); allow at least twice as much",
        )
    return f"{_shown(found.test)} in {found.seconds:.1f} s, graded in {found.test.seconds:.1f} s"


def baseline_score(bench: Bench) -> str:
    """The baseline scores what ``task.yaml`` says."""
    grade = bench.baseline().test
    known = bench.task.baseline.scores.get(bench.size, {})
    if not known:
        raise NotApplicableError(
            f"task.yaml states no score for size {bench.size}; measured: {_shown(grade)}: add it to baseline.scores"
        )
    for metric in bench.task.metrics:
        stated = known.get(metric.name)
        if stated is None:
            continue
        if metric.name not in grade.metrics:
            raise BrokenError(f"baseline.scores states {metric.name}, which grade.py does not report; make it")
        share = KNOWN_SHARE if metric.tolerance is None else metric.tolerance
        allowed = max(KNOWN_ERRORS * grade.standard_error.get(metric.name, 0.0), share * abs(stated.value))
        value = grade.metrics[metric.name]
        if abs(value - stated.value) > allowed + 1e-12:
            raise failing(
                bench.task,
                "task.yaml",
                f"baseline.scores says {metric.name} {stated.value:g} at size {bench.size}, measured was {value:g} "
                f"(allowed: {allowed:.2g} either way); correct the number or the baseline",
            )
    return _shown(grade)


def empty(bench: Bench) -> str:
    """A submission with nothing in it is invalid, and says so."""
    return _refuses(bench, {"no bytes": b"", "a line feed": b"\n", "blanks": b"  \n\n  \n"})


def garbage(bench: Bench) -> str:
    """A submission that makes no sense is invalid, and says so."""
    noise = random.Random(0).randbytes(4096)
    text = b"garbage, not a submission\n" * 20
    return _refuses(bench, {"random bytes": noise, "text": text, "a folder": None, "a NUL byte": b"\0"})


def _refuses(bench: Bench, contents: Mapping[str, bytes | None]) -> str:
    """Replace each declared path by each content, the others staying honest."""
    honest = bench.baseline().files()
    tried = 0
    for declared in bench.task.submission.paths:
        path = declared.rstrip("/")
        inside = any(name.startswith(f"{path}/") for name in honest)
        others = {name: data for name, data in honest.items() if name != path and not name.startswith(f"{path}/")}
        for what, content in contents.items():
            place = f"{path}/garbage" if inside and content is not None else path
            try:
                grade = bench.grade(bench.freeze({**others, place: content}))
            except InvalidSubmissionError:
                tried += 1
                continue
            _must_be_invalid(grade, f"{path} holding {what}")
            tried += 1
    return f"{tried} submissions were refused"


def _must_be_invalid(grade: Grade, what: str) -> None:
    if grade.outcome == "scored":
        raise BrokenError(
            f"a submission with {what} was scored ({_shown(grade)}); have grade.py call peer.invalid with a reason"
        )
    if grade.outcome == "grader_error":
        raise BrokenError(
            f"a submission with {what} made the grader fail instead of being invalid; catch it in grade.py and raise "
            f"peer.InvalidSubmission with a reason: {grade.message.strip()[-400:]}"
        )


def deterministic(bench: Bench) -> str:
    """The same archive under the same secret scores the same."""
    task = copies.copied(bench.task, bench.place())
    copies.seed_player(task)
    archive = bench.baseline().archive
    one, other = bench.grade(archive, "test", task), bench.grade(archive, "test", task)
    for grade in (one, other):
        if grade.outcome != "scored":
            raise BrokenError(f"graded again, the baseline was not scored: {grade.message[-400:]}")
    covered = []
    for metric in bench.task.metrics:
        a, b = one.metrics.get(metric.name), other.metrics.get(metric.name)
        if a is None or b is None or a == b:
            continue
        if abs(a - b) > slack(metric, one, other):
            raise BrokenError(
                f"{metric.name} was {a!r} and then {b!r} for the same archive under the same secret; derive all "
                "randomness of grade.py from job.seed; if it measures time, give the metric a tolerance in task.yaml"
            )
        covered.append(metric.name)
    if covered:
        raise NotApplicableError(
            f"{', '.join(covered)} differ between two gradings within standard error or tolerance, so nothing is proved"
        )
    return _shown(one)


def splits(bench: Bench) -> str:
    """Dev and test are different."""
    found = bench.baseline()
    dev = found.grades.get("dev")
    if dev is None or dev.outcome != "scored":
        raise BrokenError("the baseline was not scored on dev; see the check named baseline")
    if dict(dev.metrics) != dict(found.test.metrics) or dict(dev.standard_error) != dict(found.test.standard_error):
        return f"dev {_shown(dev)}; test {_shown(found.test)}"
    texts = [path.read_text("utf-8", "replace") for path in bench.task.private_files().values() if path.suffix == ".py"]
    if any(word in text for text in texts for word in (".split", ".seed")):
        raise NotApplicableError(f"both splits give {_shown(dev)}, though grade.py looks at the split or the seed")
    raise BrokenError(
        f"dev and test give the same score ({_shown(dev)}) and grade.py looks at neither job.split nor job.seed; "
        "score other rows, or draw other instances, on each split"
    )


def canary(bench: Bench) -> str:
    """A canary among the private files is found nowhere in sandbox, player and messages."""
    bench.need_isolation()
    guarded, prepared = bench.guarded()
    task = copies.copied(guarded, bench.place())
    copies.let_player_spy(task, bench.canary)
    search = _SEARCH.format(first=bench.canary[0], rest=bench.canary[1:])
    with bench.episode(task, prepared, validations=5) as played:
        before = played.step(search).observation
        validated = played.step(Action("validate"))
        after = played.step(search).observation
        played.step(f"echo {bench.canary} > planted.txt")
        control = played.step(search).observation
        played.said.clear()
        submitted = played.step(Action("submit"))
    for observation in (before, after):
        if observation.strip() != "searched":
            raise BrokenError(f"private content lies in the agent's sandbox: {observation[:400]}")
    if "planted.txt" not in control:
        raise BrokenError(f"the search does not work in this image; it needs find and grep: {control[:200]}")
    for result in (validated, submitted):
        if "found " in result.observation or bench.canary in result.observation:
            raise BrokenError(
                f"private content reaches the player's box or the agent: {result.observation[:400]}; let grade.py send "
                "the player nothing but the questions"
            )
    if validated.info.get("outcome") != "scored":
        raise BrokenError(f"with one more private file the baseline was not scored: {validated.observation[:400]}")
    grade = played.episode.submitted.grades["test"] if played.episode.submitted else None
    if grade is not None and beats(bench.task, grade, bench.baseline().test):
        raise BrokenError("the baseline's score changes when a file is added to private/; read files by their names")
    return "searched files, names, processes, environments and messages"


def _shown(grade: Grade) -> str:
    parts = []
    for name, value in grade.metrics.items():
        error = grade.standard_error.get(name)
        parts.append(f"{name} {value:.6g}" + (f" +- {error:.2g}" if error is not None else ""))
    return ", ".join(parts)
