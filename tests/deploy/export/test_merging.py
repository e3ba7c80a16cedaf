"""How much merging a drop of accuracy allows."""

import pytest
import torch

from deploy.small import small_model
from vitrail.deploy.export.merging import SHARES, merging, read_merging, schedule, strongest, weaker
from vitrail.errors import ConfigError
from vitrail.models.registry import model_config


def test_the_schedule_merges_a_share_of_the_patches_at_three_places():
    assert schedule(model_config("ViT-Ti/16"), 0.1) == (0, 0, 0, 20, 0, 20, 0, 20, 0, 0, 0, 0)
    assert sum(schedule(model_config("ViT-L/16"), 0.1)) == 60
    assert schedule(model_config("ViT-B/32"), 0) == (0,) * 12


@pytest.mark.parametrize("limit", [0, 0.03, 0.04, 0.13, 0.2, 1])
def test_the_strongest_that_is_allowed_is_found(limit):
    config, tried = model_config("ViT-Ti/16"), []

    def allowed(counts):
        tried.append(counts)
        return max(counts) <= limit * 196

    best = max((share for share in SHARES if round(share * 196) <= limit * 196), default=0)
    assert strongest(config, allowed) == schedule(config, best)
    assert len(tried) <= 4


def test_weaker_schedules_go_down_to_none():
    config = model_config("ViT-Ti/16")
    found = weaker(config, schedule(config, 0.1))
    assert [max(counts) for counts in found] == [20, 16, 12, 8, 0]
    assert weaker(config, schedule(config, 0)) == [(0,) * 12]


def test_a_merging_model_shares_the_weights():
    trained = small_model(embedding="pooled-stem", depth=3)
    merged = merging(trained, (3,))
    assert merged.config.merged == (3, 0, 0) and merged.labels == trained.labels
    own = dict(trained.model.named_parameters())
    assert all(tensor.data_ptr() == own[name].data_ptr() for name, tensor in merged.model.named_parameters())
    with torch.no_grad():
        assert merged.model(torch.randn(2, 3, 32, 32)).shape == (2, 5)


@pytest.mark.parametrize("fields", [{"position": "rotary"}, {"block": "parallel"}])
def test_a_model_without_room_for_merging_says_so(fields):
    with pytest.raises(ConfigError, match="token_merging"):
        merging(small_model(**fields), 3)


def test_words_of_the_command():
    assert (read_merging("auto"), read_merging("8"), read_merging("0,4,4")) == (None, 8, (0, 4, 4))
    with pytest.raises(ConfigError, match="--merge"):
        read_merging("much")
