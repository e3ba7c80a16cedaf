"""A configuration may be a stranger's, too."""

import pytest

from vitrail.errors import ConfigError
from vitrail.training.configuration import read_yaml
from vitrail.training.request import Request


@pytest.mark.parametrize("layer", ["[{}]", "{{<<: [{}]}}"])
def test_a_few_lines_of_yaml_do_not_become_gigabytes(layer, tmp_path):
    layers = [f"x{n}: &x{n} {layer.format(', '.join([f'*x{n - 1}'] * 9))}" for n in range(1, 12)]
    file = tmp_path / "config.yaml"
    file.write_text("\n".join(["x0: &x0 {a: b}", *layers, "model: {name: *x11}"]))
    with pytest.raises(ConfigError, match="more than 100,000 values") as error:
        read_yaml(file)
    assert error.value.where == file


def test_values_of_yaml_may_be_shared_and_never_hold_themselves(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("model: &m {name: ViT-Ti/16}\nother: {<<: *m}\n")
    assert read_yaml(file) == {"model": {"name": "ViT-Ti/16"}, "other": {"name": "ViT-Ti/16"}}
    file.write_text("model: &m {name: *m}\n")
    with pytest.raises(ConfigError, match="more than 100,000 values"):
        read_yaml(file)


def test_where_another_run_was_extended_is_not_taken_over_with_its_file(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("schedule: {extended_at: [3, 30], name: linear}\ndata: {source: digits}\nmodel: {name: ViT-Ti/16}\n")
    settings = Request.read(None, file, {}).settings()
    assert settings.schedule.extended_at == (0, 0) and settings.schedule.name == "linear"
