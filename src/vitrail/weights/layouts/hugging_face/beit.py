"""The layouts of transformers' BEiT and data2vec: a ViT with relative positions."""

from dataclasses import replace

from vitrail.errors import ConfigError
from vitrail.models.configs.vit import ViTConfig
from vitrail.parts.positions.interpolation import Interpolation
from vitrail.weights.keys import Key, words
from vitrail.weights.layouts.hugging_face.vit import BICUBIC, BLOCK, VIT, WITH_DROPOUT
from vitrail.weights.layouts.vit.keys import WithoutKeyBias, not_plain_or_no_bias, not_square
from vitrail.weights.normalization import Colours

SHARED = "encoder.relative_position_bias"
OWN = f"{BLOCK}.attention.attention.relative_position_bias"


def _beit(config: ViTConfig) -> dict[str, object]:
    """Return the entries for positions and pooling.

    Raises:
        ConfigError: the model has no relative positions. transformers interpolates other positions in another way than Vitrail.
    """
    if not config.is_relative:
        what = "transformers' BEiT can be written with relative positions only"
        raise ConfigError(what, where="--layout", hint="give another layout")
    return {
        "use_mean_pooling": config.final_norm == "pooled",
        "use_relative_position_bias": config.position == "relative-per-block",
        "use_shared_relative_position_bias": config.position == "relative",
        "use_absolute_position_embeddings": False,
        "layer_scale_init_value": config.layer_scale or 0.0,
    }


BEIT = replace(
    VIT,
    name="beit",
    about="transformers' BEiT",
    prefix="beit.",
    keys={
        **{ours: key for ours, key in VIT.keys.items() if not ours.startswith("norm.")},
        "blocks.{i}.attention.layer.qkv.bias": WithoutKeyBias(
            f"{BLOCK}.attention.attention.query.bias", rest=(f"{BLOCK}.attention.attention.value.bias",), exact=True
        ),
        "blocks.{i}.attention.scale.gamma": Key(f"{BLOCK}.lambda_1"),
        "blocks.{i}.mlp.scale.gamma": Key(f"{BLOCK}.lambda_2"),
        "relative.table": Key(f"{SHARED}.relative_position_bias_table"),
        "relative.tables.{i}": Key(f"{OWN}.relative_position_bias_table"),
        **{
            f"norm.{part}": (
                Key(
                    f"layernorm.{part}",
                    when=lambda config: config.final_norm == "tokens",
                    tells={"final_norm": "tokens", "pool": "class"},
                ),
                Key(
                    f"pooler.layernorm.{part}",
                    when=lambda config: config.final_norm == "pooled",
                    tells={"final_norm": "pooled", "pool": "mean"},
                ),
            )
            for part in ("weight", "bias")
        },
    },
    aliases={
        r"^shared_position_bias\.": f"{SHARED}.",
        r"^layers\.(\d+)\.relative_position_bias\.": OWN.replace("{i}", r"\1") + ".",
        **VIT.aliases,
    },
    needs=("class_token",),
    ignored=(r"(beit\.)?embeddings\.mask_token", r".*relative_position_index"),
    fields={"norm_eps": 1e-12, "class_token": True},
    described={**WITH_DROPOUT, "mlp_dim": "intermediate_size", "stochastic_depth": "drop_path_rate"},
    harmless=words(
        """
        add_fpn auxiliary_channels auxiliary_concat_input auxiliary_loss_weight auxiliary_num_convs layer_scale_init_value
        pool_scales reshape_hidden_states segmentation_indices use_absolute_position_embeddings use_auxiliary_head use_mask_token
        use_mean_pooling use_relative_position_bias use_shared_relative_position_bias vocab_size
        """
    ),
    pools=("class", "mean"),
    lacks=lambda config: not_plain_or_no_bias(config) or not_square(config),  # transformers swaps rows and columns of the tables
    extra=_beit,
    model_types=("beit",),
    classes=("BeitForImageClassification", "BeitModel"),
    colours=Colours(),
    interpolation=replace(BICUBIC, relative=Interpolation("bilinear", antialias=False)),
)

DATA2VEC = replace(
    BEIT,
    name="data2vec-vision",
    about="transformers' data2vec",
    prefix="data2vec_vision.",
    ignored=(r"(data2vec_vision\.)?embeddings\.mask_token", r".*relative_position_index"),
    model_types=("data2vec-vision",),
    classes=("Data2VecVisionForImageClassification", "Data2VecVisionModel"),
)
