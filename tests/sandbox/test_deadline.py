"""What an action has started never outlives its deadline, however busy the machine; what is older does."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlgym_core.errors import BackendUnavailableError
from mlgym_core.plugins.loading import Registry
from mlgym_core.runner import backends
from mlgym_core.sandbox.base import ActionStatus, BoxSpec, Sandbox
from mlgym_core.task.task import Image, Resources

# Each box counts its own: plain processes see those of the whole machine.
BUSY = "for i in $(seq 12); do python3 -c 'while True: pass' {mark} & done; wait"
COUNT = "ps -eo args 2>/dev/null | grep -c '[w]hile True: pass {mark}' || true"
# A process whose first thread has ended: the kernel shows it as a zombie while the second thread goes on.
HEADLESS = """
python3 - <<'END'
import ctypes, threading, time
def work():
    while True:
        open("beat", "w").write(str(time.time()))
        time.sleep(0.05)
threading.Thread(target=work).start()
time.sleep(0.3)
ctypes.CDLL(None).pthread_exit(None)
END
sleep 60
"""


@pytest.fixture(
    params=[
        pytest.param("docker", marks=pytest.mark.engine),
        pytest.param("local", marks=pytest.mark.isolation),
        "local:plain",
    ],
)
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sandbox]:
    try:
        backend = backends.choose(Registry(), request.param).backend
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    (tmp_path / "Dockerfile").write_text("FROM debian:bookworm-slim\n")
    image = backend.prepare_image(Image(folder=tmp_path), "agent", print)
    sandbox = backend.open_sandbox(BoxSpec("deadline", "agent", image, Resources(memory_mb=512, pids=128)))
    yield sandbox
    sandbox.close()


def run(box: Sandbox, command: str, timeout: float = 30) -> str:
    result = box.run(command, timeout)
    return (result.stdout.head + result.stderr.head).decode()


@pytest.mark.slow
def test_none_of_many_busy_children_is_left(box: Sandbox) -> None:
    run(box, "sleep 300 & echo $! > old")
    run(box, "sleep 0.5")
    for _ in range(4):
        mark = secrets.token_hex(8)
        assert box.run(BUSY.format(mark=mark), 1.5).status is ActionStatus.TIMED_OUT
        assert run(box, COUNT.format(mark=mark)).strip() == "0"
    assert run(box, "kill -0 $(cat old) && echo alive").strip() == "alive", "an older job goes on"


def test_the_last_words_of_what_was_killed_are_not_those_of_the_next_action(box: Sandbox) -> None:
    for _ in range(3):
        assert box.run("sleep 60 & yes", 0.5).status is ActionStatus.TIMED_OUT
        assert run(box, "echo next") == "next\n"


def test_a_process_whose_first_thread_has_ended_is_killed_too(box: Sandbox) -> None:
    assert box.run(HEADLESS, 1.5).status is ActionStatus.TIMED_OUT
    first = run(box, "cat beat; sleep 0.5").strip()
    assert first
    assert run(box, "cat beat").strip() == first
    box.run("(" + HEADLESS.replace("sleep 60", "true") + ") &", 10)
    run(box, "sleep 1")
    box.stop_processes()
    second = run(box, "cat beat; sleep 0.5").strip()
    assert run(box, "cat beat").strip() == second != first
