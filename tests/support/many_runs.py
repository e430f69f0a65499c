"""Fabricates many runs from one: copies with other seeds, keys and mended checksums.

python tests/support/many_runs.py RUN --out DIR --runs 2000
"""

import argparse
import json
import sys
from pathlib import Path

from mecheval.runs.checked import CHECKSUMS
from mecheval.runs.experiment import Experiment
from mecheval.runs.files import read, read_json, sha256, write_json


def mend(folder: Path) -> None:
    """Let the checksums agree with the files that are there."""
    files = {path.name: sha256(path.read_bytes()) for path in sorted(folder.iterdir())}
    write_json(folder / CHECKSUMS, {n: text for n, text in files.items() if n != CHECKSUMS})


def many_runs(run: Path, out: Path, number: int) -> None:
    """Write copies of a run into `out`, each with its own seed and a slightly other curve."""
    record = {n: v for n, v in read_json(run / "experiment.json").items() if n != "key"}
    status = read_json(run / "status.json")
    lines = {n: read(run / n).splitlines() for n in ("curve.jsonl", "rows.jsonl")}
    for seed in range(number):
        experiment = Experiment.of(record | {"seed": seed})
        folder = out / experiment.name
        folder.mkdir(parents=True)
        for path in run.iterdir():
            if path.name not in ("experiment.json", "status.json", CHECKSUMS, *lines):
                (folder / path.name).write_bytes(path.read_bytes())
        write_json(folder / "experiment.json", experiment.record())
        write_json(folder / "status.json", status | {"key": experiment.key})
        for name, texts in lines.items():
            (folder / name).write_text("".join(_varied(text, seed) + "\n" for text in texts))
        mend(folder)


def _varied(text: bytes, seed: int) -> str:
    record = json.loads(text)
    for name in ("loss", "value"):
        if isinstance(record.get(name), float):
            record[name] *= 1 + seed % 97 / 1e4
    return json.dumps(record)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=2000)
    asked = parser.parse_args()
    many_runs(asked.run, asked.out, asked.runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
