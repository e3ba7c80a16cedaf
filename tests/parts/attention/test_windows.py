"""Attention within windows, against attention to the whole grid with a mask made by hand."""

import pytest
import torch
from torch import Tensor

from vitrail.parts import WindowAttention
from vitrail.parts.attention.windows import cut_windows, join_windows

WINDOW = 3


def layer(*, shifted: bool) -> WindowAttention:
    torch.manual_seed(0)
    made = WindowAttention(8, 2, (WINDOW, WINDOW), shifted=shifted).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return made


def regions(side: int, *, shifted: bool) -> list[int]:
    """The window that each place along a side is in, and none with others beyond the edge."""
    if side <= WINDOW:
        return [0] * side
    shift = WINDOW // 2 if shifted else 0
    padded = -(-side // WINDOW) * WINDOW
    rolled = [(place + shift) % padded for place in range(padded)]  # which place stands there after the roll
    window_of = {place: (index // WINDOW, place < shift) for index, place in enumerate(rolled)}
    found = [window_of[place] for place in range(padded)]
    return [sorted(set(found)).index(each) for each in found]


def by_hand(made: WindowAttention, x: Tensor, *, shifted: bool) -> Tensor:
    """One query at a time, which looks at its window's places and knows their offsets."""
    height, width = x.shape[1:3]
    rows, columns = (regions(side, shifted=shifted) for side in (height, width))
    padded = torch.zeros(len(x), len(rows), len(columns), x.shape[3], dtype=x.dtype)
    padded[:, :height, :width] = x
    q, k, v = made.attention.project(padded.flatten(1, 2))
    places = [(row, column) for row in range(len(rows)) for column in range(len(columns))]
    bias = torch.full((2, len(places), len(places)), float("-inf"), dtype=x.dtype)
    for i, (a, b) in enumerate(places):
        for j, (c, d) in enumerate(places):
            if rows[a] == rows[c] and columns[b] == columns[d]:
                bias[:, i, j] = made.relative.table[(a - c + WINDOW - 1) * (2 * WINDOW - 1) + b - d + WINDOW - 1]
    whole = made.attention.mix(q, k, v, bias=bias).unflatten(1, (len(rows), len(columns)))
    return whole[:, :height, :width]


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("size", [(6, 9), (7, 4), (3, 6), (2, 8), (2, 3), (1, 1)])
def test_every_place_looks_at_its_window_alone(size, shifted):
    """Also where windows do not divide the grid, and where a side is no longer than a window."""
    made, x = layer(shifted=shifted), torch.randn(2, *size, 8, dtype=torch.float64)
    torch.testing.assert_close(made(x), by_hand(made, x, shifted=shifted))


def test_windows_are_cut_row_by_row_and_joined_again():
    x = torch.arange(2 * 4 * 6).view(2, 4, 6, 1)
    windows = cut_windows(x, (2, 3))
    assert windows.shape == (2, 4, 6, 1) and windows[0, 1, :, 0].tolist() == [3, 4, 5, 9, 10, 11]
    assert torch.equal(join_windows(windows, (2, 3), (4, 6)), x)


def test_what_a_graph_is_made_of_does_not_stay_behind():
    made = WindowAttention(8, 2, (2, 2), shifted=True).eval()
    x = torch.randn(2, 6, 10, 8)  # of a size that no other test has
    program = torch.export.export(made, (x,), strict=False)
    torch.testing.assert_close(program.module()(x), made(x))
