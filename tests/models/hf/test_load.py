"""A folder is loaded as it was saved; whatever cannot be loaded is refused in one line, offline."""

import json
import socket
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from mecheval.core.errors import InvalidInput
from mecheval.models.build import build_model
from mecheval.models.config import ModelConfig
from mecheval.models.hf import locate
from mecheval.models.hf.families import FAMILIES
from mecheval.models.hf.load import load_hf
from mecheval.models.hf.model import HubModel

VOCAB = 20
TOKENS = torch.arange(12).view(2, 6) % VOCAB


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    """Fail whatever opens a connection, and begin with an empty cache."""

    def refuse(*args, **kwargs):
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))


def small(family="llama"):
    return build_model(ModelConfig(f"hf-config:{family}", d_model=16, max_len=32), VOCAB, seed=3)


@pytest.fixture
def folder(tmp_path):
    small().module.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def configure(folder, **fields):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **fields}))


@pytest.mark.parametrize(
    "family", ["llama", "jamba", pytest.param("zamba2", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("shard", ["1GB", "20KB"])
def test_a_saved_model_gives_the_same_logits_also_in_shards(family, shard, tmp_path):
    model = small(family)
    model.module.save_pretrained(tmp_path / "saved", max_shard_size=shard)
    assert (tmp_path / "saved" / locate.INDEX).is_file() == (shard == "20KB")
    with torch.no_grad():
        loaded = load_hf(f"hf:{tmp_path / 'saved'}")
        assert torch.equal(loaded(TOKENS), model(TOKENS))
    assert (loaded.tokenizer, loaded.vocab_size, loaded.max_len) == (None, VOCAB, 32)
    assert not loaded.training


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_the_type_of_the_weights_is_chosen_and_shown(folder, dtype):
    model = load_hf(str(folder), dtype=dtype)
    assert {str(weight.dtype) for weight in model.parameters()} == {f"torch.{dtype}"}
    assert (model.about["dtype"], model.about["device"]) == (dtype, "cpu")


def only_pickle(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def no_weights(folder):
    (folder / "model.safetensors").unlink()


def no_config(folder):
    (folder / "config.json").unlink()


def broken_config(folder):
    (folder / "config.json").write_text("{")


def missing_shard(folder):
    (folder / "model.safetensors").unlink()
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / shards["a"]).write_bytes(b"")
    (folder / locate.INDEX).write_text(json.dumps({"weight_map": shards}))


def shard_elsewhere(folder):
    (folder / locate.INDEX).write_text(json.dumps({"weight_map": {"a": "../secret.safetensors"}}))


def damaged_weights(folder):
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])


def other_weights(folder):
    from safetensors.torch import save_file

    save_file({"model.norm.weight": torch.ones(16)}, folder / "model.safetensors", {"format": "pt"})


def larger_tokenizer(folder):
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    words = {f"w{n}": n for n in range(VOCAB + 5)}
    Tokenizer(WordLevel(words, unk_token="w0")).save(str(folder / "tokenizer.json"))


def code_in_tokenizer(folder):
    content = {"auto_map": {"AutoTokenizer": ["code.T", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(content))


REFUSED = [
    (only_pickle, "has its weights in pytorch_model.bin, which is pickled and can run code"),
    (no_weights, "has no weights; it must have model.safetensors"),
    (no_config, "has no config.json; give the folder that save_pretrained has written"),
    (broken_config, "config.json cannot be read"),
    (missing_shard, "lacks model-00002-of-00002.safetensors"),
    (shard_elsewhere, "is damaged: its weight_map must name files beside it"),
    (damaged_weights, "cannot be loaded"),
    (other_weights, "lack 20 tensors"),
    (
        lambda f: configure(f, num_hidden_layers=1, layer_types=None),
        "have 9 tensors (model.layers.1.input_layernorm.weight",
    ),
    (lambda f: configure(f, intermediate_size=12), "cannot be loaded"),
    (
        lambda f: configure(f, _attn_implementation="kernels-community/flash-attn"),
        "_attn_implementation='kernels-community/flash-attn' must be sdpa or eager",
    ),
    (
        lambda f: configure(f, attn_implementation="flash_attention_2"),
        "attn_implementation='flash_attention_2' must be sdpa or eager",
    ),
    (larger_tokenizer, "has 25 tokens, the model 20; give the model its own tokenizer"),
    (code_in_tokenizer, "names code of its own"),
    (lambda f: configure(f, auto_map={"AutoModel": "code.M"}), "(auto_map), which is never run"),
    (
        lambda f: configure(f, architectures=["BertModel"], model_type="bert"),
        "architecture BertModel",
    ),
    (lambda f: configure(f, is_encoder_decoder=True, model_type="t5"), "an encoder with a decoder"),
    (lambda f: configure(f, model_type="vit", architectures=None), "must have a causal language"),
    (lambda f: configure(f, model_type="nonsense"), "which transformers"),
]


@pytest.mark.parametrize(("change", "reason"), REFUSED)
def test_what_cannot_be_loaded_is_refused_in_one_line_and_nothing_is_written(
    change, reason, folder, tmp_path
):
    change(folder)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidInput) as error:
        load_hf(f"hf:{folder}")
    (line,) = error.value.problems
    assert reason in line
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        ("hf:gpt2", {}, "add --download to fetch it from the hub"),
        ("hf:someone/model", {}, "add --download to fetch it from the hub"),
        ("hf:./no/such/folder", {}, "no folder ./no/such/folder"),
        ("hf:none.gguf", {}, "no file none.gguf"),
        ("hf:gpt2", {"dtype": "int8"}, "dtype='int8' must be one of float32, float64"),
        ("hf:gpt2", {"device": "tpu"}, "device='tpu' must be cpu, cuda or mps"),
        ("hf:gpt2", {"device": "cuda"}, "device 'cuda' is not available; use --device cpu"),
    ],
)
def test_a_name_type_or_device_that_is_not_there_is_refused(text, options, reason):
    with pytest.raises(InvalidInput) as error:
        load_hf(text, **options)
    assert reason in str(error.value)


