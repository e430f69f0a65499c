"""A name on the command line stands for a task, an architecture, a mixer or a model."""

from difflib import get_close_matches

from mecheval.core.errors import InvalidInput
from mecheval.core.options import validate
from mecheval.core.spec import Spec
from mecheval.models.config import ModelConfig, build_architecture, layers_for
from mecheval.models.registries import architectures, mixers, models
from mecheval.plugins import build_task, class_in_file, register_from_text, registry_of
from mecheval.tasks import tasks


def is_model(text: str) -> bool:
    """Return whether a text names an architecture, a mixer or a model rather than a task."""
    name = text.partition(":")[0]
    return any(name in registry.names() for registry in (architectures, mixers, models))


def unknown_name(text: str) -> str:
    """Return an error line for a name of nothing: near names of every kind, each with its kind."""
    name, kinds = text.partition(":")[0], dict[str, str]()
    for registry in (models, mixers, architectures, tasks):
        kinds |= dict.fromkeys(registry.names(), registry.kind)
    near = [f"{match!r} ({kinds[match]})" for match in get_close_matches(name, kinds)]
    hint = f"did you mean {' or '.join(near)}?" if near else "'mecheval list' has all names"
    return f"no task, architecture, mixer or model named {name!r}; {hint}"


def check_named(text: str, d_model: int = ModelConfig.d_model) -> None:
    """Check the task, mixer or model that a text names; raise CheckFailed with every failure.

    Of an architecture, all mixers are checked. A mixer or model is built with the width `d_model`,
    by default that of a run.
    """
    validate(ModelConfig, {"architecture": text, "d_model": d_model})
    cls, spec = class_in_file(text) if ".py:" in text else (None, Spec.parse(text))
    known = [kind for kind in (mixers, models, tasks, architectures) if spec.name in kind.names()]
    if not cls and not known:
        raise InvalidInput(unknown_name(spec.name))
    registry = registry_of(cls) if cls else known[0]
    if registry is architectures:
        layers = layers_for(text)
        config = ModelConfig(text, d_model=d_model, layers=layers)
        for mixer in dict.fromkeys(map(str, build_architecture(config.architecture).mixers)):
            check_named(mixer, d_model)
    elif registry is tasks:
        from mecheval.tasks.check import check_task

        check_task(build_task(text))
    elif registry is models:
        config = ModelConfig(register_from_text(models, text), d_model=d_model)
        from mecheval.models.check_model import check_whole

        check_whole(config)
    else:
        options = mixers.check(spec, cls, d_model=d_model)
        from mecheval.models.check import check_mixer

        check_mixer(cls or mixers.get(spec.name), d_model, **options)
