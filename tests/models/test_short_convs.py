"""Short convolutions stand at the places that are asked for, add to their inputs, and are sites."""

import pytest
import torch

from mecheval.core.errors import InvalidInput
from mecheval.interventions.positions import positions
from mecheval.interventions.trace import is_idle, run_patched, trace
from mecheval.models.config import ModelConfig
from mecheval.models.edits import put
from mecheval.models.language_model import LanguageModel
from mecheval.models.short_convs import PLACES
from mecheval.models.site import patch, record
from mecheval.tasks.recall import Recall

WHERE = {
    "A": "blocks.0.sconv_A",
    "q": "blocks.0.mixer.qkv_proj.sconv_q",
    "k": "blocks.0.mixer.qkv_proj.sconv_k",
    "v": "blocks.0.mixer.qkv_proj.sconv_v",
    "O": "blocks.0.sconv_O",
    "C": "blocks.0.sconv_C",
    "D": "blocks.0.mlp.sconv_D",
    "M": "blocks.0.sconv_M",
}


def build(text, layers=1):
    config = ModelConfig(text, d_model=8, layers=layers, max_len=32)
    return LanguageModel(config, vocab_size=12).double()


@pytest.mark.parametrize("place", PLACES)
def test_without_what_it_adds_the_model_is_the_one_without_it(place):
    model, plain = build(f"attention:sconv={place}"), build("attention")
    plain.load_state_dict({k: w for k, w in model.state_dict().items() if "sconv" not in k})
    tokens = torch.randint(12, (2, 9))
    with patch(model, {f"{WHERE[place]}.added": lambda x, site: 0 * x}):
        assert (model(tokens) - plain(tokens)).abs().max() < 1e-14
    assert (model(tokens) - plain(tokens)).abs().max() > 1e-6


@pytest.mark.parametrize(
    ("options", "place", "site"),
    [
        ("", "A", "mixer_in"),
        ("", "C", "mlp_in"),
        ("", "q", "mixer.query"),
        ("heads=4,kv_heads=2,", "q", "mixer.query"),
        ("heads=4,kv_heads=2,", "k", "mixer.key"),
        ("heads=4,kv_heads=2,", "v", "mixer.value"),
    ],
)
def test_it_adds_the_taps_times_this_and_earlier_positions(options, place, site):
    model = build(f"attention:{options}sconv={place},sconv_taps=3")
    tokens = torch.randint(12, (2, 9))
    names = [f"{WHERE[place]}.added", f"blocks.0.{site}"]
    with record(model, names) as seen:
        model(tokens)
    added, after = seen[names[0]], seen[names[1]].flatten(start_dim=2)
    before = after - added
    weight = model.get_submodule(WHERE[place]).weight[:, 0]
    truth = torch.zeros_like(before)
    for t in range(9):
        for back in range(min(3, t + 1)):
            truth[:, t] += weight[:, 2 - back] * before[:, t - back]
    assert (added - truth).abs().max() < 1e-14


@pytest.mark.parametrize(
    "architecture",
    ["attention", "transformer:heads=2,kv_heads=1,window=3", "hyena", "h3:d_state=4", "delta_net"],
)
def test_it_is_causal_and_reads_single_positions_at_every_place(architecture):
    joint = "," if ":" in architecture else ":"
    model, tokens = build(f"{architecture}{joint}sconv=AqkvOCDM", 2), torch.randint(12, (2, 20))
    whole, changed = model(tokens), tokens.clone()
    changed[:, 10:] = (changed[:, 10:] + 1) % 12
    assert (model(changed)[:, :10] - whole[:, :10]).abs().max() < 1e-12
    at = torch.tensor([[3, 19], [0, 7]])
    picked = whole.gather(1, at[..., None].expand(-1, -1, 12))
    assert (model(tokens, at) - picked).abs().max() < 1e-12


@pytest.mark.parametrize("place", "OCDM")
def test_a_patch_behind_the_last_mixer_reaches_what_a_convolution_carries_it_to(place):
    task = Recall(pairs=2, vocab=8)
    config = ModelConfig(f"attention:sconv={place}", d_model=8, layers=1, max_len=16)
    model = LanguageModel(config, task.vocab_size).double()
    docs = task.documents(0, "test", 0, 5)
    where, name = {"divider": positions(docs, "divider")}, "blocks.0.mixer_out"
    base = trace(model, docs, [name], where)
    value = base.values[name, "divider"]
    new = value + torch.randn(value.shape, generator=torch.Generator().manual_seed(0)).double()
    tokens, at = torch.from_numpy(docs.tokens).long(), torch.from_numpy(docs.queries).long()
    divider = torch.from_numpy(docs.roles["divider"]).long()
    with patch(model, {name: put(new, divider)}):
        truth = model(tokens, at)[:, 0]
    (patched,) = run_patched(model, name, base, {"divider": new}, where)
    assert (patched - truth).abs().max() < 1e-12
    idle = (truth - base.logits).abs().max() < 1e-12
    assert idle == is_idle(model, name, where["divider"], base) == (place == "O")


def test_canon_is_another_name():
    canon = ModelConfig("attention:canon=ABCD")
    assert canon == ModelConfig("attention:sconv=DCvkqA")
    assert canon.architecture == "attention:sconv=AqkvCD"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("attention:sconv=X", "no place 'X'"),
        ("attention:sconv=AA", "twice"),
        ("attention:canon=E", "canon=E"),
        ("attention:canon=A,sconv=A", "give one of them"),
        ("attention:sconv_taps=3", "give sconv as well"),
        ("mamba:sconv=C", "mamba has no MLP"),
        ("mamba:sconv=q", "mamba has no projection"),
        ("attention:sconv=A,sconv_taps=5", "sconv_taps=5 must be an integer from 2 to 4"),
    ],
)
def test_a_place_that_is_absent_is_refused_in_one_line(text, named):
    with pytest.raises(InvalidInput) as refused:
        ModelConfig(text)
    assert named in str(refused.value)
    assert len(refused.value.problems) == 1
