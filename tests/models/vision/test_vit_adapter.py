"""ViT-Adapter: the authors' sizes, a reference by hand, and a ViT that it leaves as it is."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vitrail.models.configs.segmenter import SegmenterConfig
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.empty import empty_model
from vitrail.models.registry import model_config
from vitrail.models.vision.segmenter import Segmenter
from vitrail.models.vision.vit import ViT
from vitrail.weights.transfer import transfer

SMALL = {"image_size": 32, "patch_size": 16, "dim": 24, "depth": 5, "heads": 2, "mlp_dim": 16, "num_classes": 3}
SIZES = {
    "Ti": (5_528_448, 1_171_520, 1_116_912, 149_760, 7_966_640, 36_062_428),
    "S": (21_673_728, 1_307_456, 3_928_272, 594_432, 27_503_888, 57_614_908),
    "B": (85_814_784, 1_579_328, 9_732_768, 2_368_512, 99_495_392, 133_636_876),
    "L": (303_736_832, 1_760_576, 17_269_632, 4_206_592, 326_973_632, 363_802_092),
}
"""Parameters of the authors' models: ViT, spatial prior, interactions, the rest of the adapter, all of these, with the heads."""


def segmenter(seed: int = 0, tokens: str = "keep", **fields) -> Segmenter:
    torch.manual_seed(seed)
    backbone = {**SMALL, **fields}
    own = {"deformable_heads": 3, "head": "linear", "auxiliary": False, "num_classes": 4, "tokens": tokens}
    return Segmenter(SegmenterConfig.read({"backbone": backbone, "image_size": 64, **own})).eval()


