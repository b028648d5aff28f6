"""A person as the model: at a real terminal, with piped input, and what an entry means."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgym_core.errors import UsageError
from mlgym_core.models.base import Message, ModelContext, ModelStopped, Reply
from mlgym_core.models.human import human as human_module
from mlgym_core.models.human.human import HumanModel, create
from mlgym_core.models.human.terminal import Terminal, Unfinished
from mlgym_core.task.taskfile import load_task_folder
from mlgym_core.tools.builtin import TOOLS

RUN = ["run", "battle-of-sexes", "--size", "tiny", "--backend", "local"]
# Makes the terminal the child's own, so that Ctrl-C arrives as it does for a person.
_OWN = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
ENTER, UP, BACKSPACE, CTRL_C, CTRL_D = "\r", "\x1b[A", "\x7f", "\x03", "\x04"


class Person:
    """Sits at a terminal in which ``mlgym run`` runs."""

    def __init__(self, *arguments: str) -> None:
        self._hand, screen = pty.openpty()
        command = [sys.executable, "-c", _OWN, sys.executable, "-m", "mlgym_core", *RUN, *arguments]
        self._child = subprocess.Popen(
            command,
            stdin=screen,
            stdout=screen,
            stderr=screen,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "160", "INPUTRC": os.devnull},
            start_new_session=True,
        )
        os.close(screen)
        self.seen = ""
        self._read = 0

    def types(self, text: str) -> None:
        os.write(self._hand, text.encode())

    def sees(self, text: str) -> None:
        """Read on until the text has come after all that was looked for before."""
        ends = time.monotonic() + 60
        while text not in self.seen[self._read :]:
            assert self._more(ends - time.monotonic()), f"{text!r} did not come: ...{self.seen[-2000:]}"
        self._read = self.seen.index(text, self._read) + len(text)

    def interrupts(self) -> None:
        """Press Ctrl-C until it is noticed: between two of its reads Python's line editing is deaf to signals."""
        while "interrupted by" not in self.seen:
            self.types(CTRL_C)
            self._more(1)

    def leaves(self) -> int:
        """The exit code, when all has been read."""
        ends = time.monotonic() + 60
        while self._more(ends - time.monotonic()):
            pass
        return self._child.wait(10)

    def close(self) -> None:
        if self._child.poll() is None:
            self._child.kill()
            self._child.wait(10)
        os.close(self._hand)

    def _more(self, seconds: float) -> bool:
        if not select.select([self._hand], [], [], max(0.0, seconds))[0]:
            return False
        try:
            data = os.read(self._hand, 65536)
        except OSError:  # how a terminal says that its other end is closed
            return False
        self.seen += data.decode("utf-8", "replace")
        return bool(data)


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Person]]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    people: list[Person] = []

    def sit_down(*arguments: str) -> Person:
        people.append(Person("--model", *arguments))
        return people[-1]

    yield sit_down
    for one in people:
        one.close()


def results(folder: Path) -> list[dict[str, Any]]:
    paths = sorted((folder / "runs").glob("*/result.json"), key=lambda path: path.stat().st_mtime_ns)
    return [json.loads(path.read_text()) for path in paths]


def test_a_person_works_at_a_terminal_and_the_next_time_finds_the_history(
    person: Callable[..., Person], tmp_path: Path
) -> None:
    first = person("human")
    first.sees("# Task: Battle of the sexes")
    first.sees("> ")
    first.types("lz" + BACKSPACE + "s" + ENTER)
    first.sees("strategy.py")
    first.sees("> ")
    first.types("cat > strategy.py <<'END'" + ENTER)
    for line in ("def row_strategy(history):", "    return 0", "END"):
        first.sees("... ")
        first.types(line + ENTER)
    first.sees("[no output]")
    first.sees("> ")
    first.types("submit" + ENTER)
    assert first.leaves() == 0
    assert "step 1/50" not in first.seen, "the observations say it all"
    assert "\x1b[2K" not in first.seen, "no live line is drawn over the prompt"
    (result,) = results(tmp_path)
    assert (result["model"], result["reason"], result["steps"]) == ("human", "submitted", 3)
    assert result["scores"]["test"]["Score"] > 1.2
    assert result["cost"] == {"usd": 0.0, "known": True}

    second = person("human")
    second.sees("> ")
    second.types(UP + UP)
    second.sees("END")
    second.interrupts()
    assert second.leaves() == 130
    assert results(tmp_path)[1]["status"] == "interrupted"
    kept = tmp_path / "state" / "mlgym" / "human-history"
    assert kept.stat().st_mode & 0o777 == 0o600


