"""A real pretrained model through our door. Its weights are fetched by `make demo-real`."""

import copy
from pathlib import Path

import pytest
import torch

from mecheval.metrics.behaviour import behaviour
from mecheval.models.hf.lexicon import in_words
from mecheval.models.hf.load import load_hf
from mecheval.tasks.recall import Recall

ROOT = Path(__file__).parents[3]
WEIGHTS = ROOT / ".cache" / "smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
missing = pytest.mark.skipif(not WEIGHTS.is_file(), reason="make demo-real fetches its weights")


@pytest.mark.slow
@missing
def test_it_says_what_transformers_says_and_recalls():
    from transformers import AutoModelForCausalLM, AutoTokenizer

    given = {"gguf_file": WEIGHTS.name}
    theirs = AutoModelForCausalLM.from_pretrained(WEIGHTS.parent, dtype=torch.float32, **given)
    tokenizer = AutoTokenizer.from_pretrained(WEIGHTS.parent, **given)
    ours = load_hf(f"hf:{WEIGHTS}")
    text = tokenizer.encode("The capital of France is", return_tensors="pt")
    task = in_words(Recall(pairs=4, passes=2), ours, "nouns")
    docs = task.documents(0, "test", 0, 24)
    for tokens in (text, torch.from_numpy(copy.deepcopy(docs.tokens)).long()):
        with torch.no_grad():
            expected = theirs.eval()(tokens).logits.softmax(dim=-1)
            found = ours(tokens).softmax(dim=-1)
        assert (found - expected).abs().max() < 1e-4
        if tokens is text:
            assert tokenizer.decode(found[0, -1].argmax()) == " Paris"
    assert behaviour(ours, docs).accuracy.mean() > 0.6
