import json
from itertools import product

import pytest
from support.sweep_runs import Inline
from support.tiny_scale import as_quick

from mecheval import __version__
from mecheval.cli import command_names, main
from mecheval.plugins import build_task

COMMANDS = command_names()


def run_json(capsys, *arguments):
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_sample_prints_documents_for_programs(capsys):
    (record,) = run_json(
        capsys,
        "sample",
        "recall:pairs=4,vocab=32",
        "-n",
        "1",
        "--seed",
        "5",
        "--split",
        "dev",
        "--start",
        "9",
    )
    docs = build_task("recall:pairs=4,vocab=32").documents(5, "dev", 9, 10)
    assert list(record) == [
        "index",
        "tokens",
        "ids",
        "roles",
        "answer",
        "answer_id",
        "queries",
        "answers",
        "corrupted",
    ]
    assert record["index"] == 9
    assert record["ids"] == docs.tokens[0].tolist()
    assert record["tokens"][0] == "<bos>"
    assert record["tokens"][9] == "<div>"
    assert list(record["roles"]) == ["bos", "key", "value", "next_key", "divider", "query"]
    assert record["tokens"][record["roles"]["value"]] == record["answer"]
    assert record["answer_id"] == docs.answer[0]
    twin = record["corrupted"]
    assert list(twin) == ["tokens", "ids", "roles", "answer", "answer_id", "usable"]
    assert twin["answer"] is None
    assert twin["answer_id"] is None
    assert twin["usable"] is True
    assert [i for i in range(11) if twin["ids"][i] != record["ids"][i]] == [record["roles"]["key"]]


def test_sample_prints_the_tree_of_atr(capsys):
    records = run_json(capsys, "sample", "atr", "-n", "20", "--seed", "0", "--split", "test")
    assert len(records) == 20
    for record in records:
        parents = record["parents"]
        assert len(parents) == len(record["tokens"])
        assert parents[0] == parents[-1] == parents[-2] == -1
        assert sum(parent == -1 for parent in parents[1:-2]) == 1
        assert parents[record["roles"]["key"]] == record["roles"]["value"]


def test_sample_prints_every_query(capsys):
    (record,) = run_json(capsys, "sample", "recall:pairs=4,vocab=32,queries=3", "-n", "1")
    assert len(record["queries"]) == len(record["answers"]) == 3
    assert record["queries"] == [10, 11, 12]
    assert record["answers"][0] == record["answer"]


@pytest.mark.parametrize("arguments", ["--role value", "--kind swap", "--role query --kind swap"])
def test_sample_draws_other_corruptions(capsys, arguments):
    words = ["sample", "recall:pairs=4,vocab=32", "-n", "1", *arguments.split()]
    (record,) = run_json(capsys, *words)
    assert record["corrupted"]["answer"] not in (record["answer"], None)


