"""transformers: its models of images, each as it is by default and with every field that changes its formula."""

from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn

from sweep.judging import Asked, Findings, randomized
from sweep.writing import TIMM_FOLDERS, Answering, write

CLASSES = (
    "ViTForImageClassification", "ViTModel", "DeiTForImageClassification", "DeiTForImageClassificationWithTeacher", "DeiTModel",
    "ViTMAEModel", "ViTMSNForImageClassification", "ViTMSNModel", "Dinov2ForImageClassification", "Dinov2Model",
    "Dinov2WithRegistersForImageClassification", "Dinov2WithRegistersModel", "DINOv3ViTModel", "BeitForImageClassification",
    "BeitModel", "Data2VecVisionForImageClassification", "Data2VecVisionModel", "IJepaForImageClassification", "IJepaModel",
    "SiglipForImageClassification", "SiglipVisionModel", "Siglip2ForImageClassification", "Siglip2VisionModel",
    "CLIPForImageClassification", "CLIPVisionModel", "CLIPVisionModelWithProjection", "MetaClip2ForImageClassification",
    "MetaClip2VisionModel", "MetaClip2VisionModelWithProjection", "AltCLIPVisionModel", "ChineseCLIPVisionModel",
    "CLIPSegVisionModel", "OwlViTVisionModel", "Owlv2VisionModel", "XCLIPVisionModel", "GitVisionModel", "GroupViTVisionModel",
    "Aimv2VisionModel", "BlipVisionModel", "Blip2VisionModel", "InstructBlipVisionModel", "JanusVisionModel",
    "InternVLVisionModel", "MLCDVisionModel", "PixtralVisionModel", "Tipsv2VisionModel", "VitDetModel", "YolosModel",
    "VideoMAEModel", "VideoMAEForVideoClassification", "ResNetForImageClassification", "ResNetModel",
    "BitForImageClassification", "BitModel", "SwinForImageClassification", "SwinModel", "Swinv2ForImageClassification",
    "Swinv2Model", "PvtForImageClassification", "PvtModel", "PvtV2ForImageClassification", "PvtV2Model",
    "CvtForImageClassification", "CvtModel", "SegformerForSemanticSegmentation",
)  # fmt: skip
SMALL = {
    "image_size": 32, "patch_size": 8, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 192, "projection_dim": 48, "num_patches": 16, "num_frames": 2, "mlp_ratio": 2, "pretrain_image_size": 32,
    "head_dim": 64, "depths": [1, 1, 1], "embedding_size": 32, "hidden_sizes": [128, 256, 512],
    "id2label": {0: "ant", 1: "bee", 2: "cat"}, "label2id": {"ant": 0, "bee": 1, "cat": 2},
}  # fmt: skip
"""As far as a configuration has these fields."""
SMALL_SWIN = {
    "image_size": 64, "patch_size": 4, "embed_dim": 32, "depths": [2, 2], "num_heads": [1, 2], "window_size": 4,
    "mlp_ratio": 2.0,
}  # fmt: skip
SMALL_PVT = {
    "image_size": 64, "depths": [1, 1, 2, 1], "hidden_sizes": [32, 64, 96, 128], "num_attention_heads": [1, 2, 3, 4],
    "mlp_ratios": [2, 2, 2, 2], "num_labels": 3,
}  # fmt: skip
SMALL_STAGES: dict[str, dict] = {
    "swin": SMALL_SWIN,
    "swinv2": SMALL_SWIN,
    "pvt": SMALL_PVT,
    "pvt_v2": SMALL_PVT,
    "segformer": SMALL_PVT,
    "cvt": {"embed_dim": [64, 64, 128], "num_heads": [1, 1, 2], "depth": [1, 2, 3], "mlp_ratio": [2.0, 2.0, 2.0]},
}
"""The same of configurations that have a number for each stage, by their ``model_type``."""
CHANGES = (
    ("hidden_act", "gelu"), ("hidden_act", "gelu_pytorch_tanh"), ("hidden_act", "quick_gelu"), ("hidden_act", "relu"),
    ("hidden_act", "silu"), ("hidden_act", "gelu_new"), ("layer_norm_eps", 1e-3), ("rms_norm_eps", 1e-3), ("num_channels", 1),
    ("num_attention_heads", 4), ("intermediate_size", 200), ("mlp_ratio", 3), ("qkv_bias", False), ("qkv_bias", True),
    ("query_bias", False), ("key_bias", True), ("value_bias", False), ("proj_bias", False), ("mlp_bias", False),
    ("mlp_bias", True), ("attention_bias", True), ("attention_bias", False), ("use_qk_norm", True), ("norm_type", "rms_norm"),
    ("use_mean_pooling", False), ("use_absolute_position_embeddings", True), ("use_absolute_position_embeddings", False),
    ("use_relative_position_bias", True), ("use_shared_relative_position_bias", True), ("use_mask_token", True),
    ("layer_scale_init_value", 0), ("use_swiglu_ffn", True), ("use_gated_mlp", True), ("num_register_tokens", 3),
    ("num_register_tokens", 0), ("rope_theta", 10.0), ("pos_embed_rescale", None), ("vision_use_head", False),
    ("use_head", False), ("is_native", True), ("image_size", 48), ("image_size", [32, 48]), ("patch_size", 16),
    ("patch_size", 10), ("pooler_act", "relu"), ("apply_layernorm", False), ("num_key_value_groups", 2),
    ("layer_type", "basic"), ("layer_type", "bottleneck"), ("downsample_in_first_stage", True),
    ("downsample_in_bottleneck", True), ("global_padding", "SAME"), ("global_padding", "VALID"), ("num_groups", 16),
    ("embedding_dynamic_padding", True), ("output_stride", 8), ("width_factor", 2), ("depths", [2, 1]), ("drop_path_rate", 0.1),
    ("use_mid_position_embeddings", False), ("qv_bias", False), ("projection_dim", 16), ("num_patches", 36),
)  # fmt: skip
"""A field and its value, tried on every class whose configuration has it with another value, and a list where this is one."""
CHANGES_OF_STAGES: dict[str, tuple[tuple, ...]] = {
    "swin": (
        ("window_size", 8), ("window_size", 16), ("window_size", 5), ("window_size", 32), ("embed_dim", 64), ("patch_size", 2),
        ("patch_size", 8), ("image_size", 16), ("image_size", [48, 96]), ("num_heads", [2, 2]), ("encoder_stride", 16),
        ("use_absolute_embeddings", True), ("mlp_ratio", 2.7), ("hidden_dropout_prob", 0.1),
        ("attention_probs_dropout_prob", 0.1), ("hidden_size", 100),
    ),
    "pvt": (
        ("sequence_reduction_ratios", [4, 2, 1, 1]), ("sequence_reduction_ratios", [8, 4, 2, 2]), ("patch_sizes", [8, 2, 2, 2]),
        ("patch_sizes", [4, 4, 2, 1]), ("strides", [2, 2, 2, 2]), ("strides", [4, 2, 2, 1]), ("mlp_ratios", [3, 2, 2, 1]),
        ("num_attention_heads", [2, 2, 2, 2]), ("hidden_dropout_prob", 0.1), ("attention_probs_dropout_prob", 0.1),
        ("image_size", 96),
    ),
    "pvt_v2": (
        ("linear_attention", True), ("sr_ratios", [4, 2, 1, 1]), ("sr_ratios", [8, 4, 2, 2]), ("patch_sizes", [7, 5, 3, 3]),
        ("patch_sizes", [4, 2, 2, 2]), ("strides", [2, 2, 2, 2]), ("strides", [4, 2, 2, 1]), ("mlp_ratios", [3, 2, 2, 1]),
        ("num_attention_heads", [2, 2, 2, 2]), ("hidden_dropout_prob", 0.1), ("attention_probs_dropout_prob", 0.1),
        ("image_size", 96),
    ),
    "cvt": (
        ("patch_sizes", [7, 3, 5]), ("patch_sizes", [4, 2, 2]), ("patch_stride", [2, 2, 2]), ("patch_padding", [3, 1, 1]),
        ("num_heads", [2, 1, 4]), ("depth", [1, 2, 4]), ("mlp_ratio", [3.0, 3.0, 3.0]), ("mlp_ratio", [2.0, 2.0, 3.0]),
        ("attention_drop_rate", [0.1, 0.1, 0.1]), ("drop_rate", [0.1, 0.1, 0.1]), ("drop_path_rate", [0.0, 0.1, 0.1]),
        ("qkv_bias", [False, False, False]), ("qkv_bias", [True, True, False]), ("cls_token", [False, False, False]),
        ("cls_token", [True, True, True]), ("qkv_projection_method", ["avg", "avg", "avg"]),
        ("qkv_projection_method", ["dw_bn", "dw_bn", "avg"]), ("kernel_qkv", [5, 5, 5]), ("kernel_qkv", [1, 1, 1]),
        ("padding_kv", [2, 2, 2]), ("padding_kv", [1, 1, 0]), ("stride_kv", [1, 1, 1]), ("stride_kv", [2, 2, 1]),
        ("padding_q", [0, 0, 0]), ("stride_q", [2, 2, 2]),
    ),
}  # fmt: skip
"""More of them for configurations that have a number for each stage, by their ``model_type``."""


