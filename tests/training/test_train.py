"""Training agrees with a trainer in NumPy, resumes at every step, and detects divergence."""

import json
import math
from itertools import islice

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from mecheval.metrics.behaviour import behaviour
from mecheval.models.config import ModelConfig
from mecheval.models.inputs import Batch
from mecheval.models.language_model import LanguageModel
from mecheval.models.registries import mixers
from mecheval.tasks import tasks
from mecheval.training.batches import Batches
from mecheval.training.config import TrainConfig
from mecheval.training.train import Diverged, Training, gradient_norm, query_loss, train

RECALL = "recall:pairs=3,vocab=12"
MQAR = "recall:pairs=4,vocab=12,queries=3,min_pairs=3"
TREECALL = "treecall:terminals=8,nonterminals=3,max_len=24"


def language_model(task, architecture="attention", layers=1, seed=0, **options):
    config = ModelConfig(architecture=architecture, d_model=6, layers=layers, max_len=32, **options)
    return LanguageModel(config, tasks.build(task).vocab_size, seed)


def nothing(model):
    return {"loss": 0.0, "accuracy": 0.0, "likelihood": 0.0}


def rate_by_hand(step, steps, top, schedule, warmup):
    """§4.1: a straight line up over a share of the steps, then half a cosine down to 0."""
    rising = int(np.floor(warmup * steps + 0.5))
    if step < rising:
        return top * (step + 1) / rising
    angle = np.pi * (step - rising) / (steps - rising)
    return (
        top
        * {"cosine": np.cos(angle / 2) ** 2, "linear": 1 - angle / np.pi, "constant": 1.0}[schedule]
    )


def loss_by_hand(logits, docs):
    """Return the mean cross-entropy over all queries, and its gradient in all logits."""
    loss, gradient, asked = 0.0, np.zeros_like(logits), docs.queries.size
    for row in range(len(docs)):
        for query in range(docs.queries.shape[1]):
            at, answer = docs.queries[row, query], docs.answers[row, query]
            exponentials = np.exp(logits[row, at] - logits[row, at].max())
            shares = exponentials / exponentials.sum()
            loss -= np.log(shares[answer]) / asked
            gradient[row, at] += shares / asked
            gradient[row, at, answer] -= 1 / asked
    return loss, gradient


class AdamByHand:
    """Kingma & Ba, algorithm 1."""

    def __init__(self, weights):
        self.weights, self.t = weights, 0
        self.m = {name: np.zeros_like(weight) for name, weight in weights.items()}
        self.v = {name: np.zeros_like(weight) for name, weight in weights.items()}

    def step(self, gradients, alpha):
        self.t += 1
        for name, g in gradients.items():
            self.m[name] = 0.9 * self.m[name] + 0.1 * g
            self.v[name] = 0.999 * self.v[name] + 0.001 * g * g
            m_hat = self.m[name] / (1 - 0.9**self.t)
            v_hat = self.v[name] / (1 - 0.999**self.t)
            self.weights[name] = self.weights[name] - alpha * m_hat / (np.sqrt(v_hat) + 1e-8)


def train_by_hand(model, batches, steps, **schedule):
    """Only the derivative of all logits with respect to the weights is torch's."""
    adam = AdamByHand(
        {name: weight.detach().numpy().copy() for name, weight in model.named_parameters()}
    )
    lines = []
    for step in range(steps):
        docs = batches[step]
        weights = {
            name: torch.tensor(weight, requires_grad=True) for name, weight in adam.weights.items()
        }
        logits = functional_call(model, weights, torch.from_numpy(docs.tokens).long())
        loss, upstream = loss_by_hand(logits.detach().numpy(), docs)
        found = torch.autograd.grad(logits, list(weights.values()), torch.from_numpy(upstream))
        gradients = {name: gradient.numpy() for name, gradient in zip(weights, found, strict=True)}
        alpha = rate_by_hand(step, steps, **schedule)
        adam.step(gradients, alpha)
        lines.append((loss, np.sqrt(sum((g**2).sum() for g in gradients.values())), alpha))
    return adam.weights, np.array(lines)