def random(model: nn.Module) -> nn.Module:
    """With random numbers in every parameter and statistic."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
        for norm in model.modules():
            if isinstance(norm, nn.BatchNorm2d):
                norm.running_mean.normal_(std=0.1)
                norm.running_var.uniform_(0.5, 2)
    return model


@pytest.mark.parametrize("size", SIZES)
def test_every_part_has_the_authors_number_of_parameters(size):
    model = empty_model(model_config(f"ViT-Adapter-{size}"))
    neck = model.neck
    rest = (neck.up, neck.norms, nn.ParameterList([neck.level]))
    parts = [(model.backbone,), (neck.prior,), (neck.interactions,), rest, (model.backbone, neck), (model,)]
    assert [sum(p.numel() for part in group for p in part.parameters()) for group in parts] == list(SIZES[size])


def sampled(layer: nn.Module, x, context, points, grids) -> torch.Tensor:
    """Deformable attention one query, head, level and point at a time; ``points`` (Q, 2) are parts of the sides."""
    values = layer.value(layer.norm(context)).unflatten(-1, (layer.heads, -1))
    offsets = layer.offsets(x).unflatten(-1, (layer.heads, layer.levels, 4, 2))
    weights = layer.weights(x).unflatten(-1, (layer.heads, -1)).softmax(-1).unflatten(-1, (layer.levels, 4))
    total = torch.zeros(*x.shape[:2], *values.shape[2:])
    start = 0
    for level, (rows, columns) in enumerate(grids):
        cells = values[:, start : start + rows * columns].unflatten(1, (rows, columns))
        start += rows * columns
        for head in range(layer.heads):
            for point in range(4):
                at = points + offsets[:, :, head, level, point] / torch.tensor([columns, rows])
                image = cells[..., head, :].permute(0, 3, 1, 2)
                found = F.grid_sample(image, (2 * at - 1)[:, :, None], align_corners=False)[..., 0].mT
                total[:, :, head] += found * weights[:, :, head, level, point, None]
    return layer.output(total.flatten(2))


def centres(rows: int, columns: int) -> torch.Tensor:
    y, x = torch.meshgrid((torch.arange(rows) + 0.5) / rows, (torch.arange(columns) + 0.5) / columns, indexing="ij")
    return torch.stack([x, y], dim=-1).flatten(0, 1)


def convolved(layer: nn.Module, x: torch.Tensor, grid) -> torch.Tensor:
    hidden = layer.expand(x).mT.unflatten(2, grid)
    return layer.contract(F.gelu(layer.depthwise(hidden).flatten(2).mT))


@torch.no_grad()
def test_the_maps_are_those_of_the_paper_step_by_step():
    """Images of whole multiples of 32, blocks on the patches alone: as the authors have it."""
    model, images = random(segmenter(tokens="drop", final_norm="none")), torch.randn(2, 3, 64, 96)
    vit, neck = model.backbone, model.neck
    x = vit.embed(images, any_size=True)[0][:, 1:]
    c1, *coarser = neck.prior(images)
    sizes, of_vit = [(8, 12), (4, 6), (2, 3)], []
    c = torch.cat([level.flatten(2).mT + own for level, own in zip(coarser, neck.level, strict=True)], dim=1)
    groups = [(0, 1), (1, 2), (2, 3), (3, 5)]  # of five blocks
    for interaction, (first, last) in zip(neck.interactions, groups, strict=True):
        injector = interaction.injector
        x = x + injector.scale.gamma * sampled(injector.layer, injector.norm(x), c, centres(4, 6), sizes)
        for block in vit.blocks[first:last]:
            x = block(x)
        for extractor in interaction.extractors:
            branch, mlp = extractor.attention, extractor.mlp
            places = torch.cat([centres(*size) for size in sizes])
            c = c + sampled(branch.layer, branch.norm(c), x, places, [(4, 6)])
            levels = mlp.norm(c).split([96, 24, 6], dim=1)
            c = c + torch.cat([convolved(mlp.layer, own, size) for own, size in zip(levels, sizes, strict=True)], dim=1)
        of_vit.append(x.mT.unflatten(2, (4, 6)))
    c2, c3, c4 = (own.mT.unflatten(2, size) for own, size in zip(c.split([96, 24, 6], dim=1), sizes, strict=True))
    maps = [c1 + neck.up(c2), c2, c3, c4]
    scaled = [F.interpolate(of_vit[level], scale_factor=2.0 ** (2 - level), mode="bilinear") for level in (0, 1)]
    scaled += [of_vit[2], F.interpolate(of_vit[3], scale_factor=0.5, mode="bilinear")]
    expected = [norm(own + other) for norm, own, other in zip(neck.norms, maps, scaled, strict=True)]
    for level, other in zip(model.feature_maps(images), expected, strict=True):
        torch.testing.assert_close(level, other, rtol=1e-4, atol=1e-5)
    assert [len(interaction.extractors) for interaction in neck.interactions] == [1, 1, 1, 3]


KINDS = {
    "class token": {},
    "registers": {"registers": 3, "pool": "mean"},
    "distillation token": {"distillation_token": True},
    "relative": {"position": "relative-per-block", "class_token": True, "pool": "mean"},
    "rotary": {"position": "rotary", "heads": 1, "registers": 1},
    "parallel": {"block": "parallel", "qk_norm": True},
    "sin-cos": {"position": "sincos-2d", "class_position": False},
}


@torch.no_grad()
@pytest.mark.parametrize("fields", KINDS.values(), ids=KINDS)
def test_a_new_adapter_changes_no_bit_of_the_patches(fields):
    model, results = segmenter(**fields), []
    plain, images = model.backbone, torch.randn(2, 3, 32, 32)
    assert type(plain) is ViT
    plain.blocks[-1].register_forward_hook(lambda block, given, result: results.append(result))
    model(images)
    alone = plain.encode(images)
    with_adapter, by_itself = results
    assert torch.equal(with_adapter, by_itself) and torch.equal(by_itself, alone)
    nn.init.constant_(model.neck.interactions[1].injector.scale.gamma, 0.5)
    model(images)
    assert not torch.allclose(results[2], alone)


@torch.no_grad()
@pytest.mark.parametrize("fields", KINDS.values(), ids=KINDS)
def test_dropped_tokens_are_in_no_block_and_the_patches_are_those_of_a_vit_without_them(fields):
    """A ViT without prefix tokens, with the same weights and positions of patches."""
    model, lengths = segmenter(tokens="drop", **fields), []
    bare_fields = {"pool": "mean", "class_token": False, "registers": 0, "distillation_token": False, "final_norm": "none"}
    torch.manual_seed(1)
    bare = ViT(ViTConfig(**{**SMALL, **fields, **bare_fields, "num_classes": 0})).eval()
    own, prefix = model.backbone.state_dict(), model.backbone.config.prefix
    names = [name for name in ("class_token", "registers", "distillation_token") if name in own]
    assert not names and not {"class_token", "registers"} & dict(model.backbone.named_parameters()).keys() and prefix
    for name, tensor in bare.state_dict().items():
        rows = len(own[name]) - len(tensor) if name == "position.embedding" else 0
        tensor.copy_(own[name][rows:] if not name.startswith("relative.") else own[name][..., : tensor.shape[-2], :])
    model.backbone.blocks[-1].register_forward_hook(lambda block, given, result: lengths.append(result))
    images = torch.randn(2, 3, 32, 32)
    model(images)
    assert lengths[0].shape[1] == 4, "the patches alone"
    torch.testing.assert_close(lengths[0], bare.encode(images), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("patch", [4, 8, 14, (8, 20), 32])
@pytest.mark.parametrize("side", [(32, 64), (41, 50), (9, 77)], ids=str)
def test_any_patch_and_any_image_give_the_four_strides_and_every_parameter_learns(patch, side):
    down, across = (patch, patch) if isinstance(patch, int) else patch
    model = random(segmenter(patch_size=patch, image_size=(2 * down, 2 * across), depth=2))
    padded = [-(-length // whole) * whole for length, whole in zip(side, (down, across), strict=True)]
    maps = model.feature_maps(torch.randn(2, 3, *side))
    assert [level.shape[2:] for level in maps] == [tuple(-(-length // stride) for length in padded) for stride in (4, 8, 16, 32)]
    logits = model(torch.randn(2, 3, *side))
    assert logits.shape == (2, 4, -(-side[0] // 4), -(-side[1] // 4))
    logits.square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert parameter.grad.any() or "qkv" in name or name.endswith(".bias"), name


def test_gradients_reach_every_parameter_in_half_precision_too():
    model = random(segmenter()).train()
    exact, half = [], []
    for gradients, enabled in ((exact, False), (half, True)):
        model.zero_grad()
        torch.manual_seed(3)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            logits = model(torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(2)))
        logits.float().square().mean().backward()
        gradients.extend(p.grad.clone() for p in model.parameters())
    assert all(gradient.isfinite().all() for gradient in half)
    whole, again = (torch.cat([g.flatten() for g in gradients]) for gradients in (exact, half))
    assert F.cosine_similarity(whole, again, dim=0) > 0.98


def test_a_classifier_starts_the_vit_beside_a_new_adapter():
    torch.manual_seed(5)
    vit = random(ViT(ViTConfig(**{**SMALL, "distillation_token": True, "layer_scale": 0.1})))
    for tokens in ("keep", "drop"):
        model = segmenter(tokens=tokens, distillation_token=True, layer_scale=0.1)
        before = {name: tensor.clone() for name, tensor in model.neck.state_dict().items()}
        transfer(vit, model, keep_head=False)
        own = model.backbone.state_dict()
        assert all(torch.equal(tensor, vit.state_dict()[name]) for name, tensor in own.items())
        assert ("class_token" in own) == (tokens == "keep") and len(own) > 40
        assert all(torch.equal(tensor, before[name]) for name, tensor in model.neck.state_dict().items())
