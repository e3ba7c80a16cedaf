"""What the tests of exported models share."""

import pytest
from server_running import tiny

from deploy.small import small_model
from vitrail import serving
from vitrail.weights.folder import TrainedModel


@pytest.fixture(scope="session")
def trained() -> TrainedModel:
    return small_model()


@pytest.fixture(scope="module")
def model() -> TrainedModel:
    """What a server answers with."""
    return tiny()


@pytest.fixture(scope="module")
def look(model):
    """What tells where it looks."""
    found, _ = serving._look_of(model)
    return found
