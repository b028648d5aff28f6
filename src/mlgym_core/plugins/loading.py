"""Finds plugins through entry points and loads each in its own try, so that a broken one fails alone.

Listing reads package metadata and imports nothing. Asking for a task imports that task's module only.
Modules with behaviour (group ``mlgym``) are imported when a command needs a kind of hook.
"""

from __future__ import annotations

import difflib
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen

from mlgym_core import settings
from mlgym_core.errors import PluginError, TaskSpecError, UnknownTaskError, UsageError
from mlgym_core.plugins import compatibility
from mlgym_core.plugins.metadata import Damage, scan

if TYPE_CHECKING:
    import pluggy

    from mlgym_core.task.task import Task

TASKS = "mlgym.tasks"
ALIASES = "mlgym.task_aliases"
BEHAVIOUR = "mlgym"
_CORE = "mlgym_core.plugins.builtin"


@frozen
class TaskListing:
    """A task as its package's metadata shows it; nothing of it has been imported."""

    id: str
    distribution: str
    version: str
    module: str
    summary: str

    @property
    def qualified(self) -> str:
        """Name that stays unambiguous when two packages claim one id."""
        return f"{self.distribution}:{self.id}"


def list_tasks() -> list[TaskListing]:
    """Every installed task, sorted by id; reads metadata only."""
    return sorted(
        (TaskListing(p.name, *_origin(p), p.module, _summary(p)) for p in _points(TASKS)),
        key=lambda task: (task.id, task.distribution),
    )


def load_installed(name: str) -> Task:
    """Import one task's plugin and return the task.

    Args:
        name: task id, published alias, or ``distribution:id``.

    Raises:
        UnknownTaskError: nothing installed has this name; the message gives the nearest ones.
        PluginError: two packages claim it, it needs another mlgym-core, or its plugin is broken (with the plugin's
            own error as cause).
    """
    point = _find(name)
    wanted = name.rpartition(":")[2]
    distribution, version = _origin(point)
    compatibility.check(point.dist, f"task {wanted!r} of {distribution} {version}")
    try:
        tasks = _registered_tasks(_import(point))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        if isinstance(error, TaskSpecError):
            raise PluginError(f"task {wanted!r} of {distribution} {version}: {error}") from error
        raise PluginError(
            f"the plugin of task {wanted!r} ({distribution} {version}) is broken: {_one_line(error)}; "
            f"reinstall {distribution} or report it to its authors"
        ) from error
    for task in tasks:
        if wanted == task.id or wanted in task.aliases:
            from attrs import evolve

            return evolve(task, distribution=distribution, version=version)
    offered = ", ".join(task.id for task in tasks) or "none"
    raise PluginError(f"{distribution} announces task {wanted!r} but registers {offered}; its entry point is wrong")


def _find(name: str) -> EntryPoint:
    qualifier, _, wanted = name.rpartition(":")
    matches = [p for p in _points(TASKS, ALIASES) if p.name == wanted]
    if qualifier:
        matches = [p for p in matches if _origin(p)[0] == qualifier]
    if not matches:
        raise UnknownTaskError(_unknown(name))
    claims = {_origin(p)[0]: p for p in matches}
    if len(claims) > 1:
        names = " or ".join(f"{distribution}:{wanted}" for distribution in sorted(claims))
        raise PluginError(f"task {wanted!r} is claimed by {len(claims)} packages; say which: {names}")
    return matches[0]


