"""A card of a model of transformers: everything it says is in its files."""

import json
from pathlib import Path

import pytest
from pandas import read_csv
from support.hub_models import save, with_words

from mecheval.cards.examine import examine
from mecheval.cli import main
from mecheval.core.errors import InvalidInput
from mecheval.tasks.recall import Recall

SMALL = {"documents": 36, "pairs": (2, 3), "asked": 6}
TASK = Recall(pairs=3, passes=2)


@pytest.mark.slow
def test_a_card_is_a_page_with_tables_and_figures(tmp_path):
    said = []
    given = {**SMALL, "out": tmp_path / "card", "progress": lambda *step: said.append(step)}
    card = examine(with_words(), TASK, ["nouns", "names"], "lines", **given)
    for name in ("capacity", "layers", "heads"):
        for words in ("nouns", "names"):
            assert (card.folder / f"{name}-{words}.png").stat().st_size > 1000
    record = json.loads((card.folder / "result.json").read_text())
    assert record == card.to_dict()
    assert [part["words"] for part in record["words"]] == ["nouns", "names"]
    assert record["words"][0]["verdict"]["mechanism"] == "unsolved"
    curve = read_csv(card.folder / "capacity.csv")
    assert {*curve["words"]} == {"nouns", "names"}
    assert curve["n"][curve["distance"].isna()].tolist() == [6] * 4
    assert len(read_csv(card.folder / "heads.csv")) == 2 * 2 * 4
    page = (card.folder / "card.html").read_text()
    for part in card.parts:
        assert part.sentences["capacity"] in page
    assert "http" not in page.partition("<body>")[2].partition("<script>")[0]
    assert said[0][0] == "nouns: capacity"
    assert said[-1] == ("names: layers", 36, 36)
    assert repr(card) == "ModelCard(tiny; nouns: unsolved, names: unsolved)"


def test_nothing_is_written_if_a_list_of_words_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="no words 'verbs'"):
        examine(with_words(), TASK, ["nouns", "verbs"], out=tmp_path / "card", **SMALL)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_commands_ask_in_words(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = save(Path("model"))
    capsys.readouterr()  # of saving
    ask = ["intervene", name, "recall:pairs=3", "--words", "names", "--documents", "40"]
    assert main([*ask, "--keep", "parts", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["verdict"]["mechanism"] == "unsolved"
    assert {row["site"] for row in first["rows"] if row["site"]} == {
        "blocks.0.block_in",
        "blocks.1.block_in",
        "blocks.1.mixer_out",
    }
    assert len(list(Path("parts").iterdir())) == 2
    assert main([*ask, "--keep", "parts", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert main(["intervene", name, "--document", "2", "--site", "blocks.1.block_in"]) == 0
    assert "query_key" in capsys.readouterr().out
    assert main(["card", name, "--words", "names", "--documents", "32"]) == 0
    (page,) = Path("runs").glob("card-model-*/card.html")
    assert "<p>recall:pairs=4,passes=2, written" in page.read_text()
    assert main(["card", name, "--words", "names", "--documents", "32", "--dtype", "float64"]) == 0
    assert len([*Path("runs").glob("card-model-*/card.html")]) == 2
    capsys.readouterr()
    assert main(["sample", "recall:pairs=2", "--in", name, "--template", "lines", "-n", "1"]) == 0
    assert "query_key" in capsys.readouterr().out
    own = ["copy:count=2,blanks=2,vocab=4", "--template", "plain", "--words", "names"]
    assert main(["intervene", name, *own, "--documents", "8"]) == 0
    assert "next_value" in capsys.readouterr().out
    assert main(["intervene", name, "recall:pairs=300"]) == 2
    assert "which are too few: pairs=300 must be at most" in capsys.readouterr().err
