"""Sampling whose passes images of different requests share, each at its own time, with its own class and guidance."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vitrail.tasks.diffusion.process import Process
from vitrail.tasks.diffusion.sampling.making import guidance_of, guided_output
from vitrail.tasks.diffusion.sampling.options import Sampling
from vitrail.tasks.diffusion.sampling.samplers import solving
from vitrail.tasks.diffusion.weights import TrainedDiffusion


class ImageInProgress:
    """An image on its way from noise, between two passes of the model. It is the one that `sample_batches` makes."""

    def __init__(self, trained: TrainedDiffusion, seed: int, label: int | None, sampling: Sampling):
        model: Any = trained.model
        config, device = model.config, next(model.parameters()).device
        generator = torch.Generator().manual_seed(seed)

        def draw() -> Tensor:
            return torch.randn((1, config.channels, *config.image_size), generator=generator).to(device)

        self.label, self.sampling, process = label, sampling, Process.of(config)
        times = process.spaced(sampling.steps)
        self._passes = solving(process, draw(), times, sampler=sampling.sampler, eta=sampling.eta, draw=draw)
        self.x, self.time = next(self._passes)

    def advance(self, output: Tensor) -> Tensor | None:
        """Take the model's output (1, C, H, W) for ``x``, and return the image (1, C, H, W) if it was the last one."""
        try:
            self.x, self.time = self._passes.send(output)
        except StopIteration as end:
            image: Tensor = end.value
            return image
        return None


@torch.inference_mode()
def share_pass(trained: TrainedDiffusion, images: Sequence[ImageInProgress]) -> list[Tensor | None]:
    """Advance every image by one pass of the model; return those that are finished, (1, C, H, W), and None for others."""
    process = Process.of(trained.config)
    scales = [guidance_of(image.sampling, process, image.time) for image in images]
    x, times, labels = torch.cat([image.x for image in images]), [image.time for image in images], [i.label for i in images]
    outputs = guided_output(trained.model, process, x, times, labels, scales)
    return [image.advance(output) for image, output in zip(images, outputs.split(1), strict=True)]