def _unknown(name: str) -> str:
    known = {p.name for p in _points(TASKS, ALIASES)}
    if not known:
        return f"unknown task {name!r}; no task is installed: pip install mlgym-tasks-gametheory[all], for instance"
    lowered = {other.lower(): other for other in known}
    near = [lowered[low] for low in difflib.get_close_matches(name.lower(), lowered, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(near)}?" if near else "see what is installed with: mlgym tasks"
    if Path(name).exists():
        hint = f"for the folder or file here say ./{name}"
    return f"unknown task {name!r}; {hint}"


class Registry:
    """The behaviour plugins and the core's own, asked hook by hook.

    Args:
        warn: called once for each broken plugin with a sentence; a Python warning by default.
    """

    def __init__(self, warn: Callable[[str], None] | None = None) -> None:
        self._warn = warn or (lambda text: warnings.warn(text, stacklevel=4))
        self._manager: pluggy.PluginManager | None = None
        self._points: dict[str, EntryPoint] = {}
        self._warned: set[str] = set()
        self._lock = threading.RLock()

    def collect(self, hook: str) -> list[Any]:
        """Everything that all plugins return for one registering hook; a plugin that raises contributes nothing.

        The names of the core's own are taken, and of two tools of one name the first counts; what is left out is
        warned about.
        """
        items: list[Any] = []
        owners: dict[str, str] = {}
        for plugin_name, implementation in sorted(self._implementations(hook), key=lambda pair: pair[0] != _CORE):
            try:
                offered = list(implementation.function() or ())
                for item in offered:
                    _check_kind(hook, item)
            except BaseException as error:
                self._fail(plugin_name, error)
            else:
                items += [item for item in offered if self._free(hook, item, plugin_name, owners)]
        return items

    def _free(self, hook: str, item: Any, plugin_name: str, owners: dict[str, str]) -> bool:
        """Whether an item's name may still be taken by this plugin; it is taken then."""
        name = getattr(item, "name", None)
        owner = owners.setdefault(name, plugin_name) if isinstance(name, str) else plugin_name
        if owner == plugin_name or (owner != _CORE and hook != "mlgym_register_tools"):
            return True
        what = hook.removeprefix("mlgym_register_").removesuffix("s")
        holder = "mlgym-core" if owner == _CORE else self._title(owner)
        text = f"mlgym: the {what} {name!r} of {self._title(plugin_name)} is left out: {holder} has one of that name"
        if text not in self._warned:
            self._warned.add(text)
            self._warn(text)
        return False

    def _title(self, plugin_name: str) -> str:
        point = self._points[plugin_name]
        return f"plugin {point.name!r} of {' '.join(_origin(point))}"

    def choose(self, hook: str, name: str, what: str) -> Any:
        """The entry called ``name`` that a registering hook offers.

        Raises:
            UsageError: there is none, or two; the message lists the choices.
        """
        entries = self.collect(hook)
        matches = [entry for entry in entries if entry.name == name]
        if len(matches) > 1:
            raise UsageError(f"two plugins offer the {what} {name!r}; uninstall one of them (see: mlgym plugins)")
        if not matches:
            names = sorted(entry.name for entry in entries)
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose from: {', '.join(names)}"
            raise UsageError(f"unknown {what} {name!r}; {hint}")
        return matches[0]

    def notify(self, hook: str, **arguments: Any) -> None:
        """Call an observing hook; a plugin that raises is reported once and left out from then on."""
        for plugin_name, implementation in self._implementations(hook):
            try:
                implementation.function(**{name: arguments[name] for name in implementation.argnames})
            except (Exception, SystemExit) as error:
                self._fail(plugin_name, error)

    def observes(self, hook: str) -> bool:
        """Whether any plugin implements the hook (so that events need not be prepared for nobody)."""
        return bool(self._implementations(hook))

    def _implementations(self, hook: str) -> list[tuple[str, Any]]:
        manager = self._load()
        return [(impl.plugin_name, impl) for impl in getattr(manager.hook, hook).get_hookimpls()]

    def _load(self) -> pluggy.PluginManager:
        with self._lock:
            if self._manager is None:
                from mlgym_core.plugins import builtin

                manager = _manager()
                manager.register(builtin, _CORE)
                for point in _points(BEHAVIOUR):
                    name = f"{_origin(point)[0]}:{point.name}"
                    self._points[name] = point
                    try:
                        compatibility.check(point.dist, "it")
                        _register(manager, _import(point), name)
                    except BaseException as error:
                        self._fail(name, error)
                self._manager = manager
            return self._manager

    def _fail(self, plugin_name: str, error: BaseException) -> None:
        """Roll the plugin back and report it once; in strict mode raise instead."""
        if isinstance(error, KeyboardInterrupt):
            raise error
        point = self._points.get(plugin_name)
        if point is None or settings.STRICT_PLUGINS.value():
            raise error
        if self._manager is not None and self._manager.has_plugin(plugin_name):
            self._manager.unregister(name=plugin_name)
        self._warn(
            f"mlgym: {self._title(plugin_name)} is broken and left out: {_one_line(error)} (details: mlgym plugins)"
        )


def _check_kind(hook: str, item: Any) -> None:
    """Raise TypeError for what a registering hook must not return."""
    from mlgym_core.plugins import hookspecs
    from mlgym_core.tools.base import Tool

    kinds: dict[str, type] = {
        "mlgym_register_tools": Tool,
        "mlgym_register_backends": hookspecs.BackendEntry,
        "mlgym_register_models": hookspecs.ModelEntry,
        "mlgym_register_agents": hookspecs.AgentEntry,
    }
    kind = kinds.get(hook)
    if kind is not None and not isinstance(item, kind):
        raise TypeError(f"{hook} returned {item!r:.80}, not a {kind.__name__}")


def _manager() -> pluggy.PluginManager:
    import pluggy

    from mlgym_core.plugins import hookspecs

    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    return manager


def _register(manager: pluggy.PluginManager, module: Any, name: str) -> None:
    """Register all of a module or nothing of it; an ``mlgym_`` function that is no known hook is an error."""
    try:
        manager.register(module, name)
        manager.check_pending()
    except BaseException:
        if manager.has_plugin(name):
            manager.unregister(name=name)
        raise


def _registered_tasks(module: Any) -> list[Task]:
    manager = _manager()
    _register(manager, module, module.__name__)
    return [task for tasks in manager.hook.mlgym_register_tasks() for task in tasks]


def _import(point: EntryPoint) -> Any:
    """Import a plugin's module, giving up on one that hangs (it is left behind in a daemon thread).

    Raises:
        BaseException: whatever the import raised, ``SystemExit`` included; :class:`TimeoutError` for a hang.
    """
    seconds = settings.PLUGIN_DEADLINE.value() or 20.0
    outcome: list[Any] = []

    def work() -> None:
        try:
            outcome.extend((point.load(), None))
        except BaseException as error:
            outcome.extend((None, error))

    if point.module in sys.modules:
        return point.load()
    thread = threading.Thread(target=work, name=f"import {point.module}", daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        name = settings.PLUGIN_DEADLINE.name
        raise TimeoutError(f"importing {point.module} did not finish within {seconds:g} s ({name})")
    module, error = outcome
    if error is not None:
        raise error
    return module


def examine(group: str, name: str, distribution: str) -> str | None:
    """Import and register one plugin in this process and say what is wrong with it, or ``None``.

    ``mlgym plugins`` calls it in a child process with a deadline, so that even a hang is reported.
    """
    for point in _points(group):
        if point.name == name and _origin(point)[0] == distribution:
            try:
                compatibility.check(point.dist, "it")
                module = point.load()
                if group == TASKS:
                    if name not in [task.id for task in _registered_tasks(module)]:
                        return f"registers no task {name!r}"
                else:
                    _collect_all(module)
            except BaseException as error:
                return _one_line(error)
            return None
    return "not installed"


def _collect_all(module: Any) -> None:
    manager = _manager()
    _register(manager, module, module.__name__)
    for name, hook in vars(manager.hook).items():
        if name.startswith("mlgym_register_"):
            for items in hook():
                for item in items or ():
                    _check_kind(name, item)


def installed_plugins() -> Iterator[tuple[str, EntryPoint, str, str]]:
    """Every plugin's ``(group, entry point, distribution, version)``, from metadata."""
    for group, point in scan(TASKS, BEHAVIOUR).points:
        yield (group, point, *_origin(point))


def damaged_packages() -> Sequence[Damage]:
    """Installed packages that are passed over because their metadata cannot be read."""
    return scan(TASKS, BEHAVIOUR).damaged


def _points(*groups: str) -> Sequence[EntryPoint]:
    return [point for _, point in scan(*groups).points]


def _origin(point: EntryPoint) -> tuple[str, str]:
    return (point.dist.name, point.dist.version) if point.dist else ("unknown", "0")


def _summary(point: EntryPoint) -> str:
    metadata = point.dist.metadata if point.dist else None
    return str(metadata["Summary"]) if metadata and "Summary" in metadata else ""


def _one_line(error: BaseException) -> str:
    place = f" ({error.filename}, line {error.lineno})" if isinstance(error, SyntaxError) and error.filename else ""
    text = " ".join(traceback.format_exception_only(error)[-1].split()) + place
    return text if len(text) <= 500 else text[:497] + "..."
