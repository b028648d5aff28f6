"""Freezes a submission: a hostile tar stream in, a canonical archive named by its content out."""

from __future__ import annotations

import hashlib
import os
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import IO

from attrs import define, field, frozen

from mlgym_core.errors import ExportError, InvalidSubmissionError, MissingSubmissionError, RecordError
from mlgym_core.grading import tarstream
from mlgym_core.task.task import Submission

MAX_NAME = 1024  #: bytes of a path
MAX_COMPONENT = 255  #: bytes of one name in it


@frozen
class Archive:
    """A frozen submission.

    Attributes:
        digest: SHA-256 of the canonical tar file, in hexadecimal; equal content has an equal digest.
        path: the tar file.
        files: names inside, sorted.
        bytes: total size of their content.
    """

    digest: str
    path: Path
    files: tuple[str, ...]
    bytes: int


def freeze(stream: IO[bytes], submission: Submission, store: Path) -> Archive:
    """Read a tar stream of the workspace and keep it as ``store/<digest>.tar``; the same content is kept once.

    Args:
        stream: from :meth:`mlgym_core.sandbox.base.Sandbox.export`; nothing in it is believed.
        submission: what may and must be in it.
        store: folder for archives; created if absent.

    Raises:
        InvalidSubmissionError: it cannot be accepted, for a reason that the agent can act on.
        RecordError: the store cannot be written.
    """
    try:
        store.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".freeze-", dir=store) as scratch:
            intake = _Intake(submission, Path(scratch))
            try:
                intake.read(stream)
            except ExportError as error:
                raise InvalidSubmissionError(str(error)) from error
            except tarstream.DamagedArchiveError as error:
                raise InvalidSubmissionError(
                    f"the submission could not be read ({error}); submit again without changing the files meanwhile"
                ) from error
            intake.check_complete()
            return _store(intake.files, Path(scratch), store)
    except OSError as error:
        raise RecordError(f"cannot keep the submission under {store}: {error}") from error


def freeze_folder(folder: Path, submission: Submission, store: Path) -> Archive:
    """Freeze the declared paths of a folder on the host, by the same rules as :func:`freeze`.

    Raises:
        InvalidSubmissionError: as in :func:`freeze`.
        RecordError: the folder cannot be read or the store not be written.
    """
    try:
        with tempfile.TemporaryFile() as packed:
            with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
                total = 0
                for path, name in _walk(folder, submission.paths):
                    total += path.lstat().st_size if path.is_file() and not path.is_symlink() else 0
                    if total > submission.max_bytes:
                        raise InvalidSubmissionError(_too_large(submission))
                    archive.add(path, arcname=name, recursive=False)
            packed.seek(0)
            return freeze(packed, submission, store)
    except OSError as error:
        raise RecordError(f"cannot read the submission in {folder}: {error}") from error


def open_archive(path: Path) -> Archive:
    """Open an archive that :func:`freeze` wrote.

    Raises:
        RecordError: it is missing, or its content is not what its name says.
    """
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != path.stem:
            raise RecordError(f"{path} has been changed since it was written: its digest is {digest}")
        with tarfile.open(path, mode="r:") as archive:
            members = archive.getmembers()
    except (OSError, tarfile.TarError) as error:
        raise RecordError(f"cannot open the archived submission {path}: {error}") from error
    return Archive(digest, path, tuple(member.name for member in members), sum(member.size for member in members))


@frozen
class _Declared:
    """One of ``submission.paths``: a name with an extension is a file, one with a closing slash a folder."""

    name: str
    must_be_file: bool

    @classmethod
    def parse(cls, path: str) -> _Declared:
        pure = PurePosixPath(path)
        return cls(pure.as_posix(), bool(pure.suffix) and not path.endswith("/"))


