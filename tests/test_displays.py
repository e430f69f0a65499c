"""Objects in a notebook: short reprs, small escaped HTML, frames and figures."""

import re
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from matplotlib.figure import Figure
from support.known_models import induction
from torch import nn
from torch.nn import functional as F

import mecheval
from mecheval import (
    EvalConfig,
    Experiment,
    InvalidInput,
    ModelConfig,
    Recall,
    Run,
    StoreError,
    TrainConfig,
    Treecall,
    describe,
    interchange,
    run,
    sample,
    sweep,
)
from mecheval.runs.progress import RunProgress, sweep_progress

TASK = Recall(pairs=4, vocab=16)
LOOSE = re.compile(r"<script|[^-]color: (?!inherit|#111)", flags=re.IGNORECASE)


@cache
def docs():
    return TASK.documents(0, "test", 0, 300)


class Shift(nn.Module):
    """A mixer as a notebook would define it."""

    def __init__(self, d_model, max_len):
        super().__init__()
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x):
        return self.out(F.pad(x, (0, 0, 1, 0))[:, :-1])


def tiny(architecture="attention", **train):
    return Experiment(
        task=TASK,
        model=ModelConfig(architecture, d_model=8),
        train=TrainConfig(documents=0, steps=4, **train),
        eval=EvalConfig(documents=16, every=2, grid_documents=16),
    )


@pytest.fixture(scope="module")
def grid():
    return interchange(induction(), TASK, documents=300)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run(tiny(), tmp_path_factory.mktemp("runs"))


def objects(grid, finished):
    corrupted = TASK.corrupt(docs(), "key")
    stats = describe(TASK, train=100, evaluation=20)
    yield from (grid, grid.verdict(), finished, finished.experiment, docs(), corrupted, stats)
    yield from (sample(TASK, 50), sample(Treecall(), 3), Treecall().documents(0, "test", 0, 40))


def test_reprs_are_short_and_html_is_small_escaped_and_without_page_colours(grid, finished):
    for thing in objects(grid, finished):
        assert len(repr(thing)) <= 200, type(thing)
        page = thing._repr_html_()
        assert len(page) < 60_000, type(thing)
        assert not LOOSE.search(page), type(thing)


def test_a_name_with_tags_is_escaped(finished):
    odd = replace(finished)
    vars(odd)["record"] = {**finished.record, "task": "<script>"}
    assert "<script>" not in odd._repr_html_()


def test_a_grid_as_frame_and_heat_map_has_its_rows(grid):
    frame = grid.to_frame()
    assert frame.to_dict("records")[0]["value"] == grid.rows()[0].value
    assert set(grid.to_frame(metrics=["share"])["metric"]) == {"share"}
    picture = grid.plot()
    assert isinstance(picture, Figure)
    texts = {text.get_text() for text in picture.axes[0].texts}
    share = {(row.site, row.role): row for row in grid.rows(metrics=["share"])}
    row = share["blocks.1.block_in", "value"]
    assert {f"{row.value:.0%}", f"[{row.low:.0%}, {row.high:.0%}]"} <= texts
    assert picture._repr_png_().startswith(b"\x89PNG")
    assert f"{row.value:.0%}" in grid._repr_html_()
    for metric in ("logit", "kl", "accuracy"):
        assert grid.plot(metric).axes[0].get_title(loc="left").startswith(metric)
    with pytest.raises(InvalidInput, match="condition='ablated' must be one of restored"):
        grid.plot(condition="ablated")


def test_a_grid_that_lost_nothing_shows_likelihoods(grid):
    same = replace(grid, corrupt=grid.clean)
    assert same.plot().axes[0].get_title(loc="left").startswith("likelihood")
    assert "likelihood, mean" in same._repr_html_()


def test_a_run_as_frame_and_curve(finished):
    frame = finished.to_frame()
    assert len(frame) == len(finished.rows)
    loss, accuracy = finished.plot().axes
    dev = next(line for line in loss.lines if line.get_label() == "dev")
    assert list(dev.get_xdata()) == [row["step"] for row in finished.curve]
    assert list(dev.get_ydata()) == [row["loss"] for row in finished.curve]
    assert len(accuracy.lines) == 1


def test_a_damaged_run_still_has_a_repr(tmp_path):
    assert "StoreError" in repr(Run(tmp_path))
    assert "is not a complete run" in Run(tmp_path)._repr_html_()


def test_documents_as_frame_and_figure_have_their_tokens_and_roles():
    frame = docs().to_frame(TASK.word)
    first = frame[frame["document"] == 0]
    assert list(first["token"]) == [TASK.word(token) for token in docs().tokens[0].tolist()]
    key = first[first["role"] == "key"]
    assert list(key["position"]) == [docs().roles["key"][0]]
    texts = [text.get_text() for text in docs().plot(TASK.word, documents=2).axes[0].texts]
    assert TASK.word(int(docs().tokens[1, 3])) in texts
    assert len(texts) == 2 * (docs().tokens.shape[1] + 1)
    drawn = sample(TASK, 2).to_frame()
    assert (drawn["token"] != drawn["corrupted"]).sum() == 2


def test_an_empty_block_of_documents_is_shown():
    assert "0 of 0 tokens" in repr(docs()[:0])
    assert docs()[:0].to_frame().empty


def test_progress_is_one_line_that_ends_with_the_status(tmp_path):
    lines = []
    run(tiny(lr=0.01), tmp_path, watchers=[RunProgress(lines.append)])
    assert "0/4" in lines[0]
    assert any("accuracy" in line and "left" in line for line in lines)
    assert " · done in 0:00:0" in lines[-1]


