"""Models without numbers are made at once."""

import subprocess
import sys

PROGRAM = """
import sys
from vitrail.models.empty import empty_model
from vitrail.models.registry import ROWS, model_config
for row in ROWS:
    name = next(iter(row.presets))
    empty_model(model_config(name))
    assert "torch._dynamo" not in sys.modules, name
"""


def test_an_empty_model_of_no_architecture_imports_a_compiler():
    """It takes seconds to import, and every run begins with an empty model."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
