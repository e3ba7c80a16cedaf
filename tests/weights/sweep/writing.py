"""What we write, loaded by the library that it is for."""

import json
from functools import partial
from inspect import signature
from pathlib import Path

import timm
import torch
import transformers
import vit_pytorch
from safetensors.torch import load_file
from timm.layers import StdConv2dSame, SwiGLUPacked
from timm.models.resnetv2 import ResNetV2
from timm.models.vision_transformer import VisionTransformer, checkpoint_filter_fn
from timm.models.vision_transformer_hybrid import HybridEmbed
from torch import Tensor, nn
from torchvision.models import vision_transformer as torchvision_transformer

from sweep.judging import Asked, Findings, WrongError, quietly, read_back
from vitrail.errors import ConfigError
from vitrail.models.configs.base import ImageConfig
from vitrail.models.configs.vit import ViTConfig
from vitrail.weights.convert import convert
from vitrail.weights.layouts import LAYOUTS
from vitrail.weights.model_folder.folder import TrainedModel

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
TIMM_FOLDERS = ("timm", "timm-clip")


def write(result: Findings, ours: TrainedModel, layout: str | None, folder: Path, asked: Asked) -> None:
    """Write a model in a layout, or as the folder of our choice, which its library and we must both read to the same answers."""
    out = folder / f"{layout or 'default'}{_suffix(layout)}"
    with result.step(f"to {layout or 'a folder'}") as finding:
        try:
            quietly(convert, ours, out, layout=layout)
        except ConfigError as error:
            finding.status, finding.reason = "refused", str(error).splitlines()[0]
            return
        try:
            theirs = _load(out, layout, ours.config)
        except Exception as error:
            raise WrongError(f"its library cannot load it: {type(error).__name__}: {error}".replace("\n", " ")[:300]) from None
        if theirs is not None:
            asked.hold(theirs)
        read_back(out, asked, **_told(layout, ours.config))


def _suffix(layout: str | None) -> str:
    """Files that end so; nothing where the layout has folders."""
    chosen = LAYOUTS.get(layout or "")
    return "" if chosen is None or chosen.describe or chosen.model_types else chosen.suffix


def _told(layout: str | None, config: ImageConfig) -> dict:
    """What a file alone does not tell."""
    if not _suffix(layout):
        return {}
    fields = {name: getattr(config, name) for name in ("image_size", "heads") if hasattr(config, name)}
    mine = LAYOUTS[layout or ""].config is type(config)  # else it names a family, whose other layouts are not read by that name
    return {"layout": layout, **fields} if mine else fields


def _load(out: Path, layout: str | None, config: ImageConfig) -> nn.Module | None:
    """The model in what was written, by the library it is for; None for our own folders, and where no library reads it."""
    if out.is_dir():
        described = json.loads((out / "config.json").read_text())
        if "architecture" in described:
            return load_timm(out)
        return None if described["model_type"] == "vitrail" else load_transformers(out)
    if layout == "torchvision":
        return _torchvision(out, config)
    if layout == "vit-pytorch":
        return _vit_pytorch(out, config)
    return _original(out, layout, config) if isinstance(config, ViTConfig) else None


def load_timm(folder: Path) -> nn.Module:
    """The model of a folder, by timm."""
    return timm.create_model(f"local-dir:{folder}", pretrained=True).eval()


def load_transformers(folder: Path) -> nn.Module:
    """The model of a folder, by the class of transformers' that it names, with one answer."""
    kind = getattr(transformers, json.loads((folder / "config.json").read_text())["architectures"][0])
    model, report = kind.from_pretrained(folder, output_loading_info=True, ignore_mismatched_sizes=True)
    missing = [key for key in report["missing_keys"] if "pooler" not in key and "mask_token" not in key]
    strange = [*missing, *report["unexpected_keys"], *report["mismatched_keys"]]
    if strange:
        raise ValueError(f"{len(strange)} keys do not fit, {strange[0]} first")
    return Answering(model.eval())


class Answering(nn.Module):
    """A model of transformers' that answers with its logits, its embedding, or the vector that stands for the image."""

    FIRST = ("Data2VecVisionModel", "DeiTModel", "GitVisionModel", "PvtModel", "ViTMSNModel", "ViTModel", "YolosModel")
    """That have no pooler, or one that belongs to no pre-training: the class token counts."""

    def __init__(self, model: nn.Module, resized: bool = False):
        super().__init__()
        self.model = model
        asked = resized and "interpolate_pos_encoding" in signature(model.forward).parameters
        self.options = {"interpolate_pos_encoding": True} if asked else {}

    def forward(self, images: Tensor) -> Tensor:
        kind = type(self.model).__name__
        if kind == "ViTMAEModel":
            return self._unmasked(images)
        told = self.model(**_siglip2(images, self.model.config)) if "Siglip2" in kind else self.model(images, **self.options)
        for name in ("logits", "image_embeds"):
            if name in told:
                return told[name]
        if kind in self.FIRST:
            return told.last_hidden_state[:, 0]
        if kind == "CvtModel":
            return told.cls_token_value[:, 0]
        if kind == "PvtV2Model":
            return told.last_hidden_state.mean((2, 3))
        vector = None if kind == "IJepaModel" else told.get("pooler_output")
        return told.last_hidden_state.mean(1) if vector is None else vector.flatten(1)  # a ResNet's has sides of 1

    def _unmasked(self, images: Tensor) -> Tensor:
        """MAE's class token where nothing is masked and no order is changed."""
        side = self.model.config.patch_size
        order = torch.arange(images.shape[-2] * images.shape[-1] // side**2, dtype=images.dtype).expand(len(images), -1)
        self.model.config.mask_ratio = 0.0
        return self.model(images, noise=order, **self.options).last_hidden_state[:, 0]


def _siglip2(images: Tensor, config: transformers.PretrainedConfig) -> dict[str, Tensor]:
    """Images as SigLIP 2 takes them: patches in rows, each of (height, width, colour)."""
    side = getattr(config, "vision_config", config).patch_size
    rows, columns = images.shape[-2] // side, images.shape[-1] // side
    patches = images.unflatten(-1, (columns, side)).unflatten(-3, (rows, side))  # (B, C, rows, side, columns, side)
    patches = patches.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)
    return {
        "pixel_values": patches,
        "pixel_attention_mask": torch.ones(patches.shape[:2], dtype=torch.long),
        "spatial_shapes": torch.tensor([[rows, columns]] * len(images)),
    }