@define
class _Intake:
    """What has been taken so far.

    Content goes to numbered files of ``scratch``, never to a path that the archive names; ``files`` says which is
    which. ``folders`` are names that stand for a folder, told by the archive or implied by a file below them.
    """

    submission: Submission
    scratch: Path
    files: dict[str, Path] = field(factory=dict)
    folders: set[str] = field(factory=set)

    def read(self, stream: IO[bytes]) -> None:
        total = folders = 0
        for member in tarstream.members(stream):
            name = self._accepted_name(member)
            if member.kind == "folder":
                folders += 1
                self.folders.add(name)
            # Folders count too: an archive of nothing else would take as long to read.
            if max(folders, len(self.files) + (member.kind == "file")) > self.submission.max_files:
                raise InvalidSubmissionError(
                    f"the submission has more than {self.submission.max_files} files or folders; submit fewer"
                )
            if member.kind == "folder":
                continue
            total += member.size
            if total > self.submission.max_bytes:
                raise InvalidSubmissionError(_too_large(self.submission))
            self.files[name] = self.scratch / str(len(self.files))
            with self.files[name].open("wb") as file:
                for piece in member.content:
                    file.write(piece)

    def _accepted_name(self, member: tarstream.Member) -> str:
        """The name under which a member is taken.

        Raises:
            InvalidSubmissionError: it must not be part of the submission.
        """
        name = _clean_name(member.name)
        if member.kind not in ("file", "folder"):
            raise InvalidSubmissionError(f"{name} is a {member.kind}; submit a regular file")
        declared = [_Declared.parse(path) for path in self.submission.paths]
        above = {parent.as_posix() for one in declared for parent in PurePosixPath(one.name).parents}
        # "." and the folders on the way to what was declared come along in any archive of it.
        if member.kind == "folder" and name in above:
            return name
        if not any(name == one.name or name.startswith(one.name + "/") for one in declared):
            raise InvalidSubmissionError(
                f"{name} is not part of the submission; submit only {', '.join(self.submission.paths)}"
            )
        # A declared file must not be a folder, nor look like one because something lies below it.
        for one in declared:
            if one.must_be_file and (name.startswith(one.name + "/") or (name == one.name and member.kind == "folder")):
                raise InvalidSubmissionError(f"{one.name} is a folder; submit a regular file")
        # One name, one thing: a file must not take a name that stands for a folder, nor lie below another file. Readers
        # differ in which of two they believe, so that the grader could be shown another than the player.
        taken = name in self.files or (member.kind == "file" and name in self.folders)
        parents = {parent.as_posix() for parent in PurePosixPath(name).parents}
        if taken or parents.intersection(self.files):
            raise InvalidSubmissionError(f"{name} occurs twice in the submission; submit it once")
        if member.kind == "file":
            self.folders.update(parents - {"."})
        return name

    def check_complete(self) -> None:
        for one in map(_Declared.parse, self.submission.paths):
            below = [name for name in self.files if name == one.name or name.startswith(one.name + "/")]
            if not below and one.name in self.folders:
                raise InvalidSubmissionError(f"{one.name} is an empty folder; put the submission into it first")
            if not below:
                kind = InvalidSubmissionError if self.files else MissingSubmissionError
                raise kind(f"{one.name} is missing; write the submission into it first")
            if below == [one.name] and self.files[one.name].stat().st_size == 0:
                raise InvalidSubmissionError(f"{one.name} is empty; write the submission into it first")


def _clean_name(raw: bytes) -> str:
    """The one spelling of a name: relative, without empty parts and dots, printable, short; ``.`` for the top.

    Raises:
        InvalidSubmissionError: it has none.
    """
    shown = raw.decode("utf-8", "backslashreplace")[:200]
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidSubmissionError(f"the file name {shown} is not UTF-8; rename it") from None
    if not name.isprintable():
        raise InvalidSubmissionError(f"the file name {shown!r} has unprintable characters; rename it")
    if name.startswith("/"):
        raise InvalidSubmissionError(f"{shown} is an absolute path; submit files of the workspace")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise InvalidSubmissionError(f"{shown} leads out of the workspace; submit files of the workspace")
    if len(raw) > MAX_NAME or any(len(part.encode()) > MAX_COMPONENT for part in parts):
        raise InvalidSubmissionError(f"the file name {shown}... is too long; rename it")
    return "/".join(parts) or "."


def _too_large(submission: Submission) -> str:
    return f"the submission is larger than {submission.max_bytes} bytes; make it smaller"


def _store(files: dict[str, Path], scratch: Path, store: Path) -> Archive:
    packed, total = scratch / "archive", 0
    with tarfile.open(packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.mode, member.size = 0o644, files[name].stat().st_size
            total += member.size
            with files[name].open("rb") as content:
                archive.addfile(member, content)
    with packed.open("rb+") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    path = store / f"{digest}.tar"
    if not path.exists():
        packed.replace(path)
    return Archive(digest, path, tuple(sorted(files)), total)


def _walk(folder: Path, paths: Iterable[str]) -> Iterable[tuple[Path, str]]:
    for path in paths:
        top = folder / path
        if not (top.exists() or top.is_symlink()):
            continue
        yield top, PurePosixPath(path).as_posix()
        if top.is_dir() and not top.is_symlink():
            for below in sorted(top.rglob("*")):
                yield below, below.relative_to(folder).as_posix()
