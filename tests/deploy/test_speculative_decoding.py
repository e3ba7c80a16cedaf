"""The decoder that is laid out for writing says what the model says, whatever drafts for it."""

import pytest
import torch

from vitrail.deploy import speculative_decoding as drafts
from vitrail.deploy.export import packed_linear as matrices
from vitrail.deploy.export.packed_linear import in_blocks, in_int8, plain
from vitrail.deploy.speculative_decoding import Drafted, drafted_copy, fast_copy
from vitrail.models.configs.texts import TransformerConfig
from vitrail.models.registry import create_model
from vitrail.models.text.search import beam_search, greedy
from vitrail.models.text.text_model import TextModel
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


def fast_copies(model: TextModel) -> tuple[TextModel, TextModel]:
    fast = fast_copy(model)
    return fast, drafted_copy(model, fast)


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


@pytest.mark.parametrize("fields", KINDS, ids=str)
@pytest.mark.parametrize("drafted_by", ["int8", "itself", "another"])
def test_what_is_written_is_the_models_own_whoever_drafts(fields, drafted_by):
    model = random_model(**fields)
    draft = {
        "int8": lambda: model.for_writing(in_int8),
        "itself": lambda: model,
        "another": lambda: random_model(**fields).for_writing(lambda w, b: plain(w + 0.2 * torch.randn_like(w), b)),
    }[drafted_by]()
    drafted = Drafted(model.for_writing(in_blocks), draft, 0.4)
    for source in SOURCE[:12, None]:
        for longest in (1, 2, 30):
            same(greedy(drafted, source, max_length=longest), greedy(model, source, max_length=longest))


@pytest.mark.parametrize("failing", [1, 2, 9])
def test_a_draft_that_its_products_cannot_make_is_given_up(failing):
    model, products = random_model(), []

    def failing_product(weight, bias):
        products.append(weight)
        if len(products) == failing + 1:  # the first is the output's
            return lambda x: torch.ops.aten.view(x, [-7])
        return plain(weight, bias)

    drafted = Drafted(model.for_writing(in_blocks), model.for_writing(failing_product), 0.4)
    for source in SOURCE[:3, None]:
        same(greedy(drafted, source, max_length=12), greedy(model, source, max_length=12))


def test_a_good_draft_spares_most_of_the_models_steps():
    model = random_model()
    fast, looks = model.for_writing(plain), []
    drafted = Drafted(fast, model, 0.4)
    steps = fast.steps
    fast.steps = lambda *args: looks.append(0) or steps(*args)  # type: ignore[method-assign]
    greedy(drafted, SOURCE[:1], max_length=40, banned=[0, 1, 2])
    assert 0 < len(looks) <= 5


def test_drafts_in_vain_are_given_up_over_all_texts_until_they_are_right_again():
    model, made = random_model(), []

    class Wrong:
        def step(self, tokens, cache):
            made.append(tokens)
            return torch.eye(60)[None, :1]  # a token that is banned

    drafted = Drafted(model.for_writing(plain), Wrong(), price=0.4)  # type: ignore[arg-type]

    def write_some() -> None:
        for source in SOURCE[:8, None]:
            found, wanted = (greedy(one, source, max_length=50, banned=[0, 1, 2]) for one in (drafted, model))
            same(found, wanted)

    write_some()
    assert 10 < len(made) < (drafts.CREDIT + drafts.SHARE * 8 * 50) / 0.4 + 1 and drafted.count == 1
    drafted.draft = model
    write_some()
    assert drafted.count == drafts.MOST_DRAFTED


def test_a_price_is_the_time_of_a_draft_and_of_its_part_of_a_look(monkeypatch):
    times = iter([1.0, 0.25, 1.4, 1.5, 0.2, 3.0, *[9.0] * 12])
    monkeypatch.setattr(drafts, "_seconds", lambda *_: next(times))
    model = random_model()
    assert drafts._price(model, model) == pytest.approx((8 * 0.2 + 1.4 - 1) / 8)


def test_parameters_are_shared_and_the_model_stays_as_it_is():
    model = random_model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    fast = model.for_writing(in_blocks)
    assert fast.embedding is model.embedding and list(fast.state_dict()) == list(model.state_dict())
    greedy(fast, SOURCE, max_length=3)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model.blocks() is model.decoder


def test_a_product_in_8_bits_is_nearly_the_product():
    random = torch.Generator().manual_seed(0)
    weight, bias, x = (torch.randn(*shape, generator=random) for shape in ((24, 64), (24,), (5, 64)))
    wanted = x @ weight.mT + bias
    assert 0 < (in_int8(weight, bias)(x) - wanted).norm() < 0.02 * wanted.norm()
    torch.testing.assert_close(in_blocks(weight, bias)(x), wanted, rtol=1e-5, atol=1e-5)


def test_drafts_are_made_where_they_are_faster_and_only_of_what_has_products_on_a_cpu(monkeypatch):
    lstm = create_model("LSTM-dot", vocabulary=60, dim=8, hidden_dim=8).eval()
    assert fast_copies(lstm) == (lstm, lstm)
    half = random_model().bfloat16()
    assert fast_copies(half) == (half, half)
    for price in (0.6, 0.7):
        monkeypatch.setattr(drafts, "_price", lambda *_, price=price: price)
        many, one = fast_copies(random_model())
        assert many is not half and isinstance(one, Drafted) == (price < drafts.DEAREST)
    monkeypatch.undo()
    assert fast_copies(random_model())[0] is not None  # with the clock of this machine


def test_without_products_of_the_processor_the_model_writes_alone(monkeypatch):
    def refused(*_):
        raise RuntimeError("no such product")

    monkeypatch.setattr(drafts, "in_int8", refused)
    many, one = fast_copies(random_model())
    assert many is one and not isinstance(one, Drafted)


@pytest.mark.parametrize(
    ("can", "narrow"),
    [
        ({"architecture": "x86_64", "avx2": True}, True),
        ({"architecture": "x86_64", "avx512_vnni": True}, False),
        ({"architecture": "x86_64", "avx_vnni": True}, False),
        ({"architecture": "x86_64", "amx_int8": True}, False),
        ({"architecture": "aarch64"}, False),
    ],
)
def test_inputs_have_7_bits_where_two_products_of_8_do_not_fit_into_what_sums_them(can, narrow, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: can)
    assert matrices.overflows() == narrow
