"""The order that seals the test split: nothing of it exists, and nothing is run on it, while an agent is alive."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import open_task, run_task, write_task

from mlgym_core import Action, RunConfig, load_task_folder, run_together
from mlgym_core.errors import UsageError
from mlgym_core.grading.sealed import Grader
from mlgym_core.grading.secrets import Secrets
from mlgym_core.record import events
from mlgym_core.record.reader import events_of, read_events, read_result
from mlgym_core.sandbox.base import BoxSpec, Peer, Sandbox
from mlgym_core.sandbox.local.backend import LocalBackend
from mlgym_core.task.task import Capability, Task

VALIDATE = {"tool": "validate"}
SUBMIT = {"tool": "submit"}

# The score is the first number of answer.csv on dev, and its second on test; "bad" fails on test alone.
GRADE = """
import mlgym_peer as peer
job = peer.job()
dev, test = (job.paths["submission"] / "answer.csv").read_text().split()
if job.split == "test" and test == "bad":
    raise peer.InvalidSubmission("bad on test")
peer.scored({"Score": float(dev if job.split == "dev" else test)})
"""


class Watched(LocalBackend):
    """Plain processes that note what is alive whenever a box of a grading is opened."""

    def __init__(self) -> None:
        super().__init__(isolate=False)
        self.alive = 0
        self.secrets = Secrets()
        self.seen: list[tuple[int, bool]] = []

    def open_sandbox(self, spec: BoxSpec) -> Sandbox:
        sandbox = super().open_sandbox(spec)
        self.alive += 1
        close = sandbox.close

        def closed(keep: bool = False) -> None:
            close(keep)
            self.alive -= 1

        sandbox.close = closed  # type: ignore[method-assign]
        return sandbox

    def open_peer(self, spec: BoxSpec, program: str) -> Peer:
        self.seen.append((self.alive, self.secrets.drawn is not None))
        return super().open_peer(spec, program)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return load_task_folder(write_task(tmp_path / "task", grade=GRADE))


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., str]:
    def write(*actions: Any) -> str:
        path = tmp_path / f"script{len(list(tmp_path.iterdir()))}.yaml"
        path.write_text(yaml.safe_dump(list(actions)))
        return f"scripted:{path}"

    return write


def put(dev: float, test: object) -> str:
    return f"echo {dev} {test} > answer.csv"


def test_nothing_is_graded_on_test_before_the_agents_box_is_closed_and_its_work_committed_to(
    task: Task, script: Callable[..., str]
) -> None:
    backend = Watched()
    model = script(put(1, 5), VALIDATE, put(2, 6), VALIDATE, put(3, 7), SUBMIT)
    result = run_task(task, model=model, backend=backend, secrets=backend.secrets)
    assert result.document["scores"]["test"] == {"Score": 7.0}
    assert backend.seen == [(1, False)] * 3 + [(0, True)] * 3
    recorded = list(read_events(result.folder))
    kinds = [event.kind for event in recorded]
    assert kinds.index("commitment") < kinds.index("test_drawn")
    first = next(n for n, e in enumerate(recorded) if isinstance(e, events.Grade) and e.split == "test")
    assert kinds.index("test_drawn") < first
    archives = {event.archive for event in events_of(result.folder, events.Grade)}
    (commitment,) = events_of(result.folder, events.Commitment)
    assert list(commitment.archives) == sorted(archives)


def test_runs_that_are_compared_are_graded_when_the_last_agent_has_ended(
    task: Task, script: Callable[..., str], tmp_path: Path
) -> None:
    backend = Watched()
    configs = [
        RunConfig(model=script(put(1, number), SUBMIT), out=tmp_path / "runs", allow_unsafe=True) for number in range(3)
    ]
    results = run_together(configs, task=task, backend=backend, secrets=backend.secrets)
    assert [result.score for result in results] == [0.0, 1.0, 2.0]
    assert {drawn for alive, drawn in backend.seen if alive} == {False}
    assert [alive for alive, drawn in backend.seen if drawn] == [0, 0, 0]
    seeds = {json.loads((result.folder / "run.json").read_text())["seeds"]["grading_test"] for result in results}
    assert len(seeds) == 1


def test_a_failure_of_one_run_does_not_take_the_others_along(
    task: Task, script: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlgym_core.errors import InfrastructureError

    backend = Watched()
    opened = iter(range(3))
    genuine = backend.open_sandbox

    def failing(spec: BoxSpec) -> Sandbox:
        if next(opened) == 1:
            raise InfrastructureError("the engine has no room")
        return genuine(spec)

    monkeypatch.setattr(backend, "open_sandbox", failing)
    config = RunConfig(model=script(put(1, 4), SUBMIT), out=tmp_path / "runs", allow_unsafe=True)
    results = run_together([config] * 3, task=task, backend=backend)
    assert [result.status for result in results] == ["scored", "infra_error", "scored"]


def test_the_secret_cannot_be_drawn_while_an_agent_could_profit() -> None:
    secrets = Secrets()
    secrets.expect("one")
    secrets.expect("two")
    secrets.ended("one")
    secrets.ended("one")
    with pytest.raises(UsageError, match="two"):
        secrets.test()
    assert secrets.drawn is None
    secrets.ended("two")
    assert secrets.test() == secrets.test() != secrets.dev
    assert secrets.dev.hex() not in repr(secrets)


def test_no_agent_begins_with_secrets_that_something_was_graded_with(task: Task, script: Callable[..., str]) -> None:
    secrets = Secrets()
    config = {"model": script(put(1, 4), SUBMIT), "backend": "local", "secrets": secrets}
    first = run_task(task, **config)
    assert first.score == 4.0
    with pytest.raises(UsageError, match="run_together"):
        run_task(task, **config)
    assert [*first.folder.parent.iterdir()] == [first.folder], "nothing has been created"
    fixed = {**config, "secrets": Secrets.fixed(bytes(16))}
    assert [run_task(task, **fixed).score for _ in range(2)] == [4.0, 4.0]


def test_many_threads_draw_one_secret() -> None:
    secrets = Secrets()
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: secrets.test(), range(32)))) == 1


def test_a_failure_on_test_is_final_for_its_archive_and_the_reason_is_told_afterwards(
    task: Task, script: Callable[..., str]
) -> None:
    result = run_task(task, model=script(put(1, 5), VALIDATE, put(9, "bad"), SUBMIT), backend="local")
    assert (result.status, result.score) == ("invalid_submission", None)
    assert result.document["message"] == "bad on test"
    assert result.document["scores"]["best_attempt"]["Score"] == 5.0


def test_late_grading_ends_when_its_time_is_used_up_and_says_what_is_left_out(
    task: Task, script: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    graded: list[str] = []
    genuine = Grader.grade

    def slow(grader: Grader, archive: Any, split: Any) -> Any:
        import time

        if split == "test":
            graded.append(archive.digest)
            time.sleep(0.3)
        return genuine(grader, archive, split)

    monkeypatch.setattr(Grader, "grade", slow)
    steps = [item for dev in (1, 9, 2, 3) for item in (put(dev, dev * 10), VALIDATE)]
    model = script(*steps, put(4, 40), SUBMIT)
    result = run_task(task, model=model, backend="local", limits={"late_grading_seconds": 0.25})
    document = result.document
    assert document["scores"]["test"] == {"Score": 40.0}
    assert document["scores"]["best_on_dev"]["Score"] == 90.0, "the best on dev comes first"
    assert len(graded) == 2
    assert document["not_scored_on_test"] == 3
    notices = [event.text for event in events_of(result.folder, events.Notice)]
    assert any("3 submissions" in text for text in notices)


def test_an_episode_of_ones_own_is_settled_by_submit(task: Task) -> None:
    backend = Watched()
    with open_task(task, backend=backend, allow_unsafe=True, secrets=backend.secrets) as episode:
        episode.reset()
        episode.step(put(1, 8))
        assert episode.step(Action("submit")).done
        assert episode.submitted is not None
        assert episode.submitted.grades["test"].metrics == {"Score": 8.0}
        assert backend.alive == 0


def test_validating_on_test_says_what_it_gives_up(task: Task, script: Callable[..., str]) -> None:
    document = run_task(task, model=script(put(1, 5), VALIDATE, SUBMIT), backend="local", validate_on="test").document
    assert "while the agent was alive" in document["caveats"][0]
    assert run_task(task, model=script(put(1, 5), SUBMIT), backend="local").document["caveats"] == []


# --- the channel that made this order necessary -----------------------------------------------------------------------

BITS = 24
STRIDE = 1 << 18  # bytes from page to page, so that reading ahead from one does not bring in the next

# Finds a file that both boxes see and whose pages can be dropped: those of a running program cannot.
CHOOSE = f"""
import os, time
def evictable(path):
    file = os.open(path, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    times = []
    for place in [{BITS + 2}, {BITS + 2}]:
        started = time.perf_counter()
        os.pread(file, 1, place * {STRIDE})
        times.append(time.perf_counter() - started)
    return times[0] > 5 * times[1]
found = []
for folder, _, names in os.walk("/usr"):
    for path in (os.path.join(folder, name) for name in names):
        if os.path.isfile(path) and not os.path.islink(path) and os.path.getsize(path) > {(BITS + 3) * STRIDE}:
            found.append(path)
print(next(filter(evictable, sorted(found, key=os.path.getsize, reverse=True)), "none"))
"""
AGENT = f"""
import os, sys, time
file = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
if sys.argv[2] == "drop":
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
else:
    times = []
    for bit in range({BITS + 2}):
        started = time.perf_counter()
        os.pread(file, 1, bit * {STRIDE})
        times.append(time.perf_counter() - started)
    one, zero = times[{BITS}:]
    print("bits", "".join("1" if spent * spent < one * zero else "0" for spent in times[:{BITS}]))
"""
PLAYER = f"""
import os
def row_strategy(history):
    if len(history) < 2:
        return 0
    bits = format(hash(tuple(map(tuple, history))) & {(1 << BITS) - 1}, "0{BITS}b")
    file = os.open("@FILE@", os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    for place, bit in enumerate(bits):
        if bit == "1":
            os.pread(file, 1, place * {STRIDE})
    os.pread(file, 1, {BITS} * {STRIDE})
    raise ValueError(f"bits {{bits}}")
"""


@pytest.mark.isolation
def test_a_channel_through_the_page_cache_carries_bits_of_dev_and_there_is_nobody_to_read_those_of_test() -> None:
    backend = LocalBackend()
    if Capability.ISOLATION not in backend.capabilities():
        pytest.skip(f"local does not declare isolation: {backend.describe()}")
    with open_task("battle-of-sexes", backend=backend, size="tiny") as episode:
        episode.reset()
        episode.write_file("choose.py", CHOOSE.encode())
        file = episode.step("python3 choose.py").observation.strip()
        if file == "none":
            pytest.skip("this machine drops no page of any file below /usr, so this channel does not exist here")
        episode.write_file("agent.py", AGENT.encode())
        episode.write_file("strategy.py", PLAYER.replace("@FILE@", file).encode())
        rounds, right = 3, 0
        for _ in range(rounds):
            episode.step(f"python3 agent.py {file} drop")
            told = episode.step(Action("validate")).observation.split("bits ")[1][:BITS]
            read = episode.step(f"python3 agent.py {file} read").observation.split("bits ")[1][:BITS]
            right += sum(a == b for a, b in zip(told, read, strict=True))
        assert right > 0.7 * rounds * BITS, "the channel does not work, so nothing is proved by closing it"
        folder = episode.submissions.folder.parent
    grades = list(events_of(folder, events.Grade))
    assert grades
    assert not [grade for grade in grades if grade.split == "test"]
    assert json.loads((folder / "run.json").read_text())["seeds"]["grading_test"] is None
    assert read_result(folder)["status"] == "no_submission"
