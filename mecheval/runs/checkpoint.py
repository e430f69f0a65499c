"""Checkpoints of a run on its way: the newest two, each a file of tensors and a note that makes it valid."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mecheval.runs.files import Damaged, read, read_json, remove, sha256, write, write_json

if TYPE_CHECKING:
    from torch import Tensor

KEPT = 2


@dataclass(frozen=True)
class Checkpoint:
    tensors: Mapping[str, "Tensor"]
    numbers: Mapping[str, Any]


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """The note is written last: without it, or with another checksum, the tensors do not count."""
    from mecheval.runs.tensors import packed

    content = packed(checkpoint.tensors)
    name = f"{checkpoint.numbers['step']:010d}"
    write(folder / f"{name}.safetensors", content)
    write_json(folder / f"{name}.json", {"numbers": checkpoint.numbers, "tensors_sha256": sha256(content)})
    # a note of a later step is damaged, or this step would not have been made again
    kept = {note.stem for note in [note for note in _notes(folder) if note.stem <= name][:KEPT]}
    for path in folder.iterdir():
        if path.stem not in kept:
            remove(path)


def load_checkpoint(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that is whole, and what is wrong with those after it."""
    problems: list[str] = []
    for note in _notes(folder):
        try:
            return _load(note), problems
        except Damaged as error:
            problems.append(f"checkpoint {int(note.stem)}: {error}")
    return None, problems


def newest(folder: Path) -> int:
    """The step of the newest checkpoint; 0 if there is none."""
    notes = _notes(folder)
    return int(notes[0].stem) if notes else 0


def _load(note: Path) -> Checkpoint:
    from mecheval.runs.tensors import unpacked

    record = read_json(note)
    content = read(note.with_suffix(".safetensors"))
    if sha256(content) != record.get("tensors_sha256"):
        raise Damaged(f"{note.stem}.safetensors does not agree with its checksum")
    if not isinstance(record.get("numbers"), dict):
        raise Damaged(f"{note.name} is not what was written")
    return Checkpoint(unpacked(content), record["numbers"])


def _notes(folder: Path) -> list[Path]:
    """Newest first."""
    if folder.is_symlink():
        return []
    return sorted((path for path in folder.glob("*.json") if re.fullmatch("[0-9]{10,}", path.stem)), reverse=True)
