"""The variational bound of whole images: how many bits per value a model with a learned variance needs for them."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from vitrail.data.loading.batches import Batch
from vitrail.tasks.diffusion.process import Process, variational_bound
from vitrail.tasks.diffusion.task import Diffusion


@torch.no_grad()
def bits_per_value(task: Diffusion, batch: Batch, on_time: Callable[[], None]) -> Tensor:
    """Return the bound of each image of a batch, (B,): the terms of all T times and of the prior.

    As in the authors' code each time has noise of its own, and the estimate of x_0 is clipped to [-1, 1]. ``on_time`` is called
    behind every time.
    """
    images, process = task.images(batch), task.process
    total, channels = prior_bound(process, images), images.shape[1]
    kept, random = torch.zeros_like(batch["dropped"]), torch.Generator().manual_seed(0)
    for time in range(process.steps - 1, -1, -1):
        times = torch.full((len(images),), time, device=images.device)
        x = process.noisy(images, torch.randn(images.shape, generator=random).to(images.device), times)
        output = task.output(x, times, batch, kept)
        mean, variance = output[:, :channels], output[:, channels:]
        total = total + variational_bound(process, images, x, mean, variance, times, clipped=True)
        on_time()
    return total


def prior_bound(process: Process, images: Tensor) -> Tensor:
    """Return the divergence of ``x_T`` from N(0, I), in bits per value: (B,)."""
    a, s = process.scales(process.steps - 1)
    divergence = 0.5 * (s**2 + (a * images).square() - 1 - 2 * math.log(s))
    return divergence.mean(dim=(1, 2, 3)) / math.log(2)