@pytest.mark.parametrize(
    ("task", "architecture", "options"),
    [
        (RECALL, "attention", {}),
        (RECALL, "attention", {"schedule": "linear", "warmup": 0.0}),
        (RECALL, "base_conv", {"schedule": "constant", "warmup": 0.1}),
        (RECALL, "attention", {"schedule": "cosine", "warmup": 1.0}),
        (RECALL, "base_conv", {"documents": 0, "schedule": "linear", "warmup": 0.33}),
        (MQAR, "attention", {"lr": 0.03}),
        (MQAR, "base_conv", {"schedule": "constant", "warmup": 0.0}),
        (TREECALL, "attention", {"schedule": "linear"}),
        (TREECALL, "base_conv", {"documents": 20}),
        (TREECALL, "mamba:d_state=2", {}),
    ],
)
def test_a_trainer_in_numpy_gives_the_same_weights_after_100_steps(task, architecture, options):
    config = TrainConfig(**{"documents": 64, "batch": 8, "steps": 100, "lr": 0.01} | options)
    batches = Batches(tasks.build(task), 1, config)
    model = language_model(task, architecture).double()
    schedule = {"top": config.lr, "schedule": config.schedule, "warmup": config.warmup}
    expected, lines = train_by_hand(model, batches, 100, **schedule)
    rows = list(train(Training.start(model, config), config, batches, nothing, every=1))
    for name, weight in model.named_parameters():
        np.testing.assert_allclose(
            weight.detach().numpy(), expected[name], rtol=0, atol=1e-9, err_msg=name
        )
    columns = ("train_loss", "gradient_norm", "learning_rate")
    found = np.array([[row[column] for column in columns] for row in rows])
    np.testing.assert_allclose(found, lines, rtol=1e-9, atol=1e-12)
    assert lines[-1, 0] < lines[0, 0], "it learnt something, so that the weights went somewhere"


def test_only_queries_are_asked():
    """What a model says elsewhere, and what stands behind the query, changes no loss."""
    model = language_model(TREECALL).double()
    docs = tasks.build(TREECALL).documents(0, "train", 0, 16)
    batch = Batch.of(docs)
    logits = model(batch.tokens).detach().numpy()
    assert query_loss(model, batch).item() == pytest.approx(
        loss_by_hand(logits, docs)[0], abs=1e-12
    )
    padding = torch.arange(batch.tokens.shape[1]) > batch.at
    assert padding.any()
    other = Batch(torch.where(padding, 5, batch.tokens), batch.at, batch.answers)
    assert query_loss(model, other).item() == pytest.approx(
        query_loss(model, batch).item(), abs=1e-12
    )


SHORT = TrainConfig(documents=40, batch=8, steps=12, lr=0.01)


def trained(task, architecture, config=SHORT, every=5):
    """A training at its beginning, and its steps."""
    training = Training.start(language_model(task, architecture, layers=2), config)
    dev = tasks.build(task).documents(0, "dev", 0, 16)
    batches = Batches(tasks.build(task), 0, config)
    return training, train(
        training, config, batches, lambda model: behaviour(model, dev).means(), every
    )


def kept(training):
    """What a checkpoint would keep, as it would come back from a file."""
    tensors = {name: tensor.detach().clone() for name, tensor in training.tensors().items()}
    return tensors, json.loads(json.dumps(training.numbers()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "architecture"),
    [(RECALL, "attention"), (MQAR, "based"), (TREECALL, "mamba:d_state=2")],
)
def test_coming_back_at_any_step_changes_no_bit(task, architecture):
    whole, steps = trained(task, architecture)
    checkpoints = [kept(whole)] + [kept(whole) for _ in steps]
    assert len(checkpoints) == 13
    assert [row["step"] for row in whole.curve] == [5, 10, 12]
    for step, checkpoint in enumerate(checkpoints):
        again, rest = trained(task, architecture)
        with torch.no_grad():
            again.model.norm.weight.fill_(7.0)  # whatever was there before
        again.restore(*checkpoint)
        assert sum(1 for _ in rest) == 12 - step
        assert again.numbers() == whole.numbers()
        assert again.tensors().keys() == whole.tensors().keys()
        for name, tensor in whole.tensors().items():
            assert torch.equal(again.tensors()[name], tensor), (step, name)


def test_a_caller_may_stop_asking_and_ask_again():
    whole, steps = trained(RECALL, "attention")
    list(steps)
    halves, steps = trained(RECALL, "attention")
    assert len(list(islice(steps, 7))) == 7
    assert halves.step == 7
    list(steps)
    assert halves.numbers() == whole.numbers()


def test_a_checkpoint_has_every_weight_and_both_moments_of_it():
    training, steps = trained(RECALL, "attention")
    next(steps)
    names = {name for name, _ in training.model.named_parameters()}
    kinds = {
        f"optimiser.{kind}.{name}" for kind in ("step", "exp_avg", "exp_avg_sq") for name in names
    }
    assert training.tensors().keys() == {f"model.{name}" for name in names} | kinds


def test_the_curve_has_a_line_at_every_evaluation_and_at_the_end():
    training, steps = trained(RECALL, "attention", every=4)
    losses = []
    rows = [losses.append(training.loss) or row for row in steps]
    assert [row["step"] if row else None for row in rows] == [
        None,
        None,
        None,
        4,
        *[None] * 3,
        8,
        *[None] * 3,
        12,
    ]
    assert training.curve == [row for row in rows if row]
    columns = [
        "step",
        "loss",
        "accuracy",
        "likelihood",
        "train_loss",
        "gradient_norm",
        "learning_rate",
    ]
    for number, row in enumerate(training.curve):
        assert list(row) == columns
        assert row["train_loss"] == pytest.approx(
            np.mean(losses[4 * number : 4 * number + 4]), rel=1e-12
        )


