"""Damaged weights: whatever is missing or of another shape, a file is read or refused, and never anything else."""

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.base import Model
from vitrail.models.configs.cvt import CvTConfig
from vitrail.models.configs.dit import DiTConfig
from vitrail.models.configs.mdt import MDTConfig, MDTv2Config
from vitrail.models.configs.mixer import MixerConfig
from vitrail.models.configs.pvt import PVTConfig
from vitrail.models.configs.pvt_v2 import PVTv2Config
from vitrail.models.configs.resnet import ResNetConfig
from vitrail.models.configs.segmenter import segmenter_config
from vitrail.models.configs.swin import SwinConfig
from vitrail.models.configs.t2t import T2TConfig
from vitrail.models.configs.tnt import TNTConfig
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.configs.vitpose import ViTPoseConfig
from vitrail.models.vision.cvt import CvT
from vitrail.models.vision.dit import DiT
from vitrail.models.vision.mdt import MDT, MDTv2
from vitrail.models.vision.mixer import Mixer
from vitrail.models.vision.pvt import PVT
from vitrail.models.vision.pvt_v2 import PVTv2
from vitrail.models.vision.resnet import ResNet
from vitrail.models.vision.segmenter import Segmenter
from vitrail.models.vision.swin import Swin
from vitrail.models.vision.t2t import T2T
from vitrail.models.vision.tnt import TNT
from vitrail.models.vision.vit import ViT
from vitrail.models.vision.vitpose import ViTPose
from vitrail.weights import state_dict as translate
from vitrail.weights.formats.checkpoint import Checkpoint
from vitrail.weights.layout import Layout, Match
from vitrail.weights.layouts import LAYOUTS
from vitrail.weights.pretrained import Changes, build
from vitrail.weights.state_dict import write

PLAIN = {"image_size": 8, "patch_size": 4, "dim": 64, "depth": 2, "heads": 1, "mlp_dim": 128, "num_classes": 3}
GATED = {"mlp": "swiglu", "mlp_dim": 176}
LEARNED = ({}, {"num_classes": 0}, {"distillation_token": True}, {"pool": "mean"}, {"pool": "attention", "num_classes": 0})
SCALED = {"pool": "class+mean", "layer_scale": 0.5}
VECTOR = {"layer_scale": 0.5, "num_classes": 0}
CLIP = {"embedding_norm": "tokens", "head": "projection", "norm_eps": 1e-5}
TURNED = VECTOR | {"position": "rotary", "rotary_coordinates": "unit", "norm_eps": 1e-5}
KINDS = (
    *LEARNED,
    *(kind | more | tokens for kind in (SCALED, VECTOR) for more in ({}, GATED) for tokens in ({}, {"registers": 2})),
    CLIP | {"mlp": "quick-gelu"},
    CLIP | {"mlp": "gelu"},
    CLIP | {"head": "linear"},
    {"embedding_norm": "patches", "qkv_bias": False, "norm_eps": 1e-5, "heads": 2, "head_dim": 64},
    {"embedding_norm": "patches", "qkv_bias": False, "norm_eps": 1e-5, "pool": "mean", "position": "sincos-2d-simple"},
    {"qkv_bias": False, "norm_eps": 1e-5, "pool": "mean", "position": "sincos-2d-simple", "final_norm": "pooled"},
    {"qkv_bias": False, "norm_eps": 1e-5, "heads": 2, "head_dim": 64},
    {"position": "relative-per-block", "layer_scale": 0.5, "pool": "mean", "class_token": True, "final_norm": "pooled"},
    TURNED,
    TURNED | GATED,
    {"position": "learned-1d+rotary", "rotary_base": 10_000.0, "pool": "mean", "final_norm": "pooled"},
    {"embedding_norm": "projected", "norm_kind": "rms", "qkv_bias": False, "linear_bias": False, "pool": "mean", "norm_eps": 1e-5}
    | GATED
    | {"num_classes": 0},
)
"""Models of which every layout of a ViT holds at least one."""
BLOCKS: tuple[Literal["basic", "bottleneck", "pre-activation"], ...] = ("basic", "bottleneck", "pre-activation")


