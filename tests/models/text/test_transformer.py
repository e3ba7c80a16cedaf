"""The Transformer against torch's, and what must hold of any: no look ahead, the same with a cache, costs by hand."""

import math
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from vitrail.errors import ConfigError
from vitrail.models.configs.texts import TransformerConfig
from vitrail.models.cost import cost
from vitrail.models.registry import model_config
from vitrail.models.text.transformer import Transformer
from vitrail.study.maps.captures import capture

PAD, START, END = 0, 1, 2
SOURCE = torch.tensor([[5, 6, 7, 8, END], [9, 4, END, PAD, PAD], [3, END, PAD, PAD, PAD]])
TARGET = torch.tensor([[START, 8, 7, 6, 5, 4, 3], [START, 9, 9, END, PAD, PAD, PAD], [START, 3, 4, 5, 6, END, PAD]])
KINDS = [
    {"norm": "post", "activation": "relu", "heads": 2, "depth": 2, "decoder_depth": 3},
    {"norm": "pre", "activation": "gelu", "heads": 4, "depth": 3, "decoder_depth": 1, "tied": False, "output_bias": True},
    {"norm": "pre", "activation": "relu", "heads": 1, "depth": 1, "decoder_depth": 2, "norm_eps": 1e-3},
    {"norm": "post", "activation": "gelu", "heads": 8, "depth": 1, "decoder_depth": 1, "scale_embedding": False},
]


def small(**fields) -> Transformer:
    """A model with random weights, none of them zero."""
    sizes = {"vocabulary": 12, "dim": 16, "depth": 2, "decoder_depth": 2, "heads": 2, "mlp_dim": 24, "dropout": 0.0}
    torch.manual_seed(0)
    model = Transformer(TransformerConfig.read({**sizes, **fields})).double().eval()
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, mean=1.0 if name.endswith("norm.weight") else 0.0, std=0.3)
    return model


def positions(length: int, dim: int) -> Tensor:
    """PE(p, 2i) = sin(p / 10000^(2i / D)), PE(p, 2i + 1) its cosine, number by number."""
    table = torch.empty(length, dim)
    for p in range(length):
        for i in range(0, dim, 2):
            table[p, i], table[p, i + 1] = math.sin(p / 10000 ** (i / dim)), math.cos(p / 10000 ** (i / dim))
    return table.double()


BOTH = {
    "self_attn.in_proj_": ["attention.layer.qkv"],
    "self_attn.out_proj.": ["attention.layer.output"],
    "norm1.": ["attention.norm"],
    "linear1.": ["mlp.layer.expand"],
    "linear2.": ["mlp.layer.contract"],
}
LAYERS = {
    "encoder": {**BOTH, "norm2.": ["mlp.norm"]},
    "decoder": {
        **BOTH,
        "multihead_attn.in_proj_": ["cross.layer.query", "cross.layer.key_value"],
        "multihead_attn.out_proj.": ["cross.layer.output"],
        "norm2.": ["cross.norm"],
        "norm3.": ["mlp.norm"],
    },
}
"""The names of torch's layers, and ours, whose weights stand there one below the other."""


