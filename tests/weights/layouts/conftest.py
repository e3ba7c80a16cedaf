"""Models of other libraries with random weights, and what it takes to agree with them."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import from_pretrained

TOLERANCE = 1e-5


@pytest.fixture
def randomized() -> Callable[[nn.Module], nn.Module]:
    """Puts every parameter of a model away from where it starts, biases and norms too."""

    def randomized(model: nn.Module) -> nn.Module:
        for name, parameter in model.named_parameters():
            if name.endswith(("mask_token", "logit_scale")):
                continue
            nn.init.normal_(parameter, mean=1.0 if parameter.ndim == 1 and name.endswith("weight") else 0.0, std=0.1)
        return model.eval()

    return randomized


@pytest.fixture
def kept(tmp_path) -> Callable[[Mapping[str, Tensor]], Path]:
    """Keeps a state dict in a file that says nothing else."""

    def kept(state: Mapping[str, Tensor], suffix: str = ".safetensors") -> Path:
        file = tmp_path / f"weights{suffix}"
        if suffix == ".npz":
            np.savez(file, **{name: tensor.numpy() for name, tensor in state.items()})
        else:
            save_file({name: tensor.detach().clone().contiguous() for name, tensor in state.items()}, file)
        return file

    return kept


@pytest.fixture
def recognised(capsys) -> Callable[..., TrainedModel]:
    """Loads a model and holds it to what it says it has recognised."""

    def recognised(reference: Path, about: str, **changes) -> TrainedModel:
        trained = from_pretrained(reference, **changes)
        told = capsys.readouterr().err
        assert f"recognised {about}:" in told, told
        return trained

    return recognised


@torch.no_grad()
def difference(ours: nn.Module, theirs: Callable[[Tensor], Tensor], size: tuple[int, int] = (32, 32), channels: int = 3) -> float:
    """The largest difference of their logits from ours on two images."""
    images = torch.randn(2, channels, *size, generator=torch.Generator().manual_seed(1))
    expected = theirs(images)
    assert expected.abs().mean() > 1e-2
    found = ours(images)
    assert found.shape == expected.shape
    return (found - expected).abs().max().item()


@pytest.fixture
def agree() -> Callable[..., None]:
    """Holds our logits to theirs, to 1e-5."""

    def agree(ours: nn.Module, theirs: Callable[[Tensor], Tensor], **images) -> None:
        assert difference(ours, theirs, **images) <= TOLERANCE

    return agree