MODELS: dict[str, Model] = {}
"""A model that each layout holds."""


def _states() -> dict[str, dict[str, torch.Tensor]]:
    """Weights in every layout, by its name."""
    states: dict[str, dict[str, torch.Tensor]] = {}
    for kind in KINDS:
        config = ViTConfig.read({**PLAIN, **kind})
        model = ViT(config)
        state = {name: torch.zeros_like(tensor) for name, tensor in model.state_dict().items()}
        for name, layout in LAYOUTS.items():
            if name not in states and layout.reading.architecture == "ViT":
                try:
                    states[name] = write(state, config, replace(layout, written=True))
                except ConfigError:
                    continue
                MODELS[name] = model
    mixer = Mixer(MixerConfig(image_size=8, patch_size=4, dim=64, depth=2, token_dim=3, channel_dim=128, num_classes=3))
    swin = Swin(SwinConfig(image_size=16, window_size=2, dim=8, depths=(1, 2), heads=(1, 2), num_classes=3))
    four = {"depths": (1, 1, 1, 1), "mlp_ratios": (1, 1, 1, 1), "image_size": 32, "num_classes": 3}
    pyramids = PVT(PVTConfig(**four)), PVTv2(PVTv2Config(**four, dims=(32, 64, 160, 256)))
    residual = (ResNet(ResNetConfig(block=block, depths=(1, 1), width=32, num_classes=3)) for block in BLOCKS)
    t2t = T2T(T2TConfig(image_size=8, dim=64, depth=2, heads=1, mlp_dim=128, token_dim=4, random_features=2, num_classes=3))
    cvt = CvT(
        CvTConfig(dims=(8, 16), depths=(1, 2), heads=(1, 2), patch_sizes=(7, 3), strides=(4, 2), paddings=(2, 1), num_classes=3)
    )
    tnt = TNT(TNTConfig(image_size=32, patch_size=16, dim=16, depth=2, heads=2, word_dim=8, word_heads=4, num_classes=3))
    poses = ViTPose(ViTPoseConfig(image_size=16, patch_size=8, dim=64, depth=2, heads=1, mlp_dim=128, num_classes=3))
    small = {"image_size": 8, "patch_size": 4, "channels": 3, "dim": 64, "heads": 1, "mlp_dim": 256, "num_classes": 3}
    masked = MDT(MDTConfig(**small, depth=3)), MDTv2(MDTv2Config(**small, depth=3, decoder_depth=1))
    noise = DiT(DiTConfig(**small, depth=2)), *masked
    own = {"depths": (1, 1, 1, 1), "mlp_ratios": (1, 1, 1, 1), "dims": (32, 64, 160, 256), "norm_eps": 1e-5}
    backbones = (
        swin.config.changed(depths=(1, 1, 1, 1), heads=(1, 1, 1, 1)), PVTv2Config(**own),
        *(ResNetConfig(block=block, depths=(1, 1, 1, 1), width=32) for block in ("basic", "bottleneck")),
        ViTConfig.read({**small, "image_size": 96, "patch_size": 16, "depth": 4, "class_token": True}),
    )  # fmt: skip
    starts = [segmenter_config(backbone, 96, 3) for backbone in backbones] + [segmenter_config(backbones[1], 96, 3, head="mlp")]
    narrow = {"head_dim": 8, "auxiliary_dim": 8}
    masks = [Segmenter(start.changed(**narrow, **({"tokens": "drop"} if start.maps == "adapter" else {}))) for start in starts]
    for model in (mixer, swin, *pyramids, t2t, cvt, tnt, *residual, poses, *noise, *masks):
        for name, layout in LAYOUTS.items():
            if layout.reading.architecture == type(model).__name__ and layout.reading.covers(model.config):
                held = MODELS[name] = type(model)(model.config.changed(**layout.fields))
                zeros = {name: torch.zeros_like(tensor) for name, tensor in held.state_dict().items()}
                states[name] = layout.write(layout.reading.share_out(zeros, held.config, layout), held.config)
    return states


