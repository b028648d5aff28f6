"""What authors get with the core: the contracts, the fixture, and the rule for skips in CI."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from mlgym_core.authoring.testing.models import check_reply
from mlgym_core.errors import ModelError
from mlgym_core.grading.grade import Grade
from mlgym_core.models.base import Message, Model, Reply, ToolCall, Usage
from mlgym_core.models.scripted import ScriptedModel
from mlgym_core.testing import ModelContract, ToolContract
from mlgym_core.tools.base import Tool, ToolOutput
from mlgym_core.tools.builtin import BASH, SUBMIT, VALIDATE

Author = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def author(tmp_path: Path) -> Author:
    """Runs one test file as an author would, in a folder without a configuration of ours."""

    def run(text: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        folder = tmp_path / "author"
        folder.mkdir()
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "test_it.py").write_text(text)
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
            cwd=folder,
            env={name: value for name, value in os.environ.items() if name != "MLGYM_CI"} | variables,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    return run


def test_a_task_contract_runs_one_test_a_check(author: Author, code_task: Path) -> None:
    text = (
        "from pathlib import Path\nfrom mlgym_core.testing import TaskContract\n\n"
        f"class TestTask(TaskContract):\n    task = Path({str(code_task)!r})\n    attacks = 'none'\n"
        "    skip = ('image',)\n\n"
        "    def test_own(self, grade_files):\n"
        "        grade = grade_files({'answer.py': 'def play(values):\\n    return [2 * v for v in values]\\n'})\n"
        "        assert (grade.outcome, grade.metrics['Score']) == ('scored', 0)\n"
    )
    done = author(text, "-vv", "--strict-markers")
    assert done.returncode == 0, done.stdout
    for name in ("spec", "baseline", "deterministic", "canary"):
        assert f"test_check[{name}]" in done.stdout
    assert "test_check[image]" not in done.stdout


def test_a_task_contract_fails_with_what_to_do(author: Author, code_task: Path) -> None:
    (code_task / "__init__.py").write_text("import numpy\n")
    text = (
        "from pathlib import Path\nfrom mlgym_core.testing import TaskContract\n\n"
        f"class TestTask(TaskContract):\n    task = Path({str(code_task)!r})\n"
    )
    done = author(text, "-k", "imports or spec", "--tb=short")
    assert done.returncode == 1
    assert "1 failed, 1 passed" in done.stdout
    assert "imports numpy; import it inside the function that needs it" in done.stdout


@pytest.mark.parametrize(("ci", "outcome"), [("", "1 skipped"), ("1", "1 failed")])
@pytest.mark.parametrize("marker", ["isolation", "engine"])
def test_in_ci_what_is_skipped_for_want_of_something_fails(author: Author, ci: str, outcome: str, marker: str) -> None:
    text = f"import pytest\n\n@pytest.mark.{marker}\ndef test_it():\n    pytest.skip('not here')\n"
    assert outcome in author(text, "--strict-markers", MLGYM_CI=ci).stdout


def test_the_plugin_imports_nothing_heavy() -> None:
    program = (
        "import sys\nimport pytest\nbefore = set(sys.modules)\nimport mlgym_core.authoring.testing.plugin\n"
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == (
        "['mlgym_core', 'mlgym_core.authoring', 'mlgym_core.authoring.testing', 'mlgym_core.authoring.testing.plugin']"
    )


class TestGradeFiles:
    """The fixture of the plugin."""

    @pytest.fixture
    def task(self, code_task: Path) -> Path:
        return code_task

    def test_it_takes_the_fixture_named_task(self, grade_files: Callable[..., Grade]) -> None:
        exact = "def play(values):\n    return [2 * v for v in values]\n"
        assert grade_files({"answer.py": exact}).metrics == {"Score": 0}

    def test_secret_and_split_choose_the_instances(self, grade_files: Callable[..., Grade]) -> None:
        files = {"answer.py": "def play(values):\n    return [0] * len(values)\n"}
        found = [
            grade_files(files).details["first"],
            grade_files(files).details["first"],
            grade_files(files, split="dev").details["first"],
            grade_files(files, secret=bytes(16)).details["first"],
        ]
        assert found[0] == found[1]
        assert len(set(found)) == 3

    def test_what_cannot_be_frozen_is_invalid(self, grade_files: Callable[..., Grade]) -> None:
        grade = grade_files({"other.py": "x = 1\n"})
        assert grade.outcome == "invalid_submission"
        assert "answer.py is missing" in grade.message


class TestBash(ToolContract):
    @pytest.fixture
    def tool(self) -> Tool:
        return BASH

    @pytest.fixture
    def arguments(self) -> Mapping[str, Any]:
        return {"command": "ls"}


class TestValidate(ToolContract):
    @pytest.fixture
    def tool(self) -> Tool:
        return VALIDATE


class TestSubmit(ToolContract):
    @pytest.fixture
    def tool(self) -> Tool:
        return SUBMIT


BAD_TOOLS = {
    "a name with a blank": ("test_name", Tool("my tool", "does what is asked of it", {"type": "object"}, BASH.run)),
    "no description": ("test_name", Tool("mine", "", {"type": "object"}, BASH.run)),
    "an unknown type": (
        "test_schema",
        Tool("mine", "does what is asked", {"type": "object", "properties": {"a": {"type": "str"}}}, BASH.run),
    ),
    "a required stranger": (
        "test_schema",
        Tool("mine", "does what is asked", {"type": "object", "required": ["a"]}, BASH.run),
    ),
}


@pytest.mark.parametrize("name", BAD_TOOLS)
def test_a_tool_contract_can_fail(name: str) -> None:
    begins, tool = BAD_TOOLS[name]
    (method,) = (getattr(ToolContract(), one) for one in dir(ToolContract) if one.startswith(begins))
    with pytest.raises(AssertionError):
        method(tool)


def test_a_tool_that_answers_nothing_fails() -> None:
    silent = Tool("mine", "does what is asked of it", {"type": "object"}, lambda context, arguments: ToolOutput(" "))
    with pytest.raises(AssertionError, match="an agent needs an answer"):
        ToolContract().test_right_arguments_are_answered_with_text(silent, {}, None)


class TestScripted(ModelContract):
    @pytest.fixture
    def model(self) -> Model:
        return ScriptedModel("scripted", ["ls", {"tool": "validate"}, {"tool": "submit"}])


class TestRefusing(ModelContract):
    """A model that documents what it cannot do keeps the contract too."""

    @pytest.fixture
    def model(self) -> Model:
        class Picky:
            name = "picky"

            def complete(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Reply:
                if not 0 < len(messages[1].content) < 1000 or "\0" in messages[1].content:
                    raise ModelError("the conversation is not acceptable")
                return Reply("ls", usage=Usage(10, 2, None, 4, 1))

        return Picky()


BAD_REPLIES = {
    "negative tokens": Reply("x", usage=Usage(-1, 0)),
    "a price that is none": Reply("x", usage=Usage(1, 1, float("nan"))),
    "more cached than sent": Reply("x", usage=Usage(1, 1, 0.0, 2)),
    "equal ids": Reply("x", (ToolCall("1", "bash", {}), ToolCall("1", "bash", {}))),
    "a call without a name": Reply("x", (ToolCall("1", "", {}),)),
    "no reply": None,
}


@pytest.mark.parametrize("name", BAD_REPLIES)
def test_a_model_contract_can_fail(name: str) -> None:
    with pytest.raises(AssertionError):
        check_reply(BAD_REPLIES[name])  # type: ignore[arg-type]
