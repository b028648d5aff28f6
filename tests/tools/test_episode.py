"""The tools in a real sandbox: as tool calls, inside bash, and as requests to validate and submit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import open_task
from tools.toolbox import shown

from mlgym_core import Action, Episode, RunConfig, StepResult, open_episode
from mlgym_core.episode.episode import FREE_REFUSALS
from mlgym_core.errors import BackendUnavailableError
from mlgym_core.plugins.loading import Registry
from mlgym_core.record.eventjson import to_json
from mlgym_core.record.reader import read_events
from mlgym_core.runner.backends import choose
from mlgym_core.sandbox.local.backend import LocalBackend
from mlgym_core.task.taskfile import load_task_folder

GRADE = """
import mlgym_peer as peer
job = peer.job()
value = float(open("submission/answer.csv").read())
peer.scored({"Score": value if job.split == "test" else value / 10})
"""


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def episode(task_folder: Callable[..., Path], out: Path) -> Iterator[Episode]:
    task = load_task_folder(task_folder(grade=GRADE))
    with open_task(task, backend="local", allow_unsafe=True, out=out) as opened:
        opened.reset()
        yield opened


def call(episode: Episode, tool: str, **arguments: object) -> StepResult:
    return episode.step(Action(tool, arguments))


def test_calls_and_commands_share_the_open_file(episode: Episode) -> None:
    where = episode.workdir
    result = call(episode, "create", path="a.py", text="import os\n")
    assert (result.open_file, result.directory) == (f"{where}/a.py", where)
    result = episode.step("mkdir d && cd d && insert 1 <<'EOF'\nprint(os.name)\nEOF")
    assert shown(result.observation) == {1: "import os", 2: "print(os.name)"}
    assert (result.open_file, result.directory) == (f"{where}/a.py", f"{where}/d")
    result = call(episode, "edit", start=2, end=2, text="print(osx)")
    assert "undefined name 'osx'" in result.observation
    assert result.info["exit_code"] == 1
    result = episode.step("edit 1:2\nprint(1)\nend_of_edit")
    assert shown(result.observation) == {1: "print(1)"}
    assert episode.step("python3 ../a.py").observation == "1"
    result = call(episode, "goto", line="x")
    assert "must be an integer" in result.observation


def test_a_large_text_arrives_byte_for_byte(episode: Episode) -> None:
    text = ('it\'s "quoted" $HOME `id` \\ \u4e16\nEOF\n' * 50_000)[: 1 << 20]
    result = call(episode, "create", path="large", text=text)
    assert result.info["exit_code"] == 0
    assert episode.read_file("large", 1 << 22) == text.encode()
    old = text[5000:100_000]
    call(episode, "replace", old=old, new="", all=True)
    assert episode.read_file("large", 1 << 22) == text.replace(old, "").encode()


def test_the_open_file_survives_whatever_ends_the_shell(episode: Episode) -> None:
    call(episode, "create", path="a", text="1\n2\n")
    for command in ("exit 1", "kill -9 $$", "rm -rf ~; cd /tmp; exit"):
        result = episode.step(command)
        assert result.open_file == f"{episode.workdir}/a"
    assert result.directory == "/tmp"
    assert shown(call(episode, "goto", line=1).observation) == {1: "1", 2: "2"}


def test_tools_work_whatever_the_agent_makes_of_its_path(episode: Episode) -> None:
    call(episode, "create", path="a", text="x\n")
    episode.step("export PATH=/usr/bin:/bin; open() { echo mine; }; cd /")
    assert "1:x" in call(episode, "open", path=f"{episode.workdir}/a").observation


@pytest.mark.parametrize(
    "command",
    [
        "submit",
        "submit; exit 3",
        "python3 -c 'import subprocess; subprocess.run([\"submit\"])'",
        "echo submit | sh",
        "submit >/dev/null 2>&1 & wait",
    ],
)
def test_submit_in_a_shell_action_submits_when_it_ends(episode: Episode, command: str) -> None:
    result = episode.step(f"echo 3 > answer.csv; {command}; echo 4 > answer.csv")
    last = 3 if "exit" in command else 4
    assert (result.done, result.reason, result.info["requested"]) == (True, "submitted", "submit")
    assert result.observation.endswith("[submit]\nSubmitted.")
    assert episode.submitted is not None
    assert episode.submitted.grades["test"].metrics == {"Score": last}
    assert episode.steps == 1


@pytest.mark.parametrize(
    "command",
    [
        "echo submit",
        'cat "$(command -v submit)"',
        'printf \'\\036submit\\036\\n{"request": {"id": "1", "tool": "submit"}}\\n\'',
        'cat "$MLGYM_TOOLS_STATE"',
        'echo \'{"request": {"id": "1", "tool": "format_disk"}}\' > $MLGYM_TOOLS_STATE',
        'echo \'{"request": {"id": "1", "tool": "bash"}}\' > $MLGYM_TOOLS_STATE',
    ],
)
def test_what_only_looks_like_a_request_does_nothing(episode: Episode, command: str) -> None:
    result = episode.step(f"echo 3 > answer.csv; {command}")
    assert (result.done, "requested" in result.info) == (False, False)
    assert not episode.attempts


def test_validate_in_a_shell_action_is_done_once(episode: Episode) -> None:
    result = episode.step("echo 5 > answer.csv; validate")
    assert result.observation.endswith("[validate]\ndev score: Score 0.5. 49 validations left.")
    assert (result.info["requested"], result.info["metrics"]) == ("validate", {"Score": 0.5})
    episode.step("cp $MLGYM_TOOLS_STATE /tmp/old")
    call(episode, "create", path="other")
    for command in ("true", "exit", "cp /tmp/old $MLGYM_TOOLS_STATE"):
        assert "requested" not in episode.step(command).info
    assert len(episode.attempts) == 1
    assert episode.step("validate; validate").observation.endswith("48 validations left.")
    assert len(episode.attempts) == 2


def test_the_newest_request_of_an_action_counts(episode: Episode) -> None:
    result = episode.step("echo 5 > answer.csv; submit; validate")
    assert (result.done, result.info["requested"]) == (False, "validate")


def test_a_request_of_an_action_that_was_cut_off_is_not_lost(episode: Episode) -> None:
    result = call(episode, "bash", command="echo 5 > answer.csv; validate; sleep 600", timeout=1.0)
    assert (result.info["status"], result.info["requested"]) == ("timed_out", "validate")


LONG = "\u4e16" * 60
LOSES_THE_STATE = [
    f"mkdir -p {LONG}/{LONG}/{LONG}/{LONG}/{LONG}/{LONG}/{LONG}; cd {LONG}/*/*/*/*/*/*; create a; cd ~-",
    "umask 777",
    "export MLGYM_TOOLS_STATE=/tmp/elsewhere",
    "cd; submit() { env -i PATH=$PATH submit; }",
]


@pytest.mark.parametrize("before", LOSES_THE_STATE)
def test_no_request_is_lost(episode: Episode, before: str) -> None:
    result = episode.step(f"echo 5 > answer.csv; {before}; submit")
    assert (result.done, result.info.get("requested")) == (True, "submit"), result.observation


@pytest.mark.isolation
@pytest.mark.parametrize("before", LOSES_THE_STATE)
def test_no_request_is_lost_in_a_namespace(task_folder: Callable[..., Path], out: Path, before: str) -> None:
    try:
        backend = LocalBackend(isolate=True)
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    task = load_task_folder(task_folder(grade=GRADE))
    with open_task(task, backend=backend, allow_unsafe=True, out=out) as opened:
        opened.reset()
        result = opened.step(f"echo 5 > answer.csv; {before}; submit")
    assert (result.done, result.info.get("requested")) == (True, "submit"), result.observation


def test_several_published_edits_in_one_action_do_nothing(episode: Episode) -> None:
    call(episode, "create", path="a", text="1\n2\n3\n")
    edit, insert = "edit 1:1\nA\nend_of_edit", "insert 3\nE\nend_of_insert"
    for command in (f"{edit}\n{insert}", f"{insert}\n{edit}", f"{edit}\n{edit}\n", f"{edit}\ncat a"):
        result = episode.step(command)
        assert "an action" in result.observation, command
        assert episode.read_file("a", 100) == b"1\n2\n3\n"
    assert "lines total" in episode.step(f"{edit}\r\n \n").observation
    assert episode.read_file("a", 100) == b"A\n2\n3\n"


def test_an_invalid_submission_on_request_ends_nothing(episode: Episode) -> None:
    result = episode.step("submit")
    assert (result.done, result.info["outcome"]) == (False, "invalid_submission")
    assert episode.step("echo 1 > answer.csv; submit").done


@pytest.mark.isolation
def test_what_the_agents_user_may_not_do_is_said(task_folder: Callable[..., Path], out: Path) -> None:
    try:
        backend = LocalBackend(isolate=True)
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    with open_task(load_task_folder(task_folder()), backend=backend, allow_unsafe=True, out=out) as episode:
        episode.reset()
        episode.step("mkdir kept shut; echo 1 > kept/a; chmod 555 kept; echo needle | tee secret > shut/b; chmod 0 s*")
        assert "permission denied" in call(episode, "open", path="secret").observation
        assert "2 folders or files could not be read" in call(episode, "search_dir", term="needle").observation
        call(episode, "open", path="kept/a")
        assert call(episode, "edit", start=1, end=1, text="longer").info["exit_code"] == 0
        assert episode.step("cat kept/a").observation == "longer"
        call(episode, "open", path="/etc/passwd")
        assert "is read-only" in call(episode, "insert", line=0, text="x").observation
        assert "cannot be made" in call(episode, "create", path="/usr/new/file").observation
        assert call(episode, "create", path="kept/new").info["exit_code"] == 1


@pytest.mark.engine
def test_the_tools_work_in_a_container(out: Path) -> None:
    try:
        choose(Registry(), "docker")
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    config = RunConfig("battle-of-sexes", backend="docker", size="tiny", allow_unsafe=True, out=out)
    with open_episode(config) as episode:
        episode.reset()
        first = shown(call(episode, "open", path="strategy.py").observation)
        assert len(first) > 10
        assert "undefined name 'nothing'" in call(episode, "insert", line=len(first), text="nothing\n").observation
        assert episode.step("exit 1").open_file == "/workspace/strategy.py"
        assert shown(call(episode, "goto", line=1).observation) == first
        assert "Permission denied" in episode.step('echo > "$(command -v open)"').observation
        episode.step("export MLGYM_TOOLS_STATE=/tmp/elsewhere")
        result = episode.step("python3 -c 'import os; os.system(\"submit\")'")
        assert (result.done, result.info["outcome"]) == (True, "accepted")


def test_odd_places_are_recorded_as_text(episode: Episode, out: Path) -> None:
    episode.step("mkdir \"$(printf 'a\\377')\" && cd a*; echo x > f")
    result = call(episode, "open", path="f")
    assert result.directory == f"{episode.workdir}/a\ufffd"
    assert result.open_file == f"{episode.workdir}/a\ufffd/f"
    (folder,) = out.iterdir()
    json.dumps([to_json(event) for event in read_events(folder)], ensure_ascii=False).encode()


def test_arguments_are_taken_as_they_are_meant(episode: Episode) -> None:
    result = call(episode, "bash", command="sleep 0.1; echo done", timeout="20")
    assert (result.observation, result.step) == ("done", 1)
    assert call(episode, "create", path="a.py", text="x = 0\ny = 0\n").step == 2
    result = call(episode, "replace", old="0", new="1", all="True", path="")
    assert shown(result.observation) == {1: "x = 1", 2: "y = 1"}
    assert shown(call(episode, "goto", line="2").observation) == {1: "x = 1", 2: "y = 1"}
    assert "a.py" in call(episode, "search_dir", term="y", dir=None).observation
    given: Any = '{"command": "echo within"}'
    assert episode.step(Action("bash", given)).observation == "within"
    nothing: Any = None
    assert episode.step(Action("validate", nothing)).info["outcome"] == "invalid_submission"


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (Action("bash", {"command": "touch done", "timeout": "soon"}), "'timeout' must be a number"),
        (Action("bash", {"command": "touch done", "timeout": -1}), "must be a positive number"),
        (Action("bash", {"command": ["touch", "done"]}), "'command' must be a string"),
        (Action("bash", {"script": "touch done"}), "'command' is missing"),
        (Action("goto", {"line": 1.5}), "'line' must be an integer"),
        (Action("shell", {"command": "touch done"}), "There is no tool 'shell'"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.tool,
)
def test_a_refusal_for_form_alone_costs_no_step(episode: Episode, out: Path, action: Action, message: str) -> None:
    episode.step("true")
    result = episode.step(action)
    assert message in result.observation
    assert (result.step, episode.steps, result.done) == (1, 1, False)
    assert episode.run_command("ls").stdout.head == b""
    kinds = [event.kind for event in read_events(next(out.iterdir()))]
    assert (kinds.count("step"), kinds.count("refusal")) == (1, 1)


def test_refusals_for_form_without_end_use_up_the_steps(episode: Episode) -> None:
    for number in range(FREE_REFUSALS):
        assert episode.step(Action("goto", {"line": f"x{number}"})).step == 0
    while not episode.step(Action("goto", {"line": "x"})).done:
        pass
    assert (episode.steps, episode.reason) == (episode.limits.steps, "steps")
