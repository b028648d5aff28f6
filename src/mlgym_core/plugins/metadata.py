"""Reads the metadata of installed packages one by one, so that a damaged package fails alone."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, EntryPoint, distributions
from pathlib import Path

from attrs import frozen

from mlgym_core.errors import DamagedPackageWarning

_VALUE = re.compile(r"[\w.]+(\s*:\s*[\w.]+)?(\s*\[.*\])?")
_OURS = "mlgym"  #: begins the name of every group that plugins use
_warned: set[str] = set()


@frozen
class Damage:
    """A package that is passed over.

    Attributes:
        folder: of its metadata.
        name, version: of the package, from the folder's name.
        reason: what cannot be read, in words.
    """

    folder: Path
    name: str
    version: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the installed package in {self.folder} is passed over: {self.reason}; reinstall it or remove the folder"
        )


@frozen
class Scan:
    """What is installed.

    Attributes:
        points: entry points of the groups asked for, each once, sorted by name.
        damaged: packages that could not be read.
    """

    points: Sequence[tuple[str, EntryPoint]]
    damaged: Sequence[Damage]


def scan(*groups: str) -> Scan:
    """The entry points of some groups, with their group; every damaged package is warned about once a process."""
    found: dict[tuple[str, str, str, str], tuple[str, EntryPoint]] = {}
    damaged: list[Damage] = []
    seen: set[str] = set()
    for distribution in distributions():
        try:
            points = list(_points(distribution))
            name = _name(distribution, bool(points))
        except Exception as error:  # whatever a parser makes of arbitrary bytes
            damaged.append(_damage(distribution, error))
            continue
        if name in seen:  # the first on the path counts, as in an import
            continue
        seen.add(name)
        for group, point in points:
            if group not in groups:
                continue
            found.setdefault((group, point.name, point.value, name), (group, point))
    for one in damaged:
        if str(one.folder) not in _warned:
            _warned.add(str(one.folder))
            warnings.warn(str(one), DamagedPackageWarning, stacklevel=3)
    return Scan(sorted(found.values(), key=lambda pair: pair[1].name), damaged)


def _points(distribution: Distribution) -> Iterator[tuple[str, EntryPoint]]:
    for point in distribution.entry_points:
        if point.group.split(".")[0] == _OURS:
            if not _VALUE.fullmatch(point.value):
                raise ValueError(f"the entry point {point.name!r} names no module: {point.value!r:.80}")
            yield point.group, point


def _name(distribution: Distribution, ours: bool) -> str:
    """Its normalised name. That of a package with plugins is read from its metadata, which must be there."""
    if not ours:
        return _split(_folder(distribution))[0]
    name, version = distribution.metadata["Name"], distribution.metadata["Version"]
    if not name or not version:
        raise ValueError("its METADATA names no package and version, or is missing")
    return _normal(name)


def _damage(distribution: Distribution, error: Exception) -> Damage:
    folder = _folder(distribution)
    name, version = _split(folder)
    reason = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
    if isinstance(error, UnicodeDecodeError):
        reason = "its metadata is not UTF-8"
    elif isinstance(error, TypeError):
        reason = "a line of its entry_points.txt is not 'name = module'"
    return Damage(folder, name, version, " ".join(reason.split())[:200])


def _folder(distribution: Distribution) -> Path:
    return Path(str(getattr(distribution, "_path", "an unknown place")))


def _split(folder: Path) -> tuple[str, str]:
    name, _, version = folder.name.removesuffix(".dist-info").removesuffix(".egg-info").partition("-")
    return _normal(name), version.split("-")[0] or "unknown"


def _normal(name: str) -> str:
    """As PEP 503 compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()