STATES = _states()


@cache
def _match(name: str, keys: tuple[str, ...]) -> Match:
    return MATCH(LAYOUTS[name], keys)


MATCH = Layout.match
META_SHAPES = cache(translate.meta_shapes)


@pytest.fixture
def matched_once(monkeypatch) -> None:
    """What a layout makes of keys hangs on no shape, and is found once for all spoilt states with these keys, by all layouts.

    So are the names and shapes of a configuration's parameters.
    """

    def match(layout: Layout, keys: Iterable[str]) -> Match:
        return _match(layout.name, tuple(keys))

    monkeypatch.setattr(Layout, "match", match)
    monkeypatch.setattr(translate, "meta_shapes", META_SHAPES)


def test_every_layout_is_among_the_examples():
    assert STATES.keys() == LAYOUTS.keys()


@pytest.mark.soak
@given(data=st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_damaged_weights_are_read_or_refused(data):
    state = dict(STATES[data.draw(st.sampled_from(sorted(STATES)))])
    names = sorted(state)
    for name in data.draw(st.lists(st.sampled_from(names), max_size=3)):
        state.pop(name, None)
    shapes = st.lists(st.sampled_from([0, 1, 2, 3, 4, 64, 128]), max_size=5).filter(
        lambda shape: torch.Size(shape).numel() < 2**20
    )
    for name in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=2)):
        state[name] = torch.zeros(data.draw(shapes))
    if data.draw(st.booleans()):  # keys of another layout between them
        state |= dict(list(STATES[data.draw(st.sampled_from(sorted(STATES)))].items())[: data.draw(st.integers(1, 5))])
    changes = Changes(image_size=data.draw(st.sampled_from([None, (8, 8), (3, 64)])))
    try:
        trained, _ = build(Checkpoint(Path("weights.safetensors"), state), changes)
    except (ModelFileError, ConfigError):
        return
    assert all(tensor.isfinite().all() for tensor in trained.model.state_dict().values())


@pytest.mark.parametrize(
    ("layout", "key", "shape", "told"),
    [
        ("google", "Transformer/encoder_norm/bias", (2, 64), r"encoder_norm/bias \(2, 64\), expected \(64\)"),
        ("google", "Transformer/encoderblock_0/MultiHeadDotProductAttention_1/query/bias", (), "impossible shape"),
        ("data2vec-vision", "data2vec_vision.encoder.layer.1.attention.attention.value.bias", (), "impossible shape"),
        ("vit", "vit.encoder.layer.0.attention.attention.key.weight", (64, 2), r"impossible shape: .*key.weight \(64, 2\)"),
        (
            "google",
            "Transformer/encoderblock_0/MultiHeadDotProductAttention_1/key/kernel",
            (1, 64, 2, 32),
            "tensors of one parameter do not fit together: .*key/kernel",
        ),
    ],
)
def test_a_shape_that_is_none_of_a_keys_is_refused(layout, key, shape, told):
    state = dict(STATES[layout])
    assert key in state
    with pytest.raises(ModelFileError, match=told):
        build(Checkpoint(Path("weights.npz"), state | {key: torch.zeros(shape)}))


HUGGING_FACE = "resnet.encoder.stages.0.layers.{}.layer.0.convolution.weight"


