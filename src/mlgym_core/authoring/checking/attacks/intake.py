"""Attacks in the form of what is handed in: links, devices, bombs. None may be taken, all must be explained."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath

from attrs import frozen

from mlgym_core.authoring.checking.attacks.base import EVERY_KIND, SUBMIT, Arena, filled
from mlgym_core.authoring.checking.report import BrokenError
from mlgym_core.task.task import SubmissionKind, Task

BOMB_BYTES = 1 << 30  #: what a bomb decompresses to
_ARCHIVES = (".zip", ".npz", ".tar", ".tgz", ".gz", ".pt", ".pth", ".safetensors", ".npy")


@frozen
class Planted:
    """The declared path becomes something that is no plain file; it is refused, and an honest one taken after it.

    Attributes:
        plant: shell text with ``@PATH@``, run after the path was removed.
    """

    name: str
    about: str
    plant: str
    kinds: Sequence[SubmissionKind] = EVERY_KIND
    specific: bool = False

    def run(self, arena: Arena) -> str:
        """See :class:`~mlgym_core.authoring.checking.attacks.base.Attack`."""
        plant = filled(f"cp -r @PATH@ /tmp/honest; rm -rf @PATH@; {self.plant}", arena.task)
        with arena.bench.episode(*arena.bench.guarded()) as played:
            planted = played.step(plant).observation
            refused = played.step(SUBMIT)
            if refused.done:
                raise BrokenError(f"it was accepted: {refused.observation}; planting it said {planted[:200]}")
            played.place_honest()
            played.step(SUBMIT)
        for text in played.said:
            arena.judge_text(text)
        if played.episode.outcome != "scored":
            raise BrokenError(
                f"an honest submission after it ended as {played.episode.outcome}: {played.said[-1][:300]}"
            )
        return refused.observation[:120]


@frozen
class Bomb:
    """A file that grows when it is unpacked, for submissions that are archives, folders or numbers in a container."""

    name: str
    about: str
    content: Callable[[], bytes]
    kinds: Sequence[SubmissionKind] = EVERY_KIND
    specific: bool = True

    def run(self, arena: Arena) -> str:
        """See :class:`~mlgym_core.authoring.checking.attacks.base.Attack`."""
        targets = [name for name in arena.honest if PurePosixPath(name).suffix in _ARCHIVES]
        bomb = self.content()
        files: Mapping[str, bytes] = {name: bomb if name in targets or not targets else data
                                      for name, data in arena.honest.items()}  # fmt: skip
        return arena.judge(arena.hand_in(files))


def unpacked(task: Task) -> bool:
    """Whether the submission holds what a grader or player might unpack: folders or archives."""
    suffixes = {"" if path.endswith("/") else PurePosixPath(path).suffix for path in task.submission.paths}
    return bool(suffixes & {"", *_ARCHIVES})


def _zip_bomb() -> bytes:
    out = io.BytesIO()
    with (
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive,
        archive.open("a.npy", "w") as file,
    ):
        for _ in range(BOMB_BYTES >> 20):
            file.write(bytes(1 << 20))
    return out.getvalue()


def _gzip_bomb() -> bytes:
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as file:
        for _ in range(BOMB_BYTES >> 20):
            file.write(bytes(1 << 20))
    return out.getvalue()


def _escaping_tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in ("../../private/grade.py", "/box/private/grade.py", "private/grade.py"):
            content = b"import mlgym_peer\nmlgym_peer.scored({})\n"
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("x")
        link.type, link.linkname = tarfile.SYMTYPE, "/"
        archive.addfile(link)
    return out.getvalue()


ATTACKS = (
    Planted("missing", "hands in nothing", "true"),
    Planted("link-to-the-system", "hands in a link to a file of the system", "ln -s /etc/passwd @PATH@"),
    Planted("link-to-itself", "hands in a link to its own file", "ln -s /tmp/honest @PATH@"),
    Planted("link-to-private", "hands in a link to where a grader's files would be", "ln -s /box/private @PATH@"),
    Planted("named-pipe", "hands in a named pipe", "mkfifo @PATH@"),
    Planted(
        "socket",
        "hands in a socket",
        "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('@PATH@')\"",
    ),
    Planted(
        "device", "hands in a link to an endless device", "mknod @PATH@ c 1 5 2>/dev/null || ln -s /dev/zero @PATH@"
    ),
    Planted("huge-file", "hands in a sparse file of a terabyte", "truncate -s 1T @PATH@ || truncate -s 8G @PATH@"),
    Planted(
        "many-files",
        "hands in a folder of more files than any submission has",
        "mkdir -p @PATH@; cd @PATH@; i=0; while [ $i -lt 3000 ]; do : > $i; i=$((i+1)); done; cd - > /dev/null",
    ),
    Planted(
        "deep-folders",
        "hands in folders within folders",
        "mkdir -p @PATH@; (cd @PATH@; i=0; while [ $i -lt 200 ]; do mkdir d && cd d || break; i=$((i+1)); done; : > x)",
    ),
    Planted("odd-names", "hands in file names with line feeds", "mkdir -p @PATH@; : > @PATH@/\"$(printf 'a\\nb')\""),
    Bomb("zip-bomb", "hands in a small zip file that unpacks to a gigabyte", _zip_bomb),
    Bomb("gzip-bomb", "hands in a small gzip file that unpacks to a gigabyte", _gzip_bomb),
    Bomb("escaping-archive", "hands in an archive whose members lead out of it", _escaping_tar),
)
