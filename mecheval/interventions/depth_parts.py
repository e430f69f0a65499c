"""The parts of a deep model's grid as files: what they depend on, how they are written and read."""

import hashlib
import os
import secrets
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from mecheval.core.errors import StoreError
from mecheval.core.spec import canonical_json
from mecheval.interventions.grid import Cell, Grid
from mecheval.metrics.measurement import Values
from mecheval.tasks.splits import Split

PACKAGES = ("mecheval", "torch", "numpy")
CHECKSUM = "sha256"
Tables = Mapping[str, ndarray]


def model_digest(model: Any) -> str:
    """Return a checksum of all that makes a model: weights, configuration, device and packages."""
    import torch

    config: Any = getattr(model, "config", None)
    packages: tuple[str, ...] = PACKAGES
    hub: Any = getattr(getattr(model, "module", None), "config", None)
    if hasattr(hub, "to_json_string"):  # a model of transformers
        packages = (*packages, "transformers")
        config = hub.to_json_string(), hub._attn_implementation
    device = str(next(model.parameters()).device)
    hashed = hashlib.sha256()
    facts = [[name, version(name)] for name in packages]
    hashed.update(canonical_json([type(model).__qualname__, repr(config), device, facts]).encode())
    for name, weight in model.state_dict().items():
        about = [name, list(weight.shape), str(weight.dtype)]
        hashed.update(canonical_json(about).encode())
        flat = weight.detach().cpu().contiguous().flatten()
        hashed.update(flat.view(torch.uint8).numpy().data)
    return hashed.hexdigest()


def write_part(place: Path, grid: Grid) -> None:
    """Write a part whole or not at all; several processes may write the same one."""
    from safetensors.numpy import save

    tables = _tables(grid)
    content = save(tables, {CHECKSUM: _checksum(tables)})
    partial = place.with_name(f"{place.name}.{secrets.token_hex(4)}.tmp")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            with partial.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(place)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise StoreError(f"{place} cannot be written: {reason}; keep parts elsewhere") from error


def read_part(
    place: Path, split: Split, layers: int, kinds: tuple[str, ...], cells: Iterable[Cell]
) -> Grid | None:
    """Return the part with these cells; None if the file is missing or damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(place, "np") as file:
            tables = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            whole = (file.metadata() or {}).get(CHECKSUM) == _checksum(tables)
    except (OSError, SafetensorError):
        return None
    if not whole:
        return None
    found: dict[tuple[str, ...], Values] = {}
    for name, values in tables.items():
        *cell, metric = name.split("|")
        found.setdefault(tuple(cell), {})[metric] = values
    by_cell = {cell: found[cell[1:]] for cell in cells}
    return Grid("key", split, found["clean", ""], found["corrupt", ""], by_cell, layers, kinds)


def _tables(grid: Grid) -> dict[str, ndarray]:
    ends: Mapping[tuple[str, str], Values] = {
        ("clean", ""): grid.clean,
        ("corrupt", ""): grid.corrupt,
        **{(site, role): values for (_, site, role), values in grid.cells.items()},
    }
    return {
        f"{site}|{role}|{metric}": np.ascontiguousarray(x)
        for (site, role), values in ends.items()
        for metric, x in values.items()
    }


def _checksum(tables: Tables) -> str:
    hashed = hashlib.sha256()
    for name in sorted(tables):
        hashed.update(name.encode() + tables[name].tobytes())
    return hashed.hexdigest()
