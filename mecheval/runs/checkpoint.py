"""Checkpoints of a pending run: the newest two, each a file of tensors with a note about it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mecheval.runs import files
from mecheval.runs.files import Damaged

if TYPE_CHECKING:
    from torch import Tensor

KEPT = 2


@dataclass(frozen=True)
class Checkpoint:
    tensors: Mapping[str, "Tensor"]
    numbers: Mapping[str, Any]


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write the tensors, then the note: without it, or with another checksum, they do not count."""
    content = files.pack_tensors(checkpoint.tensors)
    name = f"{checkpoint.numbers['step']:010d}"
    files.write(folder / f"{name}.safetensors", content)
    note = {"numbers": checkpoint.numbers, "tensors_sha256": files.sha256(content)}
    files.write_json(folder / f"{name}.json", note)
    # the note of a later step is damaged, or this step would not have been computed again
    kept = [path.stem for path in _notes(folder) if path.stem <= name][:KEPT]
    for path in folder.iterdir():
        if path.stem not in kept:
            files.remove(path)


def load_checkpoint(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest checkpoint that is whole, and the problems of those after it."""
    problems: list[str] = []
    for note in _notes(folder):
        try:
            return _load(note), problems
        except Damaged as error:
            problems.append(f"checkpoint {int(note.stem)}: {error}")
    return None, problems


def newest_step(folder: Path) -> int:
    """Return the step of the newest checkpoint, or 0."""
    notes = _notes(folder)
    return int(notes[0].stem) if notes else 0


def newest_curve(folder: Path) -> list[dict[str, Any]]:
    """Return the training curve up to the newest checkpoint; the tensors are not read."""
    for note in _notes(folder):
        try:
            curve = files.read_json(note)["numbers"]["curve"]
        except (Damaged, KeyError, TypeError):
            continue
        return list(curve)
    return []


def _load(note: Path) -> Checkpoint:
    record = files.read_json(note)
    content = files.read(note.with_suffix(".safetensors"))
    if files.sha256(content) != record.get("tensors_sha256"):
        raise Damaged(f"{note.stem}.safetensors does not match its checksum")
    if not isinstance(record.get("numbers"), dict):
        raise Damaged(f"{note.name} is not what was written")
    return Checkpoint(files.unpack_tensors(content), record["numbers"])


def _notes(folder: Path) -> list[Path]:
    """List the notes, newest first."""
    if folder.is_symlink():
        return []
    notes = [path for path in folder.glob("*.json") if re.fullmatch("[0-9]{10,}", path.stem)]
    return sorted(notes, reverse=True)
