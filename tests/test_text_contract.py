"""Promises of the library for every architecture that writes texts. They are found in the table."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from recomputed import require_the_same
from vitrail.models.configs.texts import TextConfig
from vitrail.models.cost import cost, totals
from vitrail.models.empty import empty_model
from vitrail.models.inference import for_inference
from vitrail.models.registry import ARCHITECTURES, ROWS, architecture_of, build
from vitrail.models.text.search import beam_search, greedy
from vitrail.models.text.text_model import TextModel
from vitrail.training.loop.optimizer import layers_above

ENCODER = {"image_size": 8, "patch_size": 4, "dim": 12, "depth": 1, "heads": 2, "mlp_dim": 24}
TINY = {
    "Transformer": [
        {"dim": 16, "depth": 2, "decoder_depth": 2, "heads": 2, "mlp_dim": 24, **more}
        for more in ({}, {"norm": "pre", "tied": False, "output_bias": True, "activation": "swiglu"}, {"position": "learned"})
    ],
    "Recurrent": [
        {"dim": 16, "hidden_dim": 24, "depth": 2, **more}
        for more in ({"attention": "none"}, {"attention": "additive", "alignment_dim": 7}, {"attention": "dot"})
    ],
    "Captioner": [
        {"dim": 16, "decoder_depth": 2, "heads": 2, "mlp_dim": 24, "norm": "pre", "encoder": ENCODER},
        {
            "dim": 16,
            "decoder_depth": 1,
            "heads": 4,
            "mlp_dim": 24,
            "position": "learned",
            "scale_embedding": False,
            "encoder": {**ENCODER, "class_token": False},
        },
    ],
    "RecurrentCaptioner": [
        {"dim": 16, "hidden_dim": 24, "depth": depth, "attention": kind, "encoder": ENCODER}
        for depth, kind in ((1, "additive"), (2, "none"), (2, "dot"))
    ],
}
"""Small models of every architecture."""
OF_TEXTS = [row.name for row in ROWS if issubclass(row.config, TextConfig)]

PAD, START, END = 0, 1, 2
SOURCE = torch.tensor([[5, 6, 7, 8, END], [9, 4, END, PAD, PAD], [END, PAD, PAD, PAD, PAD]])
IMAGES = torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
TARGET = torch.tensor([[START, 8, 7, 6, 5, 4, 3], [START, 9, 9, END, PAD, PAD, PAD], [START, 3, 4, 5, 6, END, PAD]])


def source_of(model: TextModel) -> torch.Tensor:
    """Three sources that a model takes."""
    return SOURCE if model.config.reads == "texts" else IMAGES


@pytest.fixture(params=[(name, fields) for name in OF_TEXTS for fields in TINY[name]], ids=lambda kind: f"{kind[0]} {kind[1]}")
def model(request) -> TextModel:
    """With fresh weights, none of them zero."""
    name, fields = request.param
    torch.manual_seed(0)
    found = build(ARCHITECTURES[name].config.read({"vocabulary": 12, **fields}))
    for parameter in found.parameters():
        if not parameter.any():
            nn.init.normal_(parameter, std=0.1)
    return found.eval()


def test_every_architecture_of_texts_has_small_models_here():
    assert set(OF_TEXTS) <= set(TINY)


def test_the_model_is_the_class_of_its_row(model):
    row = architecture_of(model.config)
    assert isinstance(model, TextModel) and type(model).__name__ == row.name
    assert type(model).__module__ == f"vitrail.models.{row.module}"
    assert row.config.read(model.config.model_dump(mode="json")) == model.config


def test_layers_and_heads_are_parts_of_the_model_in_the_order_of_its_parameters(model):
    assert len(model.layers()) > 1 and {*model.layers(), *model.heads().values()} <= set(model.modules())
    tensors = [tensor for layer in model.layers() for tensor in layer.parameters()]
    assert len(tensors) == len(set(tensors))
    assert all(model.get_submodule(name) is head for name, head in model.heads().items())
    above = list(layers_above(model).values())
    assert above == sorted(above, reverse=True)


@pytest.mark.parametrize("dtype", [None, torch.bfloat16], ids=["fp32", "bf16"])
def test_layers_that_are_computed_again_keep_less_and_learn_the_same_to_the_bit(model, dtype):
    require_the_same(model, source_of(model), TARGET, dtype=dtype)


def test_inputs_and_outputs_have_the_shapes_that_are_told(model):
    source = "(batch, source_length)" if model.config.reads == "texts" else "(batch, 3, 8, 8)"
    assert {name: str(shape) for name, shape in model.inputs().items()} == {"source": source, "target": "(batch, target_length)"}
    ((name, shape),) = model.outputs().items()
    lengths = {"batch": 5, "source_length": 4, "target_length": 7}
    found = empty_model(model.config).to("meta")(**model.dummy_inputs(**lengths))
    assert name == "logits" and found.shape == shape.zeros(**lengths).shape == (5, 7, 12)


def test_a_model_for_inference_takes_its_inputs_and_answers_alike(model):
    given = {"source": source_of(model), "target": TARGET}
    with torch.inference_mode():
        torch.testing.assert_close(for_inference(model)(**given), model(**given), atol=1e-5, rtol=1e-5)


def test_cost_is_that_of_the_model(model):
    found = cost(model.config)
    assert found.parameters == sum(p.numel() for p in model.parameters()) and found.macs > 0
    assert totals(model.config) == (found.parameters, found.macs)


def test_a_later_token_changes_no_earlier_logit_and_every_earlier_one_counts(model):
    before = model(source_of(model), TARGET)
    for place in range(1, TARGET.shape[1]):
        other = TARGET.clone()
        other[:, place] = 10
        changed = model(source_of(model), other)
        torch.testing.assert_close(changed[:, :place], before[:, :place], rtol=0, atol=1e-6)
        assert ((changed - before)[:, place:].abs().amax(-1) > 1e-6).all()


def test_every_token_of_the_source_counts_and_filling_does_not(model):
    if model.config.reads == "images":
        before = model(IMAGES, TARGET)
        for row, column in itertools.product((slice(0, 4), slice(4, 8)), repeat=2):
            other = IMAGES.clone()
            other[:, :, row, column] = 0
            assert ((model(other, TARGET) - before).abs().amax(-1) > 1e-6).all()
        return
    before = model(SOURCE, TARGET)
    for place in range(3):
        other = SOURCE[:1].clone()
        other[:, place] = 10
        assert ((model(other, TARGET[:1]) - before[:1]).abs().amax(-1) > 1e-6).all()
    torch.testing.assert_close(model(F.pad(SOURCE, (0, 4), value=PAD), TARGET), before, rtol=1e-5, atol=1e-5)
    for row, source in enumerate(SOURCE):
        alone = model(source[source != PAD][None], TARGET[row : row + 1])
        torch.testing.assert_close(alone, before[row : row + 1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("when", [0, 2])
def test_token_by_token_it_says_what_it_says_at_once_of_any_rows_in_any_order(model, when):
    rows = torch.tensor([2, 0, 2, 1])
    with torch.inference_mode():
        expected = model(source_of(model), TARGET)
        state = model.begin(model.encode(source_of(model)))
        found = [model.step(token, state) for token in TARGET[:, :when, None].unbind(1)]
        state.select(rows)
        rest = [model.step(token, state) for token in TARGET[rows, when:].split(1, dim=1)]
    torch.testing.assert_close(torch.cat(rest, dim=1), expected[rows, when:], rtol=1e-5, atol=1e-5)
    for length, logits in enumerate(found):
        torch.testing.assert_close(logits[:, 0], expected[:, length], rtol=1e-5, atol=1e-5)


def test_several_targets_of_each_source_go_on_from_each_other_as_if_each_had_been_alone(model):
    """Widths grow and shrink, targets end and share their beginnings, and sources leave in between."""
    random = torch.Generator().manual_seed(0)
    sources, targets = source_of(model), [[[]] for _ in SOURCE]
    with torch.inference_mode():
        state = model.begin(model.encode(sources))
        for width in (1, 3, 2, 4, 4, 1, 2):
            parents = torch.randint(len(targets[0]), (len(targets), width), generator=random)
            if width > 1 or len(targets[0]) > 1:
                state.follow(parents)
            tokens = torch.randint(3, 11, (len(targets), width), generator=random)
            targets = [
                [[*texts[parent], token] for parent, token in zip(row, added, strict=True)]
                for texts, row, added in zip(targets, parents.tolist(), tokens.tolist(), strict=True)
            ]
            found = model.step(tokens, state)
            for source, texts, logits in zip(sources, targets, found, strict=True):
                expected = model(source.expand(width, *source.shape), torch.tensor(texts))[:, -1]
                torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
            if width == 4 and len(targets) == 3:
                state.select(torch.tensor([2, 0]))
                sources, targets = sources[[2, 0]], [targets[2], targets[0]]


def test_the_alignment_shares_every_token_among_those_of_the_source(model):
    weights = model.alignment(source_of(model), TARGET)
    if weights is None:
        return
    assert weights.shape[:2] == (3, 7) and (weights >= 0).all()
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(3, 7))
    assert model.config.reads == "images" or not weights.mT[SOURCE == PAD].any()


def test_in_half_precision_it_says_nearly_the_same(model):
    expected = model(source_of(model), TARGET)
    with torch.autocast("cpu", torch.bfloat16):
        found = model(source_of(model), TARGET).float()
    assert (found - expected).norm() < 0.03 * expected.norm()


def test_a_fresh_model_thinks_all_tokens_about_as_likely():
    for name in OF_TEXTS:
        for fields in TINY[name]:
            torch.manual_seed(0)
            fresh = build(ARCHITECTURES[name].config.read({**fields, "vocabulary": 500, "dim": 64})).eval()
            target = torch.randint(3, 500, (8, 20))
            source = target.flip(0) if fresh.config.reads == "texts" else torch.randn(8, 3, 8, 8)
            loss = F.cross_entropy(fresh(source, target.flip(0)).flatten(0, 1), target.flatten())
            assert abs(loss.item() - math.log(500)) < 1.5


def test_dropout_acts_in_training_alone(model):
    assert torch.equal(model(source_of(model), TARGET), model(source_of(model), TARGET))
    model.train()
    assert not torch.equal(model(source_of(model), TARGET), model(source_of(model), TARGET))


def test_it_learns_texts_by_heart_and_writes_them(model):
    """Every parameter has a part in it."""
    labels = torch.cat([TARGET[:, 1:], torch.tensor([[END], [PAD], [PAD]])], dim=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(80):
        loss = F.cross_entropy(model(source_of(model), TARGET).flatten(0, 1), labels.flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())
    expected = [[8, 7, 6, 5, 4, 3], [9, 9], [3, 4, 5, 6]]
    for texts in (
        greedy(model, source_of(model), max_length=9),
        [best for (best,) in beam_search(model, source_of(model), beams=3, max_length=9)],
    ):
        assert [text.tokens for text in texts] == expected and all(text.finished for text in texts)
        assert min(text.score for text in texts) > -1


def test_several_targets_of_each_source_are_what_each_is_alone(model):
    several = torch.stack([TARGET, TARGET.flip(0), TARGET.roll(1, 0)], dim=1)  # (3, 3, 7)
    source = source_of(model)
    expected = torch.stack([model(source, several[:, number]) for number in range(3)], dim=1)
    torch.testing.assert_close(model(source, several), expected, rtol=1e-5, atol=1e-5)


def test_a_search_takes_what_is_encoded_already(model, monkeypatch):
    source = source_of(model)
    encoded = [model.encode(source) for _ in range(2)]
    expected = greedy(model, source, max_length=5), beam_search(model, source, beams=2, max_length=5)
    monkeypatch.setattr(model, "encode", None)
    found = (
        greedy(model, source, max_length=5, encoded=encoded[0]),
        beam_search(model, source, beams=2, max_length=5, encoded=encoded[1]),
    )
    for texts, others in zip((found[0], *found[1]), (expected[0], *expected[1]), strict=True):
        assert [text.tokens for text in texts] == [text.tokens for text in others]
        assert [text.score for text in texts] == pytest.approx([text.score for text in others], rel=1e-5)
