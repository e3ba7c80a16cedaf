"""LSTMs that translate: the same step by step as at once, alone as in a batch, with every kind of attention."""

import pytest
import torch

from vitrail.errors import ConfigError
from vitrail.models.configs.texts import RecurrentConfig
from vitrail.models.cost import cost, totals
from vitrail.models.registry import model_config
from vitrail.models.text.recurrent import Recurrent

KINDS = ("none", "additive", "dot")


@pytest.fixture(params=KINDS)
def model(request) -> Recurrent:
    config = RecurrentConfig(vocabulary=11, dim=6, hidden_dim=8, depth=2, attention=request.param)
    return Recurrent(config).eval()


SOURCE = torch.tensor([[5, 3, 9, 7, 2], [4, 8, 2, 0, 0], [6, 2, 0, 0, 0]])
TARGET = torch.tensor([[1, 7, 7, 4], [1, 10, 3, 0], [1, 5, 6, 8]])


def close(ours, theirs) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_logits_are_made_of_what_the_last_state_sees(model):
    """Luong's equations 5 and 6 from the alignment and the encoder's states."""
    reading, alignment = model.encode(SOURCE), model.alignment(SOURCE, TARGET)
    x = model.embedding(TARGET) * 6**0.5
    for layer, state in zip(model.decoder, reading.states, strict=True):
        x = layer(x, state)
    if alignment is not None:
        x = torch.cat([alignment @ reading.memory, x], dim=-1)
    close(model(SOURCE, TARGET), torch.tanh(model.combine(x)) @ model.embedding.weight.T)


@torch.no_grad()
def test_the_decoder_starts_from_where_both_directions_end(model):
    reading, x = model.encode(SOURCE), model.embedding(SOURCE[1:2, :3]) * 6**0.5
    for layer, start, (h, c) in zip(model.encoder, model.starts, reading.states, strict=True):
        forwards, backwards = layer.forwards(x), layer.backwards(x.flip(1))
        last = torch.cat([forwards[:, -1], backwards[:, -1]], dim=-1)
        close(torch.cat([h, c], dim=-1)[1:2], torch.tanh(start(last)))
        x = torch.cat([forwards, backwards.flip(1)], dim=-1)


@pytest.mark.parametrize("width", [1, 20])
@torch.no_grad()
def test_the_network_of_additive_attention_may_have_a_width_of_its_own(width):
    torch.manual_seed(0)
    config = RecurrentConfig(vocabulary=11, dim=6, hidden_dim=8, attention="additive", alignment_dim=width)
    model = Recurrent(config).eval()
    assert model.key.weight.shape == (width, 8)
    assert model.attention.query.weight.shape == (width, 8) and model.attention.score.weight.shape == (1, width)
    reading = model.encode(SOURCE)
    states = model.decoder[0](model.embed(TARGET), reading.states[0])
    for row, length in enumerate((5, 3, 2)):
        for place, s in enumerate(states[row]):
            pairs = [torch.tanh(model.attention.query.weight @ s + model.key.weight @ h) for h in reading.memory[row, :length]]
            expected = torch.stack([model.attention.score.weight[0] @ pair for pair in pairs]).softmax(dim=0)
            close(model.alignment(SOURCE, TARGET)[row, place, :length], expected)


@pytest.mark.parametrize("kind", ["none", "dot"])
def test_a_width_of_a_network_that_there_is_not_is_refused(kind):
    with pytest.raises(ConfigError, match=f"alignment_dim is for the attention 'additive', not for '{kind}'"):
        RecurrentConfig.read({"attention": kind, "alignment_dim": 8})


def test_a_narrow_network_costs_less():
    width = 64
    wide, narrow = (cost(RecurrentConfig(attention="additive", alignment_dim=found)) for found in (None, width))
    h, tokens, less = 512, 16, 512 - width
    assert wide.parameters - narrow.parameters == less * (2 * h + 1)
    assert wide.macs - narrow.macs == less * (2 * tokens * h + tokens * tokens)
    assert f"additive attention {width} wide" in RecurrentConfig(attention="additive", alignment_dim=width).summary


@pytest.mark.parametrize("kind", KINDS)
def test_counts_are_those_by_hand(kind):
    d = h = 512
    tokens, vocabulary = 16, 8000
    gates = 2 * 4 * (h // 2) * (d + h // 2) + 4 * h * (d + h)  # both directions of the encoder, and the decoder
    biases = 2 * (2 * 4 * (h // 2) + 4 * h) + 2 * h + d
    start, combine, scores = 2 * h * h, (h if kind == "none" else 2 * h) * d, 2 * h * h + h if kind == "additive" else 0
    parameters = vocabulary * d + gates + biases + start + combine + scores
    looks = 0 if kind == "none" else 2 * tokens * tokens * h  # scores and weighted sum
    products = tokens * (gates + combine + vocabulary * d) + start + looks + (2 * tokens * h * h if kind == "additive" else 0)
    assert totals(model_config("LSTM" if kind == "none" else f"LSTM-{kind}")) == (parameters, products)