def test_the_gradient_norm_is_over_all_weights():
    model = language_model(RECALL)
    for number, weight in enumerate(model.parameters()):
        weight.grad = torch.full_like(weight, 0.1 * number)
    squares = sum(
        (0.1 * number) ** 2 * weight.numel() for number, weight in enumerate(model.parameters())
    )
    assert gradient_norm(model.parameters()) == pytest.approx(math.sqrt(squares), rel=1e-6)


def with_scores(scores, config, every=2):
    """A training whose evaluations are given."""
    given = iter(scores)
    training = Training.start(language_model(RECALL), config)
    batches = Batches(tasks.build(RECALL), 0, config)
    return training, train(
        training, config, batches, lambda model: nothing(model) | next(given), every
    )


def test_a_training_ends_when_dev_is_solved():
    config = TrainConfig(documents=40, batch=8, steps=12, stop=0.9)
    training, steps = with_scores(
        [{"accuracy": 0.5}, {"accuracy": 0.89}, {"accuracy": 0.9}], config
    )
    assert len(list(steps)) == 6
    assert training.step == 6
    assert [row["accuracy"] for row in training.curve] == [0.5, 0.89, 0.9]


def test_a_training_that_is_solved_does_nothing_when_it_is_asked_again():
    config = TrainConfig(documents=40, batch=8, steps=12, stop=0.9)
    training, steps = with_scores([{"accuracy": 1.0}], config)
    list(steps)
    again, rest = with_scores([], config)
    again.restore(*kept(training))
    assert list(rest) == []


def test_a_training_without_a_stop_goes_on():
    _, steps = with_scores([{"accuracy": 1.0}] * 6, TrainConfig(documents=40, batch=8, steps=12))
    assert len(list(steps)) == 12


def divergence(steps):
    """What ends a training at its next step."""
    with pytest.raises(Diverged) as error:
        next(steps)
    assert str(error.value) == f"step {error.value.step}: {error.value.reason}"
    return error.value.step, error.value.reason


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_no_number_ends_training_within_a_step(value):
    training, steps = trained(RECALL, "attention")
    for _ in range(3):
        next(steps)
    with torch.no_grad():
        training.model.embedding.weight[1] = value
    assert divergence(steps) == (3, "loss is nan")
    assert training.step == 3


@pytest.mark.parametrize("factor", [math.nan, math.inf])
def test_a_gradient_that_is_no_number_ends_training_before_it_reaches_a_weight(factor):
    training, steps = trained(RECALL, "attention")
    for _ in range(3):
        next(steps)
    before = kept(training)
    training.model.norm.bias.register_hook(lambda gradient: gradient * factor)
    assert divergence(steps) == (3, f"gradient_norm is {factor}")
    after = kept(training)
    assert after[1] == before[1]
    assert all(torch.equal(after[0][name], tensor) for name, tensor in before[0].items())


class Root(nn.Module):
    """The forward is finite but the gradient is not: a root has an infinite slope at 0."""

    def __init__(self, d_model, max_len):
        super().__init__()

    def forward(self, x):
        return (x * 0).abs().sqrt()


def test_a_finite_loss_with_a_broken_gradient_is_divergence(own_names):
    mixers.add("root", Root)
    training, steps = trained(RECALL, "root")
    assert divergence(steps) == (0, "gradient_norm is nan")
    assert query_loss(
        training.model, Batch.of(tasks.build(RECALL).documents(0, "train", 0, 8))
    ).isfinite()


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_dev_loss_that_is_no_number_is_divergence_and_leaves_no_line(loss):
    config = TrainConfig(documents=40, batch=8, steps=12)
    training, steps = with_scores([{"loss": 1.0}, {"loss": loss}], config)
    with pytest.raises(Diverged, match=f"step 4: dev_loss is {loss}"):
        list(steps)
    assert [row["step"] for row in training.curve] == [2]


def test_a_finite_but_useless_model_is_no_divergence():
    config = TrainConfig(documents=40, batch=8, steps=12, lr=1e3, schedule="constant", warmup=0.0)
    training, steps = trained(RECALL, "attention", config)
    list(steps)
    assert training.step == 12
    assert training.curve[-1]["loss"] > 10 * math.log(15), "far worse than chance"


def test_finite_gradients_whose_squares_overflow_are_no_divergence():
    config = TrainConfig(documents=40, batch=8, steps=12, lr=1e4, schedule="constant", warmup=0.0)
    task = tasks.build("recall:pairs=3,vocab=12")
    model = LanguageModel(
        ModelConfig(architecture="attention", d_model=6, max_len=32), task.vocab_size, 0
    )
    list(train(Training.start(model, config), config, Batches(task, 0, config), nothing, 5))
