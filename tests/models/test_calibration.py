"""What was measured on a machine is what its processes compute with."""

import json
from dataclasses import asdict, replace

import pytest
import torch

from vitrail.cli.ship.calibration import LONG, measure_before, measure_once
from vitrail.models.calibration import kernels_of, remember, use_measured
from vitrail.models.inference import for_inference, quickest_precision
from vitrail.models.registry import create_model
from vitrail.parts.cpu import calibration, kernels
from vitrail.parts.cpu.kernels import Kernels, likely
from vitrail.parts.cpu.prepacked import PrepackedLinear
from vitrail.runtime.measurements import keep, kept

FOUND = Kernels(explicit_learning=257, explicit_answering=0, prepacked=False, bf16=False)


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """A process that has computed nothing yet, on a machine where nothing was measured."""
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path))
    monkeypatch.setattr(kernels, "_used", None)
    use_measured.cache_clear()
    yield
    use_measured.cache_clear()


@pytest.mark.usefixtures("fresh")
def test_a_process_computes_with_what_was_measured_or_else_with_what_is_likely():
    use_measured()
    assert kernels.kernels() == likely()
    use_measured.cache_clear()
    keep(asdict(FOUND))
    use_measured()
    assert kernels.kernels() == FOUND
    keep(asdict(replace(FOUND, bf16=True)))
    use_measured()
    assert kernels.kernels() == FOUND, "a process does not change its ways"


@pytest.mark.usefixtures("fresh")
def test_what_is_remembered_is_used_at_once():
    remember(FOUND)
    assert kernels.kernels() == FOUND == kernels_of(kept())


WHOLE = asdict(FOUND)


@pytest.mark.parametrize(
    "values",
    [None, 1, [], {}, "text", {"bf16": True}, WHOLE | {"bf16": 1}, WHOLE | {"explicit_learning": True},
     WHOLE | {"explicit_answering": 1.5}, WHOLE | {"more": 1}],
)  # fmt: skip
def test_only_what_tells_of_kernels_is_taken(values):
    assert kernels_of(json.loads(json.dumps(WHOLE))) == FOUND
    assert kernels_of(values) is None


def test_a_machine_is_measured_once_and_never_by_one_of_several_processes(fresh, monkeypatch, capsys):
    monkeypatch.setattr(calibration, "calibrate", lambda: (FOUND, []))
    monkeypatch.setattr("vitrail.runtime.processor.Others.share", lambda _: None)
    with monkeypatch.context() as other:
        other.setenv("VITRAIL_CACHE", "")
        measure_once()
        other.setenv("VITRAIL_CACHE", "somewhere")
        other.setenv("WORLD_SIZE", "2")
        measure_once()
    assert kept() is None and not capsys.readouterr().err
    measure_once()
    assert kernels_of(kept()) == kernels.kernels() == FOUND and "measuring this machine once" in capsys.readouterr().err
    measure_once()
    assert not capsys.readouterr().err


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("share", [None, 0.05, 0.6])
def test_what_other_programs_disturbed_is_used_and_not_kept(monkeypatch, capsys, share):
    monkeypatch.setattr(calibration, "calibrate", lambda: (FOUND, []))
    monkeypatch.setattr("vitrail.runtime.processor.Others.share", lambda _: share)
    measure_once()
    assert kernels.kernels() == FOUND
    disturbed = share == 0.6
    assert (kept() is None) == disturbed
    assert ("other programs took 60% of the cores' time" in capsys.readouterr().err) == disturbed


@pytest.mark.usefixtures("fresh")
def test_a_machine_is_measured_before_torch_answers_for_many_images_and_for_no_exported_model(monkeypatch, tmp_path):
    monkeypatch.setattr(calibration, "calibrate", lambda: (FOUND, []))
    monkeypatch.setattr("vitrail.runtime.processor.Others.share", lambda _: None)
    exported = tmp_path / "model.onnx"
    exported.touch()
    measure_before(str(exported))
    measure_before("ViT-Ti/16", LONG - 1)
    assert kept() is None
    measure_before("ViT-Ti/16", LONG)
    assert kernels_of(kept()) == FOUND


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("prepacked", [True, False])
def test_a_model_that_answers_is_laid_out_as_the_machine_likes_it(prepacked):
    keep(asdict(replace(FOUND, prepacked=prepacked)))
    model = create_model("ViT-Ti/16", image_size=32, depth=1, num_classes=3).eval()
    answering, images = for_inference(model), torch.rand(2, 3, 32, 32)
    assert any(isinstance(module, PrepackedLinear) for module in answering.modules()) == prepacked
    with torch.inference_mode():
        torch.testing.assert_close(answering(images), model(images), rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("bf16", [True, False])
def test_the_quickest_precision_is_what_was_measured(bf16):
    keep(asdict(replace(FOUND, bf16=bf16)))
    assert quickest_precision(torch.device("cpu")) == ("bf16" if bf16 else "fp32")