def names() -> list[str]:
    """Every class, and every class with each change."""
    return [name for kind in CLASSES for name in (kind, *(f"{kind} {field}={value}" for field, value in _changes(kind)))]


def _config(kind: str) -> type:
    found = getattr(transformers, kind).config_class
    return type(found().vision_config) if hasattr(found(), "vision_config") else found


def _small(kind: str) -> dict:
    return SMALL | SMALL_STAGES.get(_config(kind).model_type, {})


def _changes(kind: str) -> list[tuple]:
    config = _config(kind)
    had = config().to_dict()
    default = {**had, **_small(kind)}
    scalar = {field: value for field, value in had.items() if field == "image_size" or not isinstance(value, list)}
    more = CHANGES_OF_STAGES.get(config.model_type.replace("swinv2", "swin").replace("segformer", "pvt_v2"), ())
    tried = [*(change for change in CHANGES if config.model_type not in SMALL_STAGES or change[0] in scalar), *more]
    return [(field, value) for field, value in tried if field in had and default[field] != value]


def build(name: str) -> nn.Module:
    """The model of a name, with random weights."""
    kind, _, change = name.partition(" ")
    changed = next((dict([c]) for c in _changes(kind) if f"{c[0]}={c[1]}" == change), {})
    config = _config(kind)
    had = config().to_dict()
    fields = {
        field: value for field, value in {**_small(kind), **changed}.items() if field in had or field.endswith(("label", "2id"))
    }
    if isinstance(had.get("image_size"), list) and isinstance(fields["image_size"], int):
        fields["image_size"] = [fields["image_size"]] * 2
    whole = getattr(transformers, kind).config_class
    labels = {field: SMALL[field] for field in ("id2label", "label2id")}
    made = config(**fields) if whole is config else whole(vision_config=fields, **labels)
    return randomized(getattr(transformers, kind)(made))


