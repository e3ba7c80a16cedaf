"""transformers' UPerNet with a backbone that Vitrail has: Swin, PVT v2 or ResNet (https://github.com/huggingface/transformers)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vitrail.errors import ModelFileError
from vitrail.models.configs.segmenter import SegmenterConfig
from vitrail.settings import brief
from vitrail.weights.formats.safe_files import PALETTE
from vitrail.weights.keys import weight_and_bias, within, words
from vitrail.weights.layout import Layout
from vitrail.weights.layouts.relatives import pvt_v2, resnet_hugging_face, swin
from vitrail.weights.layouts.segmenters.segmenter_reading import BACKBONE, COLOURS, reading_around, upernet_keys
from vitrail.weights.model_folder.description import describe, described

SECTION = "backbone_config"
STAGES = [f"stage{number}" for number in range(1, 5)]
SWIN = replace(
    swin.TRANSFORMERS,
    keys={ours: key for ours, key in swin.TRANSFORMERS.keys.items() if not ours.startswith("norm.")},
    ignored=(*swin.TRANSFORMERS.ignored, r"layernorm\.(weight|bias)"),  # never read: each stage has a norm of its own
    described={
        **swin.TRANSFORMERS.described, "dropout": "hidden_dropout_prob", "attention_dropout": "attention_probs_dropout_prob",
        "stochastic_depth": "drop_path_rate",
    },
)  # fmt: skip
"""transformers' Swin without its last norm, and with the dropout of its training, which is stated nowhere else in a segmenter."""
KINDS = ("swin", "pvt_v2", "resnet")


def _upernet(inner: Layout, name: str, of: str, **more: Any) -> Layout:
    """Return the layout of UPerNet with a backbone of transformers.

    Args:
        inner: layout of the backbone alone.
        name: name of the layout.
        of: name of the backbone in messages.
        more: further arguments of `Layout`; ``keys`` are added to those of backbone and decoder.
    """

    def read(values: Mapping[str, Any]) -> dict[str, Any]:
        """Return our fields from ``config.json``; raises `ModelFileError` for entries that are not supported."""
        if not values:
            return {}
        section = values.get(SECTION)
        kind = section.get("model_type") if isinstance(section, dict) else None
        if not isinstance(section, dict) or kind not in inner.model_types:
            what = f"unsupported model_type of the backbone: {brief(kind)}" if section else f"{SECTION} is {brief(section)}"
            raise ModelFileError(what, where="config.json", hint=f"give a UPerNet with one of {', '.join(KINDS)}")
        if section.get("out_features") != STAGES:
            what = f"UPerNet reads the maps {brief(section.get('out_features'))}, not {', '.join(STAGES)}"
            raise ModelFileError(what, where="config.json", hint="give a UPerNet that reads all four stages")
        fields = described({entry: value for entry, value in values.items() if entry != SECTION}, layout)
        own = {**inner.fields, **described(section, inner), "num_classes": 0}
        return {**fields, "backbone": inner.config.read(own, where=SECTION)}

    def describe_both(config: SegmenterConfig) -> dict[str, Any]:
        own = describe(config.backbone, inner)
        del own["architectures"]
        return {**describe(config, layout), SECTION: {**own, "out_features": STAGES}}

    layout = Layout(
        name=name,
        about=f"transformers' UPerNet with {of}",
        family="upernet",
        reading=reading_around(inner.reading, "upernet", inner.fields),
        keys={**within(inner.keys, BACKBONE, BACKBONE), **upernet_keys("batch_norm", "classifier"), **more.pop("keys", {})},
        ignored=tuple(rf"backbone\.(?:{inner.prefix})?{pattern}" for pattern in inner.ignored),
        described={"head_dim": "hidden_size", "auxiliary": "use_auxiliary_head", "auxiliary_dim": "auxiliary_channels"},
        defaults={"hidden_size": 512, "use_auxiliary_head": True, "auxiliary_channels": 256},
        harmless=words(f"auxiliary_in_channels auxiliary_loss_weight loss_ignore_index {' '.join(PALETTE)}"),
        fixed={
            "pool_scales": ([1, 2, 3, 6],), "auxiliary_num_convs": (1,), "auxiliary_concat_input": (False,), "backbone": (None,),
            "backbone_kwargs": (None, {}), "use_pretrained_backbone": (None, False), "use_timm_backbone": (None, False),
        },
        read=read,
        lacks=lambda config: inner.lacks(config.backbone),
        model_types=("upernet",),
        classes=("UperNetForSemanticSegmentation", ""),
        describe=describe_both,
        colours=COLOURS,
        interpolation=inner.interpolation,
        **more,
    )  # fmt: skip
    return layout


UPERNET_SWIN = _upernet(
    SWIN,
    "upernet",
    "a Swin",
    keys=weight_and_bias({"neck.norms.{s}": "backbone.hidden_states_norms.stage{S}"}),
    aliases={r"^backbone\.swin\.": BACKBONE},
)
UPERNET_PVT_V2 = _upernet(pvt_v2.TRANSFORMERS, "upernet-pvt-v2", "a PVT v2")
UPERNET_RESNET = _upernet(resnet_hugging_face.RESNET, "upernet-resnet", "a ResNet")
UPERNET_RESNET_BASIC = _upernet(resnet_hugging_face.RESNET_BASIC, "upernet-resnet-basic", "a ResNet of basic blocks")
