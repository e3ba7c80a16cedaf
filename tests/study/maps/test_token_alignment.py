"""What is said of attention between a text and its source is what is drawn of it."""

import pytest
import torch
from torch import nn

from vitrail.models.registry import ARCHITECTURES, build
from vitrail.study.maps.captures import capture
from vitrail.study.maps.token_alignment import alignment_caption, which_attention

ENCODER = {"image_size": 8, "patch_size": 4, "dim": 12, "depth": 1, "heads": 2, "mlp_dim": 24}
FIELDS = {
    "Transformer": {"dim": 16, "depth": 1, "decoder_depth": 3, "heads": 2, "mlp_dim": 24},
    "Captioner": {"dim": 16, "decoder_depth": 3, "heads": 2, "mlp_dim": 24, "encoder": ENCODER},
    "Recurrent": {"dim": 16, "hidden_dim": 24, "depth": 2, "attention": "dot"},
    "RecurrentCaptioner": {"dim": 16, "hidden_dim": 24, "depth": 1, "attention": "additive", "encoder": ENCODER},
}


def model_of(kind):
    torch.manual_seed(0)
    model = build(ARCHITECTURES[kind].config.read({"vocabulary": 12, **FIELDS[kind]})).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


@pytest.mark.parametrize(
    ("kind", "said"), [("Transformer", "in the last block of the decoder"), ("Captioner", "in all blocks of the decoder")]
)
@torch.no_grad()
def test_the_blocks_that_are_named_are_those_whose_mean_is_drawn(kind, said):
    model, target = model_of(kind), torch.tensor([[1, 8, 7, 6]])
    source = torch.randn(1, 3, 8, 8) if kind == "Captioner" else torch.tensor([[5, 6, 7, 2]])
    with capture(model, "decoder.*.cross.weights") as seen:
        model(source, target)
    blocks = torch.stack([weights.mean(dim=1) for weights in seen.values()])  # (blocks, 1, T, S)
    expected = {"in the last block of the decoder": blocks[-1], "in all blocks of the decoder": blocks.mean(dim=0)}
    torch.testing.assert_close(model.alignment(source, target), expected[said])
    assert which_attention(model).startswith(said)


@pytest.mark.parametrize("kind", ["Recurrent", "RecurrentCaptioner"])
def test_an_lstm_has_no_blocks_and_no_heads(kind):
    assert which_attention(model_of(kind)) == "by the model's only attention"


def test_one_caption_tells_of_maps_of_several_kinds_of_models():
    transformer, lstm = model_of("Transformer"), model_of("Recurrent")
    assert "in the last block of the decoder, the mean of its heads; darker" in alignment_caption([transformer, transformer])
    assert "by the model's only attention or in the last block of the decoder" in alignment_caption([lstm, transformer])
