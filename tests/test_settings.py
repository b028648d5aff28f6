"""The ``MLGYM_*`` variables: each has its effect, a wrong one is refused by name, and all are documented."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support import PluginFolder

from mlgym_core import settings
from mlgym_core.errors import BackendUnavailableError, PluginError, UsageError
from mlgym_core.plugins.loading import Registry
from mlgym_core.runner.tasks import load_task
from mlgym_core.sandbox.engine.docker import DockerBackend
from mlgym_core.sandbox.engine.images import BuildOptions
from mlgym_core.sandbox.local import scratch
from mlgym_core.settings import SETTINGS, Setting, runs_folder
from mlgym_core.storage import cache_folder

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
SCRIPT = '[{tool: bash, arguments: {command: "echo hello"}}, {tool: submit}]'

#: Defaults of options: value -> where it is in ``run.json``, and what is there.
OPTIONS: Mapping[str, tuple[str, str, Any]] = {
    "MLGYM_MODEL": ("scripted:script.yaml", "model", "scripted:script.yaml"),
    "MLGYM_AGENT": ("text", "agent", "text"),
    "MLGYM_BACKEND": ("local:plain", "backend_choice", "plain"),
    "MLGYM_SIZE": ("tiny", "size", "tiny"),
    "MLGYM_COST_USD": ("0", "limits.cost_usd", None),
    "MLGYM_TOKENS": ("1234", "limits.tokens", 1234),
    "MLGYM_WALL_SECONDS": ("567", "limits.wall_seconds", 567.0),
    "MLGYM_WORKING_SECONDS": ("456.5", "limits.working_seconds", 456.5),
    "MLGYM_ACTION_SECONDS": ("78", "limits.action_seconds", 78.0),
    "MLGYM_REQUEST_SECONDS": ("9.5", "model_settings.timeout", 9.5),
}


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MLGYM_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def mlgym(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mlgym_core", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **variables},
        timeout=100,
        check=False,
    )


# Each has its effect


def test_the_environment_gives_options_their_defaults(tmp_path: Path) -> None:
    (tmp_path / "script.yaml").write_text(SCRIPT)
    done = mlgym("run", "battle-of-sexes", "--json", **{name: value for name, (value, _, _) in OPTIONS.items()})
    assert done.returncode == 0, done.stderr
    manifest = _manifest(tmp_path / "runs")
    for name, (_, place, expected) in OPTIONS.items():
        found = _at(manifest, place)
        assert expected in found if place == "backend_choice" else found == expected, (name, found)


def test_dotenv_comes_behind_the_environment_and_both_behind_the_options(tmp_path: Path) -> None:
    (tmp_path / "script.yaml").write_text(SCRIPT)
    filed = {name: value for name, (value, _, _) in OPTIONS.items()} | {"MLGYM_RUNS": "kept-here"}
    lines = [f"{name}={value}" for name, value in filed.items()]
    (tmp_path / ".env").write_text("\n".join([*lines, "UNRELATED=1"]) + "\n")
    variables = {"MLGYM_WALL_SECONDS": "100", "MLGYM_ACTION_SECONDS": "", "MLGYM_AGENT": "no-such-agent"}
    done = mlgym("run", "battle-of-sexes", "--time", "99", "--agent", "default", **variables)
    assert done.returncode == 0, done.stderr
    manifest = _manifest(tmp_path / "kept-here")
    assert manifest["limits"]["wall_seconds"] == 99.0
    assert manifest["limits"]["action_seconds"] == 78.0, "an empty variable is none"
    assert (manifest["limits"]["tokens"], manifest["agent"], manifest["size"]) == (1234, "default", "tiny")
    done = mlgym("run", "battle-of-sexes", **{**variables, "MLGYM_AGENT": "text", "MLGYM_RUNS": "elsewhere"})
    assert _manifest(tmp_path / "elsewhere")["limits"]["wall_seconds"] == 100.0


def _manifest(runs: Path) -> dict[str, Any]:
    (path,) = runs.glob("*/run.json")
    return dict(json.loads(path.read_text()))


def _at(document: Any, place: str) -> Any:
    for name in place.split("."):
        document = document[name]
    return document


def _runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert runs_folder() == Path("runs")
    monkeypatch.setenv("MLGYM_RUNS", str(tmp_path / "mine"))
    assert runs_folder() == tmp_path / "mine"
    assert runs_folder(Path("given")) == Path("given")


def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == tmp_path / ".cache" / "mlgym"
    monkeypatch.setenv("MLGYM_CACHE", "~/mine")
    assert cache_folder() == tmp_path / "mine"


def _scratch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLGYM_SCRATCH", str(tmp_path / "boxes"))
    assert scratch.root().parent == tmp_path / "boxes"


def _docker_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLGYM_DOCKER_HOST", str(tmp_path / "no.sock"))
    with pytest.raises(BackendUnavailableError, match="MLGYM_DOCKER_HOST"):
        DockerBackend()


def _ca_bundle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert BuildOptions.from_environment().ca_bundle is None
    monkeypatch.setenv("MLGYM_CA_BUNDLE", str(tmp_path / "ca.pem"))
    assert BuildOptions.from_environment().ca_bundle == tmp_path / "ca.pem"


EFFECTS: Mapping[str, Callable[[pytest.MonkeyPatch, Path], None]] = {
    "MLGYM_RUNS": _runs,
    "MLGYM_CACHE": _cache,
    "MLGYM_SCRATCH": _scratch,
    "MLGYM_DOCKER_HOST": _docker_host,
    "MLGYM_CA_BUNDLE": _ca_bundle,
}


@pytest.mark.parametrize("name", EFFECTS)
def test_the_environment_reaches_the_room_that_it_is_for(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    EFFECTS[name](monkeypatch, tmp_path)


def test_strict_plugins_raise_at_once(plugins_here: PluginFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    plugins_here.add("plug_broken", "raise RuntimeError('boom')\n", {"mlgym": {"broken": "plug_broken"}})
    said: list[str] = []
    Registry(said.append).collect("mlgym_register_models")
    assert len(said) == 1
    monkeypatch.setenv("MLGYM_STRICT_PLUGINS", "1")
    with pytest.raises(RuntimeError, match="boom"):
        Registry(said.append).collect("mlgym_register_models")


def test_a_plugin_that_hangs_is_given_up_after_its_deadline(
    plugins_here: PluginFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = "import threading\nthreading.Event().wait(60)\n"
    plugins_here.add_task("hanging", source=hangs)
    monkeypatch.setenv("MLGYM_PLUGIN_DEADLINE", "0.2")
    with pytest.raises(PluginError, match=r"within 0\.2 s \(MLGYM_PLUGIN_DEADLINE\)"):
        load_task("hanging")


def test_every_setting_has_a_test_of_its_effect() -> None:
    elsewhere = {"MLGYM_STRICT_PLUGINS", "MLGYM_PLUGIN_DEADLINE"}
    assert {setting.name for setting in SETTINGS} == set(OPTIONS) | set(EFFECTS) | elsewhere


# Values and names


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        (settings.WALL, "soon"),
        (settings.WALL, "0"),
        (settings.WALL, "inf"),
        (settings.ACTION, "-1"),
        (settings.COST, "nan"),
        (settings.COST, "-1"),
        (settings.TOKENS, "1.5"),
        (settings.TOKENS, "0"),
        (settings.STRICT_PLUGINS, "maybe"),
        (settings.BACKEND, "a\tb"),
        (settings.RUNS, "~no-such-user-here/runs"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_name(
    setting: Setting[Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(setting.name, text)
    with pytest.raises(UsageError, match=re.escape(f"{setting.name} must be {setting.expects}, not {text!r}; ")):
        setting.value()


@pytest.mark.parametrize(("text", "value"), [("1", True), ("yes", True), ("0", False), ("FALSE", False), ("", None)])
def test_a_flag_has_two_values(text: str, value: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGYM_STRICT_PLUGINS", text)
    assert settings.STRICT_PLUGINS.value() is value


def test_a_wrong_value_is_an_error_of_the_command_that_needs_it_only() -> None:
    refused = mlgym("run", "battle-of-sexes", MLGYM_WALL_SECONDS="soon")
    assert (refused.returncode, "MLGYM_WALL_SECONDS" in refused.stderr) == (2, True)
    done = mlgym("tasks", MLGYM_WALL_SECONDS="soon")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_variable_that_means_nothing_is_named_once_with_the_nearest(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("MLGYM_BACKENDS=local\n")
    done = mlgym("tasks", MLGYM_XYZZY="1", MLGYM_CI="1", MLGYM_TEST_SOMETHING="1")
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "mlgym: the variable MLGYM_BACKENDS means nothing to mlgym; did you mean MLGYM_BACKEND?",
        "mlgym: the variable MLGYM_XYZZY means nothing to mlgym; see docs/settings.md",
    ]


def test_a_line_that_is_no_variable_is_named_once_and_the_others_count(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("\ufeffMLGYM_BACKEND=dcoker\n# mine\nnonsense line\nexport MLGYM_SIZE='tiny'\n")
    done = subprocess.run(
        [sys.executable, "-m", "mlgym_core", "run", "battle-of-sexes"],
        cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
        env={k: v for k, v in os.environ.items() if not k.startswith("MLGYM_")},
    )  # fmt: skip
    assert done.stderr.splitlines() == [
        "mlgym: line 3 of .env is not NAME=value; it is ignored",
        "mlgym: unknown backend 'dcoker'; did you mean 'docker'? (set by MLGYM_BACKEND)",
    ]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"MLGYM_RUNS=\xff\xfe\n")
    with pytest.raises(UsageError, match=r"\.env cannot be read"):
        settings.RUNS.value()
    assert mlgym("tasks").returncode == 0


@pytest.mark.parametrize("name", ["MLGYM_RUNS", "SOME_API_KEY"])
def test_a_value_that_no_environment_could_hold_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"A=1\n{name}=a\0b\n")
    with pytest.raises(UsageError, match=rf"\.env: the variable '{name}' holds a NUL"):
        settings.RUNS.value()


def test_the_file_is_read_where_it_is_and_never_written_into_the_environment(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("export MLGYM_RUNS='my runs'  # here\nMLGYM_SIZE=\nOTHER=x\n")
    assert settings.RUNS.value() == Path("my runs")
    assert settings.SIZE.value() is None
    assert "OTHER" not in settings.environment()
    assert not {"MLGYM_RUNS", "OTHER"} & set(os.environ)


# Documentation


def test_the_page_and_the_table_agree() -> None:
    rows = re.findall(r"^\| `(MLGYM_\w+)` \| (.*?) \| (.*?) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    plain = [(name, meaning.replace("`", ""), default.replace("`", "")) for name, meaning, default in rows]
    assert plain == [(setting.name, setting.meaning, setting.default) for setting in SETTINGS]


def test_no_other_variable_is_read() -> None:
    known = {setting.name for setting in SETTINGS} | set(settings.OTHERS)
    source = Path(settings.__file__).parent
    inside_sandboxes = source / "tools" / "inside"
    for path in source.rglob("*.py"):
        if path.is_relative_to(inside_sandboxes):
            continue
        for name in re.findall(r"\bMLGYM_[A-Z_]+\b", path.read_text("utf-8")):
            assert name in known or name.startswith(settings.TESTS), f"{path.name} speaks of {name}"
