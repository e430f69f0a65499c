"""`mecheval show` of models of transformers."""

import json

import pytest

from mecheval.cli import main
from mecheval.models.build import build_model
from mecheval.models.config import ModelConfig


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("hub") / "falcon"
    model = build_model(ModelConfig("hf-config:falcon_h1", d_model=16, max_len=16), 12)
    model.module.save_pretrained(path)
    return path


def shown(capsys, *arguments):
    main([*map(str, arguments), "--json"])
    return json.loads(capsys.readouterr().out)


def test_a_model_is_shown_with_its_kinds_sites_type_and_notes(folder, capsys):
    facts = shown(capsys, "show", f"hf:{folder}", "--dtype", "float64")
    assert (facts["family"], facts["d_model"], facts["layers"]) == ("falcon_h1", 16, 2)
    assert (facts["dtype"], facts["device"]) == ("float64", "cpu")
    assert facts["kinds"] == ["mamba2|attention"] * 2
    assert facts["notes"] == ["mixer_out is the sum of both mixers, each times its multiplier"]
    sites = shown(capsys, "show", "sites", f"hf:{folder}")
    assert len(sites) == facts["sites"]
    assert {"blocks.1.mixer.attention.query", "blocks.1.mixer.mamba2_out"} <= {
        site["name"] for site in sites
    }
    main(["show", f"hf:{folder}"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "falcon_h1, d_model 16 · 2 layers" in printed
    assert "float32 on cpu" in printed


def test_a_small_model_is_shown_with_its_own_sizes(capsys):
    facts = shown(capsys, "show", "model", "hf-config:llama,hidden=16,layers=3")
    assert (facts["family"], facts["d_model"], facts["layers"]) == ("llama", 16, 3)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["show", "hf:no/such/model"], "no folder no/such/model"),
        (["show", "sites", "hf:gpt2-none"], "add --download to fetch it"),
        (
            ["show", "sites", "hf:gpt2-none", "--layers", "3"],
            "--layers=3 cannot change hf:gpt2-none",
        ),
        (["card", "hf:x", "--dry-run"], "--dry-run is for mixers; leave it out for hf:x"),
        (["card", "hf:x", "--scale", "small"], "--scale is for mixers"),
        (["card", "hf:x", "--workers", "1"], "--workers is for mixers"),
        (["card", "hf:x", "--plugin", "none.py"], "none.py"),
        (["card", "mamba", "--task", "recall"], "--task is for models of transformers"),
        (["card", "mamba", "--words", "names"], "--words is for models of transformers"),
        (["card", "mamba", "--documents", "8"], "leave it out for mamba"),
        (["show", "model", "hf-config:lama"], "did you mean 'llama'?"),
        (
            ["run", "recall", "hf-config:jamba", "model.layers=1"],
            "jamba would have no full attention",
        ),
    ],
)
def test_a_refusal_is_one_line_and_exit_code_2(arguments, reason, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert reason in line
    assert not list(tmp_path.iterdir())


def test_a_name_with_a_colon_is_printed_as_it_is(capsys):
    main(["show", "model", "hf-config:llama,hidden=16"])
    assert "hf-config:llama,hidden=16" in capsys.readouterr().out, "not as an emoji"


def test_the_sites_of_a_small_model_are_shown_whatever_its_width(capsys):
    names = [site["name"] for site in shown(capsys, "show", "sites", "hf-config:llama,hidden=64")]
    assert names == [site["name"] for site in shown(capsys, "show", "sites", "hf-config:llama")]
    assert main(["show", "model", "hf-config:llama,hidden=64", "--d-model", "32"]) == 2
    assert "give one of them" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--words=names", "--keep=parts", "--shots=1", "--download"])
def test_a_run_is_not_given_what_is_for_models_of_transformers(option, tmp_path, capsys):
    assert main(["intervene", str(tmp_path), option]) == 2
    name = option.partition("=")[0]
    assert f"{name} is for models of transformers; leave it out" in capsys.readouterr().err


def test_interventions_on_a_model_of_transformers_are_refused_elsewhere_than_on_the_processor(
    folder, capsys
):
    assert main(["intervene", f"hf:{folder}", "--device", "cuda"]) == 2
    assert "--device cuda cannot be used for interventions" in capsys.readouterr().err
