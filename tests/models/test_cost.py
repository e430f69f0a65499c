"""Costs of a model agree with counts by hand."""

from mecheval.models.config import ModelConfig
from mecheval.models.cost import describe_model
from mecheval.models.language_model import LanguageModel

D, TIME = 16, 64


def operations(architecture, time=TIME):
    model = LanguageModel(
        ModelConfig(architecture=architecture, d_model=D, layers=1), vocab_size=10
    )
    return describe_model(model, lengths=(time,)).flops_per_token[time]


def test_attention_counts_the_products_of_its_equation():
    projections, looking, mlp = 4 * D * D, 2 * TIME * D, 8 * D * D
    pointwise = operations("attention") - 2 * (projections + looking + mlp)
    assert (
        0 < pointwise < 20 * D + 4 * TIME
    )  # residuals, biases, gelu; scale and mask of the scores


def test_the_compiled_scan_is_counted():
    states = {n: operations(f"mamba:d_state={n}") for n in (8, 16)}
    inner = 2 * D
    # dt A, exp, dt B x, decay times state, sum; the readout; their projections
    a_state_more = 5 * inner + 2 * inner + 2 * 2 * inner
    assert 0 <= states[16] - states[8] - 8 * a_state_more < 8 * inner


def test_a_longer_document_costs_attention_more_and_mamba_nothing():
    assert operations("attention", 256) - operations("attention", 64) > 2 * 2 * (256 - 64) * D
    assert abs(operations("mamba", 256) - operations("mamba", 64)) < 0.01 * operations("mamba")
