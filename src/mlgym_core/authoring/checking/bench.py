"""What the checks of one task share: its data, a run of its baseline, and ways to grade and to play."""

from __future__ import annotations

import contextlib
import math
import secrets
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from attrs import define, field, frozen

from mlgym_core import data
from mlgym_core.authoring.checking import copies
from mlgym_core.authoring.checking.report import BrokenError, NotApplicableError
from mlgym_core.episode.episode import Action, Episode, StepResult
from mlgym_core.errors import InfrastructureError, MLGymError
from mlgym_core.grading.archive import Archive, freeze_folder, open_archive
from mlgym_core.grading.grade import Grade
from mlgym_core.grading.secrets import Secrets
from mlgym_core.plugins.loading import Registry
from mlgym_core.record import events
from mlgym_core.record.folder import SUBMISSIONS
from mlgym_core.record.reader import events_of
from mlgym_core.runner.config import RunConfig
from mlgym_core.runner.execution import run
from mlgym_core.runner.plan import make_plan
from mlgym_core.runner.setup import Setup
from mlgym_core.sandbox.base import Backend, Progress
from mlgym_core.task.task import Capability, Metric, Split, Task

ROUNDING = 1e-9  #: relative difference of scores that is none
STANDARD_ERRORS = 4.0  #: by which a score may exceed another one and still be called the same
HASTY_SECONDS = 2.0  #: for a grading whose submission never answers
ACTION_SECONDS = 120.0  #: for one action of a check's agent
COMMON_STEPS = 3  #: run the baseline, validate, submit


@frozen
class BaselineRun:
    """A whole run of the shipped baseline.

    Attributes:
        archive: what it submitted.
        grades: by split.
        seconds: of the baseline's command.
    """

    archive: Archive
    grades: Mapping[Split, Grade]
    seconds: float

    @property
    def test(self) -> Grade:
        """The grade that counts."""
        return self.grades["test"]

    def files(self) -> dict[str, bytes]:
        """The submission's files: path -> content."""
        with tarfile.open(self.archive.path) as archive:
            readers = {member.name: archive.extractfile(member) for member in archive.getmembers()}
            return {name: reader.read() for name, reader in readers.items() if reader is not None}


