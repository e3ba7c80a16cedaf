import pytest
import torch

import vitrail
from vitrail.errors import ConfigError
from vitrail.parts.attention import attention as attention_part
from vitrail.study.maps.attention import (
    attention_map,
    head_maps,
    reading_map,
    relevance_map,
    relevance_of,
    roll_out,
    rollout_map,
)
from vitrail.study.maps.captures import capture
from vitrail.study.maps.distance import mean_attention_distances

TINY = {"image_size": (24, 16), "patch_size": 4, "dim": 16, "depth": 3, "heads": 2, "mlp_dim": 32, "num_classes": 5}
KINDS = [
    {},
    {"registers": 2, "position": "rotary"},
    {"pool": "mean", "position": "relative"},
    {"distillation_token": True},
    {"pool": "class+mean", "block": "parallel"},
    {"pool": "attention"},
]


def tiny(**fields):
    return vitrail.create_model("ViT-Ti/4", **{**TINY, **fields}).eval()


def images(count=2):
    return torch.randn(count, 3, 24, 16)


def all_weights(model, batch):
    with torch.no_grad(), capture(model, "**.attention.weights") as seen:
        model(batch)
    return list(seen.values())


def test_rollout_by_hand():
    first = torch.tensor([[[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]]])  # mean of two heads: all 1/2
    second = torch.tensor([[[[0.2, 0.8], [1.0, 0.0]], [[0.2, 0.8], [1.0, 0.0]]]])
    # mixed with the identity: [[.75, .25], [.25, .75]] and [[.6, .4], [.5, .5]]
    expected = torch.tensor([[[0.6 * 0.75 + 0.4 * 0.25, 0.6 * 0.25 + 0.4 * 0.75], [0.5, 0.5]]])
    torch.testing.assert_close(roll_out([first, second]), expected)


def test_relevance_by_hand():
    weights = torch.tensor([[[[0.5, 0.5], [0.25, 0.75]]]])
    gradients = torch.tensor([[[[2.0, -1.0], [4.0, 0.0]]]])
    # (∇A ⊙ A)⁺ = [[1, 0], [1, 0]]; R = I + that; then once more
    once = relevance_of(None, weights, gradients)
    torch.testing.assert_close(once, torch.tensor([[[2.0, 0.0], [1.0, 1.0]]]))
    torch.testing.assert_close(relevance_of(once, weights, gradients), torch.tensor([[[4.0, 0.0], [3.0, 1.0]]]))


