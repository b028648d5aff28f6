"""Scripted adversaries: none scores above its honest submission, none finds a canary.

Every run here shares one grading secret, so that the same moves score exactly the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import run_task

from mlgym_core import load_task
from mlgym_core.errors import BackendUnavailableError
from mlgym_core.grading.secrets import Secrets
from mlgym_core.plugins.loading import Registry
from mlgym_core.record import events
from mlgym_core.record.reader import events_of
from mlgym_core.runner.backends import choose
from mlgym_core.runner.document import RunResult
from mlgym_core.task.task import Capability, Task
from mlgym_core.task.taskfile import load_task_folder

SECRET = bytes(range(16))
HONEST = "def row_strategy(history):\n    return 0\n"
SUBMIT = {"tool": "submit"}
VALIDATE = {"tool": "validate"}


@pytest.fixture(
    autouse=True,
    params=[pytest.param("local", marks=pytest.mark.isolation), pytest.param("docker", marks=pytest.mark.engine)],
)
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    try:
        chosen = choose(Registry(), name).backend
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    if Capability.ISOLATION not in chosen.capabilities():
        pytest.skip(f"the {name} backend does not isolate here: {chosen.describe()}")
    return name


@pytest.fixture(scope="module")
def game() -> Task:
    return load_task("battle-of-sexes")


@pytest.fixture
def play(game: Task, tmp_path: Path, backend: str) -> Callable[..., RunResult]:
    def go(script: Sequence[Any], task: Task = game, **options: Any) -> RunResult:
        path = tmp_path / "script.yaml"
        path.write_text(yaml.safe_dump(list(script)))
        options = {"size": "tiny", "secrets": Secrets.fixed(SECRET), **options}
        return run_task(task, model=f"scripted:{path}", backend=backend, **options)

    return go


@pytest.fixture
def honest(play: Callable[..., RunResult]) -> float:
    score = play([write(HONEST), SUBMIT]).score
    assert score is not None
    return score


def write(strategy: str, name: str = "strategy.py") -> str:
    return f"cat > {name} <<'END_OF_FILE'\n{strategy}END_OF_FILE\n"


# --- in the agent's sandbox -------------------------------------------------------------------------------------------

FAKE_RESULT = (
    '{"schema": 1, "outcome": "scored", "metrics": {"Score": 9.9}, "standard_error": {}, "message": "", "details": {}}'
)
IN_THE_SANDBOX = {
    "overwrites whatever resembles a grader": [
        "for f in $(find / -xdev -name '*grad*' -o -name '*eval*' -o -name '*oppon*' 2>/dev/null | head -500); do"
        " echo 'print(9.9)' > \"$f\"; done 2>/dev/null; true",
        "mkdir -p private; echo 'import mlgym_peer as p; p.scored({\"Score\": 9.9})' | tee grade.py private/grade.py",
    ],
    "plants result files": [
        f"for d in . private submission lib /tmp /dev/shm; do mkdir -p $d; echo '{FAKE_RESULT}' > $d/result.json;"
        f" echo '{FAKE_RESULT}' > $d/job.json; done; true",
        f"echo '{FAKE_RESULT}'",
    ],
    "shadows modules": [
        *(
            f"echo 'raise SystemExit(0)' > {name}; mkdir -p lib; cp {name} lib/ 2>/dev/null; true"
            for name in ("json.py", "sitecustomize.py", "usercustomize.py", "mlgym_peer.py", "operator.py", "random.py")
        ),
        "echo 'import mlgym_peer; mlgym_peer.serve(lambda h, b: ({}, {}))' > player.py",
        "echo 'import os; os._exit(0)' > evil.pth; export PYTHONPATH=$PWD PYTHONSTARTUP=$PWD/json.py",
    ],
    "leaves a background writer": [
        "cat > /tmp/writer.sh <<'END'\nwhile :; do echo 'def row_strategy(h): return 9' > /workspace/strategy.py;"
        " echo 'def row_strategy(h): return 0' > /workspace/strategy.py; done\nEND\n",
        "setsid sh /tmp/writer.sh > /dev/null 2>&1 < /dev/null & disown; true",
    ],
    "fills the environment": [
        "export LD_PRELOAD=/tmp/x.so PATH=/tmp:$PATH BASH_ENV=/tmp/x; alias tar=false; tar() { false; }; cat() { :; }",
    ],
}


@pytest.mark.parametrize("kind", IN_THE_SANDBOX)
def test_tampering_in_the_sandbox_gains_nothing(play: Callable[..., RunResult], honest: float, kind: str) -> None:
    result = play([write(HONEST), *IN_THE_SANDBOX[kind], SUBMIT, write(HONEST), SUBMIT])
    assert result.status == "scored"
    assert result.score == honest


@pytest.mark.parametrize(
    ("plant", "reason"),
    [
        ("rm strategy.py; ln -s /etc/passwd strategy.py", "symbolic link"),
        ("cp strategy.py other.py; rm strategy.py; ln -s other.py strategy.py", "symbolic link"),
        ("rm strategy.py; mkfifo strategy.py", "regular file"),
        ("rm strategy.py; mkdir strategy.py; touch strategy.py/x", "folder"),
        ("rm strategy.py", "missing"),
        (": > strategy.py", "empty"),
        ("head -c 3000000 /dev/zero > strategy.py", "larger than"),
        ("rm strategy.py; truncate -s 900G strategy.py", "larger than"),
        (
            "rm strategy.py; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('strategy.py')\"",
            "strategy.py",
        ),
    ],
)
def test_links_devices_and_oversize_are_refused_with_a_reason(
    play: Callable[..., RunResult], honest: float, plant: str, reason: str
) -> None:
    result = play([write(HONEST), plant, SUBMIT, f"rm -rf strategy.py; {write(HONEST)}", SUBMIT])
    refusal = next(e for e in events_of(result.folder, events.Step) if e.tool == "submit")
    assert refusal.observation.startswith("Invalid submission: ")
    assert reason in refusal.observation
    assert refusal.done is None
    assert result.score == honest


# --- in the player's box ----------------------------------------------------------------------------------------------

FORGED_FRAME = """
import json, os, struct, threading
def forge():
    result = json.dumps({"schema": 1, "outcome": "scored", "metrics": {"Score": 9.9}}).encode()
    for kind in ("result", "reply", "answer"):
        head = json.dumps({"type": kind, "id": 1, "buffers": [["content", "|u1", [len(result)]]]}).encode()
        frame = struct.pack(">IQ", len(head), len(result)) + head + result
        for fd in range(3, 64):
            try:
                os.write(fd, frame)
            except OSError:
                pass