@pytest.mark.parametrize(
    ("layout", "key"), [("timm", "blocks.{}.norm1.weight"), ("timm-mixer", "blocks.{}.norm1.weight"), ("resnet", HUGGING_FACE)]
)
def test_a_block_of_a_far_number_is_refused_without_building_those_in_between(layout, key, monkeypatch):
    state = dict(STATES[layout])
    monkeypatch.setattr("vitrail.weights.state_dict.empty_model", lambda config: pytest.fail("a model is built"))
    with pytest.raises(ModelFileError, match=r"there is a block 999, but \d+ of the 999 before it are missing"):
        build(Checkpoint(Path("weights.safetensors"), state | {key.format(999): state[key.format(0)]}))


@pytest.mark.usefixtures("matched_once")
@pytest.mark.parametrize("shape", [(), (64,), (64, 3, 4, 4, 1)], ids=str)
@pytest.mark.parametrize("name", sorted(STATES))
def test_a_projection_of_another_rank_is_refused(name, shape):
    state = dict(STATES[name])
    sizes = {64 * 48, 32 * 147, 8 * 48, 12 * 147, 8 * 147, 64 * 192}
    key = next(key for key in state if state[key].shape.numel() in sizes)  # what sees the image
    state[key] = torch.zeros(shape)
    with pytest.raises(ModelFileError):
        build(Checkpoint(Path("weights.safetensors"), state))


@pytest.mark.parametrize("layout", ["timm", "deit"])
@pytest.mark.parametrize(
    "gone",
    [
        r".*cls_token",
        r".*cls_token|.*(head_dist|distillation_classifier)\..*",
        r".*cls_token|(.*\.)?(head|classifier|head_dist)\..*",
    ],
)
def test_a_distillation_token_without_a_class_token_is_refused_by_their_names(layout, gone):
    model = ViT(ViTConfig(**PLAIN | {"distillation_token": True} | ({"norm_eps": 1e-12} if layout == "deit" else {})))
    state = {
        name: tensor
        for name, tensor in write(model.state_dict(), model.config, LAYOUTS[layout]).items()
        if not re.fullmatch(gone, name)
    }
    names = {"timm": "no cls_token beside dist_token", "deit": "no embeddings.cls_token beside embeddings.distillation_token"}
    with pytest.raises(ModelFileError, match=names[layout]):
        build(Checkpoint(Path("weights.safetensors"), state))


OURS = (
    r"attention\.(layer\.|norm\.[wb])|embedding\.projection|mlp\.layer\.|(?<!_)head\.linear|position\.embedding|"
    r"config cannot|fetch"
)
"""Our names of parameters that no layout here has, and words that do not belong into the messages."""


@pytest.mark.usefixtures("matched_once")
@pytest.mark.parametrize("name", sorted(STATES))
def test_a_file_without_some_of_its_keys_is_read_or_refused_by_the_names_in_it(name):
    """Of keys that only the number of their layer tells apart, all are left out together."""
    kinds = sorted({re.sub(r"\d+", "#", key) for key in STATES[name]})
    for gone in kinds:
        state = {key: tensor for key, tensor in STATES[name].items() if re.sub(r"\d+", "#", key) != gone}
        try:
            build(Checkpoint(Path("weights.safetensors"), state), layout=name)
        except (ModelFileError, ConfigError) as error:
            assert not re.search(OURS, str(error)), (gone, str(error))


@pytest.mark.parametrize(
    ("layout", "fields", "told"),
    [
        ("google", {"norm_eps": 1e-3}, "norm_eps is 0.001, would be read as 1e-06"),
        ("mae-original", {"norm_eps": 1e-5}, "norm_eps is 1e-05, would be read as 1e-06"),
        ("open-clip", CLIP | {"mlp": "quick-gelu"}, "mlp is quick-gelu, would be read as gelu"),
        ("google", {"norm": "post"}, "norm is post, would be read as pre"),
    ],
)
def test_a_model_that_would_be_read_otherwise_is_not_written(layout, fields, told):
    model = ViT(ViTConfig(**PLAIN | fields))
    with pytest.raises(ConfigError, match=told):
        write(model.state_dict(), model.config, LAYOUTS[layout])
