"""Heads against torch's layers written out."""

import torch
import torch.nn.functional as F

from vitrail.parts import lecture_head, linear_head, mlp_head


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def test_the_linear_head_is_one_linear_layer():
    head, x = linear_head(6, 4).double(), numbers(2, 6)
    torch.testing.assert_close(head(x), x @ head.linear.weight.T + head.linear.bias)


def test_without_classes_vectors_stay_as_they_are():
    vectors = numbers(2, 6)
    assert linear_head(6, 0)(vectors) is vectors


def test_the_mlp_head_has_a_tanh_between_two_layers():
    head, x = mlp_head(6, 4).double(), numbers(2, 6)
    hidden = torch.tanh(x @ head.hidden.weight.T + head.hidden.bias)
    assert hidden.shape == (2, 6)
    torch.testing.assert_close(head(x), hidden @ head.linear.weight.T + head.linear.bias)


def test_the_lecture_head_gives_what_the_notes_compute_on_every_token():
    head, tokens = lecture_head(6, 4).double(), numbers(2, 5, 6)
    every_token = F.gelu(tokens @ head.linear.weight.T + head.linear.bias)
    expected = F.layer_norm(every_token[:, 0], (4,), head.norm.weight, head.norm.bias)
    torch.testing.assert_close(head(tokens[:, 0]), expected)
