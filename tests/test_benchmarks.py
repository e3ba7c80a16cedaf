"""Benchmarks measure on images that chose nothing, and their error counts photographs, not views."""

import importlib
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

import vitrail


@pytest.fixture
def deployed(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    monkeypatch.setattr("peers.declare_operators", lambda: None)  # conftest has done it, and torch lets it be done once
    return importlib.import_module("deployed")


@pytest.fixture
def table(deployed, tmp_path):
    """Views of twelve photographs, each of one grey."""
    for number in range(12):
        (tmp_path / "photos" / str(number % 3)).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 30), (number,) * 3).save(tmp_path / "photos" / str(number % 3) / f"{number}.png")
    return deployed.write_views(vitrail.open_data(tmp_path / "photos"), tmp_path / "views")


def photographs(items):
    return [int(np.asarray(Image.open(item.image))[0, 0, 0]) for item in items]


def test_a_photograph_is_seen_whole_corners_centre_and_mirrored(deployed):
    picture = Image.fromarray(np.arange(40 * 80, dtype=np.uint16).reshape(40, 80).astype(np.uint8))
    found = list(deployed.views(picture))
    assert len(found) == deployed.VIEWS
    assert [view.size for view in found] == [(70, 35)] * 10 + [(60, 30)] * 10
    assert len({view.tobytes() for view in found}) == deployed.VIEWS
    assert np.array_equal(found[0], np.asarray(picture)[:35, :70]) and np.array_equal(found[1], np.asarray(found[0])[:, ::-1])
    assert np.array_equal(found[6], np.asarray(picture)[5:, 10:])


def test_no_photograph_has_views_in_two_splits(deployed, table):
    data = vitrail.open_data(table)
    seen = {split: photographs(items) for split, items in data.splits.items()}
    assert {split: len(set(own)) for split, own in seen.items()} == {"train": 3, "val": 3, "test": 6}
    assert len(set().union(*seen.values())) == 12
    assert [item.target for item in data.split("all")] == [number % 3 for number in photographs(data.split("all"))]
    for own in seen.values():  # the views of a photograph stand beside each other, and are counted together
        assert all(len(set(own[i : i + deployed.VIEWS])) == 1 for i in range(0, len(own), deployed.VIEWS))


def test_the_difference_is_paired_and_its_error_that_of_photographs(deployed, monkeypatch):
    labels, first = torch.zeros(6, dtype=torch.long), torch.tensor([0, 0, 0, 0, 1, 1])
    answers = {"timm fp32": first, "ours": torch.tensor([0, 1, 0, 0, 0, 0])}

    def evaluated(way, *args, **kw):
        return SimpleNamespace(logits=torch.eye(2)[answers[way]], labels=labels), "test"

    monkeypatch.setattr(vitrail.api, "evaluate", evaluated)
    found = deployed.accuracies({name: name for name in answers}, "photographs", 2)
    points = [-50.0, 0.0, 100.0]  # of the three photographs, two views each
    error = np.std(points, ddof=1) / math.sqrt(3)
    assert found["timm fp32"] == ["66.67 %", "+0.00 ± 0.00"]
    assert found["ours"] == ["83.33 %", f"{np.mean(points):+.2f} ± {error:.2f}"]


# Noise and differences


@pytest.fixture
def side_by_side(deployed):
    return importlib.import_module("side_by_side")


def test_a_ratio_is_taken_within_each_round_and_told_with_its_spread(side_by_side):
    slower_and_slower = [1.0, 2.0, 4.0, 8.0, 16.0]
    times = {"reference": slower_and_slower, "twice as fast": [took / 2 for took in slower_and_slower]}
    measured = side_by_side.Measured(times | {"uneven": [1.0, 1.0, 2.0, 2.0, 2.0]}, None)
    assert measured.ratio("twice as fast", "reference") == "2.00 (2.00–2.00)"
    assert measured.ratio("uneven", "reference") == "2.00 (2.00–4.00)"


def test_contenders_take_turns_in_the_opposite_order_every_second_round(side_by_side):
    calls = []
    works = {name: lambda name=name: calls.append(name) for name in ("first", "second")}
    measured = side_by_side.measure(works, rounds=3, at_least=1e-9)
    assert calls == ["first", "second", *("first", "second"), *("second", "first"), *("first", "second")]
    assert {len(times) for times in measured.rounds.values()} == {3}


def test_a_busy_machine_is_marked(side_by_side):
    assert side_by_side.note(0.02, None) == "Meanwhile other programs took 2% of the cores' time.\n"
    assert side_by_side.note(0.02, 0.3).startswith("**Meanwhile other programs took 30%")
    assert "not known" in side_by_side.note(None)


def test_every_processor_has_a_page_which_the_index_links_to(side_by_side, tmp_path):
    everything = importlib.import_module("everything")
    for machine in ("AMD EPYC, 2 threads", "Intel(R) Xeon(R) @ 2.10GHz, 8 threads", "AMD EPYC, 2 threads"):
        everything.write(machine, "figures\n", tmp_path)
    pages = {page.name for page in (tmp_path / "benchmarks").iterdir()}
    assert pages == {"amd-epyc-2-threads.md", "intel-r-xeon-r-2-10ghz-8-threads.md"}
    index = (tmp_path / "benchmarks.md").read_text()
    assert index.startswith("# Benchmarks\n")
    assert index.endswith(
        "- [AMD EPYC, 2 threads](benchmarks/amd-epyc-2-threads.md)\n"
        "- [Intel(R) Xeon(R) @ 2.10GHz, 8 threads](benchmarks/intel-r-xeon-r-2-10ghz-8-threads.md)\n"
    )


def test_the_index_of_the_documents_is_as_it_would_be_written(side_by_side, tmp_path):
    everything = importlib.import_module("everything")
    for page in (everything.DOCS / "benchmarks").glob("*.md"):
        title, text = page.read_text(encoding="utf-8").split("\n\n", 1)
        assert page.name == everything.page_of(title.lstrip("# "))
        everything.write(title.lstrip("# "), text, tmp_path)
    assert (tmp_path / "benchmarks.md").read_text() == (everything.DOCS / "benchmarks.md").read_text()


# GPUs


@pytest.fixture
def gpu(deployed):
    return importlib.import_module("gpu")


def test_operations_are_a_share_of_what_the_card_can_do(gpu):
    assert gpu.share_of_peak("NVIDIA H100 80GB HBM3", 494.5e12) == "494 (50%)"
    assert gpu.share_of_peak("NVIDIA H100 PCIe", 378e12) == "378 (50%)"
    assert gpu.share_of_peak("a card of tomorrow", 1e12) == "1"


def test_the_kernels_of_a_step_are_sorted_by_time_and_summed(gpu):
    large, small = torch.randn(400, 400), torch.randn(4, 4)

    def work() -> None:
        for _ in range(3):
            torch.mm(large, large)
        torch.add(small, small)

    rows = [line.split("|")[1:-1] for line in gpu.kernels(work, torch.profiler.ProfilerActivity.CPU).splitlines() if "|" in line]
    cells = {name.strip(): [cell.strip() for cell in cells] for name, *cells in rows}
    assert cells["aten::mm"][2] == "3" and cells["aten::add"][2] == "1"
    assert float(cells["aten::mm"][0]) >= float(cells["aten::add"][0])
    assert int(cells["all"][2]) >= 4 and list(cells)[-1] == "all"
