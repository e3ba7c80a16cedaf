"""ViTPose: its sizes, its heatmaps, and how it starts from any ViT."""

import pytest
import torch
import transformers
from torch import nn

from vitrail.errors import ConfigError
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.configs.vitpose import ViTPoseConfig, pose_config
from vitrail.models.cost import totals
from vitrail.models.packing import forward_packed
from vitrail.models.registry import model_config
from vitrail.models.vision.vit import ViT
from vitrail.models.vision.vitpose import ViTPose
from vitrail.parts.positions.interpolation import ANTIALIASED, resize_positions
from vitrail.weights.transfer import transfer

SMALL = {"image_size": (32, 24), "patch_size": 4, "dim": 16, "depth": 2, "heads": 2, "mlp_dim": 24, "num_classes": 3}
PAPER = {"patch_padding": 1, "shared_position": True}
EXPERTS = {"experts": 3, "expert_dim": 4}


def random(model: ViT) -> ViT:
    """With random numbers in every parameter and statistic."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)
    return model.eval()


def pose(seed: int = 0, **fields) -> ViTPose:
    torch.manual_seed(seed)
    return random(ViTPose(ViTPoseConfig(**{**SMALL, **fields})))


def vit(seed: int = 0, **fields) -> ViT:
    torch.manual_seed(seed)
    return random(ViT(ViTConfig(**{**SMALL, **fields})))


def images(size=(32, 24)) -> torch.Tensor:
    return torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(1))


def theirs_of(config: ViTPoseConfig) -> transformers.VitPoseForPoseEstimation:
    section = transformers.VitPoseBackboneConfig(
        image_size=list(config.image_size), patch_size=list(config.patch_size), hidden_size=config.dim,
        num_hidden_layers=config.depth, num_attention_heads=config.heads, mlp_ratio=config.mlp_dim // config.dim,
        num_experts=config.experts or 1, part_features=config.expert_dim, layer_norm_eps=config.norm_eps,
        out_indices=[config.depth],
    )  # fmt: skip
    simple = config.decoder == "simple"
    made = transformers.VitPoseConfig(backbone_config=section, use_simple_decoder=simple, num_labels=config.num_classes)
    return transformers.VitPoseForPoseEstimation(made).eval()


PARTS = {
    "embedding.projection": "backbone.embeddings.patch_embeddings.projection",
    "attention.norm": "layernorm_before", "mlp.norm": "layernorm_after", "norm": "backbone.layernorm",
    "attention.layer.output": "attention.output.dense", "mlp.layer.expand": "mlp.fc1", "mlp.layer.contract": "mlp.fc2",
    "decoder.heatmaps": "head.conv", "decoder.enlarge.0.convolution": "head.deconv1", "decoder.enlarge.0.norm": "head.batchnorm1",
    "decoder.enlarge.1.convolution": "head.deconv2", "decoder.enlarge.1.norm": "head.batchnorm2",
}  # fmt: skip


@torch.no_grad()
def fill(theirs: nn.Module, ours: ViTPose) -> None:
    """Give a model of transformers the weights of ours, part by part."""
    parts = dict(theirs.named_modules())
    embeddings = parts["backbone.embeddings"].position_embeddings
    embeddings.copy_(torch.cat([ours.position.shared[None], ours.position.embedding])[None])
    for name, module in ours.named_modules():
        block = f"backbone.encoder.layer.{name.split('.')[1]}." if name.startswith("blocks.") else ""
        own = ".".join(name.split(".")[2:]) if block else name
        if own == "attention.layer.qkv":
            for number, part in enumerate(("query", "key", "value")):
                other = parts[f"{block}attention.attention.{part}"]
                other.weight.copy_(module.weight.chunk(3)[number])
                other.bias.copy_(module.bias.chunk(3)[number])
        elif own.startswith("mlp.layer.experts."):
            parts[f"{block}mlp.experts.{own[-1]}"].load_state_dict(module.state_dict())
        elif own in PARTS:
            parts[block + PARTS[own]].load_state_dict(module.state_dict())


@pytest.mark.parametrize("decoder", ["classic", "simple"])
@pytest.mark.parametrize("more", [{}, {"experts": 3, "expert_dim": 8, "expert": 2}], ids=["plain", "experts"])
@torch.no_grad()
def test_heatmaps_are_those_of_transformers(decoder, more):
    fields = {"image_size": (64, 48), "patch_size": 16, "dim": 32, "heads": 4, "mlp_dim": 64, "patch_padding": 2}
    ours = pose(**fields, shared_position=True, decoder=decoder, **more)
    theirs = theirs_of(ours.config)
    fill(theirs, ours)
    options = {"dataset_index": torch.tensor([2])} if more else {}
    expected = theirs(images((64, 48)), **options).heatmaps
    assert expected.shape == (2, 3, *ours.config.heatmap_size) == (2, 3, 16, 12)
    assert (ours(images((64, 48))) - expected).abs().max() <= 1e-5 * expected.abs().max()


BACKBONES = {
    "class token and registers": {"class_token": True, "registers": 2},
    "rotary": {"position": "rotary"},
    "relative": {"position": "relative", "norm": "post"},
    "swiglu": {"mlp": "swiglu", "qk_norm": True, "norm_kind": "rms"},
    "parallel": {"block": "parallel"},
    "stem": {"embedding": "stem"},
    "paper": PAPER,
    "plus": {**PAPER, **EXPERTS, "expert": 1},
}


@pytest.mark.parametrize("decoder", ["classic", "simple"])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_any_vit_can_be_the_backbone(backbone, decoder):
    model = pose(**BACKBONES[backbone], decoder=decoder).train()
    found = model(images())
    assert found.shape == (2, 3, 32, 24)
    found.square().sum().backward()
    without = {name for name, p in model.named_parameters() if p.requires_grad and p.grad is None}
    assert not without


@pytest.mark.parametrize("backbone", ["class token and registers", "paper", "rotary"])
def test_images_of_other_sizes_have_heatmaps_of_theirs(backbone):
    model = pose(**BACKBONES[backbone])
    other = ViTPose(model.config.at(40, 16)).eval()
    other.load_state_dict(ViTPose.adapted(model.state_dict(), model.config, other.config, ANTIALIASED))
    found = model.at_any_size()(images((40, 16)))
    assert found.shape == (2, 3, 40, 16)
    torch.testing.assert_close(found, other(images((40, 16))))


def test_a_graph_for_images_of_any_size_answers_as_the_model_does():
    model = pose(**PAPER)
    torch.testing.assert_close(model.at_any_size(graph=True)(images((40, 16))), model.at_any_size()(images((40, 16))))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"num_classes": 0}, "num_classes cannot be 0"),
        ({"pool": "class"}, "pool cannot be 'class'"),
        ({"head": "mlp"}, "head cannot be 'mlp'"),
        ({"distillation_token": True}, "distillation_token cannot be True"),
        ({"token_merging": 2}, "token_merging cannot be 2"),
        ({"patch_dropout": 0.5}, "a ViTPose makes heatmaps of all patches and does not use this field; remove it"),
        ({"final_norm": "pooled"}, "final_norm cannot be 'pooled'"),
        ({"patch_padding": 2}, "adds patches without pixels"),
        ({"patch_padding": 1, "embedding": "linear"}, "patch_padding needs the embedding 'conv'"),
        ({"shared_position": True, "class_token": True}, "shared_position needs"),
        ({"shared_position": True, "position": "rotary"}, "shared_position needs"),
        ({"experts": 2}, "experts and expert_dim go together"),
        ({"experts": 2, "expert_dim": 16}, "leaves nothing of dim 16"),
        ({"experts": 2, "expert_dim": 4, "expert": 2}, "no expert 2 among 2"),
        ({"expert": 1}, "no expert 1 among 0"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_with_a_sentence(fields, words):
    with pytest.raises(ConfigError) as error:
        ViTPoseConfig.read({**SMALL, **fields})
    assert words in str(error.value)


def test_images_of_several_sizes_are_not_packed():
    with pytest.raises(ConfigError, match="a ViTPose returns maps"):
        forward_packed(pose(), [images()[0]])


def test_the_summary_says_what_it_is():
    summary = model_config("ViTPose+-S").summary
    assert summary == (
        "dim 384, depth 12, heads 12, patch 16, images 256×192×3, expert 0 of 6, norm epsilon 1e-06, classic decoder, 17 joints"
    )


# starting from another model

STARTS = {
    "class token": {},
    "no class token, norm on the pooled vector": {"pool": "mean", "final_norm": "pooled"},
    "distillation token": {"distillation_token": True, "registers": 1},
    "attention pooling, no last norm": {"pool": "attention", "final_norm": "none"},
    "class position none": {"class_position": False, "layer_scale": 0.1},
    "rotary": {"position": "learned-1d+rotary", "registers": 2},
    "merging": {"token_merging": 2, "head": "mlp"},
}


@pytest.mark.parametrize("start", STARTS)
@torch.no_grad()
def test_the_backbone_of_a_start_is_exactly_that_vit(start):
    source = vit(**STARTS[start])
    target = ViTPose(pose_config(source.config, (32, 24), 5)).eval()
    transfer(source, target, keep_head=False)
    assert not target(images()).any(), "a new decoder starts at zero"
    plain = ViT(source.config.changed(token_merging=0)).eval()
    plain.load_state_dict(source.state_dict())
    found, expected = target.tokens(images()), plain.tokens(images()).patches
    if source.config.final_norm == "pooled":
        expected = plain.norm(expected)
    torch.testing.assert_close(found.patches, expected)
    assert (found.class_token is None) == (not source.config.has_class_token)


def test_patches_that_would_be_counted_from_another_number_are_refused():
    source = vit(position="sincos-1d", distillation_token=True)
    with pytest.raises(ConfigError, match="distillation_token"):
        transfer(source, ViTPose(pose_config(source.config, (32, 24), 5)), keep_head=False)


@torch.no_grad()
def test_the_class_tokens_position_becomes_the_shared_one():
    source = vit(image_size=(32, 32))
    target = pose(seed=1, **PAPER)
    transfer(source, target, keep_head=False)
    table = source.position.embedding
    assert torch.equal(target.position.shared, table[0])
    torch.testing.assert_close(target.position.embedding, resize_positions(table[1:], (8, 8), (8, 6), prefix=0))
    other = pose(seed=2, **PAPER, image_size=(24, 24), num_classes=7, decoder="simple")
    transfer(target, other, keep_head=False)
    assert torch.equal(other.position.shared, table[0]) and not other(images((24, 24))).any()
    without = pose(seed=3, patch_padding=1)
    transfer(target, without, keep_head=False)
    torch.testing.assert_close(without.feature_maps(images()), target.feature_maps(images()))
    transfer(vit(pool="mean"), target, keep_head=False)
    assert not target.position.shared.any()


def test_a_model_of_poses_goes_on_with_all_that_it_has():
    source, target = pose(**PAPER, **EXPERTS), pose(seed=1, **PAPER, **EXPERTS)
    transfer(source, target, keep_head=True)
    assert torch.equal(source(images()), target(images()))
    config = source.config
    assert pose_config(config, 64, 21) == config.changed(image_size=64, num_classes=21)


@torch.no_grad()
def test_experts_start_alike_and_answer_as_the_plain_mlp_did():
    source, target = pose(**PAPER), pose(seed=1, **PAPER, **EXPERTS, expert=2)
    transfer(source, target, keep_head=True)
    torch.testing.assert_close(target(images()), source(images()))
    plain = pose(seed=2, **PAPER)
    for number in range(3):
        target.blocks[0].mlp.layer.experts[number].bias.add_(number)
    transfer(target, plain, keep_head=True)
    torch.testing.assert_close(plain(images()), target(images()))


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        ({"dim": 32}, {}, "dim 32 → 16"),
        ({"final_norm": "none"}, {}, "final_norm none → tokens"),
        ({"position": "rotary"}, {}, "position rotary → learned-1d"),
        ({"pool": "mean"}, {"class_token": True}, "class_token missing"),
        ({"position": "sincos-1d"}, {"position": "sincos-1d"}, "pool class → mean"),
    ],
    ids=str,
)
def test_what_weights_cannot_make_up_for_is_named(source, target, words):
    with pytest.raises(ConfigError) as error:
        transfer(vit(**source), pose(**target), keep_head=False)
    assert words in str(error.value)


@pytest.mark.parametrize(("name", "width"), [("ViT-Ti/16", 128), ("ViT-S/16", 256)])
def test_a_narrow_backbone_gets_a_narrower_decoder(name, width):
    config = pose_config(model_config(name), joints=14)
    assert config.decoder_dim == width and pose_config(config).decoder_dim == width
    decoder, dim = totals(config)[0] - totals(config.changed(decoder="simple", decoder_dim=256))[0], config.dim
    simple = 9 * dim * 14 + 14
    assert decoder == 16 * dim * width + 16 * width**2 + 4 * width + width * 14 + 14 - simple


def test_a_decoder_of_another_width_is_learned_anew():
    source, target = pose(**PAPER), pose(seed=1, **PAPER, decoder_dim=24)
    transfer(source, target, keep_head=False)
    assert torch.equal(target.blocks[1].mlp.layer.expand.weight, source.blocks[1].mlp.layer.expand.weight)
    assert not target(images()).any()
    with pytest.raises(ConfigError, match="decoder_dim 256 → 24"):
        transfer(source, pose(**PAPER, decoder_dim=24), keep_head=True)
    assert pose(decoder="simple", decoder_dim=24).state_dict().keys() == pose(decoder="simple").state_dict().keys()


def test_a_head_of_classes_is_no_decoder():
    with pytest.raises(ConfigError, match=r"head\.linear\.weight \(3, 16\) → missing"):
        transfer(vit(), pose(), keep_head=True)