def test_nothing_is_printed_outside_a_notebook(tmp_path, capsys):
    run(tiny(lr=0.02), tmp_path)
    run(tiny(lr=0.03), tmp_path, progress=True)
    assert capsys.readouterr() == ("", "")


def test_the_progress_of_a_sweep_counts_states(monkeypatch):
    lines = []
    monkeypatch.setattr("mecheval.runs.progress.status_line", lambda wanted: lines.append)
    from types import SimpleNamespace

    states = [("done", 4), ("running", 2), ("waiting", 0)]
    watch = sweep_progress(None)
    watch([SimpleNamespace(status=s, steps=n, experiment=tiny()) for s, n in states])
    assert lines[0].startswith("3 runs ████████████░")
    assert "1 done · 1 running · 1 waiting" in lines[0]


@pytest.mark.usefixtures("own_names")
class TestAClassAsArchitecture:
    def test_it_trains_by_its_name_and_the_folder_says_where_it_is_from(self, tmp_path):
        experiment = tiny(Shift)
        fields = {"task": "recall:pairs=4,vocab=16", "model.architecture": Shift}
        assert Experiment.of(fields).model.architecture == experiment.model.architecture == "Shift"
        finished = run(experiment, tmp_path)
        assert finished.provenance["classes"] == {"Shift": f"the module {__name__}"}
        assert list(finished.provenance["made_by"]["plugins"]) == ["Shift"]
        assert Run(finished.folder).load_model() is not None
        assert run(experiment, tmp_path).folder == finished.folder

    def test_changed_code_is_another_run(self, tmp_path, monkeypatch):
        run(tiny(Shift), tmp_path)
        monkeypatch.setattr(Shift, "forward", lambda self, x: self.out(x))
        with pytest.raises(StoreError, match="belongs to another run: plugins was"):
            run(tiny(Shift), tmp_path)

    def test_reopened_elsewhere_it_says_what_to_do(self, tmp_path, monkeypatch):
        from mecheval.models.registries import mixers

        finished = run(tiny(Shift), tmp_path)
        names = {name: cls for name, cls in mixers._targets.items() if name != "Shift"}
        monkeypatch.setattr(mixers, "_targets", names)
        told = r"Shift was defined in the module .*register_mixer\('Shift'\)\(Shift\)"
        with pytest.raises(InvalidInput, match=told):
            Run(finished.folder).load_model()
        mecheval.register_mixer("Shift")(Shift)
        assert Run(finished.folder).load_model() is not None

    def test_a_sweep_trains_it_in_this_process_and_says_so(self, tmp_path, caplog, monkeypatch):
        monkeypatch.delattr("mecheval.sweeps.sweep.Local")  # no worker is started
        alone = run(tiny(Shift), tmp_path / "alone")
        (planned,) = sweep([tiny(Shift)], tmp_path / "swept")
        assert planned.status == "done"
        swept = Run(planned.place.final)
        assert swept.row_records == alone.row_records
        assert run(tiny(Shift), tmp_path / "swept").folder == swept.folder, "nothing differs"
        (line,) = [record.message for record in caplog.records if "Shift" in record.message]
        assert "is defined in the module" in line
        assert line.endswith("all runs are trained one after another in this process")

    def test_a_sweep_resumes_it_and_refuses_changed_code(self, tmp_path, monkeypatch):
        sweep([tiny(Shift)], tmp_path)
        (again,) = sweep([tiny(Shift)], tmp_path)
        assert (again.status, again.attempts) == ("done", 0)
        monkeypatch.setattr(Shift, "forward", lambda self, x: self.out(x))
        with pytest.raises(StoreError, match="belongs to another run"):
            sweep([tiny(Shift)], tmp_path)

    def test_a_registered_class_keeps_its_name(self):
        mecheval.register_mixer("shift")(Shift)
        assert ModelConfig(Shift).architecture == "shift"

    def test_a_built_in_class_is_its_built_in_name(self):
        from mecheval.models.registries import mixers

        assert ModelConfig(mixers.get("h3")).architecture == "h3"

    def test_a_task_is_refused(self):
        with pytest.raises(InvalidInput, match="Recall must be a mixer or a model"):
            ModelConfig(Recall)


def test_the_notebook_word_is_said_of_a_class_in_a_kernel(monkeypatch):
    from types import SimpleNamespace

    from mecheval.core.definition import place_of

    ipython = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert place_of(type("Mine", (), {"__module__": "__main__"})) == "a notebook"


def test_numbers_of_a_document_are_the_same_in_words_and_ids():
    words = docs()[:1].to_frame()["token"].tolist()
    assert words[1] == str(int(docs().tokens[0, 1]))
    assert np.isin(["<bos>", "<div>"], words).all()


def test_a_class_that_was_typed_is_in_no_file_also_where_a_script_runs(monkeypatch):
    from types import ModuleType

    from mecheval.core.definition import file_spec

    script = ModuleType("__main__")
    script.__file__ = __file__
    monkeypatch.setitem(sys.modules, "__main__", script)
    scope = {"__name__": "__main__"}
    exec("class Typed:\n    def forward(self, x):\n        return x\n", scope)
    assert file_spec(scope["Typed"]) is None
    Shift.__module__, module = "__main__", Shift.__module__
    try:
        assert file_spec(Shift) == f"{__file__}:Shift"
    finally:
        Shift.__module__ = module
