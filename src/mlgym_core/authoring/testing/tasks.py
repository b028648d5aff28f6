"""``mlgym check`` as tests, one a check. Needs pytest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from mlgym_core.authoring.checking.bench import Bench
from mlgym_core.authoring.checking.check import Check, checks_for, perform
from mlgym_core.authoring.testing.grading import grade_files
from mlgym_core.authoring.testing.plugin import NOT_APPLICABLE
from mlgym_core.grading.grade import Grade
from mlgym_core.plugins.loading import Registry
from mlgym_core.runner import backends
from mlgym_core.runner.tasks import find_task

_BENCH = pytest.StashKey[Bench]()


class TaskContract:
    """The promises of a task; a subclass says which one, and may say more.

    The data's ``source`` is a fixture, so that it may depend on others. The tests of a class share one run of the
    baseline; those that run hostile code have the marker ``isolation``.

    Attributes:
        task: installed name, or a folder that holds ``task.yaml``.
        backend: opens the boxes.
        size: of the data; ``tiny`` where the task has it when ``None``.
        seed: of the data.
        attacks: ``generic``, ``specific`` or ``none``; see :func:`mlgym_core.authoring.checking.checks_for`.
        skip: names of checks that are left out.
    """

    task: ClassVar[str | Path]
    backend: ClassVar[str] = "local"
    size: ClassVar[str | None] = None
    seed: ClassVar[int] = 0
    attacks: ClassVar[str] = "generic"
    pytestmark: ClassVar[list[pytest.MarkDecorator]]
    skip: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        """Keep a class in one process where tests run in parallel, for the sake of what its tests share."""
        super().__init_subclass__(**options)
        own = cls.__dict__.get("pytestmark", [])
        group = pytest.mark.xdist_group(f"{cls.__module__}.{cls.__qualname__}")
        cls.pytestmark = [*(own if isinstance(own, list) else [own]), group]

    @pytest.fixture
    def source(self) -> str | None:
        """Source of the data; the task's default unless a subclass says otherwise."""
        return None

    @pytest.fixture
    def bench(
        self, source: str | None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Bench:
        """What the checks share; made for the first test of the class."""
        shared = request.node.getparent(pytest.Class).stash
        if _BENCH not in shared:
            task, registry = find_task(self.task), Registry()
            backend = backends.choose(registry, self.backend).backend
            size = self.size or task.quick_size
            folder = tmp_path_factory.mktemp("check")
            shared[_BENCH] = Bench(task, backend, registry, size, folder, source, self.seed)
        found: Bench = shared[_BENCH]
        return found

    @pytest.fixture
    def grade_files(self, bench: Bench) -> Callable[[Mapping[str, str | bytes]], Grade]:
        """Grades text files of this task: ``grade_files({"strategy.py": "..."}, split="dev")``."""
        return partial(grade_files, bench.task, size=bench.size, prepared=bench.prepared(), backend=bench.backend)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """One test for each check."""
        if "check" not in metafunc.fixturenames:
            return
        checks = [one for one in checks_for(find_task(self.task), self.attacks) if one.name not in self.skip]
        hostile = [pytest.mark.isolation]
        parameters = [pytest.param(one, id=one.name, marks=hostile if one.needs_isolation else []) for one in checks]
        metafunc.parametrize("check", parameters)

    def test_check(self, check: Check, bench: Bench, request: pytest.FixtureRequest) -> None:
        """The promise holds."""
        finding, trouble = perform(check, bench)
        if trouble:
            pytest.fail(f"infrastructure: {trouble}", pytrace=False)
        if finding.outcome == "failed":
            pytest.fail(f"{finding.about}: {finding.message}", pytrace=False)
        if finding.outcome == "skipped":
            if bench.sealed or not check.needs_isolation:
                request.node.user_properties.append(NOT_APPLICABLE)
            pytest.skip(finding.message)
