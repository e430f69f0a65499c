"""The mixer that a card is about: a class in a file, a name, or a class without a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mecheval.core.definition import class_checksum, file_spec
from mecheval.core.errors import CheckFailed, InvalidInput
from mecheval.core.plugin_files import checksums, isolated_plugins, running_plugin
from mecheval.core.spec import Spec, canonical_json, digest
from mecheval.models.config import ModelConfig, layers_for, split_sizes
from mecheval.models.registries import mixers
from mecheval.plugins import load_plugin, register_class, register_from_text
from mecheval.runs.experiment import Experiment


@dataclass(frozen=True)
class Subject:
    """A mixer as experiments name it, with the plug-in files that a worker imports first.

    `checksums` is set for a class that is in no file: no other process can import it, so its runs
    are trained in this one.
    """

    architecture: str
    plugins: tuple[str, ...] = ()
    checksums: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, subject: str | type[Any], plugins: Sequence[str] = ()) -> "Subject":
        """Resolve `file.py:Class`, a name with options, or a class; refuse what cannot be built."""
        if file := running_plugin():
            guard = "\"if __name__ == '__main__':\", since each worker runs the file"
            raise InvalidInput(f"card(…) in {file} must stand below {guard}")
        for path in plugins:
            load_plugin(path)
        text = subject if isinstance(subject, str) else file_spec(subject)
        if text is not None:
            architecture = _shortest(register_from_text(mixers, text))
            return cls(architecture, (*plugins, *_plugin_file(text)))
        assert isinstance(subject, type)
        register_class(subject)
        name = subject.__name__
        return cls(_shortest(name), tuple(plugins), {name: class_checksum(subject)})

    @property
    def folder(self) -> str:
        """Return the name of its folder, which differs for other options and for changed code."""
        name = Spec.parse(self.architecture).name
        with isolated_plugins(self.checksums):
            for path in self.plugins:
                load_plugin(path)
            code = checksums()
        if self.architecture == name and not code:
            return name
        identity = canonical_json({"architecture": self.architecture, "made": code})
        return f"{name}-{digest(identity)[:8]}"

    def check(self, experiment: Experiment) -> None:
        """Validate the mixer before training: a defect would make every number wrong."""
        from mecheval.models.build import build_model
        from mecheval.models.check_model import check_third_party

        try:
            check_third_party(experiment.model)
        except CheckFailed as error:
            raise InvalidInput(str(error).splitlines()) from error
        try:
            build_model(experiment.model, experiment.task.vocab_size)
        except Exception as error:  # third-party code, at a larger size than it was checked at
            size = f"d_model={experiment.model.d_model} and max_len={experiment.model.max_len}"
            problem = f"{self.architecture} cannot be built with {size}: it raised {error!r}"
            raise InvalidInput(problem) from error


def _shortest(text: str) -> str:
    if sizes := split_sizes(Spec.parse(text))[1]:
        problem = f"{text} gives {' and '.join(sizes)}, which a card chooses"
        raise InvalidInput(f"{problem}; leave hidden and layers out")
    return ModelConfig(text, layers=layers_for(text)).architecture


def _plugin_file(text: str) -> tuple[str, ...]:
    """Return `file.py:Class` for a worker to register; options come with the experiment."""
    path, separator, rest = text.partition(".py:")
    if not separator:
        return ()
    return (f"{Path(path).resolve()}.py:{rest.partition(':')[0]}",)
