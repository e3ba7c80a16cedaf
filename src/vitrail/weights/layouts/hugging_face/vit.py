"""The layouts of Hugging Face transformers' ViT and of models with similar keys: MAE, DeiT, MSN and I-JEPA.

https://github.com/huggingface/transformers. The constants at the top are shared with its other model families.
"""

from dataclasses import replace

from vitrail.parts.positions.interpolation import Interpolation
from vitrail.weights.keys import Key, block, weight_and_bias, words
from vitrail.weights.layouts.vit.keys import not_plain, not_square
from vitrail.weights.layouts.vit.reading import ViTLayout
from vitrail.weights.normalization import IMAGENET, Colours

BICUBIC = Interpolation(antialias=False)
"""transformers' method to interpolate position embeddings."""
ACTIVATIONS = {"gelu": "gelu", "gelu-tanh": "gelu_pytorch_tanh", "quick-gelu": "quick_gelu"}
"""Our names of activations to transformers'."""
DESCRIBED = {
    "image_size": "image_size",
    "patch_size": "patch_size",
    "channels": "num_channels",
    "dim": "hidden_size",
    "depth": "num_hidden_layers",
    "heads": "num_attention_heads",
    "norm_eps": "layer_norm_eps",
}
DEFAULTS = {"image_size": 224, "num_attention_heads": 12}
"""Values of most transformers configurations for entries that a ``config.json`` omits and that weights do not show."""
WITH_DROPOUT = {**DESCRIBED, "dropout": "hidden_dropout_prob", "attention_dropout": "attention_probs_dropout_prob"}
EMBEDDINGS = {
    "class_token": Key("embeddings.cls_token", ndim=3),
    "position.embedding": Key("embeddings.position_embeddings", ndim=3),
    **weight_and_bias({"embedding.projection": "embeddings.patch_embeddings.projection"}),
}
BLOCK = "encoder.layer.{i}"
QKV = tuple(f"attention.attention.{part}" for part in ("query", "key", "value"))
OUTPUT = "attention.output.dense"
IN_MEMORY = {
    r"^layers\.(\d+)\.": r"encoder.layer.\1.",
    r"\.attention\.o_proj\.": ".attention.output.dense.",
    r"\.attention\.q_proj\.": ".attention.attention.query.",
    r"\.attention\.k_proj\.": ".attention.attention.key.",
    r"\.attention\.v_proj\.": ".attention.attention.value.",
}
"""Parameter names of modules in transformers 5, to the older names that it writes to files."""

VIT = ViTLayout(
    name="vit",
    about="transformers' ViT",
    prefix="vit.",
    keys={
        **EMBEDDINGS,
        **block(BLOCK, "layernorm_before", QKV, OUTPUT, "layernorm_after", "intermediate.dense", "output.dense"),
        **weight_and_bias({"norm": "layernorm"}),
    },
    heads=weight_and_bias({"head.linear": "classifier"}),
    aliases={
        **IN_MEMORY,
        r"^(encoder\.layer\.\d+)\.mlp\.fc1\.": r"\1.intermediate.dense.",
        r"^(encoder\.layer\.\d+)\.mlp\.fc2\.": r"\1.output.dense.",
    },
    ignored=(r"(vit\.)?pooler\..*", r"(vit\.)?embeddings\.mask_token"),
    fields={"norm_eps": 1e-12, "pool": "class"},
    defaults=DEFAULTS,
    described={**WITH_DROPOUT, "mlp_dim": "intermediate_size", "qkv_bias": "qkv_bias"},
    harmless=words("pooler_act pooler_output_size"),
    pools=("class",),
    activations=ACTIVATIONS,
    needs=("position.embedding", "class_token"),
    lacks=not_plain,
    model_types=("vit",),
    classes=("ViTForImageClassification", "ViTModel"),
    colours=Colours(resampling="bilinear", fit="squash"),
    interpolation=BICUBIC,
)

MAE = replace(
    VIT,
    name="vit-mae",
    about="the encoder of transformers' ViTMAE",
    prefix="vit.",
    heads={},
    ignored=(*VIT.ignored, r"decoder\..*"),
    harmless=words(
        """
        decoder_hidden_size decoder_intermediate_size decoder_num_attention_heads decoder_num_hidden_layers mask_ratio
        norm_pix_loss
        """
    ),
    lacks=lambda config: not_plain(config) or not_square(config),
    model_types=("vit_mae",),
    classes=("", "ViTMAEModel"),
    colours=replace(IMAGENET, resampling="bilinear", fit="squash", crop_ratio=1.0),
)

DEIT = replace(
    VIT,
    name="deit",
    about="transformers' DeiT",
    prefix="deit.",
    keys={**VIT.keys, "distillation_token": Key("embeddings.distillation_token", ndim=3)},
    needs=(*VIT.needs, "distillation_token"),
    heads=weight_and_bias({"head.linear": "cls_classifier", "head_distillation.linear": "distillation_classifier"}),
    older=weight_and_bias({"head.linear": "classifier"}),
    ignored=(r"(deit\.)?pooler\..*", r"(deit\.)?embeddings\.mask_token"),
    model_types=("deit",),
    classes=("DeiTForImageClassificationWithTeacher", ""),
    colours=IMAGENET,
)

MSN = replace(
    VIT,
    name="vit-msn",
    about="transformers' ViTMSN",
    prefix="",
    aliases={r"^vit\.": "", **VIT.aliases},  # transformers 5 writes some keys with it and some without
    ignored=(r"embeddings\.mask_token",),
    fields={"norm_eps": 1e-6, "pool": "class"},
    harmless=frozenset(),
    model_types=("vit_msn",),
    classes=("", ""),
)

IJEPA = replace(
    VIT,
    needs=("position.embedding",),
    name="ijepa",
    about="transformers' I-JEPA",
    prefix="ijepa.",
    keys={ours: key for ours, key in VIT.keys.items() if ours != "class_token"},
    ignored=(r"(ijepa\.)?embeddings\.mask_token",),
    fields={"norm_eps": 1e-12, "pool": "mean"},
    pools=("mean",),
    model_types=("ijepa",),
    classes=("IJepaForImageClassification", "IJepaModel"),
)
