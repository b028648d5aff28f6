"""Checks of what lies in the package: nothing is graded here."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from mlgym_core.authoring.checking.bench import COMMON_STEPS, Bench
from mlgym_core.authoring.checking.report import BrokenError, NotApplicableError, failing
from mlgym_core.plugins.loading import list_tasks
from mlgym_core.task.task import Task
from mlgym_core.task.taskfile import load_task_folder

HEAVY = (
    "numpy", "scipy", "pandas", "sklearn", "torch", "jax", "tensorflow", "transformers", "datasets", "gymnasium",
    "litellm", "docker", "requests",
)  # fmt: skip
IMPORT_SECONDS = 60.0
SHORTEST_DESCRIPTION = 200  #: characters
LARGEST_READ = 64 * 1024 * 1024  #: bytes of a file that is searched for private content
SHORTEST_SECRET = 16  #: bytes of a private file whose whole content is searched for
FEWEST_LINES = 8  #: of a private file that is compared line by line
SHARED_LINES = 0.8  #: share of a private file's lines that must not stand in one public file

_PLACEHOLDERS = (
    re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\$\{\w+\}"),
    re.compile(r"(?<![\w\\}^_$])\{[a-z_]{2,}\}(?![\w{])"),
    re.compile(r"\b(?:TODO|FIXME|TBD|XXX)\b|[Ll]orem ipsum|<(?:your|insert|describe)\b[^>]*>"),
)
_TELLING = {
    "answer", "answers", "label", "labels", "solution", "solutions", "truth", "groundtruth", "gold", "hidden",
    "secret", "secrets", "private", "canary",
}  # fmt: skip
_PICKLES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}


def spec(bench: Bench) -> str:
    """``task.yaml`` and the files it names are what they should be."""
    load_task_folder(bench.task.folder)
    return f"{len(bench.task.metrics)} metrics, sizes {', '.join(bench.task.sizes)}"


def description(bench: Bench) -> str:
    """The description tells the agent what to hand in and what counts."""
    task, text = bench.task, bench.task.description()
    if len(text.strip()) < SHORTEST_DESCRIPTION:
        raise failing(
            task,
            "description.md",
            f"it has {len(text.strip())} characters; say what the task is, what is handed in and how it is scored "
            f"(at least {SHORTEST_DESCRIPTION})",
        )
    for path in task.submission.paths:
        if path.rstrip("/") not in text:
            raise failing(task, "description.md", f"it does not mention {path}, which is handed in; name it")
    if not re.search(rf"(?<!\w){re.escape(task.primary.name)}(?!\w)", text):
        raise failing(
            task, "description.md", f"it does not mention {task.primary.name}, the primary metric; say how it is scored"
        )
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    for pattern in _PLACEHOLDERS:
        found = pattern.search(prose)
        if found:
            raise failing(task, "description.md", f"{found.group()!r} looks like a placeholder; fill it in")
    return f"{len(text)} characters"


def limits(bench: Bench) -> str:
    """The limits leave room for an honest run."""
    task = bench.task
    have, need = task.limits, task.resources
    if have.steps < COMMON_STEPS:
        raise failing(
            task, "task.yaml", f"limits.steps is {have.steps}, too few to work, validate and submit; allow more"
        )
    if have.validations < 1:
        raise failing(task, "task.yaml", "limits.validations is 0, so no agent can ever see a score; allow some")
    if have.wall_seconds is not None and have.wall_seconds < have.action_seconds:
        raise failing(
            task,
            "task.yaml",
            f"limits.action_seconds ({have.action_seconds:g}) is longer than limits.wall_seconds "
            f"({have.wall_seconds:g}); one action would use up the run",
        )
    if need.memory_mb < 128 or need.pids < 16:
        raise failing(
            task,
            "task.yaml",
            f"resources of {need.memory_mb} MiB and {need.pids} processes are too few for a shell and Python; allow "
            "at least 128 and 16",
        )
    return f"{have.steps} steps, {have.validations} validations"


def imports(bench: Bench) -> str:
    """The plugin module imports nothing heavy, so that listing and loading tasks stay quick."""
    module, folder = _plugin_module(bench.task)
    program = (
        "import importlib, json, sys\n"
        f"sys.path[:0] = {[str(folder)] if folder else []!r}\n"
        f"importlib.import_module({module!r})\n"
        "print('\\n' + json.dumps(sorted(sys.modules)))\n"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=IMPORT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BrokenError(
            f"importing {module} takes more than {IMPORT_SECONDS:g} s; do the work in data.py or grade.py instead"
        ) from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise BrokenError(f"importing {module} fails: {last}")
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}
    heavy = [name for name in HEAVY if name in loaded]
    if heavy:
        raise BrokenError(
            f"importing {module} imports {', '.join(heavy)}; import it inside the function that needs it, "
            "in data.py or grade.py"
        )
    return f"{module}: {len(loaded)} packages"


def _plugin_module(task: Task) -> tuple[str, Path | None]:
    """The module to import, and the folder to find it in unless it is installed."""
    if task.distribution:
        for listed in list_tasks():
            if (listed.id, listed.distribution) == (task.id, task.distribution):
                return listed.module, None
    if task.folder.name.isidentifier() and (task.folder / "__init__.py").is_file():
        return task.folder.name, task.folder.parent
    raise NotApplicableError("the folder has no __init__.py, so it is no package yet")


def no_pickle(bench: Bench) -> str:
    """Neither player nor grader unpickles: a pickle runs whatever it says when it is read."""
    task = bench.task
    public = task.public_files()
    player = {task.submission.player: public[task.submission.player]} if task.submission.player else {}
    files = {f"public/{name}": path for name, path in player.items()}
    files |= {f"private/{name}": path for name, path in task.private_files().items() if name.endswith(".py")}
    for name, path in files.items():
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue  # reported by the check that compiles them
        for line, what in _unpickling(tree):
            raise failing(
                task,
                name,
                f"line {line}: {what} reads what the agent wrote as a program; exchange frames of raw numbers, JSON, "
                "or formats that hold data only (safetensors, npz without pickles, torch.load(weights_only=True))",
            )
    return f"{len(files)} files"


def _unpickling(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            if name.partition(".")[0] in _PICKLES:
                yield node.lineno, name  # type: ignore[attr-defined]
        if isinstance(node, ast.Call):
            given = {one.arg: one.value for one in node.keywords}
            called = ast.unparse(node.func)
            allowed = given.get("allow_pickle")
            if isinstance(allowed, ast.Constant) and allowed.value is True:
                yield node.lineno, "allow_pickle=True"
            only = given.get("weights_only")
            if called == "torch.load" and not (isinstance(only, ast.Constant) and only.value is True):
                yield node.lineno, "torch.load without weights_only=True"


def no_secrets(bench: Bench) -> str:
    """Nothing of the private part stands in the public one."""
    task, prepared = bench.task, bench.prepared()
    public = {f"public/{name}": path for name, path in task.public_files().items()}
    public |= _below("image", task.image.folder)
    public |= {f"public data {name}": path for name, path in _below("", prepared.public).items()}
    private = {f"private/{name}": path for name, path in task.private_files().items()}
    private |= {f"private data {name}": path for name, path in _below("", prepared.private).items()}
    _check_names(task, public)
    told = {name: path.read_bytes() for name, path in public.items() if path.stat().st_size <= LARGEST_READ}
    told["description.md"] = task.description().encode()
    for name, path in private.items():
        if path.stat().st_size <= LARGEST_READ:
            _check_content(name, path.read_bytes(), told)
    return f"{len(public)} public files, {len(private)} private ones"


def _check_names(task: Task, public: Mapping[str, Path]) -> None:
    declared = set(task.submission.paths)
    for name in public:
        inside = name.removeprefix("public/")
        if inside in declared:
            continue
        words = set(re.split(r"[^a-z]+", PurePosixPath(name.removeprefix("public data ")).name.lower()))
        if inside != name or name.startswith("public data "):
            telling = words & _TELLING
            if telling and not words & {"train", "training"}:
                raise BrokenError(
                    f"{name} is named like a secret ({sorted(telling)[0]}); move it to the private part, or rename it "
                    "if it holds nothing to hide"
                )


def _check_content(name: str, secret: bytes, told: Mapping[str, bytes]) -> None:
    whole = secret.strip()
    lines = {line.strip() for line in secret.splitlines() if len(line.strip()) >= 6}
    for public, content in told.items():
        if len(whole) >= SHORTEST_SECRET and whole in content:
            raise BrokenError(f"{public} holds all of {name}; what the agent must not see belongs in private/ only")
        if len(lines) >= FEWEST_LINES:
            shared = len(lines & {line.strip() for line in content.splitlines()})
            if shared >= SHARED_LINES * len(lines):
                raise BrokenError(
                    f"{public} holds {shared} of the {len(lines)} lines of {name}; what the agent must not see "
                    "belongs in private/ only"
                )


def _below(prefix: str, folder: Path | None) -> dict[str, Path]:
    if folder is None or not folder.is_dir():
        return {}
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {(PurePosixPath(prefix) / path.relative_to(folder).as_posix()).as_posix(): path for path in found}
