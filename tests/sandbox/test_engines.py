"""Which engine is taken, in which order, and what is said when there is none. No engine needed."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlgym_core.errors import BackendUnavailableError
from mlgym_core.sandbox.engine.endpoints import Endpoint, connect, docker_endpoints, spelled


@pytest.fixture(autouse=True)
def no_context(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "no-config"))
    monkeypatch.delenv("DOCKER_CONTEXT", raising=False)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("unix:///run/x.sock", "unix:///run/x.sock"),
        ("unix:/run/x.sock", "unix:///run/x.sock"),
        ("/run/x.sock", "unix:///run/x.sock"),
        ("tcp://host:2375", "tcp://host:2375"),
        ("http://host:2375", "tcp://host:2375"),
        ("host:2375", "tcp://host:2375"),
        (" ssh://me@host ", "ssh://me@host"),
    ],
)
def test_addresses_are_understood_in_all_their_spellings(given: str, url: str) -> None:
    assert spelled(given) == url


def test_what_the_user_names_is_tried_alone(tmp_path: Path) -> None:
    both = {"MLGYM_DOCKER_HOST": "/a.sock", "DOCKER_HOST": "/b.sock"}
    assert docker_endpoints(both, tmp_path) == [Endpoint("unix:///a.sock", "MLGYM_DOCKER_HOST", True)]
    assert docker_endpoints({"DOCKER_HOST": "/b.sock"}, tmp_path) == [Endpoint("unix:///b.sock", "DOCKER_HOST", True)]


def test_sockets_are_tried_in_the_documented_order(tmp_path: Path) -> None:
    found = [e.url for e in docker_endpoints({"XDG_RUNTIME_DIR": "/run/user/7"}, tmp_path)]
    assert found[0] == "unix:///var/run/docker.sock"
    assert found[1] == "unix:///run/user/7/docker.sock"
    assert found[2] == f"unix://{tmp_path}/.docker/run/docker.sock"


def test_the_active_context_comes_before_the_sockets(tmp_path: Path) -> None:
    config = tmp_path / ".docker"
    meta = config / "contexts" / "meta" / hashlib.sha256(b"mine").hexdigest()
    meta.mkdir(parents=True)
    (config / "config.json").write_text(json.dumps({"currentContext": "mine"}))
    endpoints = {"docker": {"Host": "unix:///mine.sock", "SkipTLSVerify": False}}
    (meta / "meta.json").write_text(json.dumps({"Name": "mine", "Metadata": {}, "Endpoints": endpoints}))
    ask = (
        "import os; from pathlib import Path; from mlgym_core.sandbox.engine.endpoints import docker_endpoints; "
        "print([(e.url, e.decisive) for e in docker_endpoints({}, Path.home())][0])"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DOCKER_")}
    done = subprocess.run(
        [sys.executable, "-c", ask],
        env={**environment, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == "('unix:///mine.sock', True)"


def test_no_engine_lists_what_was_tried_and_the_remedy(tmp_path: Path) -> None:
    endpoints = [
        Endpoint(f"unix://{tmp_path}/a.sock", "the first"),
        Endpoint(f"unix://{tmp_path}/b.sock", "the second"),
    ]
    with pytest.raises(BackendUnavailableError) as caught:
        connect("docker", endpoints, "Do this.")
    text = str(caught.value)
    assert text.index("the first") < text.index("the second") < text.index("Do this.")
    assert "no such socket" in text


@pytest.fixture
def deaf_socket(tmp_path: Path) -> Iterator[Path]:
    """Accepts connections and closes them."""
    path = tmp_path / "deaf.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            while True:
                try:
                    server.accept()[0].close()
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield path
        server.shutdown(socket.SHUT_RDWR)


def test_a_socket_that_is_no_engine_is_passed_over(deaf_socket: Path, tmp_path: Path) -> None:
    endpoints = [Endpoint(f"unix://{deaf_socket}", "the deaf one"), Endpoint(f"unix://{tmp_path}/b.sock", "the next")]
    with pytest.raises(BackendUnavailableError, match=r"the deaf one.*does not answer.*the next"):
        connect("docker", endpoints, "")


def test_a_chosen_engine_that_does_not_answer_is_not_replaced_by_another(tmp_path: Path) -> None:
    endpoints = [Endpoint(f"unix://{tmp_path}/a.sock", "DOCKER_HOST", True), Endpoint(f"unix://{tmp_path}/b", "other")]
    with pytest.raises(BackendUnavailableError) as caught:
        connect("docker", endpoints, "")
    assert "other" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_a_socket_without_permission_says_so(deaf_socket: Path) -> None:
    import mlgym_core

    python = "/usr/bin/python3"
    paths = [str(Path(mlgym_core.__file__).parents[1]), str(Path(pytest.__file__).parents[1])]
    user = ["setpriv", "--reuid=61999", "--regid=61999", "--clear-groups"]
    usable = [*user, python, "-c", "import sys; assert sys.version_info >= (3, 11); import attrs, mlgym_core.task.task"]
    environment = {"PYTHONPATH": os.pathsep.join(paths), "DOCKER_HOST": str(deaf_socket), "HOME": "/"}
    if subprocess.run(usable, env=environment, capture_output=True, check=False).returncode:
        pytest.skip("another user cannot read this checkout or its packages")
    for folder in [deaf_socket.parent, *deaf_socket.parents[1:-2]]:
        folder.chmod(folder.stat().st_mode | 0o111)
    deaf_socket.chmod(0o600)
    done = subprocess.run(
        [*user, python, "-c", "from mlgym_core.sandbox.engine.docker import DockerBackend; DockerBackend()"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "no permission on the socket; join its group or use a rootless engine" in done.stderr
