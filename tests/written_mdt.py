"""MDT of one image in double precision, and weights as its authors name them: written out, with nothing gathered or padded."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

DIM, HEADS, SIDE, CHANNELS, CLASSES, WAVES = 32, 4, 4, 4, 5, 256
PATCHES = SIDE * SIDE
ENCODERS = {"MDT": ["blocks.0", "blocks.1"], "MDTv2": ["en_inblocks.0", "en_outblocks.0"]}
DECODERS = {"MDT": ["blocks.2", "blocks.3"], "MDTv2": ["de_blocks.0", "de_blocks.1"]}
"""Blocks of a model of depth 4 with a decoder of 2."""


def authors_weights(version: str, seed: int = 0) -> dict[str, Tensor]:
    """Return random weights under the authors' names, with the index of every table."""
    generator = torch.Generator().manual_seed(seed)
    state = {}

    def draw(name: str, *shape: int) -> None:
        state[name] = 0.2 * torch.randn(shape, generator=generator)

    def layer(name: str, outputs: int, *inputs: int) -> None:
        draw(f"{name}.weight", outputs, *inputs)
        draw(f"{name}.bias", outputs)

    draw("pos_embed", 1, PATCHES, DIM)
    draw("decoder_pos_embed", 1, PATCHES, DIM)
    draw("mask_token", 1, 1, DIM)
    draw("y_embedder.embedding_table.weight", CLASSES + 1, DIM)
    layer("x_embedder.proj", DIM, CHANNELS, 2, 2)
    layer("t_embedder.mlp.0", DIM, WAVES)
    layer("t_embedder.mlp.2", DIM, DIM)
    for block in (*ENCODERS[version], *DECODERS[version], "sideblocks.0"):
        layer(f"{block}.attn.qkv", 3 * DIM, DIM)
        layer(f"{block}.attn.proj", DIM, DIM)
        layer(f"{block}.mlp.fc1", 4 * DIM, DIM)
        layer(f"{block}.mlp.fc2", DIM, 4 * DIM)
        layer(f"{block}.adaLN_modulation.1", 6 * DIM, DIM)
        draw(f"{block}.attn.rel_pos_bias.relative_position_bias_table", (2 * SIDE - 1) ** 2 + 3, HEADS)
        index = [[entry(a, b) for b in range(PATCHES)] for a in range(PATCHES)]
        state[f"{block}.attn.rel_pos_bias.relative_position_index"] = torch.tensor(index)
        if block.startswith(("en_outblocks", "de_blocks")):
            layer(f"{block}.skip_linear", DIM, 2 * DIM)
    layer("final_layer.linear", 2 * 2 * 2 * CHANNELS, DIM)
    layer("final_layer.adaLN_modulation.1", 2 * DIM, DIM)
    return state


def entry(a: int, b: int) -> int:
    """The row of a table that is for the offset from patch b to patch a."""
    return (a // SIDE - b // SIDE + SIDE - 1) * (2 * SIDE - 1) + a % SIDE - b % SIDE + SIDE - 1


class WrittenMDT:
    """What the authors' weights compute of one image."""

    def __init__(self, state: dict[str, Tensor]):
        self.weights = {name: tensor.double() for name, tensor in state.items()}
        self.version = "MDTv2" if "de_blocks.0.skip_linear.weight" in state else "MDT"

    def output(self, image: Tensor, time: Tensor, label: int, masked: Tensor | None = None) -> Tensor:
        """(C, H, W) to (2C, H, W); ``masked``, bool (N,), is a mask, without which there is no side block either."""
        w, everywhere = self.weights, range(PATCHES)
        angles = time * torch.exp(-math.log(10_000) * torch.arange(WAVES // 2) / (WAVES // 2))
        waves = torch.cat([angles.cos(), angles.sin()]).double()
        c = self.linear("t_embedder.mlp.2", F.silu(self.linear("t_embedder.mlp.0", waves)))
        c = c + w["y_embedder.embedding_table.weight"][label]
        corners = [(2 * row, 2 * column) for row in range(SIDE) for column in range(SIDE)]
        patches = torch.stack([image[:, y : y + 2, x : x + 2].flatten() for y, x in corners])
        noisy = patches @ w["x_embedder.proj.weight"].flatten(1).T + w["x_embedder.proj.bias"] + w["pos_embed"][0]
        seen = [number for number in everywhere if masked is None or not masked[number]]
        z = w["mask_token"][0].repeat(PATCHES, 1)
        z[seen] = self.encoded(noisy[seen], c, seen)
        z = z + w["decoder_pos_embed"][0]
        if masked is not None:
            z = torch.where(masked[:, None], self.block("sideblocks.0", z, c, everywhere), z)
        for block in DECODERS[self.version]:
            z = self.block(block, z, c, everywhere, noisy)
        shift, scale = self.linear("final_layer.adaLN_modulation.1", F.silu(c)).chunk(2)
        pixels = self.linear("final_layer.linear", norm(z) * (1 + scale) + shift)
        result = torch.zeros(2 * CHANNELS, 2 * SIDE, 2 * SIDE, dtype=torch.double)
        for (y, x), patch in zip(corners, pixels, strict=True):
            result[:, y : y + 2, x : x + 2] = patch.view(2, 2, -1).permute(2, 0, 1)
        return result

    def encoded(self, z: Tensor, c: Tensor, seen: list[int]) -> Tensor:
        first, second = ENCODERS[self.version]
        z = self.block(first, z, c, seen)
        return self.block(second, z, c, seen, z)

    def block(self, name: str, z: Tensor, c: Tensor, numbers, skip: Tensor | None = None) -> Tensor:
        if f"{name}.skip_linear.weight" in self.weights:
            z = self.linear(f"{name}.skip_linear", torch.cat([z, skip], dim=1))
        vectors = self.linear(f"{name}.adaLN_modulation.1", F.silu(c)).chunk(6)
        for (shift, scale, gate), branch in ((vectors[:3], self.attention), (vectors[3:], self.mlp)):
            z = z + gate * branch(name, norm(z) * (1 + scale) + shift, numbers)
        return z

    def attention(self, name: str, x: Tensor, numbers) -> Tensor:
        width, heads = DIM // HEADS, []
        table = self.weights[f"{name}.attn.rel_pos_bias.relative_position_bias_table"]
        q, k, v = (part.split(width, dim=1) for part in self.linear(f"{name}.attn.qkv", x).chunk(3, dim=1))
        for head in range(HEADS):
            bias = torch.stack([torch.stack([table[entry(a, b), head] for b in numbers]) for a in numbers])
            heads.append((q[head] @ k[head].T / math.sqrt(width) + bias).softmax(dim=1) @ v[head])
        return self.linear(f"{name}.attn.proj", torch.cat(heads, dim=1))

    def mlp(self, name: str, x: Tensor, numbers) -> Tensor:
        return self.linear(f"{name}.mlp.fc2", F.gelu(self.linear(f"{name}.mlp.fc1", x), approximate="tanh"))

    def linear(self, name: str, x: Tensor) -> Tensor:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]


def norm(x: Tensor) -> Tensor:
    return (x - x.mean(1, keepdim=True)) / (x.var(1, unbiased=False, keepdim=True) + 1e-6).sqrt()