def test_a_document_is_read_by_people(capsys):
    assert main(["sample", "recall:pairs=4,vocab=32", "-n", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "B bos  K key  V value  N next_key  D divider  Q query"
    rows = {line.split()[0]: line for line in lines if line.startswith("  ")}
    clean, role, corrupted = rows["clean"], rows["role"], rows["corrupted"]
    at = role.index("K")
    assert clean[at:].split()[0] == clean.split()[-1], "the key is what is asked about"
    assert corrupted[at:].split()[0] not in ("·", clean[at:].split()[0])
    assert corrupted.split().count("·") == 10


def test_a_long_document_is_folded_to_the_width(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["sample", "recall", "-n", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 70
    folded = [line.split()[1:] for line in lines if line.strip().startswith("clean")]
    assert sum(map(len, folded)) == 67


def test_a_tree_is_drawn(capsys):
    assert main(["sample", "atr", "-n", "1"]) == 0
    out = capsys.readouterr().out
    assert "├── " in out
    assert "└── " in out


def test_list_prints_every_option_for_programs(capsys):
    entries = {entry["name"]: entry for entry in run_json(capsys, "list", "tasks")}
    presets = {"ar_32pairs", "ar_16pairs", "atr", "atr_8192", "atr_l10", "atr_split", "atr_sibling"}
    presets |= {"atr_grandparent"}
    assert set(entries) >= {"recall", "treecall"} | presets
    own = {"overwrite", "compose", "hops", "spans", "copy", "track", "hop_induction", "ngram"}
    assert {name for name, entry in entries.items() if not entry["preset_of"]} >= own
    pairs = entries["ar_16pairs"]["options"][0]
    assert pairs["name"] == "pairs"
    assert (pairs["type"], pairs["default"], pairs["allowed"]) == (
        "integer",
        16,
        "an integer from 1 to 4096",
    )
    assert all(entry["summary"] for entry in entries.values())


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("metrics", "kl"),
        ("loggers", "tensorboard"),
        ("figures", "figure3"),
        ("claims", "ar-solved"),
    ],
)
def test_what_has_no_options_is_listed_with_what_it_is(capsys, kind, name):
    records = {record["name"]: record for record in run_json(capsys, "list", kind)}
    assert records[name]["summary"]
    assert main(["list", kind]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert all(f"{name} · {record['summary']}" in shown for name, record in records.items())


def test_a_metric_of_a_file_is_listed(capsys, tmp_path, own_names):
    file = tmp_path / "mine.py"
    file.write_text(
        "from mecheval import register_metric\n"
        '@register_metric("surprise_of_mine")\n'
        'def surprise(logits, answers):\n    "How surprising it is."\n'
    )
    records = run_json(capsys, "list", "metrics", "--plugin", str(file))
    assert records[-1] == {"name": "surprise_of_mine", "summary": "How surprising it is."}


def test_show_task_prints_what_the_data_are_like(capsys):
    facts = run_json(capsys, "show", "task", "atr", "--train", "4000", "--evaluation", "320")
    assert facts["train_documents"] == 4000
    assert [split["split"] for split in facts["splits"]] == ["dev", "test"]
    assert main(["show", "task", "atr", "--train", "4000"]) == 0
    assert "occur word for word in training" in capsys.readouterr().out


def test_show_sites_prints_every_site_of_a_model(capsys):
    sites = run_json(capsys, "show", "sites", "mamba:d_conv=2", "--layers", "1")
    names = [site["name"] for site in sites]
    assert names[0] == "embed_out"
    assert "blocks.0.mixer.conv_out" in names
    assert "blocks.1.block_in" not in names
    assert {"name", "shape", "summary"} == set(sites[0])
    assert main(["show", "sites", "attention"]) == 0
    assert "blocks.1.mixer.scores" in capsys.readouterr().out


def test_show_treats_each_layer_of_a_hybrid_by_its_own_mixer(capsys):
    hybrid = "hybrid:mamba*3+attention[window=16,rotary=true]"  # four layers without --layers
    names = [site["name"] for site in run_json(capsys, "show", "sites", hybrid)]
    assert {"blocks.2.mixer.conv_out", "blocks.3.mixer.scores"} < {*names}
    facts = run_json(capsys, "show", "model", hybrid)
    assert (facts["layers"], facts["kinds"]) == (4, ["mamba"] * 3 + ["attention"])
    for what in ("sites", "model"):
        assert main(["show", what, hybrid]) == 0
        assert "0–2 mamba, 3 attention" in capsys.readouterr().out


def test_show_model_prints_what_it_costs(capsys):
    facts = run_json(capsys, "show", "model", "attention", "--d-model", "32", "--layers", "1")
    vocab, d = 8195, 32
    block = 4 * d * d + d + 8 * d * d + 5 * d + 4 * d
    assert facts["parameters"] == vocab * d + 1024 * d + block + 2 * d
    assert facts["state_bytes"] == {
        "64": 4 * 2 * d * 64,
        "256": 4 * 2 * d * 256,
        "1024": 4 * 2 * d * 1024,
    }
    assert facts["flops_per_token"]["64"] > 2 * 4 * d * d
    assert main(["show", "model", "mamba"]) == 0
    assert "state after 1024 tokens" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (["list", "sites", "mamba", "--layers", "1"], ["show", "sites", "mamba", "--layers", "1"]),
        (["describe", "mamba", "--d-model", "8"], ["show", "model", "mamba", "--d-model", "8"]),
        (
            ["describe", "recall:pairs=4", "--train", "64"],
            ["show", "task", "recall:pairs=4", "--train", "64"],
        ),
    ],
)
def test_an_old_command_answers_as_the_new_one_and_names_it_on_stderr(capsys, old, new):
    assert main([*new, "--json"]) == 0
    answer = capsys.readouterr().out
    assert main([*old, "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.out == answer
    (line,) = captured.err.splitlines()
    assert f"is now 'mecheval {' '.join(new[:2])}'" in line
    assert main(["--help"]) == 0
    assert "describe" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "name",
    ["atr_split", "mamba:d_conv=2", "linear_attention", "hybrid:mamba*3+attention[window=4]"],
)
def test_check_validates_tasks_and_mixers(name, capsys):
    assert main(["check", name]) == 0
    assert "all checks passed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["show", "mambo"], "did you mean 'mamba' (architecture)"),
        (["check", "mambo"], "did you mean 'mamba' (architecture)"),
        (["show", "recal:pairs=2"], "did you mean 'recall' (task)"),
        (["show", "atention"], "'attention' ("),
        (["show", "zzzz"], "'mecheval list' has all names"),
        (["show", "mamba:d_conv=2"], "use 'mecheval show model mamba:d_conv=2'"),
        (["show", "atr"], "use 'mecheval show task atr'"),
    ],
)
def test_a_wrong_name_is_met_by_near_ones_of_every_kind(words, hint, capsys):
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert hint in line