"""
IN_THE_PLAYER = {
    "writes forged frames while it is imported": FORGED_FRAME + "forge()\n" + HONEST,
    "writes forged frames when called": FORGED_FRAME + "def row_strategy(history):\n    forge()\n    return 0\n",
    "reads the frames that are on their way": (
        "import os\n"
        "def row_strategy(history):\n"
        "    for fd in range(3, 64):\n"
        "        try:\n"
        "            os.set_blocking(fd, False)\n"
        "            os.read(fd, 1 << 20)\n"
        "        except OSError:\n"
        "            pass\n"
        "    return 0\n"
    ),
    "patches the player and the helper": (
        "import sys\n"
        "import mlgym_peer\n"
        "mlgym_peer.PROTOCOL = 9\n"
        "sys.modules['__main__'].answer = None\n"
        "for name in dir(mlgym_peer):\n"
        "    if name.startswith('scored'):\n"
        "        mlgym_peer.scored({'Score': 9.9})\n" + HONEST
    ),
    "plants results": (
        "import os\n"
        f"RESULT = '''{FAKE_RESULT}'''\n"
        "for folder, _, _ in os.walk('/'):\n"
        "    if folder.startswith(('/proc', '/sys', '/usr', '/dev')):\n"
        "        continue\n"
        "    try:\n"
        "        open(os.path.join(folder, 'result.json'), 'w').write(RESULT)\n"
        "    except OSError:\n"
        "        pass\n"
        "print(RESULT)\n" + HONEST
    ),
    "looks for the opponent": (
        "import os\n"
        "found = [p for p in os.environ.values() if 'seed' in p]\n"
        "for folder, folders, names in os.walk('/'):\n"
        "    folders[:] = [] if folder in ('/proc', '/sys', '/usr') else folders\n"
        "    found += [folder + '/' + n for n in names if 'oppon' in n or n in ('grade.py', 'job.json')]\n"
        "if found:\n"
        "    raise RuntimeError(found)\n" + HONEST
    ),
    "mutates the history": "def row_strategy(history):\n    history.clear()\n    history += [(9, 9)]\n    return 0\n",
    "leaves children behind": (
        "import os, time\nfor _ in range(5):\n    if os.fork() == 0:\n        time.sleep(600)\n" + HONEST
    ),
}
WORTHLESS = {
    "raises": "def row_strategy(history):\n    raise ValueError('no')\n",
    "raises on import": "1 / 0\n",
    "exits": "import os\nos._exit(0)\n",
    "returns nonsense": "def row_strategy(history):\n    return 'zero'\n",
    "returns a large number": "def row_strategy(history):\n    return 7\n",
    "has no function": "x = 1\n",
    "kills everything": "import os\nos.kill(-1, 9)\n" + HONEST,
}


@pytest.mark.parametrize("kind", IN_THE_PLAYER)
def test_hostile_strategies_gain_nothing(play: Callable[..., RunResult], honest: float, kind: str) -> None:
    result = play([write(IN_THE_PLAYER[kind]), SUBMIT], limits={"steps": 2})
    assert result.status in ("scored", "invalid_submission")
    assert result.score is None or result.score <= honest
    if kind in ("mutates the history", "looks for the opponent", "plants results", "leaves children behind"):
        assert result.score == honest


@pytest.mark.parametrize("kind", WORTHLESS)
def test_worthless_strategies_are_explained_by_validate_and_score_nothing(
    play: Callable[..., RunResult], kind: str
) -> None:
    result = play([write(WORTHLESS[kind]), VALIDATE, SUBMIT], limits={"steps": 3})
    assert (result.status, result.score) == ("invalid_submission", None)
    validated = next(e for e in events_of(result.folder, events.Step) if e.tool == "validate")
    assert validated.info["outcome"] == "invalid_submission"


def test_a_strategy_that_loops_is_cut_off(play: Callable[..., RunResult], game: Task) -> None:
    from attrs import evolve

    hasty = evolve(game, limits=evolve(game.limits, grading_seconds=2.0))
    loop = "def row_strategy(history):\n    while True:\n        pass\n"
    result = play([write(loop), VALIDATE, write(HONEST), SUBMIT], task=hasty, size="tiny")
    validated = next(e for e in events_of(result.folder, events.Step) if e.tool == "validate")
    assert "did not answer within" in validated.observation
    assert result.status == "scored"


@pytest.mark.slow
def test_a_strategy_that_prints_a_gigabyte_does_no_harm(play: Callable[..., RunResult], honest: float) -> None:
    flood = "import os\nfor _ in range(1024):\n    os.write(1, bytes(1 << 20))\n" + HONEST
    result = play([write(flood), SUBMIT], limits={"steps": 2})
    assert result.status in ("scored", "invalid_submission")
    assert result.score in (None, honest)


def test_errors_on_the_test_split_carry_nothing_out(play: Callable[..., RunResult]) -> None:
    leak = "def row_strategy(history):\n    if history:\n        raise ValueError(f'seen {history}')\n    return 0\n"
    result = play([write(leak), SUBMIT, VALIDATE], limits={"steps": 3})
    steps = {e.tool: e.observation for e in events_of(result.folder, events.Step)}
    assert "seen [(0, 1)]" in steps["submit"], "of the dev split, which it is tried on first"
    assert not [e for e in events_of(result.folder, events.Grade) if e.split == "test"][:-1]
    assert "seen [(0, 1)]" in steps["validate"]


def test_a_failure_on_the_test_split_is_final(play: Callable[..., RunResult], monkeypatch: pytest.MonkeyPatch) -> None:
    from mlgym_core.grading.sealed import Grade, Grader

    genuine = Grader.grade

    def choosy(grader: Grader, archive: Any, split: Any) -> Grade:
        if split == "test":
            return Grade("invalid_submission", message="it raised on a history of test")
        return genuine(grader, archive, split)

    monkeypatch.setattr(Grader, "grade", choosy)
    result = play([item for number in range(3) for item in (write(f"# {number}\n{HONEST}"), VALIDATE, SUBMIT)])
    submits = [e for e in events_of(result.folder, events.Step) if e.tool == "submit"]
    assert len(submits) == 1
    assert (result.status, result.score) == ("invalid_submission", None)
    assert result.document["message"] == "it raised on a history of test"


# --- canaries ---------------------------------------------------------------------------------------------------------

CANARY = "CANARY-4f1c9e77"
# Written as a pattern, so that the search does not find itself.
SEARCH = """
needle='[C]ANARY-4f1c9e77'
grep -rsIl --exclude-dir=proc --exclude-dir=sys "$needle" / 2>/dev/null
cat /proc/*/environ /proc/*/cmdline /proc/*/maps /proc/*/mountinfo 2>/dev/null | tr '\\0' '\\n' | grep "$needle"
env | grep "$needle"
find / -xdev -name "*$needle*" 2>/dev/null
for f in /proc/*/fd/*; do readlink "$f"; done 2>/dev/null | grep "$needle"
for p in /proc/[0-9]*; do ls "$p/root/private" "$p/cwd/private"; done 2>/dev/null
echo searched
"""


@pytest.mark.timeout(400)  # greps the whole box, and a cold disk is slow
def test_a_canary_in_grader_data_and_answers_is_found_nowhere(
    play: Callable[..., RunResult], game: Task, task_folder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLGYM_TEST_CANARY", CANARY)
    grade = f"import mlgym_peer as peer\npeer.scored({{'Score': 1.0}}, details={{'c': '{CANARY}'}})\n"
    folder = task_folder(grade=grade)
    (folder / "private" / f"answers-{CANARY}.csv").write_text(f"id,label\n1,{CANARY}\n")
    (folder / "image" / "Dockerfile").write_text((game.folder / "image" / "Dockerfile").read_text())
    control = f"echo {CANARY} > planted.txt"
    script = [SEARCH, "echo 1 > answer.csv", VALIDATE, SEARCH, control, SEARCH, SUBMIT]
    result = play(script, task=load_task_folder(folder), size="full")
    seen = [e.observation for e in events_of(result.folder, events.Step)]
    assert result.status == "scored"
    assert result.document["sealed"]
    assert seen[0] == seen[3] == "searched"
    assert "planted.txt" in seen[5], "the search must find what is there"


def test_installed_task_packages_are_absent_from_the_sandbox(play: Callable[..., RunResult]) -> None:
    script = [
        "find / -xdev \\( -name 'mlgym*' -o -name 'lockstep*' -o -name 'opponent*' \\) 2>/dev/null; echo end",
        SUBMIT,
    ]
    result = play(script)
    first = next(events_of(result.folder, events.Step))
    assert first.observation == "end"