def test_ctrl_d_drops_an_unfinished_command_and_then_leaves(person: Callable[..., Person], tmp_path: Path) -> None:
    one = person("human:thoughts")
    one.sees("thought> ")
    one.types("I look around." + ENTER)
    one.sees("> ")
    one.types("echo 'open" + ENTER)
    one.sees("... ")
    one.types(CTRL_D)
    one.sees("was dropped")
    one.types("pwd" + ENTER)
    one.sees("thought> ")
    one.types(CTRL_D)
    assert one.leaves() == 0
    (result,) = results(tmp_path)
    assert (result["model"], result["reason"], result["steps"]) == ("human:thoughts", "stopped", 1)
    (events,) = (tmp_path / "runs").glob("*/events.jsonl")
    replies = [e["reply"] for e in map(json.loads, events.read_text().splitlines()) if e["kind"] == "model_reply"]
    assert [(reply["text"], reply["tool_calls"][0]["arguments"]) for reply in replies] == [
        ("I look around.", {"command": "pwd"})
    ]


def test_piped_lines_are_actions_and_stdout_stays_clean(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mlgym_core", *RUN, "--agent", "text", "--model", "human", "--json"],
        input="ls\nvalidate\nsubmit\n",
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["reason"], result["steps"]) == ("submitted", 3)
    assert "strategy.py" in done.stderr


# What an entry means


def asked(text: str, thoughts: bool = False) -> tuple[HumanModel, io.StringIO]:
    out = io.StringIO()
    return HumanModel(TOOLS, Terminal(io.StringIO(text), out), thoughts), out


TALK = [Message("system", "SYSTEM"), Message("user", "TASK")]


def entry(text: str) -> Reply:
    return asked(text)[0].complete(TALK, TOOLS)


@pytest.mark.parametrize(
    ("typed", "tool", "arguments"),
    [
        ("ls -l\n", "bash", {"command": "ls -l"}),
        ("\n  \nls\r\n", "bash", {"command": "ls"}),
        ("validate\n", "validate", {}),
        ("  submit \n", "submit", {}),
        ("bash\n", "bash", {"command": "bash"}),
        ("echo validate\n", "bash", {"command": "echo validate"}),
        ('"""\nfor i in 1 2; do\n  echo $i\ndone\n"""\n', "bash", {"command": "for i in 1 2; do\n  echo $i\ndone"}),
        ("echo a \\\n  b\n", "bash", {"command": "echo a \\\n  b"}),
        ("cat <<X\nit's\nX\n", "bash", {"command": "cat <<X\nit's\nX"}),
        (": > file\n", "bash", {"command": ": > file"}),
        (':call bash {"command": "ls", "timeout": 5}\n', "bash", {"command": "ls", "timeout": 5}),
        (":call submit\n", "submit", {}),
    ],
)
def test_an_entry_is_a_call(typed: str, tool: str, arguments: dict[str, Any]) -> None:
    reply = entry(typed)
    (call,) = reply.tool_calls
    assert (call.name, call.arguments, reply.text) == (tool, arguments, "")
    assert (reply.usage.cost_usd, reply.usage.prompt_tokens) == (0.0, 0)


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        (":help\n", ":call NAME"),
        (":tools\n", "validate: "),
        (":nothing\n", "There is no command :nothing"),
        (":call\n", "There is no tool ''"),
        (":call nothing {}\n", "the tools are bash, "),
        (":call bash {}\n", "argument 'command' is missing"),
        (":call bash [1]\n", "must be a JSON object"),
        (":call bash {\n", "the form is :call bash"),
    ],
)
def test_what_is_no_action_is_answered_and_asked_again(typed: str, shown: str) -> None:
    human, out = asked(f"{typed}ls\n")
    assert human.complete(TALK, TOOLS).tool_calls[0].arguments == {"command": "ls"}
    assert shown in out.getvalue()