def test_check_refuses_an_architecture_by_its_mixer(capsys):
    assert main(["check", "hybrid:mamba+attention[heads=3]"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "attention: heads=3 must divide d_model=64" in line


def test_the_shell_completes_commands_and_the_daily_help_does_not_speak_of_it(capsys, monkeypatch):
    assert main(["--help"]) == 0
    assert "completion" not in capsys.readouterr().out
    monkeypatch.setenv("_MECHEVAL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "mecheval sw")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert main([]) == 0
    assert capsys.readouterr() == ("sweep\n", "")


def test_a_mixer_that_sees_the_future_is_refused(tmp_path, capsys):
    file = tmp_path / "ahead.py"
    file.write_text(
        "from torch import nn\n"
        "class Ahead(nn.Module):\n"
        "    def __init__(self, d_model, max_len):\n"
        "        super().__init__()\n"
        "    def forward(self, x):\n"
        "        return x.roll(-1, dims=1)\n"
    )
    assert main(["check", f"{file}:Ahead"]) == 1
    assert "error: Ahead: must not see the future" in capsys.readouterr().err


def example(command, capsys):
    assert main([*command.split(), "--help"]) == 0
    _, _, last = capsys.readouterr().out.strip().rpartition("Example: ")
    return last.partition(">")[0].split()  # without what a shell would do with the output


@pytest.fixture(scope="module")
def place_with_runs(tmp_path_factory):
    return tmp_path_factory.mktemp("examples")


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_ends_in_an_example_that_runs(command, capsys, place_with_runs, monkeypatch):
    monkeypatch.chdir(place_with_runs)
    as_quick(monkeypatch)
    for module in ("local", "sweep"):
        monkeypatch.setattr(f"mecheval.sweeps.{module}.Local", Inline)
    if command in ("runs", "results", "intervene"):
        assert main(example("run", capsys)[1:]) == 0
    if command == "compare":
        small = [
            "train.steps=2",
            "train.batch=8",
            "eval.documents=16",
            "eval.grid=none",
            "model.d_model=8",
        ]
        for architecture, seed in product(("attention", "based"), (0, 1)):
            assert (
                main(
                    [
                        "run",
                        "recall:pairs=3,vocab=16",
                        architecture,
                        f"seed={seed}",
                        *small,
                        "--out",
                        "runs",
                    ]
                )
                == 0
            )
    if command in ("figure", "report", "keep", "claims", "sweep status", "sweep retry"):
        assert main(["sweep", "run", "emergence", "--no-report"]) == 0
    words = example(command, capsys)
    assert words[: len(command.split()) + 1] == ["mecheval", *command.split()]
    assert main(words[1:]) == 0, capsys.readouterr().err


def test_no_command_is_help(capsys):
    assert main([]) == 0
    assert "Example: mecheval" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


def test_no_command_is_cut_short_at_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--help"]) == 0
    text = capsys.readouterr().out.partition("Commands:")[2].partition("Example:")[0]
    lines = text.strip().splitlines()
    names = dict.fromkeys(command.split()[0] for command in COMMANDS)
    assert [line.split()[0] for line in lines] == list(names)
    assert not [line for line in lines if line.endswith("...") or len(line) > 80]


def test_debug_shows_the_traceback(capsys):
    assert main(["sample", "recal", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err
    assert main(["sample", "recal"]) == 2
    assert "Traceback" not in capsys.readouterr().err
