"""The Swin Transformer is its authors': their counts, and the logits of transformers and timm where those agree with them."""

from copy import deepcopy

import pytest
import timm
import torch
import transformers
from sweep.judging import randomized

from vitrail.errors import ConfigError
from vitrail.models.configs.swin import SwinConfig
from vitrail.models.registry import model_config
from vitrail.models.vision.swin import Swin
from vitrail.weights.layouts.relatives.swin import TIMM, TRANSFORMERS
from vitrail.weights.transfer import transfer

SMALL = {"dim": 8, "depths": (1, 2, 2, 2), "heads": (1, 2, 2, 4), "num_classes": 3}


def random_swin(**fields) -> Swin:
    return randomized(Swin(SwinConfig(**{**SMALL, **fields})))


def images(*size: int, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, 3, *size, generator=torch.Generator().manual_seed(1))


def assert_alike(ours, theirs) -> None:
    """The same in double precision, where images are told apart."""
    largest = theirs.abs().max().item()
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10 * largest)
    assert (theirs[0] - theirs[1]).abs().max() > 1e-3 * largest


@pytest.mark.parametrize("size", ["tiny", "small", "base", "large"])
def test_the_sizes_are_timms(size):
    name = f"swin_{size}_patch4_window7_224"
    with torch.device("meta"):
        theirs, ours = timm.create_model(name), Swin(model_config(name))
    assert sorted(p.shape for p in ours.parameters()) == sorted(p.shape for p in theirs.parameters())


@pytest.mark.parametrize("window", [7, 4])
@pytest.mark.parametrize("size", [(224, 224), (260, 260), (288, 320)])
def test_logits_are_those_of_a_fresh_model_of_transformers(size, window):
    ours = random_swin(window_size=window).double()
    kind = transformers.SwinConfig(embed_dim=8, depths=[1, 2, 2, 2], num_heads=[1, 2, 2, 4], window_size=window, num_labels=3)
    theirs = transformers.SwinForImageClassification(kind).double().eval()
    theirs.load_state_dict(in_memory(TRANSFORMERS.write(ours.state_dict(), ours.config)))
    with torch.no_grad():
        assert_alike(ours(images(*size).double()), theirs(images(*size).double()).logits)


def in_memory(state):
    """As a model of transformers has them in memory, where they differ from its files."""
    changes = {
        "attention.self.relative": "attention.relative_position_bias.relative", "attention.self.query": "attention.q_proj",
        "attention.self.key": "attention.k_proj", "attention.self.value": "attention.v_proj",
        "attention.output.dense": "attention.o_proj", "intermediate.dense": "mlp.fc1", "output.dense": "mlp.fc2",
    }  # fmt: skip
    for old, new in changes.items():
        state = {name.replace(old, new): tensor for name, tensor in state.items()}
    return state


@pytest.mark.parametrize("size", [(224, 448)])
def test_logits_are_timms_where_windows_divide_every_stage(size):
    ours = random_swin().double()
    theirs = timm.models.swin_transformer.SwinTransformer(
        img_size=size, embed_dim=8, depths=(1, 2, 2, 2), num_heads=(1, 2, 2, 4), num_classes=3
    ).eval().double()  # fmt: skip
    theirs.load_state_dict(TIMM.write(ours.state_dict(), ours.config), strict=False)
    with torch.no_grad():
        assert_alike(ours(images(*size).double()), theirs(images(*size).double()))


@pytest.mark.parametrize("size", [(200, 168), (5, 3), (33, 260)])
def test_any_size_gives_a_pyramid_and_no_pass_changes_the_model(size):
    """Where transformers crashes, as a stage is smaller than a window, and it shrinks its windows for good."""
    model = random_swin()
    before = deepcopy(model.state_dict())
    with torch.no_grad():
        first, other, again = model(images(64, 64)), model(images(*size)), model(images(64, 64))
        pyramid = model.feature_maps(images(*size))
    assert other.isfinite().all() and torch.equal(first, again)
    assert all(torch.equal(model.state_dict()[name], before[name]) for name in before)
    assert model.strides == (4, 8, 16, 32)
    shapes = [(2, 8 * 2**i, *(-(-side // stride) for side in size)) for i, stride in enumerate(model.strides)]
    assert [tuple(level.shape) for level in pyramid] == shapes
    torch.testing.assert_close(model.head(model.norm(pyramid[-1].permute(0, 2, 3, 1)).mean(dim=(1, 2))), other)


def test_a_larger_window_has_its_table_interpolated():
    source, target = random_swin(), random_swin(window_size=12)
    transfer(source, target, keep_head=True, interpolation=TIMM.interpolation)
    table = source.stages[1].blocks[0].attention.layer.relative.table
    found = target.stages[1].blocks[0].attention.layer.relative.table
    expected = timm.layers.resize_rel_pos_bias_table_simple(table, (12, 12), tuple(found.shape))
    torch.testing.assert_close(found, expected)


def test_what_would_have_no_hidden_values_or_too_large_windows_is_refused():
    with pytest.raises(ConfigError, match=r"an MLP of ratio 0\.001 and width 96 has no hidden values"):
        SwinConfig.read({"mlp_ratio": 0.001})
    with pytest.raises(ConfigError, match="number of patches"):
        SwinConfig.read({"image_size": 65536})
    with pytest.raises(ConfigError, match="window_size"):
        SwinConfig.read({"window_size": 64})


def test_stages_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match="4 stages in depths, 3 in heads"):
        SwinConfig.read({"heads": (3, 6, 12)})
    with pytest.raises(ConfigError, match="heads"):
        SwinConfig.read({"heads": (5, 6, 12, 24)})
