"""Long short-term memory: Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.parts.cpu.prepacked import packs

LSTMState = tuple[Tensor, Tensor]
"""State of a layer after a token, (h, c): output and cell, (B, H) each."""


def lstm_step(x: Tensor, state: LSTMState, weight_x: Tensor, weight_h: Tensor, bias: Tensor) -> LSTMState:
    """Compute one token in one layer; σ is the sigmoid, ⊙ the element-wise product.

    Args:
        x: (B, D).
        state: state after the previous token.
        weight_x: W, (4 H, D): rows of the input gate, the forget gate, the candidate and the output gate.
        weight_h: U, (4 H, H), in the same order.
        bias: b, (4 H,).

    Returns:
        The state after this token.
    """
    h, c = state
    sums = F.linear(x, weight_x, bias) + F.linear(h, weight_h)  # W x + U h + b of all four gates
    input_sum, forget_sum, candidate_sum, output_sum = sums.chunk(4, dim=-1)  # (B, H) each
    i = torch.sigmoid(input_sum)  #      i = σ(W_i x + U_i h + b_i), fraction of the candidate that is added
    f = torch.sigmoid(forget_sum)  #     f = σ(W_f x + U_f h + b_f), fraction of the old cell that stays
    g = torch.tanh(candidate_sum)  #     g = tanh(W_g x + U_g h + b_g), the candidate
    o = torch.sigmoid(output_sum)  #     o = σ(W_o x + U_o h + b_o), fraction of the cell that is output
    c = f * c + i * g  #                 c ← f ⊙ c + i ⊙ g: a sum, so that gradients survive many tokens
    return o * torch.tanh(c), c  #       h ← o ⊙ tanh(c)


class LSTMLayer(nn.LSTM):
    """One layer in one direction, by torch's fused kernel: tokens (B, N, D) to the output h of every step, (B, N, H)."""

    weight_ih_l0: nn.Parameter
    weight_hh_l0: nn.Parameter
    bias_ih_l0: nn.Parameter
    bias_hh_l0: nn.Parameter

    def __init__(self, dim: int, hidden_dim: int):
        super().__init__(dim, hidden_dim, batch_first=True)

    def forward(self, x: Tensor, state: LSTMState | None = None) -> Tensor:  # type: ignore[override]
        """Compute all tokens, from an initial state or from zeros.

        Under autocast the result is float32 on a GPU, where torch would always take fp16, and on a CPU for which oneDNN has no
        half precision.
        """
        given, kind = None if state is None else (state[0][None], state[1][None]), x.device.type
        under_autocast = not x.is_meta and torch.is_autocast_enabled(kind)
        if not under_autocast or (x.is_cpu and packs(torch.get_autocast_dtype(kind))):
            states: Tensor = super().forward(x, given)[0]
            return states
        with torch.autocast(kind, enabled=False):
            return super().forward(x.float(), None if given is None else (given[0].float(), given[1].float()))[0]

    def step(self, x: Tensor, state: LSTMState) -> LSTMState:
        """Return the state after one more token (B, D)."""
        return lstm_step(x, state, self.weight_ih_l0, self.weight_hh_l0, self.bias_ih_l0 + self.bias_hh_l0)


class BidirectionalLSTM(nn.Module):
    """Two layers of width H/2, one of which reads backwards (Schuster and Paliwal 1997): (B, N, D) to (B, N, H)."""

    def __init__(self, dim: int, hidden_dim: int):
        super().__init__()
        self.forwards, self.backwards = LSTMLayer(dim, hidden_dim // 2), LSTMLayer(dim, hidden_dim // 2)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Read rows of ``lengths`` (B,) tokens; the padding after them affects no other token."""
        order = _from_the_end(lengths, x.shape[1])
        return torch.cat([self.forwards(x), _in_order(self.backwards(_in_order(x, order)), order)], dim=-1)

    @staticmethod
    def last(states: Tensor, lengths: Tensor) -> Tensor:
        """Return the final states, (B, H): the forward direction's at the last token, the backward direction's at the first."""
        forwards, backwards = states.chunk(2, dim=-1)
        rows = torch.arange(len(states), device=states.device)
        return torch.cat([forwards[rows, lengths - 1], backwards[:, 0]], dim=-1)


def _from_the_end(lengths: Tensor, length: int) -> Tensor:
    """Return the index, (B, N), that reverses each row within its length; 0 for padding."""
    place = torch.arange(length, device=lengths.device)
    return (lengths[:, None] - 1 - place).clamp(min=0)


def _in_order(x: Tensor, order: Tensor) -> Tensor:
    """Return (B, N, D) reordered by the index (B, N); one flat index, as the backward pass of two takes twice as long."""
    start = x.shape[1] * torch.arange(len(x), device=x.device)
    return x.flatten(0, 1).index_select(0, (start[:, None] + order).flatten()).view_as(x)
