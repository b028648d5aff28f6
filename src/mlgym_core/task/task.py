"""What a task is: immutable classes that mirror ``task.yaml`` (read by :mod:`mlgym_core.task.taskfile`)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from attrs import field, frozen

from mlgym_core.errors import UsageError

Direction = Literal["up", "down"]
Split = Literal["dev", "test"]
SPLITS: tuple[Split, ...] = ("dev", "test")
DEFAULT_SIZE = "full"
QUICK_SIZE = "tiny"  #: of checks and tests, where a task has it


class Capability(enum.StrEnum):
    """What a backend can enforce. A run records those it wanted and did not get."""

    ISOLATION = "isolation"  #: own file system, processes and unprivileged user: scores can be sealed
    NETWORK_NONE = "network_none"
    MEMORY = "memory"
    CPU = "cpu"
    PIDS = "pids"
    GPU = "gpu"
    SNAPSHOT = "snapshot"


@frozen
class Metric:
    """One number the grader reports.

    Attributes:
        name: key in the grader's ``metrics``.
        direction: ``up`` when larger is better, else ``down``.
        unit: for display (``payoff per round``, ``s``, ``%``).
        description: one sentence for the agent.
        tolerance: for a metric that measures time: by which share two scores of the same submission may differ.
            ``mlgym check`` wants equal scores where it is ``None`` and the grader reports no standard error.
    """

    name: str
    direction: Direction
    unit: str = ""
    description: str = ""
    tolerance: float | None = None

    @property
    def sign(self) -> int:
        """+1 when larger is better, else -1."""
        return 1 if self.direction == "up" else -1


@frozen
class Limits:
    """What a run of the task may use; ``None`` means no limit.

    Attributes:
        steps: actions of the agent.
        cost_usd: price of the model calls, in US dollars.
        tokens: prompt and completion tokens of all model calls.
        model_calls: requests to the model, failed ones included.
        wall_seconds: seconds from the first step on.
        working_seconds: the same without the time spent waiting for the model.
        action_seconds: longest single shell action.
        validations: accepted ``validate`` calls.
        grading_seconds: longest single grading.
        late_grading_seconds: for scoring on test, after the run, what was handed in beside the submission that counts.
    """

    steps: int = 50
    cost_usd: float | None = 4.0
    tokens: int | None = None
    model_calls: int | None = None
    wall_seconds: float | None = None
    working_seconds: float | None = None
    action_seconds: float = 1800.0
    validations: int = 50
    grading_seconds: float = 600.0
    late_grading_seconds: float = 1800.0


@frozen
class Resources:
    """What one box gets.

    Attributes:
        cpus: processor cores.
        memory_mb: mebibytes of memory.
        pids: processes and threads.
        gpus: recommended number of GPUs.
        required: capabilities that a run is refused without (``gpu``, ``memory``, ...); others are only recorded.
    """

    cpus: float = 2.0
    memory_mb: int = 4096
    pids: int = 512
    gpus: int = 0
    required: tuple[Capability, ...] = ()


@frozen
class Image:
    """The task's environment, described in its ``image/`` folder.

    Attributes:
        dockerfile: name of the Dockerfile in ``image/``, for container engines.
        requirements: name of the requirements file in ``image/``; on ``local`` it becomes a virtual environment.
        folder: absolute path of ``image/``; filled in when the task is loaded.
    """

    dockerfile: str = "Dockerfile"
    requirements: str = "requirements.txt"
    folder: Path = Path()

    def requirement_lines(self) -> list[str]:
        """The requirements without comments and blank lines; empty when the task needs plain Python."""
        path = self.folder / self.requirements
        if not path.is_file():
            return []
        lines = (line.split(" #")[0].strip() for line in path.read_text("utf-8").splitlines())
        return [line for line in lines if line and not line.startswith("#")]


@frozen
class Data:
    """How the task's data is prepared; see :mod:`mlgym_core.data`.

    Attributes:
        module: file in the package with ``prepare(source, size, seed, out)``.
        sources: kinds of source it understands (``hub``, ``local``, ``synthetic``).
    """

    module: str = "data.py"
    sources: tuple[str, ...] = ("hub", "local")


SubmissionKind = Literal["csv", "code", "policy", "model"]


@frozen
class Submission:
    """What the agent hands in.

    Attributes:
        kind: ``csv`` is graded as data; the other kinds are run, in a player box of their own.
        paths: files or folders of the workspace that are frozen; nothing else is taken.
        player: public file that runs the submission in the player box; required unless ``kind`` is ``csv``.
        withheld: those of ``paths`` that players do not get; the grader sends them what they need of them.
        max_bytes: largest total size.
        max_files: most files.
    """

    kind: SubmissionKind
    paths: tuple[str, ...]
    player: str | None = None
    withheld: tuple[str, ...] = ()
    max_bytes: int = 64 * 1024 * 1024
    max_files: int = 256


@frozen
class BaselineScore:
    """A known score of the shipped baseline on the test split."""

    value: float
    source: Literal["published", "measured"]


@frozen
class Baseline:
    """The shipped baseline.

    Attributes:
        command: shell command that turns a fresh workspace into a valid submission.
        commands: size -> command, for sizes at which it is another one.
        scores: size -> metric -> known score.
    """

    command: str
    commands: Mapping[str, str] = field(factory=dict)
    scores: Mapping[str, Mapping[str, BaselineScore]] = field(factory=dict)

    def command_for(self, size: str) -> str:
        """The command at this size."""
        return self.commands.get(size, self.command)


@frozen
class Size:
    """One size of the task.

    Attributes:
        description: what it is, for people.
        parameters: handed to the grader in ``job.json`` and to ``prepare``; numbers and strings.
    """

    description: str = ""
    parameters: Mapping[str, Any] = field(factory=dict)


@frozen
class Include:
    """Shared files of the task's domain package, ``package:path/inside/it``, added to a folder of the task."""

    public: tuple[str, ...] = ()
    private: tuple[str, ...] = ()