@define
class Bench:
    """Checks one task on one backend; what is expensive is done once, when it is first asked for.

    Attributes:
        task: is checked.
        backend: opens the boxes.
        registry: plugins.
        size, source, seed: of the data.
        folder: for everything that is written; the caller removes it.
        secret: 16 bytes; all gradings share it unless they say otherwise.
        progress: told what takes time.
    """

    task: Task
    backend: Backend
    registry: Registry
    size: str
    folder: Path
    source: str | None = None
    seed: int = 0
    secret: bytes = field(factory=lambda: secrets.token_bytes(16), repr=False)
    progress: Progress = field(default=lambda _: None)
    canary: str = field(factory=lambda: f"canary-{secrets.token_hex(12)}", init=False)
    _kept: dict[str, Any] = field(factory=dict, init=False, repr=False)
    _count: int = field(default=0, init=False)

    @property
    def sealed(self) -> bool:
        """Whether the backend isolates."""
        return Capability.ISOLATION in self.backend.capabilities()

    def need_isolation(self) -> None:
        """Refuse to go on where hostile code would run on this machine itself.

        Raises:
            NotApplicableError: the backend does not isolate.
        """
        if not self.sealed:
            raise NotApplicableError(
                f"backend {self.backend.name} does not isolate here ({self.backend.describe()}); "
                "install bubblewrap or choose a container engine with --backend"
            )

    def place(self) -> Path:
        """A path of its own for whoever asks."""
        self._count += 1
        return self.folder / str(self._count)

    def prepared(self) -> data.Prepared:
        """The task's data."""
        found: data.Prepared = self._once("data", self._prepare)
        return found

    def baseline(self) -> BaselineRun:
        """The baseline's run.

        Raises:
            BrokenError: it did not end in a score.
        """
        found: BaselineRun = self._once("baseline", self._run_baseline)
        return found

    def guarded(self) -> tuple[Task, data.Prepared]:
        """The task and its data with a canary in both private parts."""
        found: tuple[Task, data.Prepared] = self._once("guarded", self._guard)
        return found

    def hasty(self, task: Task) -> Task:
        """The task with little time for a grading, but enough for an honest one."""
        seconds = min(task.limits.grading_seconds, max(HASTY_SECONDS, 4 * self.baseline().test.seconds))
        return attrs.evolve(task, limits=attrs.evolve(task.limits, grading_seconds=seconds))

    def freeze(self, files: Mapping[str, bytes | None]) -> Archive:
        """Freeze files that are given by path; ``None`` makes a folder.

        Raises:
            InvalidSubmissionError: they are refused.
        """
        folder = self.place()
        folder.mkdir()
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                path.mkdir(exist_ok=True)
            else:
                path.write_bytes(content)
        return freeze_folder(folder, self.task.submission, self.folder / "archives")

    def grade(
        self,
        archive: Archive,
        split: Split = "test",
        task: Task | None = None,
        prepared: data.Prepared | None = None,
    ) -> Grade:
        """Grade in fresh boxes, with the shared secret."""
        grader = self._setup(task or self.task).grader(
            prepared or self.prepared(), secret=self.secret, progress=self.progress
        )
        return grader.grade(archive, split)

    @contextlib.contextmanager
    def episode(self, task: Task, prepared: data.Prepared, **limits: Any) -> Iterator[Played]:
        """An episode of a (changed) task with its honest submission in the workspace."""
        seconds = min(task.limits.action_seconds, ACTION_SECONDS)
        limits = {"steps": 200, "wall_seconds": None, "action_seconds": seconds, **limits}
        plan = make_plan(self._setup(task), self._config(limits), with_agent=False, secrets=Secrets.fixed(self.secret))
        plan = attrs.evolve(plan, prepared=prepared)
        with plan.open_record(None) as record:
            images = plan.images(record)
            with plan.episode(record, lambda: images["agent"], settle=True) as episode:
                episode.reset()
                played = Played(episode, self.baseline().files())
                played.place_honest()
                yield played

    def _setup(self, task: Task) -> Setup:
        return Setup.find(task, self.backend, self.registry, size=self.size, source=self.source)

    def _config(self, limits: Mapping[str, Any]) -> RunConfig:
        return RunConfig(
            size=self.size,
            source=self.source,
            seed=self.seed,
            out=self.folder / "runs",
            limits=limits,
            allow_unsafe=True,
        )

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        """The value, or the error that making it ended with, as often as it is asked for."""
        if name not in self._kept:
            try:
                self._kept[name] = make()
            except (BrokenError, NotApplicableError, MLGymError) as error:
                self._kept[name] = error
        if isinstance(self._kept[name], Exception):
            raise self._kept[name]
        return self._kept[name]

    def _prepare(self) -> data.Prepared:
        return self._setup(self.task).data(self.seed, self.progress)

    def _guard(self) -> tuple[Task, data.Prepared]:
        task = copies.with_canary(self.task, self.place(), self.canary)
        prepared = self.prepared()
        if prepared.private is not None:
            private = copies.canary_beside(prepared.private, self.place(), self.canary)
            prepared = attrs.evolve(prepared, private=private)
        return task, prepared

    def _run_baseline(self) -> BaselineRun:
        limits = {} if self.task.limits.steps >= COMMON_STEPS else {"steps": COMMON_STEPS}
        self.prepared()
        config = self._config(limits)
        result = run(
            config, registry=self.registry, task=self.task, backend=self.backend, secrets=Secrets.fixed(self.secret)
        )
        steps = list(events_of(result.folder, events.Step))
        if result.status == "infra_error":
            raise InfrastructureError(result.document["message"])
        if result.status != "scored":
            said = " / ".join(f"{step.tool}: {step.observation:.600}" for step in steps)
            reason = result.document["message"] or said
            raise BrokenError(
                f"the baseline ({self.task.baseline.command_for(self.size)}) ended as {result.status}: {reason}; "
                "make it write a valid submission in a fresh workspace"
            )
        (counts,) = (attempt for attempt in result.document["attempts"] if attempt["counts"])
        archive = open_archive(result.folder / SUBMISSIONS / f"{counts['archive']}.tar")
        grades = {split: Grade.from_json(grade) for split, grade in counts["grades"].items()}
        return BaselineRun(archive, grades, steps[0].seconds)


@define
class Played:
    """An episode that a check plays, and everything it was told."""

    episode: Episode
    honest: Mapping[str, bytes]
    said: list[str] = field(factory=list)

    def place_honest(self) -> None:
        """Put the honest submission into the workspace, in the place of whatever is there."""
        tops = sorted({name.split("/")[0] for name in self.honest})
        folders = sorted({name.rpartition("/")[0] for name in self.honest} - {""})
        quoted = " ".join(map(_quoted, tops))
        make = f"; mkdir -p {' '.join(map(_quoted, folders))}" if folders else ""
        self.step(f"cd {_quoted(self.episode.workdir)}; rm -rf {quoted}{make}")
        for name, content in self.honest.items():
            self.episode.write_file(f"{self.episode.workdir}/{name}", content)

    def step(self, action: str | Action) -> StepResult:
        """One action; what it answers is kept."""
        result = self.episode.step(action)
        self.said.append(result.observation)
        return result

    def steps(self, actions: Sequence[str | Action]) -> None:
        """Several actions, until the episode is over."""
        for action in actions:
            if self.step(action).done:
                return


def _quoted(text: str) -> str:
    import shlex

    return shlex.quote(text)


def slack(metric: Metric, one: Grade, other: Grade) -> float:
    """By how much two scores of a metric may differ and still be called the same, in its unit."""
    name = metric.name
    noise = math.hypot(one.standard_error.get(name, 0.0), other.standard_error.get(name, 0.0))
    scale = max(abs(one.metrics[name]), abs(other.metrics[name]))
    return max(STANDARD_ERRORS * noise, (metric.tolerance or 0.0) * scale, ROUNDING * scale)


def beats(task: Task, found: Grade, honest: Grade) -> bool:
    """Whether a score is better than the honest one by more than chance."""
    metric = task.primary
    gain = metric.sign * (found.metrics[metric.name] - honest.metrics[metric.name])
    return gain > slack(metric, found, honest)
