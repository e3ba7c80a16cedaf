"""The decoder that is laid out for writing writes the model's own texts."""

import pytest
import torch

from vitrail.deploy.export.packed_linear import in_blocks
from vitrail.deploy.fast_writing import fast_copy
from vitrail.models.configs.texts import TransformerConfig
from vitrail.models.registry import create_model
from vitrail.models.text.search import beam_search, greedy
from vitrail.models.text.transformer import Transformer

KINDS = (
    {"norm": "pre", "activation": "swiglu", "position": "learned", "max_tokens": 30},
    {"norm": "pre", "tied": False, "output_bias": True, "activation": "silu"},
    {"position": "sincos-halves", "scale_embedding": False, "activation": "gelu", "norm_eps": 1e-3},
)
SOURCE = torch.randint(3, 60, (40, 7), generator=torch.Generator().manual_seed(0))
SOURCE[::3, 5:] = 0


def random_model(**fields) -> Transformer:
    torch.manual_seed(1)
    model = Transformer(TransformerConfig(vocabulary=60, dim=32, depth=1, decoder_depth=2, heads=2, mlp_dim=48, **fields)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.mark.parametrize("fields", KINDS, ids=str)
def test_it_writes_what_the_model_writes(fields):
    model = random_model(**fields)
    fast = fast_copy(model)
    assert fast is not model
    searches = (
        lambda one: greedy(one, SOURCE, max_length=12),
        lambda one: greedy(one, SOURCE[:1], max_length=12),
        lambda one: [text for best in beam_search(one, SOURCE, beams=3, max_length=12, best=3) for text in best],
    )
    for search in searches:
        texts, expected = search(fast), search(model)
        assert [text.tokens for text in texts] == [text.tokens for text in expected]
        assert [text.score for text in texts] == pytest.approx([text.score for text in expected], rel=1e-4, abs=1e-3)


def test_parameters_are_shared_and_the_model_stays_as_it_is():
    model = random_model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    fast = model.for_writing(in_blocks)
    assert fast.embedding is model.embedding and list(fast.state_dict()) == list(model.state_dict())
    greedy(fast, SOURCE, max_length=3)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model.blocks() is model.decoder


def test_a_product_in_blocks_is_the_product():
    random = torch.Generator().manual_seed(0)
    weight, bias, x = (torch.randn(*shape, generator=random) for shape in ((24, 64), (24,), (5, 64)))
    torch.testing.assert_close(in_blocks(weight, bias)(x), x @ weight.mT + bias, rtol=1e-5, atol=1e-5)


def test_a_copy_is_only_made_of_what_has_products_on_a_cpu():
    lstm, half = create_model("LSTM-dot", vocabulary=60, dim=8, hidden_dim=8).eval(), random_model().bfloat16()
    assert fast_copy(lstm) is lstm and fast_copy(half) is half


def test_without_onednn_the_product_is_torchs_own(monkeypatch):
    def refused(*arguments):
        raise RuntimeError

    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", refused)
    written, expected = (greedy(one, SOURCE, max_length=5) for one in (fast_copy(random_model()), random_model()))
    assert [text.tokens for text in written] == [text.tokens for text in expected]
