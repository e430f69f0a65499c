"""Finds the files of a model: `hf:FOLDER`, `hf:FILE.gguf` or `hf:NAME` in the local cache.

Everything that cannot be loaded is refused here, from file names and JSON alone: nothing is
unpickled, no code of a model is run, and the network is used only to download on request.
"""

import importlib
import importlib.util
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mecheval.core.errors import InvalidInput
from mecheval.core.spec import HUB
from mecheval.models.hf.options import INSTALL

PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
WANTED = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]  # nothing pickled is downloaded
CAUSAL = ("ForCausalLM", "LMHeadModel")
ATTENTION = (None, "sdpa", "eager")  # others are kernels, or code that the hub would give
INDEX, ONE_FILE = "model.safetensors.index.json", "model.safetensors"
_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True)
class Located:
    """A folder with a model, or a GGUF file in it."""

    folder: Path
    gguf: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The arguments that every loader of transformers is given."""
        options = {"local_files_only": True, "trust_remote_code": False}
        return {**options, **({"gguf_file": self.gguf} if self.gguf else {})}

    @property
    def weights(self) -> dict[str, Any]:
        """The arguments that a loader of weights is given."""
        return self.options if self.gguf else {**self.options, "use_safetensors": True}


def locate(text: str, download: bool = False) -> Located:
    """Return where a model is, or raise InvalidInput if it cannot be loaded."""
    name = text.removeprefix(HUB)
    require("transformers")
    path = Path(name).expanduser()
    if path.suffix == ".gguf":
        require("gguf")
        if not path.is_file():
            raise InvalidInput(f"no file {path}; give a GGUF file, a folder or a name of the hub")
        return Located(path.parent, path.name)
    folder = path if path.is_dir() else _from_hub(name, download)
    _check_config(folder)
    _check_weights(folder)
    return Located(folder)


def require(package: str) -> None:
    """Raise InvalidInput if an optional package is not installed."""
    if importlib.util.find_spec(package) is None:
        raise InvalidInput(f"{package} is not installed; {INSTALL}")


def import_transformers() -> Any:
    """Return the package `transformers`, quiet, or raise InvalidInput if it is not installed."""
    require("transformers")
    transformers: Any = importlib.import_module("transformers")
    transformers.utils.logging.set_verbosity_error()  # that fast kernels are missing is expected
    transformers.utils.logging.disable_progress_bar()
    return transformers


def _from_hub(name: str, download: bool) -> Path:
    """Return the folder of a model in the local cache, downloaded first if asked."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"no folder {name}; give a folder with config.json or a name of the hub")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        folder = snapshot_download(name, local_files_only=not download, allow_patterns=WANTED)
    except LocalEntryNotFoundError as error:
        if download:
            raise InvalidInput(f"{name} cannot be downloaded: {_first_line(error)}") from error
        problem = f"{name} is neither a folder nor in the local cache"
        raise InvalidInput(f"{problem}; add --download to fetch it from the hub") from error
    except (HfHubHTTPError, OSError, ValueError) as error:
        done = "downloaded" if download else "read from the local cache"
        raise InvalidInput(f"{name} cannot be {done}: {_first_line(error)}") from error
    return Path(folder)


def _check_config(folder: Path) -> None:
    """Refuse a model that needs its own code or is no causal language model."""
    path = folder / "config.json"
    if not path.is_file():
        hint = "give the folder that save_pretrained has written"
        raise InvalidInput(f"{folder} has no config.json; {hint}")
    config = read_json(path)
    if "auto_map" in config:
        reason = "it names code of its own (auto_map), which is never run"
        raise InvalidInput(f"{path} is refused: {reason}; use a model that transformers has")
    for key in ("attn_implementation", "_attn_implementation"):
        if (chosen := config.get(key)) not in ATTENTION:
            rule = f"{key}={chosen!r} must be sdpa or eager"
            raise InvalidInput(f"{path} is refused: {rule}, whose attention has sites")
    kind, names = config.get("model_type"), config.get("architectures") or []
    problem = f"{folder} must have a causal language model; its model_type is {kind!r}"
    if config.get("is_encoder_decoder"):
        raise InvalidInput(f"{problem}, an encoder with a decoder")
    if names and not any(str(name).endswith(CAUSAL) for name in names):
        raise InvalidInput(f"{problem}, its architecture {', '.join(map(str, names))}")
    transformers = import_transformers()
    auto = transformers.models.auto
    if kind not in auto.configuration_auto.CONFIG_MAPPING_NAMES:
        version = transformers.__version__
        raise InvalidInput(f"{problem}, which transformers {version} does not have")
    if kind not in auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise InvalidInput(problem)


def _check_weights(folder: Path) -> None:
    """Refuse weights that are missing, or that only unpickling could read."""
    index = folder / INDEX
    if index.is_file():
        missing = _missing_shards(folder, read_json(index).get("weight_map"))
        if missing:
            problem = f"{folder} lacks {', '.join(missing)}, which {INDEX} names"
            raise InvalidInput(f"{problem}; copy or download all parts of the weights")
    elif not (folder / ONE_FILE).is_file():
        pickled = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
        if pickled:
            reason = "which is pickled and can run code when it is read"
            hint = "save the model again with save_pretrained, which writes safetensors"
            raise InvalidInput(f"{folder} has its weights in {pickled[0]}, {reason}; {hint}")
        raise InvalidInput(f"{folder} has no weights; it must have {ONE_FILE} or {INDEX}")


def _missing_shards(folder: Path, weight_map: Any) -> list[str]:
    names: Iterable[Any] = weight_map.values() if isinstance(weight_map, Mapping) else ()
    shards = sorted({str(name) for name in names})
    if not shards or any(Path(name).name != name for name in shards):
        raise InvalidInput(f"{folder / INDEX} is damaged: its weight_map must name files beside it")
    return [name for name in shards if not (folder / name).is_file()]


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object, or raise InvalidInput."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read: {_first_line(error)}") from error
    if not isinstance(content, dict):
        raise InvalidInput(f"{path} must be a JSON object")
    return content


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
