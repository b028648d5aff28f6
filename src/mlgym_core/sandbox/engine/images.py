"""Builds a task's image from its Dockerfile on first use, tagged by content, and lists and removes such images."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from mlgym_core import settings
from mlgym_core.errors import InfrastructureError
from mlgym_core.sandbox.base import PreparedImage, Progress
from mlgym_core.task.task import Image

if TYPE_CHECKING:
    from docker import DockerClient

REPOSITORY = "mlgym"
LABEL = "mlgym.image"
_CA_FILE = ".mlgym-ca.pem"
_CA_PATH = "/usr/local/share/ca-certificates/mlgym-ca.crt"
_CA_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
_LOG_LINES = 30
_FROM = re.compile(r"^(FROM\s+(?!scratch\b).*)$", re.MULTILINE | re.IGNORECASE)


@frozen
class BuildOptions:
    """What a build may be told beside the Dockerfile.

    Attributes:
        arguments: build arguments.
        ca_bundle: certificates that the build trusts, for registries behind a proxy that signs anew.
    """

    arguments: Mapping[str, str] = field(factory=dict)
    ca_bundle: Path | None = None

    @classmethod
    def from_environment(cls) -> BuildOptions:
        """The bundle that ``MLGYM_CA_BUNDLE`` names."""
        return cls(ca_bundle=settings.CA_BUNDLE.value())


@frozen
class ImageStore:
    """The task images of one engine.

    Attributes:
        client: of the engine.
        options: of every build.
    """

    client: DockerClient
    options: BuildOptions = field(factory=BuildOptions)

    def prepare(self, image: Image, progress: Progress, build: bool) -> PreparedImage:
        """The image for a task, built if absent; a present one costs one call to the engine and no network.

        Raises:
            InfrastructureError: it is absent and may not be built, or the build failed (with the end of its log).
        """
        import docker

        tag = _tag(image)
        try:
            return PreparedImage(tag, self.client.api.inspect_image(tag)["Id"])
        except docker.errors.ImageNotFound:
            pass
        if not build:
            raise InfrastructureError(
                f"image {tag} has not been built and --no-build was given; run: mlgym image build"
            )
        return self.build(image, progress)

    def build(self, image: Image, progress: Progress) -> PreparedImage:
        """Build the image for a task, whether or not it is there.

        Raises:
            InfrastructureError: the build failed (with the end of its log).
        """
        tag = _tag(image)
        progress(f"building image {tag}, which takes a while the first time")
        self._build(_context(image, self.options), image.dockerfile, tag, progress)
        return PreparedImage(tag, self.client.api.inspect_image(tag)["Id"])

    def listed(self) -> list[dict[str, Any]]:
        """Images that were built here: tag, id, size in bytes, Unix time of creation."""
        return [
            {"tag": tag, "id": found["Id"], "bytes": found["Size"], "created": found["Created"]}
            for found in self.client.api.images(filters={"label": LABEL})
            for tag in found.get("RepoTags") or ()
            if tag.split("/")[-2:-1] == [REPOSITORY]
        ]

    def remove(self, tag: str) -> None:
        """Remove one image.

        Raises:
            InfrastructureError: it is in use or does not exist.
        """
        import docker

        try:
            self.client.api.remove_image(tag)
        except docker.errors.APIError as error:
            raise InfrastructureError(f"image {tag} cannot be removed: {error.explanation}") from error

    def _build(self, context: Mapping[str, bytes], dockerfile: str, tag: str, progress: Progress) -> None:
        import docker

        log: list[str] = []
        failure = ""
        try:
            for message in self.client.api.build(
                fileobj=_packed(context),
                custom_context=True,
                dockerfile=dockerfile,
                tag=tag,
                rm=True,
                forcerm=True,
                buildargs=dict(self.options.arguments),
                labels={LABEL: "1"},
                decode=True,
            ):
                failure = message.get("error", failure)
                for line in filter(str.strip, str(message.get("stream", "")).splitlines()):
                    log.append(line.rstrip())
                    if line.startswith("Step "):
                        progress(line.strip())
        except (docker.errors.DockerException, OSError) as error:
            raise InfrastructureError(_failed(tag, str(error), log)) from error
        if failure:
            raise InfrastructureError(_failed(tag, failure, log))


def _tag(image: Image) -> str:
    """Of what is built. Bundle and arguments only say how to reach what is needed: machines share the tag."""
    digest = hashlib.sha256()
    for name, content in _files(image).items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return f"{REPOSITORY}/{_name(image)}:{digest.hexdigest()[:16]}"


def _files(image: Image) -> dict[str, bytes]:
    folder = image.folder
    if not (folder / image.dockerfile).is_file():
        raise InfrastructureError(f"{folder / image.dockerfile} is missing; container engines build the image from it")
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def _context(image: Image, options: BuildOptions) -> dict[str, bytes]:
    files = _files(image)
    if options.ca_bundle is not None:
        try:
            files[_CA_FILE] = options.ca_bundle.read_bytes()
        except OSError as error:
            raise InfrastructureError(f"the CA bundle {options.ca_bundle} cannot be read: {error.strerror}") from error
        files[image.dockerfile] = _trusting(files[image.dockerfile].decode()).encode()
    return files


def _trusting(dockerfile: str) -> str:
    """The Dockerfile with the bundle trusted from each stage's beginning on."""
    variables = " ".join(f"{name}={_CA_PATH}" for name in _CA_VARIABLES)
    step = f"COPY {_CA_FILE} {_CA_PATH}\nENV {variables}\n"
    return re.sub(
        r"^(FROM\s+(?!scratch\b).*)$", lambda m: f"{m[1]}\n{step}", dockerfile, flags=re.MULTILINE | re.IGNORECASE
    )


def _name(image: Image) -> str:
    package = image.folder.parent.name.lower()
    return re.sub(r"[^a-z0-9]+", "-", package).strip("-") or "task"


def _failed(tag: str, error: str, log: Sequence[str]) -> str:
    tail = "\n".join(log[-_LOG_LINES:])
    return f"image {tag} could not be built: {error.strip()}\n{tail}"


def _packed(context: Mapping[str, bytes]) -> io.BytesIO:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in context.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            archive.addfile(member, io.BytesIO(content))
    packed.seek(0)
    return packed
