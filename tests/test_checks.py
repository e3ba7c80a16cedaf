"""Refusals that many settings share."""

import math

import pytest

from vitrail.checks import require_not_negative, require_positive
from vitrail.errors import ConfigError


@pytest.mark.parametrize("require", [require_positive, require_not_negative])
def test_what_is_no_number_is_in_no_range(require):
    with pytest.raises(ConfigError, match="--max-drop is nan"):
        require(**{"--max-drop": math.nan})
