"""The MLP-Mixer (Tolstikhin et al. 2021, https://arxiv.org/abs/2105.01601)."""

from torch import Tensor, nn

from vitrail import parts
from vitrail.models.base import ImageModel, on_grid
from vitrail.models.configs.mixer import MixerConfig


class Mixer(ImageModel):
    """An MLP-Mixer: images (B, C, H, W) to logits (B, classes), or without classes to the mean token (B, D)."""

    config: MixerConfig

    def __init__(self, config: MixerConfig):
        super().__init__()
        self.config = c = config
        self.embedding = parts.PatchEmbedding(c.channels, c.dim, c.patch_size)
        self.blocks = nn.ModuleList(MixerBlock(c, index) for index in range(c.depth))
        self.norm = nn.LayerNorm(c.dim, eps=c.norm_eps)
        self.add_head(c.dim)
        self.initialize()

    def layers(self) -> list[nn.Module]:
        return list(self.blocks)

    def vectors(self, images: Tensor) -> Tensor:
        return self._mixed(images).mean(dim=1)  # (B, D)

    def feature_maps(self, images: Tensor) -> list[Tensor]:
        return [on_grid(self._mixed(images), self.config.grid)]

    def _mixed(self, images: Tensor) -> Tensor:
        """Return the tokens after the last norm, (B, S, D)."""
        self.require_images(images)
        x = self.embedding(images)  # (B, S, D)
        for block in self.blocks:
            x = block(x)  #           (B, S, D)
        return self.norm(x)


class MixerBlock(nn.Module):
    """Equation (1): ``U = X + W2 σ(W1 LN(X))`` over tokens, ``Y = U + W4 σ(W3 LN(U))`` over channels; (B, S, D) to (B, S, D)."""

    def __init__(self, c: MixerConfig, index: int):
        super().__init__()
        drop_path = parts.drop_path_rate(c.stochastic_depth, index, c.depth)
        tokens = TokenMixing(c.tokens, c.token_dim, dropout=c.dropout)
        channels = parts.FeedForward(c.dim, c.channel_dim, dropout=c.dropout)
        self.tokens = parts.Branch(c.dim, tokens, norm_eps=c.norm_eps, drop_path=drop_path)
        self.channels = parts.Branch(c.dim, channels, norm_eps=c.norm_eps, drop_path=drop_path)

    def forward(self, x: Tensor) -> Tensor:
        return self.channels(self.tokens(x))


class TokenMixing(parts.FeedForward):
    """An MLP across tokens, shared by all channels: (B, S, D) to (B, S, D)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.mT).mT
