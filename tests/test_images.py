"""``mlgym image``: building ahead, listing, removing, and what a run without a build says."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from support import PluginFolder

from mlgym_core.errors import BackendUnavailableError
from mlgym_core.sandbox.engine.docker import DockerBackend

pytestmark = pytest.mark.engine


@pytest.fixture
def command(plugins: PluginFolder) -> PluginFolder:
    try:
        DockerBackend()
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    plugins.add_task("image-task")
    dockerfile = f"FROM debian:bookworm-slim\nARG WORD=none\nLABEL word=$WORD time={time.time_ns()}\n"
    (plugins.folder / "plug_image_task" / "image" / "Dockerfile").write_text(dockerfile)
    return plugins


def test_images_are_built_ahead_listed_and_removed(command: PluginFolder, tmp_path: Path) -> None:
    refused = command.run("run", "image-task", "--backend", "docker", "--no-build")
    assert refused.returncode == 3
    assert "mlgym image build" in refused.stderr
    built = command.run("image", "build", "image-task", "--backend", "docker", "--build-arg", "WORD=hello", "--json")
    assert built.returncode == 0, built.stderr
    assert "Step 1/" in built.stderr
    tag = json.loads(built.stdout)["images"]["image-task"]
    assert tag in command.run("image", "list", "--backend", "docker").stdout
    done = command.run("run", "image-task", "--backend", "docker", "--no-build", "--json")
    assert json.loads(done.stdout)["status"] == "scored", done.stderr
    assert "building" not in done.stderr
    assert command.run("image", "remove", tag, "--backend", "docker").returncode == 0
    gone = command.run("image", "remove", tag, "--backend", "docker")
    assert gone.returncode == 3
    assert "cannot be removed" in gone.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["remove"], "name the tags to remove"),
        (["build", "image-task", "--build-arg", "novalue"], "NAME=VALUE"),
        (["list", "--backend", "local"], "keeps no images"),
        (["build", "imge-task"], "did you mean image-task"),
    ],
)
def test_bad_usage_is_explained(command: PluginFolder, arguments: list[str], message: str) -> None:
    done = command.run("image", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