@pytest.mark.parametrize("typed", ["", "\n", ":quit\n", "echo 'open\n", '"""\nls\n'])
def test_the_end_of_the_input_ends_the_work_and_runs_nothing(typed: str) -> None:
    with pytest.raises(ModelStopped, match="the person left"):
        entry(typed)


def test_everything_is_shown_once() -> None:
    human, out = asked("ls\npwd\n")
    first = human.complete(TALK, TOOLS)
    assert "TASK" in out.getvalue()
    assert "SYSTEM" not in out.getvalue()
    before = len(out.getvalue())
    human.complete([*TALK, first.message(), Message("tool", "OUTPUT", tool_call_id="human-1")], TOOLS)
    assert out.getvalue()[before:] == "OUTPUT\n"


def test_a_thought_is_the_text_of_the_reply() -> None:
    human, _ = asked("I look.\nls\n", thoughts=True)
    reply = human.complete(TALK, ())
    assert (reply.text, reply.tool_calls[0].arguments) == ("I look.", {"command": "ls"})


def test_other_arguments_are_refused(task_folder: Callable[..., Path]) -> None:
    context = ModelContext(load_task_folder(task_folder()), "full", 0)
    assert create("", context).name == "human"
    with pytest.raises(UsageError, match="human:thoughts"):
        create("thought", context)


def test_a_long_here_document_is_looked_at_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []

    class Watched(Unfinished):
        def goes_on(self, line: str) -> bool:
            looked_at.append(line)
            return super().goes_on(line)

    monkeypatch.setattr(human_module, "Unfinished", Watched)
    lines = ["cat > notes <<'END'", *(f"it's line {number}" for number in range(2000)), "END"]
    text = "\n".join(lines)
    assert entry(f"{text}\n").tool_calls[0].arguments == {"command": text}
    assert looked_at == lines


def test_bytes_that_are_no_text_do_not_end_the_input() -> None:
    source = io.TextIOWrapper(io.BytesIO(b"echo \xff\xe9t\nls\n"), "utf-8", errors="strict")
    terminal = Terminal(source, io.StringIO())
    assert [terminal.ask("> "), terminal.ask("> ")] == ["echo \ufffd\ufffdt", "ls"]
    Terminal(source, io.StringIO())


# Where a command ends


def unfinished(text: str) -> bool:
    command = Unfinished()
    return [command.goes_on(line) for line in text.split("\n")][-1]


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\r\n\x00", exclude_categories=["Cs"])), min_size=1))
def test_quoted_words_are_complete_and_not_before_their_last_quote(words: list[str]) -> None:
    text = " ".join(shlex.quote(word) for word in words)
    assert not unfinished(text)
    if text.endswith("'"):
        assert unfinished(text[:-1])


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\r\n\x00")).filter(lambda line: line != "END")))
def test_a_here_document_ends_at_its_delimiter_only(lines: list[str]) -> None:
    body = "\n".join(["cat <<'END' > file", *lines])
    assert unfinished(body)
    assert not unfinished(f"{body}\nEND")


@pytest.mark.parametrize(
    ("text", "open_"),
    [
        ("echo \\", True),
        ("echo \\\\", False),
        ("echo 'a\\", True),
        ("echo 'a\\'", False),
        ('echo "a\\"', True),
        ('echo "a\\\nb"', False),
        ("echo it\\'s", False),
        ("# it's", False),
        ("echo a#'b'", False),
        ("echo a #'b", False),
        ("cat <<<'END'", False),
        ("cat <<< END", False),
        ("cat <<-END\n\tx\n\tEND", False),
        ("cat <<END\n\tEND", True),
        ('cat << "END"\nit\'s', True),
        ("cat <<A <<B\n1\nA\n2", True),
        ("cat <<A <<B\n1\nA\n2\nB", False),
        ("echo '<<END'", False),
        ("echo $((1 << 2))", False),
    ],
)
def test_where_a_command_goes_on(text: str, open_: bool) -> None:
    assert unfinished(text) is open_