def _torchvision(file: Path, config: ViTConfig) -> nn.Module:
    state = load_file(file)
    model = torchvision_transformer.VisionTransformer(
        config.image_size[0],
        config.patch_size[0],
        config.depth,
        config.heads,
        config.dim,
        config.mlp_dim,
        num_classes=config.num_classes,
        representation_size=config.dim if "heads.pre_logits.weight" in state else None,
    )
    if not config.num_classes:
        model.heads = nn.Identity()
    model.load_state_dict(state)
    return model.eval()


def _vit_pytorch(file: Path, config: ViTConfig) -> nn.Module:
    model = vit_pytorch.ViT(
        image_size=config.image_size,
        patch_size=config.patch_size,
        num_classes=config.num_classes,
        dim=config.dim,
        depth=config.depth,
        heads=config.heads,
        mlp_dim=config.mlp_dim,
        channels=config.channels,
        pool="cls" if config.pool == "class" else config.pool,
        dim_head=config.head_dim or config.dim // config.heads,
    )
    if not config.num_classes:
        model.mlp_head = nn.Identity()
    model.load_state_dict(load_file(file))
    return model.eval()


def _resnet(config: ViTConfig) -> nn.Module:
    """Google's ResNet, which timm builds without stages as the stem alone."""
    if config.resnet_root != "imagenet":
        raise ValueError("Google's ResNets have another root")
    width = config.resnet_width
    net = ResNetV2(
        layers=config.resnet_depths, channels=tuple(width * 2 ** (2 + stage) for stage in range(len(config.resnet_depths))),
        num_classes=0, global_pool="", in_chans=config.channels, stem_chs=width, preact=False, stem_type="same",
        conv_layer=partial(StdConv2dSame, eps=1e-8),
    )  # fmt: skip
    return net if config.resnet_depths else net.stem


def _original(file: Path, layout: str | None, config: ViTConfig) -> nn.Module | None:
    """Files of a paper's authors, by timm, which reads them all; with what such files mean, whatever our model is."""
    fields: dict = {
        "img_size": config.image_size,
        "patch_size": config.patch_size,
        "in_chans": config.channels,
        "num_classes": config.num_classes,
        "embed_dim": config.dim,
        "depth": config.depth,
        "num_heads": config.heads,
        "mlp_ratio": config.mlp_dim / config.dim,
    }
    if layout == "google" and config.head == "mlp":
        return None  # timm does not read the hidden layer of the head
    if layout == "google":
        fields["global_pool"] = {"class": "token", "mean": "avg", "attention": "map"}[config.pool]
        fields["class_token"] = config.pool == "class"
        if config.embedding == "resnet":
            fields["embed_layer"] = partial(HybridEmbed, backbone=_resnet(config))
            stride = 4 * 2 ** max(0, len(config.resnet_depths) - 1)
            fields["patch_size"] = tuple(side // stride for side in config.patch_size)  # of the ResNet's map
        model = VisionTransformer(**fields, fc_norm=False).eval()
        model.load_pretrained(str(file))
        return model
    state = load_file(file)
    if layout in ("clip-original", "open-clip") and not config.num_classes:
        state = {f"visual.{name}": tensor for name, tensor in state.items()}  # by which timm knows them
    if layout in ("clip-original", "open-clip"):
        act = "quick_gelu" if layout == "clip-original" else "gelu"
        fields |= {"pre_norm": True, "norm_layer": partial(nn.LayerNorm, eps=1e-5), "act_layer": act}
    elif layout == "mae-original":
        fields["global_pool"] = "avg" if config.final_norm == "pooled" else "token"
    elif layout != "dino":
        fields["init_values"] = 1.0
        state["mask_token"] = torch.zeros(1, config.dim)  # by which timm knows DINOv2; it drops it
    if "swiglu" in str(layout):
        fields |= {"mlp_layer": SwiGLUPacked, "act_layer": nn.SiLU, "mlp_ratio": 2 * config.mlp_dim / config.dim}
    if "registers" in str(layout):
        fields |= {"reg_tokens": config.registers, "no_embed_class": True}
    model = VisionTransformer(**fields).eval()
    state = checkpoint_filter_fn(state, model)
    model.load_state_dict(state)
    return model
