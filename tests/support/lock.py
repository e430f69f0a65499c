"""Writes locks/: every package that `make` installs, with the hash of every file of its version.

make lock        after a change of constraints.txt or of a dependency in pyproject.toml

Versions come from constraints.txt; a package that only some platform needs and that is not there
gets the newest version that fits. Hashes and dependencies come from the package index that pip is
configured with, without a download: all platforms, Python 3.11 to 3.13. torch is locked by itself:
a CPU build lying beside the index is preferred to the index's own.
"""

import hashlib
import itertools
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import distribution
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version
from pip._internal.commands import create_command
from pip._internal.index.collector import parse_links

ROOT = Path(__file__).parents[2]
HEADER = "# written by `make lock`; `pip install --require-hashes --no-deps` verifies every file\n"
PLATFORMS = {
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
    "darwin": {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix"},
    "win32": {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt"},
}
PYTHONS = ("3.11", "3.12", "3.13")
BUILD = ("hatchling", "editables")  # build without isolation, so that these are verified too
GROUPS = {"dev": ("dev",), "extras": ("hf", "oracles", "ray", "docs")}
Place = tuple[str, str]  # platform and version of Python
PLACES: tuple[Place, ...] = tuple(itertools.product(PLATFORMS, PYTHONS))


@dataclass
class Closure:
    """The packages that some requirements need, with the places that need each."""

    versions: dict[str, str]
    allowed: dict[str, SpecifierSet] = field(default_factory=dict)
    places: dict[str, set[Place]] = field(default_factory=dict)

    def add(self, requirement: Requirement, place: Place, extra: str = "") -> None:
        platform, python = place
        environment = {**default_environment(), **PLATFORMS[platform], "extra": extra}
        environment |= {"python_version": python, "python_full_version": f"{python}.0"}
        if requirement.marker and not requirement.marker.evaluate(environment):
            return
        name = canonicalize_name(requirement.name)
        key = f"{name}[{','.join(sorted(requirement.extras))}]" if requirement.extras else name
        if place in self.places.setdefault(key, set()):
            return
        self.places[key].add(place)
        self.places.setdefault(name, set()).add(place)
        for other in requires(name, self._version(name, requirement.specifier)):
            if is_cuda(name, other):
                continue
            for wanted in ("", *requirement.extras):
                self.add(other, place, wanted)

    def _version(self, name: str, specifier: SpecifierSet) -> str:
        """Return the pinned version, or the newest that all who need it allow."""
        self.allowed[name] = self.allowed.get(name, SpecifierSet()) & specifier
        if name not in pinned():
            self.versions[name] = newest(name, self.allowed[name])
        return self.versions[name]

    def names(self) -> list[str]:
        return sorted(name for name in self.places if "[" not in name)


def is_cuda(name: str, requirement: Requirement) -> bool:
    """Tell what torch's builds with CUDA need beside those without."""
    return name == "torch" and "platform_system" in str(requirement.marker or "")


@cache
def links(name: str) -> tuple[object, ...]:
    """Return pip's links to every file of a package, from every place that pip looks at."""
    command = create_command("download")
    options, _ = command.parse_args(["unused"])
    session = command._build_session(options)
    collector = command._build_package_finder(options, session)._link_collector
    pages = collector.collect_sources(name, lambda page: _page(collector, page))
    sources = (*pages.index_urls, *pages.find_links)
    found = []
    for source in filter(None, sources):
        found += [*source.page_candidates(), *source.file_links()]
    return tuple(link for link in found if _version(link.filename)[0] == name)


def _page(collector: object, page: object) -> Iterator[object]:
    response = collector.fetch_response(page)
    return parse_links(response) if response else iter(())


@cache
def _version(filename: str) -> tuple[str, Version | None]:
    try:
        if filename.endswith(".whl"):
            return parse_wheel_filename(filename)[:2]
        return parse_sdist_filename(filename)
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return "", None


def files(name: str, version: str) -> list[object]:
    """Return the links to all files of a version; a local build (2.13.0+cpu) is its own."""
    wanted = Version(version)
    return [link for link in links(name) if _version(link.filename)[1] == wanted]


def newest(name: str, allowed: SpecifierSet) -> str:
    versions = {_version(link.filename)[1] for link in links(name)}
    return str(max(allowed.filter(version for version in versions if version)))


@cache
def requires(name: str, version: str) -> tuple[Requirement, ...]:
    """Return the dependencies of a version, as the index has them for its wheels."""
    command = create_command("download")
    session = command._build_session(command.parse_args(["unused"])[0])
    for link in files(name, version):
        if link.filename.endswith(".whl") and link.scheme.startswith("http"):
            answer = session.get(f"{link.url_without_fragment}.metadata")
            if answer.status_code == 200:
                return tuple(_requirements(answer.text))
    return tuple(_requirements(_from_wheel(session, name, version)))


def _from_wheel(session: object, name: str, version: str) -> str:
    """Return the metadata in the smallest way left: a wheel on disk, or one that is downloaded."""
    wheels = [link for link in files(name, version) if link.filename.endswith(".whl")]
    if not wheels:
        return str(distribution(name).metadata)  # a source archive alone: as it is installed here
    link = min(wheels, key=lambda link: not link.is_file)
    content = Path(link.file_path).read_bytes() if link.is_file else session.get(link.url).content
    with ZipFile(BytesIO(content)) as wheel:
        (path,) = [n for n in wheel.namelist() if re.fullmatch(r"[^/]*\.dist-info/METADATA", n)]
        return wheel.read(path).decode()


def _requirements(metadata: str) -> Iterator[Requirement]:
    for line in metadata.partition("\n\n")[0].splitlines():
        if line.startswith("Requires-Dist:"):
            yield Requirement(line.partition(":")[2].strip())


def hashes(links: Iterable[object]) -> list[str]:
    digests = set()
    for link in links:
        if link.is_file and not link.has_hash:
            digests.add(hashlib.sha256(Path(link.file_path).read_bytes()).hexdigest())
        elif link.hash_name == "sha256":
            digests.add(link.hash)
    return sorted(digests)


def marker(places: set[Place]) -> str:
    """Return the marker of a package that not every place needs."""
    platforms = sorted({platform for platform, _ in places})
    pythons = sorted({python for _, python in places})
    parts = []
    if len(platforms) < len(PLATFORMS):
        parts.append(" or ".join(f"sys_platform == '{name}'" for name in platforms))
    if len(pythons) < len(PYTHONS):
        parts.append(" or ".join(f"python_version == '{name}'" for name in pythons))
    return "".join(f" ; {' and '.join(f'({part})' for part in parts)}" if parts else "")


def write(name: str, entries: Iterable[tuple[str, str, set[Place]]]) -> None:
    lines = []
    for package, version, places in entries:
        digests = hashes(files(package, version))
        if not digests:
            raise SystemExit(f"{package}=={version}: the index has no hash for it")
        texts = [f"{package}=={version}{marker(places)}", *(f"--hash=sha256:{d}" for d in digests)]
        lines.append(" \\\n    ".join(texts) + "\n")
    (ROOT / "locks" / f"{name}.txt").write_text(HEADER + "".join(lines))


@cache
def pinned() -> dict[str, str]:
    text = (ROOT / "constraints.txt").read_text()
    pins = re.findall(r"^([\w.-]+)==(\S+)$", text, re.MULTILINE)
    return {canonicalize_name(name): version for name, version in pins}


def main() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional, versions = project["optional-dependencies"], dict(pinned())
    done: set[str] = {"torch"}  # locked by itself
    for group, extras in GROUPS.items():
        texts = [text for extra in extras for text in optional[extra]]
        texts += [*project["dependencies"], *BUILD] if group == "dev" else []
        closure = Closure(versions)
        for text, place in itertools.product(texts, PLACES):
            closure.add(Requirement(text), place)
        names = [name for name in closure.names() if name not in done]
        write(group, [(name, versions[name], closure.places[name]) for name in names])
        done |= {*names}
    lock_torch(versions, done)
    return 0


def lock_torch(versions: dict[str, str], done: set[str]) -> None:
    """Lock the index's torch with what its CUDA builds need, and CPU builds by themselves."""
    torch, cuda = versions["torch"], Closure(versions)
    for _ in range(2):  # the second time it is known what everybody allows
        cuda = Closure(versions, cuda.allowed)
        for other, place in itertools.product(requires("torch", torch), PLACES):
            if is_cuda("torch", other):
                cuda.add(other, place)
    names = [name for name in cuda.names() if name not in done]
    entries = [(name, versions[name], cuda.places[name]) for name in names]
    write("torch", [("torch", torch, set(PLACES)), *entries])
    write("torch-cpu", [("torch", f"{torch}+cpu", set(PLACES))])


if __name__ == "__main__":
    sys.exit(main())
