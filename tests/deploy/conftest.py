"""What the tests of exported models share."""

import pytest

from deploy.small import small_model
from vitrail.weights.folder import TrainedModel


@pytest.fixture(scope="session")
def trained() -> TrainedModel:
    return small_model()