def judge(name: str, folder: Path) -> Findings:
    """Read a model from its folder and from its tensors alone, and write what was read right."""
    kind = name.split()[0]
    result = Findings(f"transformers {kind}", name)
    try:
        theirs = build(name)
        config = getattr(theirs.config, "vision_config", theirs.config)
        patches = getattr(config, "num_patches", 16)  # of residual networks, which take any size, no number is told
        size = getattr(config, "image_size", None) or int(patches**0.5) * getattr(config, "patch_size", 16)
        size = (size, size) if isinstance(size, int) else tuple(size)
        asked = Asked(Still(theirs) if "Video" in kind else Answering(theirs), size, getattr(config, "num_channels", 3))
        theirs.save_pretrained(folder / "theirs")
    except Exception as error:
        return result.skipped(error)
    file = folder / "weights.safetensors"
    save_file(load_file(folder / "theirs" / "model.safetensors"), file)
    ours = result.read("folder", folder / "theirs", asked)
    told = {"image_size": size} if size[0] != size[1] else {}
    if kind.startswith("Pvt"):  # whose heads no file tells
        told["heads"] = tuple(config.num_attention_heads)
    result.read_bare(file, asked, result.truth(ours), **told)
    if ours is not None:
        for layout in (None, *TIMM_FOLDERS):
            write(result, ours, layout, folder, asked)
    return result


class Still(nn.Module):
    """A model of videos, on an image that stands still."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.answering = Answering(model)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.answering(images[:, None].expand(-1, self.answering.model.config.num_frames, -1, -1, -1))