@frozen
class Task:
    """A task, loaded. Everything here is public: secrecy rests on secrets drawn by the host for each run.

    Attributes:
        schema: version of the ``task.yaml`` schema.
        id: name on the command line.
        title: for people.
        metrics: the first one is primary.
        submission: what is handed in.
        baseline: the shipped baseline.
        sizes: at least ``full``.
        protocol: version of the evaluation protocol; scores of different protocols are never mixed.
        aliases: other accepted names (published ids).
        folder: the package's folder; filled in when the task is loaded.
        distribution, version: of the package it came from; empty for a task loaded from a folder.
    """

    schema: int
    id: str
    title: str
    metrics: tuple[Metric, ...]
    submission: Submission
    baseline: Baseline
    sizes: Mapping[str, Size]
    protocol: str = "1"
    aliases: tuple[str, ...] = ()
    limits: Limits = field(factory=Limits)
    resources: Resources = field(factory=Resources)
    image: Image = field(factory=Image)
    data: Data | None = None
    include: Include = field(factory=Include)
    folder: Path = Path()
    distribution: str = ""
    version: str = ""

    @property
    def primary(self) -> Metric:
        """The metric that results are compared by."""
        return self.metrics[0]

    def description(self) -> str:
        """What the agent reads (Markdown)."""
        return (self.folder / "description.md").read_text("utf-8")

    def public_files(self) -> dict[str, Path]:
        """The agent's workspace: path inside -> file on the host."""
        return _tree(self.folder / "public") | _included(self.include.public)

    def private_files(self) -> dict[str, Path]:
        """What only the grader ever sees: path inside -> file on the host."""
        return _tree(self.folder / "private") | _included(self.include.private)

    def need_size(self, size: str) -> None:
        """Refuse a size that the task does not have.

        Raises:
            UsageError: with the sizes that it has.
        """
        if size not in self.sizes:
            raise UsageError(f"task {self.id} has no size {size!r}; choose from: {', '.join(self.sizes)}")

    @property
    def quick_size(self) -> str:
        """The size for checks and tests: ``tiny`` where there is one, else ``full``."""
        return QUICK_SIZE if QUICK_SIZE in self.sizes else DEFAULT_SIZE

    def baseline_score(self, size: str, metric: str) -> BaselineScore | None:
        """The known baseline score at this size, if any."""
        return self.baseline.scores.get(size, {}).get(metric)


def _tree(folder: Path) -> dict[str, Path]:
    skip = {"__pycache__"}
    return {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not skip.intersection(path.parts)
    }


def _included(specs: tuple[str, ...]) -> dict[str, Path]:
    from importlib.resources import files

    found: dict[str, Path] = {}
    for spec in specs:
        package, _, inside = spec.partition(":")
        path = Path(str(files(package).joinpath(inside)))
        found[path.name] = path
    return found
