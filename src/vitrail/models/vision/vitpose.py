"""ViTPose (Xu et al. 2022, https://arxiv.org/abs/2204.12484) and ViTPose+ (2023, https://arxiv.org/abs/2212.04246)."""

from collections.abc import Mapping, Set
from typing import Any

import torch
from torch import Tensor, nn

from vitrail import parts
from vitrail.models import resizing
from vitrail.models.base import Model, on_grid
from vitrail.models.configs.vitpose import ViTPoseConfig
from vitrail.models.signature import BATCH, Shape
from vitrail.models.vision.vit import ViT, embedding_of, mlp_of, position_of


class ViTPose(ViT):
    """ViTPose: images of one person (B, C, H, W) to heatmaps (B, joints, 4·rows, 4·columns), 4×4 values per patch.

    A heatmap has its maximum at the estimated position of a joint. The decoder reads the patch tokens after the last norm.
    """

    config: ViTPoseConfig

    def new_embedding(self) -> nn.Module:
        return embedding_of(self.config, padding=self.config.patch_padding)

    def new_position(self) -> nn.Module:
        return position_of(self.config, **({"shared": True} if self.config.shared_position else {}))

    def new_mlp(self) -> nn.Module:
        c = self.config
        if not c.experts:
            return super().new_mlp()
        return mlp_of(c, parts.ExpertFeedForward, experts=c.experts, expert_dim=c.expert_dim, expert=c.expert)

    def add_heads(self) -> None:
        c = self.config
        self.vector_dim = c.dim
        self.decoder: nn.Module = (
            parts.ClassicHeatmapDecoder(c.dim, c.num_classes, width=c.decoder_dim)
            if c.decoder == "classic"
            else parts.SimpleHeatmapDecoder(c.dim, c.num_classes)
        )

    def initialize(self) -> None:
        """Sample new weights; convolutions of the decoder have the authors' deviation of 0.001."""
        super().initialize()
        for module in self.decoder.modules():
            if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
                nn.init.normal_(module.weight, std=0.001)

    def heads(self) -> dict[str, nn.Module]:
        return {"decoder": self.decoder}

    def forward_head(self, z: Tensor, *, separate: bool = False, grid: parts.Grid | None = None) -> Tensor:
        """Return the heatmaps (B, joints, 4·rows, 4·columns) from the encoder's tokens (B, prefix + N, D)."""
        return self.decoder(on_grid(z[:, self.config.prefix :], grid or self.config.grid))

    def outputs(self) -> dict[str, Shape]:
        return {"heatmaps": Shape((BATCH, self.config.num_classes, *self.config.heatmap_size))}

    @classmethod
    def starts_from(cls, kind: type[Model]) -> bool:
        return issubclass(kind, ViT)

    @classmethod
    def adapted(
        cls, tensors: Mapping[str, Tensor], source: Any, target: Any, interpolation: parts.Interpolation
    ) -> dict[str, Tensor]:
        """Convert the parameters of any ViT with the same backbone, with or without heads, to this model's.

        If the target has no class token, the source's is dropped, and its position becomes the shared one. Experts start as
        copies of the plain MLP; a plain MLP is taken from the selected expert.
        """
        ours = {name: tensor for name, tensor in tensors.items() if not name.startswith("pool.")}
        ours = _with_tokens(resizing.adapted(ours, source, target, interpolation), source, target)
        old, new = ((getattr(c, "experts", 0), getattr(c, "expert_dim", 0)) for c in (source, target))
        return ours if old == new else _with_experts(_with_plain_mlps(ours, source), target)

    @classmethod
    def may_differ(cls, source: Any, target: Any, *, keep_head: bool) -> Set[str]:
        tokens = {"class_token", "distillation_token", "pool"} | ({"registers"} if source.distillation_token else set())
        if source.position == "sincos-1d" and source.position_prefix != target.position_prefix:
            tokens = set()  # another number of prefix tokens would shift the positions of the patches
        norms = {"final_norm"} if (source.final_norm == "none") == (target.final_norm == "none") else set()
        decoder = set() if keep_head and isinstance(source, ViTPoseConfig) else {"decoder", "decoder_dim"}
        return resizing.may_differ(source, target, keep_head=keep_head) | MAY_DIFFER | tokens | norms | decoder


MAY_DIFFER = {
    "patch_padding", "shared_position", "experts", "expert_dim", "expert", "pool_heads", "pool_mlp_dim", "crop_remainder",
}  # fmt: skip
"""Fields that may differ in addition to a ViT's: weights can be converted, or need no change."""


def _with_tokens(ours: dict[str, Tensor], source: Any, target: ViTPoseConfig) -> dict[str, Tensor]:
    """Return the target's tokens and positions; a distillation token, plus its position, becomes a register."""
    tokens = {name: ours.pop(name) for name in ("class_token", "distillation_token") if name in ours}
    table = ours.get("position.embedding")
    rows = list(table[: len(tokens)]) if table is not None and target.class_position else []
    shared = ours.pop("position.shared", None)
    if table is not None:
        kept = target.position_prefix if rows else 0
        ours["position.embedding"] = torch.cat([table[:kept], table[len(rows) :]])
    if target.has_class_token and "class_token" in tokens:
        ours["class_token"] = tokens["class_token"]
    if "distillation_token" in tokens and target.registers == source.registers + 1:
        second = tokens["distillation_token"] + (rows[1] if rows else 0)
        ours["registers"] = torch.cat([second, *([ours["registers"]] if "registers" in ours else [])], dim=1)
    if target.shared_position and table is not None:
        row = rows[0].clone() if rows else table.new_zeros(target.dim)
        ours["position.shared"] = row if shared is None else shared
    elif shared is not None:
        ours["position.embedding"] = ours["position.embedding"] + shared
    return ours


LAST = "mlp.layer.contract."
"""Name inside a block of the linear layer that experts share, in a plain MLP the second layer."""


def _with_plain_mlps(ours: dict[str, Tensor], source: Any) -> dict[str, Tensor]:
    """Return the parameters with plain MLPs, whose last outputs are the selected expert's."""
    plain = {name: tensor for name, tensor in ours.items() if ".mlp.layer.experts." not in name}
    for name in [name for name in plain if LAST in name and len(plain) < len(ours)]:
        own = name.replace(LAST, f"mlp.layer.experts.{source.expert}.")
        plain[name] = torch.cat([plain[name], ours[own]])
    return plain


def _with_experts(ours: dict[str, Tensor], target: ViTPoseConfig) -> dict[str, Tensor]:
    """Return the parameters with the target's number of experts, all equal."""
    result = dict(ours)
    for name in [name for name in ours if LAST in name and target.experts]:
        result[name], own = ours[name].split([target.dim - target.expert_dim, target.expert_dim])
        for number in range(target.experts):
            result[name.replace(LAST, f"mlp.layer.experts.{number}.")] = own.clone()
    return result
