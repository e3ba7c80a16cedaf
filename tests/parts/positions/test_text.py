"""Positions of the tokens of a text, against the formula and Marian's."""

import numpy as np
import pytest
import torch

from vitrail.errors import ConfigError
from vitrail.parts import LearnedSequencePosition, SequencePosition
from vitrail.parts.positions.schemes import sincos_1d


@pytest.mark.parametrize("length", [5, 64, 200])
def test_positions_of_a_text_go_on_where_the_tokens_before_ended_and_marians_are_halves(length):
    from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

    x = torch.zeros(2, length, 12)
    whole = SequencePosition(12)(x)
    torch.testing.assert_close(whole[0], torch.from_numpy(sincos_1d(np.arange(length), 12)).float())
    torch.testing.assert_close(SequencePosition(12)(x[:, 3:], offset=3), whole[:, 3:])
    theirs = MarianSinusoidalPositionalEmbedding(length, 12).create_weight()
    torch.testing.assert_close(SequencePosition(12, halves=True)(x)[0], theirs)


def test_learned_positions_are_rows_of_a_table_and_a_text_that_is_longer_is_refused():
    position, x = LearnedSequencePosition(12, 7), torch.randn(2, 4, 12)
    torch.testing.assert_close(position(x, offset=3), x + position.embedding[3:7])
    with pytest.raises(ConfigError, match="positions for 7"):
        position(x, offset=4)
