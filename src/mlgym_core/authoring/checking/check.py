"""The list of checks, and the loop that makes a report of them."""

from __future__ import annotations

import difflib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from attrs import frozen

from mlgym_core.authoring.checking import lives, statics
from mlgym_core.authoring.checking.attacks import Attack, attacks_on
from mlgym_core.authoring.checking.attacks.base import Arena
from mlgym_core.authoring.checking.bench import Bench
from mlgym_core.authoring.checking.report import BrokenError, Finding, NotApplicableError, Report
from mlgym_core.errors import (
    InfrastructureError,
    MLGymError,
    PluginError,
    TaskSpecError,
    UnknownTaskError,
    UsageError,
)
from mlgym_core.plugins.loading import Registry
from mlgym_core.runner import backends
from mlgym_core.runner.tasks import load_task
from mlgym_core.sandbox.base import Backend, Progress
from mlgym_core.task.task import Task

ATTACKS = ("generic", "specific", "none")
ATTACK = "attack-"  #: begins the names of the checks that are attacks
SPEC = "spec"


@frozen
class Check:
    """One promise of the contract.

    Attributes:
        name: for ``--only`` and ``--skip``; those of attacks begin with ``attack-``.
        about: what it proves, in a few words.
        prove: returns what was measured; raises ``BrokenError`` when the task breaks the promise,
            ``NotApplicableError`` when nothing can be said (both in :mod:`mlgym_core.authoring.checking.report`).
        needs_isolation: whether it runs hostile code.
    """

    name: str
    about: str
    prove: Callable[[Bench], str]
    needs_isolation: bool = False


_CHECKS = (
    Check(SPEC, "task.yaml and the files it names are valid", statics.spec),
    Check("description", "it names what is handed in and what counts", statics.description),
    Check("limits", "they leave room for an honest run", statics.limits),
    Check("imports", "the plugin module imports nothing heavy", statics.imports),
    Check("no-pickle", "player and grader unpickle nothing", statics.no_pickle),
    Check("image", "it builds and has a shell and Python", lives.image),
    Check("compiles", "player and grader compile on the image's Python", lives.compiles),
    Check("data", "it prepares, and twice the same", lives.prepares),
    Check("no-secrets", "the public part holds nothing of the private one", statics.no_secrets),
    Check("baseline", "it works, validates and submits in a whole run", lives.baseline),
    Check("baseline-score", "it scores what task.yaml says", lives.baseline_score),
    Check("empty", "an empty submission is invalid", lives.empty),
    Check("garbage", "a submission without sense is invalid", lives.garbage),
    Check("deterministic", "the same archive and secret score the same", lives.deterministic),
    Check("splits", "dev and test differ", lives.splits),
    Check("canary", "private content reaches neither sandbox nor player", lives.canary, needs_isolation=True),
)


def checks_for(task: Task, attacks: str = "generic") -> list[Check]:
    """The checks of a task, in order.

    Args:
        task: is checked.
        attacks: ``generic`` (all that suit its kind of submission), ``specific`` (those whose outcome depends on the
            task itself, and its own ones) or ``none``.

    Raises:
        UsageError: ``attacks`` is none of these.
    """
    if attacks not in ATTACKS:
        raise UsageError(f"attacks must be {', '.join(ATTACKS[:-1])} or {ATTACKS[-1]}, not {attacks!r}")
    return [*_CHECKS, *(_as_check(attack) for attack in attacks_on(task, attacks))]


def _as_check(attack: Attack) -> Check:
    return Check(f"{ATTACK}{attack.name}", attack.about, lambda bench: attack.run(Arena(bench)), needs_isolation=True)


def check_task(
    task: Task,
    *,
    backend: str | Backend = backends.AUTO,
    size: str | None = None,
    source: str | None = None,
    seed: int = 0,
    attacks: str = "generic",
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    registry: Registry | None = None,
    progress: Progress = lambda _: None,
    on_finding: Callable[[Finding], None] = lambda _: None,
) -> Report:
    """Prove a task's contract.

    Args:
        task: is checked.
        backend: opens the boxes; attacks need one that isolates.
        size, source, seed: of the data; the size is ``tiny`` where the task has it.
        attacks: see :func:`checks_for`.
        only, skip: names of checks; ``attack-`` alone stands for all attacks.
        registry: plugins; a fresh one when ``None``.
        progress: told what takes time.
        on_finding: told of each finding as soon as it is there.

    Raises:
        UsageError: there is no such size, check or backend.
        BackendUnavailableError: the backend cannot be used here.
    """
    registry = registry or Registry()
    chosen = backends.choose(registry, backend)
    progress(f"checking {task.id} on {chosen.why}")
    size = size or task.quick_size
    task.need_size(size)
    checks = _selected(checks_for(task, attacks), only, skip)
    findings: list[Finding] = []
    infrastructure = ""
    with tempfile.TemporaryDirectory(prefix="mlgym-check-") as folder:
        bench = Bench(task, chosen.backend, registry, size, Path(folder), source, seed, progress=progress)
        for check in checks:
            finding, trouble = perform(check, bench)
            infrastructure = infrastructure or trouble
            findings.append(finding)
            on_finding(finding)
    return Report(task.id, size, chosen.backend.name, bench.sealed, tuple(findings), infrastructure)


def check_named(name: str, **options: object) -> Report:
    """Check the task of a name or path, as :func:`mlgym_core.load_task` takes them; see :func:`check_task`.

    A task that cannot be loaded is a failed check, not an error.

    Raises:
        UnknownTaskError: there is none.
    """
    try:
        task = load_task(name)
    except UnknownTaskError:
        raise
    except (TaskSpecError, PluginError) as error:
        finding = Finding(SPEC, _CHECKS[0].about, "failed", str(error))
        return Report(name, findings=(finding,))
    return check_task(task, **options)  # type: ignore[arg-type]


def perform(check: Check, bench: Bench) -> tuple[Finding, str]:
    """Do one check.

    Returns:
        What it found, and the failure of the machine or engine that kept it from finding anything (or ``""``).
    """
    started = time.monotonic()
    trouble = ""
    outcome, message = "passed", ""
    try:
        if check.needs_isolation:
            bench.need_isolation()
        message = check.prove(bench)
    except BrokenError as error:
        outcome, message = "failed", str(error)
    except NotApplicableError as error:
        outcome, message = "skipped", str(error)
    except InfrastructureError as error:
        trouble = str(error)
        outcome, message = "skipped", f"it could not be finished: {error}"
    except MLGymError as error:
        outcome, message = "failed", str(error)
    except Exception as error:  # of a backend, say: the other checks still have something to tell
        trouble = f"{type(error).__name__}: {error}"
        outcome, message = "skipped", f"it could not be finished: {trouble}"
    finding = Finding(check.name, check.about, outcome, message, time.monotonic() - started)  # type: ignore[arg-type]
    return finding, trouble


def _selected(checks: Sequence[Check], only: Sequence[str], skip: Sequence[str]) -> list[Check]:
    names = [check.name for check in checks]
    for name in (*only, *skip):
        if not any(_meant(one, name) for one in names):
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose from: {', '.join(_shown(names))}"
            raise UsageError(f"there is no check {name!r} for this task; {hint}")
    return [
        check
        for check in checks
        if (not only or any(_meant(check.name, name) for name in only))
        and not any(_meant(check.name, name) for name in skip)
    ]


def _meant(check: str, name: str) -> bool:
    return check == name or (name == ATTACK and check.startswith(ATTACK))


def _shown(names: Sequence[str]) -> Iterator[str]:
    yield from (name for name in names if not name.startswith(ATTACK))
    yield ATTACK
