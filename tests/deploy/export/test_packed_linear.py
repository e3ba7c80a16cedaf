"""The decoder that is laid out for writing writes what the model writes."""

import pytest
import torch

from vitrail.deploy.export.packed_linear import fast_copy, in_blocks, plain
from vitrail.models.configs.texts import TransformerConfig
from vitrail.models.text.search import beam_search, greedy
from vitrail.models.text.transformer import Transformer

KINDS = (
    {},
    {"norm": "pre", "activation": "swiglu"},
    {"norm": "pre", "tied": False, "output_bias": True, "activation": "silu"},
    {"position": "learned", "max_tokens": 30},
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


def same(found, wanted) -> None:
    assert [text.tokens for text in found] == [text.tokens for text in wanted]
    assert [text.score for text in found] == pytest.approx([text.score for text in wanted], rel=1e-4, abs=1e-3)


@pytest.mark.parametrize("matrix", [plain, in_blocks])
@pytest.mark.parametrize("fields", KINDS, ids=str)
def test_it_writes_what_the_model_writes(fields, matrix):
    model = random_model(**fields)
    fast = model.for_writing(matrix)
    same(greedy(fast, SOURCE, max_length=12), greedy(model, SOURCE, max_length=12))
    found, wanted = (beam_search(one, SOURCE, beams=3, max_length=12, best=3) for one in (fast, model))
    for ours, theirs in zip(found, wanted, strict=True):
        same(ours, theirs)


def test_parameters_are_shared_and_the_model_stays_as_it_is():
    model = random_model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    fast = model.for_writing(in_blocks)
    assert fast.embedding is model.embedding and list(fast.state_dict()) == list(model.state_dict())
    greedy(fast, SOURCE, max_length=3)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model.blocks() is model.decoder


def test_only_a_model_in_fp32_on_a_cpu_is_laid_out():
    model, half = random_model(), random_model().bfloat16()
    assert fast_copy(model) is not model and fast_copy(half) is half


def test_without_onednn_the_product_is_torchs_own(monkeypatch):
    def refused(*arguments):
        raise RuntimeError

    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", refused)
    same(greedy(fast_copy(random_model()), SOURCE, max_length=5), greedy(random_model(), SOURCE, max_length=5))
