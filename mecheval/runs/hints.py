"""Says what to load before a run of a third-party model can be opened; nothing is loaded here."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mecheval.core.errors import InvalidInput
from mecheval.core.spec import digest
from mecheval.runs.files import read_input

GIVE = "give it by --plugin, or call load_plugin"


def hints(provenance: Mapping[str, Any], problem: str) -> Iterator[str]:
    """Yield a line for each class that a problem names, from the record of where it was."""
    for name, place in provenance.get("classes", {}).items():
        if f"{name!r}" in problem:
            again = f"register_mixer({name!r})({name}), or register_model for a whole model"
            yield f"{name} was defined in {place}; define it again and call {again}"
    checksums = provenance["made_by"].get("plugins") or {}
    files = {n: str(path) for n, path in (provenance.get("plugin_files") or {}).items()}
    for name, path in files.items():
        if f"{name!r}" in problem:
            yield _file_hint(name, path, checksums)
    names = [name for name in checksums if name.endswith(".py")]
    if not files and names:  # a run of an older version
        yield f"the run was made with {', '.join(names)}; {GIVE}"


def _file_hint(name: str, path: str, checksums: Mapping[str, Any]) -> str:
    """Return which `--plugin` to give, and whether the file is still the one of the run."""
    file = Path(path[: path.rindex(".py") + 3] if ".py" in path else path)
    if not file.is_file():
        return f"{name} was in {file}, which is not there; {GIVE} with its new path"
    try:
        same = digest(read_input(file, "plugin")) == checksums.get(file.name)
    except InvalidInput as error:
        return f"{name} was in {file}: {error}"
    state = "unchanged since the run" if same else "changed since the run: numbers may differ"
    return f"{name} is in a file that is {state}; give --plugin {path}"