@pytest.mark.parametrize("fields", KINDS, ids=str)
def test_relevance_equals_autograd_through_weights_that_are_written_out(fields, monkeypatch):
    model, batch = tiny(**fields), images()
    found = relevance_map(model, batch)
    kept: list[torch.Tensor] = []

    def written_out(query, key, value, *, mask=None, bias=None, causal=False, dropout=0.0, scale=None):
        weights = attention_part.attention_weights(query, key, mask=mask, bias=bias, scale=scale)
        kept.append(weights)
        return weights @ value

    monkeypatch.setattr(attention_part, "attend", written_out)
    model.tokens_read = None
    logits = model(batch)
    gradients = torch.autograd.grad(logits.max(dim=1).values.sum(), kept)
    c, n = model.config, 24 + model.config.prefix
    relevance = torch.eye(n).expand(2, n, n)
    for weights, gradient in zip(kept, gradients, strict=True):
        steered = (weights * gradient).clamp(min=0).mean(dim=1)
        if steered.shape[1] == n:
            relevance = relevance + steered @ relevance
        else:
            gained = relevance - torch.eye(n)
            relevance = steered @ (gained / gained.sum(dim=-1, keepdim=True) + torch.eye(n))
    by_token = {
        "class": relevance[:, : 1 + c.distillation_token].mean(dim=1),
        "mean": relevance[:, c.prefix :].mean(dim=1),
        "class+mean": (relevance[:, 0] + relevance[:, c.prefix :].mean(dim=1)) / 2,
        "attention": relevance[:, 0],
    }[c.pool]
    torch.testing.assert_close(found.flatten(1), by_token[:, c.prefix :], atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("method", [attention_map, reading_map, head_maps, rollout_map, relevance_map])
def test_maps_want_a_model_that_answers(method):
    with pytest.raises(ConfigError, match=r"model.eval\(\)"):
        method(tiny(patch_dropout=0.5).train(), images())


@pytest.mark.parametrize("method", [attention_map, reading_map, head_maps, rollout_map, relevance_map])
def test_maps_take_what_has_a_model_inside_and_work_where_nothing_is_learned(method):
    model, batch = tiny(), images()
    trained = vitrail.TrainedModel(model, list("abcde"), vitrail.Preparation.standard((24, 16)))
    expected = method(model, batch)
    with torch.inference_mode():
        torch.testing.assert_close(method(trained, batch.clone()), expected)


def test_a_model_that_gives_vectors_has_no_relevance():
    with pytest.raises(ConfigError, match="relevance needs a model with classes"):
        relevance_map(tiny(num_classes=0), images())


def test_a_map_is_the_row_of_its_query_head_and_layer_without_registers():
    model, batch = tiny(registers=2), images()
    weights = all_weights(model, batch)
    found = attention_map(model, batch, layer=1, head=0, query=(5, 2))
    torch.testing.assert_close(found, weights[1][:, 0, 3 + 5 * 4 + 2, 3:].unflatten(1, (6, 4)))
    torch.testing.assert_close(attention_map(model, batch), weights[-1].mean(dim=1)[:, 0, 3:].unflatten(1, (6, 4)))
    torch.testing.assert_close(attention_map(model, batch, layer=-3), weights[0].mean(dim=1)[:, 0, 3:].unflatten(1, (6, 4)))


def test_maps_of_all_heads_are_the_maps_of_each():
    model, batch = tiny(registers=1), images()
    found = head_maps(model, batch)
    assert found.shape == (2, 3, 2, 6, 4)
    for layer in range(3):
        for head in range(2):
            torch.testing.assert_close(found[:, layer, head], attention_map(model, batch, layer=layer, head=head))


@pytest.mark.parametrize("wrong", [{"layer": 3}, {"head": 2}, {"query": (6, 0)}, {"query": (0, 4)}, {"layer": -4}])
def test_what_the_model_does_not_have_is_refused(wrong):
    with pytest.raises(ConfigError, match=r"\d of \d"):
        attention_map(tiny(), images(), **wrong)


@pytest.mark.parametrize("fields", KINDS, ids=str)
def test_a_rollout_map_is_the_rollout_of_what_the_model_reads(fields):
    model, batch = tiny(**fields), images()
    *layers, last = all_weights(model, batch)
    c = model.config
    if c.pool == "attention":
        row = torch.einsum("bn,bnm->bm", last.mean(dim=1)[:, 0], roll_out(layers))
    else:
        rolled = roll_out([*layers, last])
        patches = rolled[:, c.prefix :].mean(dim=1)
        row = {
            "class": rolled[:, : 1 + c.distillation_token].mean(dim=1),
            "mean": patches,
            "class+mean": (rolled[:, 0] + patches) / 2,
        }[c.pool]
    torch.testing.assert_close(rollout_map(model, batch), row[:, c.prefix :].unflatten(1, c.grid))


@pytest.mark.parametrize("name", ["T2T-ViT-7", "TNT-S"])
@pytest.mark.parametrize("of", [attention_map, head_maps, rollout_map, relevance_map, mean_attention_distances])
def test_images_of_another_size_are_refused_by_models_that_take_any(name, of):
    model = vitrail.create_model(name, image_size=32, depth=2, num_classes=3).eval()
    assert of(model, torch.randn(1, 3, 32, 32)).isfinite().all()
    with pytest.raises(ConfigError, match="images of 64×64") as error:
        of(model, torch.randn(1, 3, 64, 64))
    assert error.value.hint == "give images of 32×32, or build the model anew: from_pretrained(…, image_size=(64, 64))"