class Torchs(nn.Module):
    """The same model of torch's encoder and decoder, with its masks."""

    def __init__(self, ours: Transformer):
        super().__init__()
        c = self.config = ours.config
        sizes, post = (c.dim, c.heads, c.mlp_dim), c.norm == "post"
        options = {"dropout": 0.0, "activation": c.activation, "batch_first": True, "norm_first": not post}
        options["layer_norm_eps"] = c.norm_eps
        norms = [None if post else nn.LayerNorm(c.dim, eps=c.norm_eps) for _ in range(2)]
        layer = nn.TransformerEncoderLayer(*sizes, **options)
        self.encoder = nn.TransformerEncoder(layer, c.depth, norms[0], enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(*sizes, **options), c.decoder_depth, norms[1])
        self.source, self.target = nn.Embedding(c.vocabulary, c.dim), nn.Embedding(c.vocabulary, c.dim)
        self.output = nn.Linear(c.dim, c.vocabulary, bias=c.output_bias)
        if c.tied:
            self.target.weight = self.output.weight = self.source.weight
        self.double().load_state_dict(self.named(ours.state_dict()))

    def named(self, ours: dict[str, Tensor]) -> dict[str, Tensor]:
        """Our parameters, or what belongs to each, by the names that they have here."""
        found = {}
        for side, depth in (("encoder", self.config.depth), ("decoder", self.config.decoder_depth)):
            for number, (theirs, names), kind in product(range(depth), LAYERS[side].items(), ("weight", "bias")):
                together = torch.cat([ours[f"{side}.{number}.{name}.{kind}"] for name in names])
                found[f"{side}.layers.{number}.{theirs}{kind}"] = together
        last = {f"{side}.norm.{kind}": f"{side}_norm.{kind}" for side, kind in product(LAYERS, ("weight", "bias"))}
        one, two, three = ["embedding"] * 3 if self.config.tied else ["embedding", "target_embedding", "output"]
        outer = {"source.weight": f"{one}.weight", "target.weight": f"{two}.weight", "output.weight": f"{three}.weight"}
        outer |= last | {"output.bias": "output_bias"}
        return found | {theirs: ours[name] for theirs, name in outer.items() if name in ours}

    def forward(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Memory and logits."""
        ahead = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        memory = self.encoder(self.embed(source, self.source), src_key_padding_mask=source == PAD)
        hidden = {"memory_key_padding_mask": source == PAD, "tgt_key_padding_mask": target == PAD}
        return memory, self.output(self.decoder(self.embed(target, self.target), memory, tgt_mask=ahead, **hidden))

    def embed(self, tokens: Tensor, table: nn.Embedding) -> Tensor:
        scale = math.sqrt(self.config.dim) if self.config.scale_embedding else 1
        return table(tokens) * scale + positions(tokens.shape[1], self.config.dim)


@pytest.mark.parametrize("fields", KINDS, ids=str)
def test_memory_logits_and_gradients_are_those_of_torchs_encoder_and_decoder(fields):
    ours = small(**fields)
    theirs = Torchs(ours)
    encoded = ours.encode(SOURCE)
    memory, logits = theirs(SOURCE, TARGET)
    found = ours.logits(ours.decode(TARGET, encoded))
    torch.testing.assert_close(encoded.memory, memory, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(found[TARGET != PAD], logits[TARGET != PAD], rtol=1e-10, atol=1e-10)
    asked = torch.randn_like(logits) * (TARGET != PAD)[..., None]  # behind the end of a target nothing is asked
    for model, answer in ((ours, found), (theirs, logits)):
        (answer * asked).sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
    gradients = {name: p.grad for name, p in ours.named_parameters(remove_duplicate=False)}
    for name, expected in theirs.named(gradients).items():
        torch.testing.assert_close(theirs.get_parameter(name).grad, expected, rtol=1e-9, atol=1e-9, msg=name)


def by_hand(c: TransformerConfig) -> int:
    """Parameters: a table for all, and in each block attentions of four matrices, an MLP of two, norms of two vectors."""
    attention, mlp, norm = 4 * (c.dim + 1) * c.dim, (c.dim + 1) * c.mlp_dim + (c.mlp_dim + 1) * c.dim, 2 * c.dim
    encoder, decoder = attention + mlp + 2 * norm, 2 * attention + mlp + 3 * norm
    last = 2 * norm if c.norm == "pre" else 0
    tables = c.vocabulary * c.dim * (1 if c.tied else 3) + (c.vocabulary if c.output_bias else 0)
    return tables + c.depth * encoder + c.decoder_depth * decoder + last


def test_the_base_model_has_the_parameters_of_the_paper():
    """Table 3 says 65 million, with "about 37,000 tokens"."""
    config = model_config("Transformer-base", vocabulary=37_000)
    assert cost(config).parameters == by_hand(config) == 63_082_496 == 37_000 * 512 + 44_138_496


def test_captured_weights_show_both_attentions_of_the_decoder():
    model = small()
    with torch.no_grad(), capture(model, "**") as seen:
        model(SOURCE, TARGET)
    padding = SOURCE == PAD
    for number in range(2):
        own, across = seen[f"decoder.{number}.attention.weights"], seen[f"decoder.{number}.cross.weights"]
        assert own.shape == (3, 2, 7, 7) and not own.triu(1).any()
        assert across.shape == (3, 2, 7, 5) and not across.transpose(1, 3)[padding].any()
        assert not seen[f"encoder.{number}.attention.weights"].transpose(1, 3)[padding].any()
        for weights in (own, across):
            torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2, 7).double())
        for place in ("attention", "cross"):
            said = seen[f"decoder.{number}.{place}.weights"] @ seen[f"decoder.{number}.{place}.values"]
            torch.testing.assert_close(said.transpose(1, 2).flatten(2), seen[f"decoder.{number}.{place}.heads"])
    torch.testing.assert_close(model.logits(seen["decoder.1.output"]), model(SOURCE, TARGET))


def test_the_step_of_a_search_is_not_captured():
    model = small()
    with pytest.raises(ConfigError, match="single steps"), capture(model, "decoder.*.cross.weights"):
        model.step(TARGET[:, :1], model.begin(model.encode(SOURCE)))


def test_the_alignment_is_the_mean_of_the_last_blocks_heads():
    model = small()
    with torch.no_grad(), capture(model, "decoder.1.cross.weights") as seen:
        model(SOURCE, TARGET)
    torch.testing.assert_close(model.alignment(SOURCE, TARGET), seen["decoder.1.cross.weights"].mean(dim=1))