def test_a_download_that_fails_is_one_line(monkeypatch):
    def fail(*args, **kwargs):
        assert kwargs["local_files_only"] is False
        assert not [name for name in kwargs["allow_patterns"] if "bin" in name], "no pickles"
        raise OSError("no route to host\nmore")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    with pytest.raises(
        InvalidInput, match=r"someone/model cannot be downloaded: no route to host$"
    ):
        load_hf("hf:someone/model", download=True)


def test_a_cache_that_cannot_be_read_is_not_a_failed_download(monkeypatch):
    def fail(*args, **kwargs):
        raise OSError("permission denied")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    with pytest.raises(InvalidInput, match="cannot be read from the local cache: permission"):
        load_hf("hf:someone/model")


def test_a_name_in_the_cache_is_loaded(tmp_path, folder):
    snapshot = tmp_path / "cache" / "models--someone--tiny" / "snapshots" / "abc"
    snapshot.parent.mkdir(parents=True)
    folder.rename(snapshot)
    refs = snapshot.parents[1] / "refs"
    refs.mkdir()
    (refs / "main").write_text("abc")
    assert load_hf("hf:someone/tiny").name == "someone/tiny"


def test_without_transformers_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for attempt in (lambda: load_hf("hf:x"), lambda: ModelConfig("hf-config:llama")):
        with pytest.raises(InvalidInput, match=r"pip install 'mecheval\[hf\]'"):
            attempt()
    with pytest.raises(InvalidInput, match="did you mean 'llama'"):  # whatever is installed
        ModelConfig("hf-config:lama")


def test_a_model_that_sees_the_future_is_refused():
    from transformers import BertConfig, BertLMHeadModel

    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}
    config = BertConfig(vocab_size=VOCAB, intermediate_size=16, **sizes)
    with pytest.raises(InvalidInput, match="it is not a causal language model"):
        HubModel(BertLMHeadModel(config).eval())


def test_a_block_that_is_bypassed_is_refused(monkeypatch):
    family = replace(FAMILIES["zamba2"], carries=None)  # as if nobody knew of its second stream
    monkeypatch.setitem(FAMILIES, "zamba2", family)
    with pytest.raises(InvalidInput, match=r"block_in' of hf-config:zamba2 is bypassed"):
        small("zamba2")


@pytest.mark.parametrize("family", ["llama", "jamba"])
def test_a_module_that_has_sites_is_not_given_them_again(family):
    model = small(family)
    with torch.no_grad():
        logits = model(TOKENS)
        with pytest.raises(InvalidInput, match="has sites already; load it again"):
            HubModel(model.module)
        assert torch.equal(model(TOKENS), logits)


def test_a_tokenizer_is_loaded_with_its_model(folder):
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    tokenizer = Tokenizer(WordLevel({f"w{n}": n for n in range(VOCAB)}, unk_token="w0"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"})
    )
    assert load_hf(str(folder)).tokenizer("w3 w7")["input_ids"] == [3, 7]


@pytest.mark.slow
def test_a_device_context_redirects_what_it_did_before_a_model_was_loaded(folder):
    """In a new process: torch notes the first time what such a context redirects."""
    code = f"""import torch
from mecheval import load_hf
load_hf({f"hf:{folder}"!r})
with torch.device("meta"):
    assert torch.linspace(0, 1, 3).device.type == "meta"
"""
    subprocess.run([sys.executable, "-c", code], check=True)
