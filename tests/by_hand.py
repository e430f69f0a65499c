"""What the second derivations of the mixers share."""

import numpy as np
import torch


def drawn(mixer, dtype):
    """Every weight away from its start: a bias that is still zero would prove nothing."""
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in mixer.parameters():
            weight += 0.3 * torch.randn_like(weight)
    return mixer.to(dtype)


def numbers(mixer):
    return {name: weight.detach().double().numpy() for name, weight in mixer.named_parameters()}


def error(y, truth):
    """The largest difference, relative to the largest number."""
    return np.abs(y.detach().double().numpy() - truth).max() / np.abs(truth).max()
