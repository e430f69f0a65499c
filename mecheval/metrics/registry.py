"""The names of metrics, without torch: ours with what they mean, and third-party ones."""

from mecheval.core.registry import Registry

BUILT_IN = {
    "likelihood": "The probability of the right answer.",
    "accuracy": "Whether the right answer is the most probable one.",
    "logit": "The logit of the right answer.",
    "kl": "The divergence from the clean run's distribution.",
    "loss": "The cross-entropy of the right answer.",
    "share": "The part of the likelihood lost by the corruption that is restored.",
    "counterfactual": "The probability of the corrupted document's answer, after a swap.",
}
metrics = Registry("metric", given=("logits", "answers"), reserved=tuple(BUILT_IN))
