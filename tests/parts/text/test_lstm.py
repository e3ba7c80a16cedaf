"""The LSTM is torch's, written out; read from both ends, no row of a batch sees how long the others are."""

import pytest
import torch
from torch import Tensor, nn

from vitrail.parts import BidirectionalLSTM, LSTMLayer, lstm_step
from vitrail.parts.cpu.prepacked import packs

DIM, HIDDEN = 5, 6


def written_out(x: Tensor, h: Tensor, c: Tensor, theirs: nn.LSTM) -> Tensor:
    states = []
    for token in x.unbind(1):
        bias = theirs.bias_ih_l0 + theirs.bias_hh_l0
        h, c = lstm_step(token, (h, c), theirs.weight_ih_l0, theirs.weight_hh_l0, bias)
        states.append(h)
    return torch.stack(states, dim=1)


def gradients(states: Tensor, *of: Tensor) -> list[Tensor]:
    weights = torch.linspace(-1, 1, states.numel()).view_as(states)
    return list(torch.autograd.grad((states * weights).sum(), of))


def close(ours, theirs) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def test_the_formulas_are_torchs_with_their_gradients():
    theirs = nn.LSTM(DIM, HIDDEN, batch_first=True)
    x, h, c = torch.randn(3, 7, DIM, requires_grad=True), torch.randn(3, HIDDEN), torch.randn(3, HIDDEN, requires_grad=True)
    ours, expected = written_out(x, h, c, theirs), theirs(x, (h[None], c[None]))[0]
    close(ours, expected)
    close(gradients(ours, x, c, *theirs.parameters()), gradients(expected, x, c, *theirs.parameters()))


def test_a_whole_sequence_is_its_steps_after_the_state_that_it_is_given():
    layer, x, state = LSTMLayer(DIM, HIDDEN), torch.randn(3, 7, DIM), (torch.randn(3, HIDDEN), torch.randn(3, HIDDEN))
    whole = layer(x, state)
    for number, token in enumerate(x.unbind(1)):
        state = layer.step(token, state)
        close(state[0], whole[:, number])


@pytest.fixture
def pair() -> tuple[list[BidirectionalLSTM], nn.LSTM]:
    """Two layers, and torch's with the same weights."""
    theirs = nn.LSTM(DIM, HIDDEN // 2, num_layers=2, batch_first=True, bidirectional=True)
    ours = [BidirectionalLSTM(DIM, HIDDEN), BidirectionalLSTM(HIDDEN, HIDDEN)]
    for number, layer in enumerate(ours):
        for direction, suffix in ((layer.forwards, ""), (layer.backwards, "_reverse")):
            for name, _ in list(direction.named_parameters()):
                setattr(direction, name, getattr(theirs, f"{name[:-1]}{number}{suffix}"))
    return ours, theirs


def test_both_directions_are_torchs_packed_ones_with_their_gradients(pair):
    layers, theirs = pair
    x, lengths = torch.randn(4, 7, DIM, requires_grad=True), torch.tensor([5, 7, 1, 3])
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    states, (last, _) = theirs(packed)
    expected, _ = nn.utils.rnn.pad_packed_sequence(states, batch_first=True)
    ours = x
    for layer in layers:
        ours = layer(ours, lengths)
    close(BidirectionalLSTM.last(ours, lengths), torch.cat([last[2], last[3]], dim=-1))
    tokens = (torch.arange(7) < lengths[:, None])[..., None]
    ours = ours * tokens
    close(ours, expected)
    close(gradients(ours, x, *theirs.parameters()), gradients(expected, x, *theirs.parameters()))


def test_what_fills_a_row_reaches_nothing(pair):
    (layer, _), _ = pair
    x = torch.randn(2, 7, DIM)
    x[0, 4:] = float("nan")
    states = layer(x, torch.tensor([4, 7]))
    close(states[:1, :4], layer(x[:1, :4], torch.tensor([4])))
    close(states[1:], layer(x[1:], torch.tensor([7])))


@pytest.mark.parametrize("supported", [packs(torch.bfloat16), False], ids=["as this processor has it", "without"])
def test_where_the_processor_has_no_half_precision_an_lstm_computes_in_full_under_autocast(supported, monkeypatch):
    layer, x = LSTMLayer(3, 4), torch.randn(2, 5, 3)
    state = torch.randn(2, 4), torch.randn(2, 4)
    plain = layer(x, state)
    monkeypatch.setattr("vitrail.parts.text.lstm.packs", lambda dtype: supported)
    with torch.autocast("cpu", torch.bfloat16):
        half = layer(x.bfloat16(), tuple(part.bfloat16() for part in state))
    assert half.dtype == (torch.bfloat16 if supported else torch.float32)
    torch.testing.assert_close(half.float(), plain, atol=0.02, rtol=0.02)
