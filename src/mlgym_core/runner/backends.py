"""Chooses a container backend and says what a run asks of it."""

from __future__ import annotations

from attrs import frozen

from mlgym_core.errors import BackendUnavailableError, MLGymError, UsageError
from mlgym_core.plugins.hookspecs import BackendEntry
from mlgym_core.plugins.loading import Registry
from mlgym_core.sandbox.base import Backend, Network
from mlgym_core.task.task import Capability, Task

AUTO = "auto"


@frozen
class Choice:
    """A backend and why it was taken.

    Attributes:
        backend: ready to open boxes.
        why: one sentence for people and the record.
    """

    backend: Backend
    why: str


def choose(registry: Registry, name: str | Backend) -> Choice:
    """The backend called ``name`` or ``name:argument``; ``auto`` takes the available one of the lowest rank.

    Raises:
        UsageError: there is no backend of this name.
        BackendUnavailableError: it, or every one, cannot be used here; the message says what was tried.
    """
    if not isinstance(name, str):
        return Choice(name, f"{name.name} ({name.describe()}), as handed over")
    if name != AUTO:
        kind, _, argument = name.partition(":")
        entry = registry.choose("mlgym_register_backends", kind, "backend")
        backend = _create(entry, argument)
        return Choice(backend, f"{name} ({backend.describe()}), as asked for")
    entries: list[BackendEntry] = sorted(registry.collect("mlgym_register_backends"), key=lambda e: e.rank)
    refusals = []
    for entry in entries:
        try:
            backend = _create(entry, "")
        except BackendUnavailableError as error:
            refusals.append(f"{entry.name}: {error}")
            continue
        passed = f"; not {'; not '.join(refusals)}" if refusals else ""
        return Choice(backend, f"{entry.name} ({backend.describe()}), the first available{passed}")
    raise BackendUnavailableError(f"no backend can be used here: {'; '.join(refusals) or 'none is installed'}")


def _create(entry: BackendEntry, argument: str) -> Backend:
    try:
        backend = entry.create(argument)
    except MLGymError:
        raise
    except Exception as error:
        raise BackendUnavailableError(f"backend {entry.name} failed to start: {error!r}") from error
    if not isinstance(backend, Backend):
        raise BackendUnavailableError(f"backend {entry.name} is not complete: it returned {backend!r:.80}")
    return backend


def wanted(task: Task, network: Network) -> frozenset[Capability]:
    """What a run of the task wants of its backend."""
    wants = {Capability.ISOLATION, Capability.MEMORY, Capability.CPU, Capability.PIDS, *task.resources.required}
    if network == "none":
        wants.add(Capability.NETWORK_NONE)
    if task.resources.gpus > 0:
        wants.add(Capability.GPU)
    return frozenset(wants)


def missing(task: Task, network: Network, backend: Backend) -> list[str]:
    """Capabilities that a run wants and the backend lacks, sorted.

    Raises:
        UsageError: the task cannot do without one of them.
    """
    lacking = sorted(map(str, wanted(task, network) - backend.capabilities()))
    refused = [name for name in lacking if name in map(str, task.resources.required)]
    if refused:
        raise UsageError(
            f"task {task.id} requires {', '.join(refused)}, which backend {backend.name} ({backend.describe()}) "
            f"does not enforce here; choose another one with --backend"
        )
    return lacking
