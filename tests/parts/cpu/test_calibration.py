"""A short measurement decides which of several ways is taken, and all ways give the same."""

from dataclasses import replace

import pytest
import torch

from vitrail.parts import attend
from vitrail.parts.cpu import calibration, kernels
from vitrail.parts.cpu.calibration import Timed, calibrate, decided, longest_explicit
from vitrail.parts.cpu.explicit_attention import explicit_is_faster
from vitrail.parts.cpu.kernels import Kernels, likely
from vitrail.parts.cpu.prepacked import packs

LENGTHS = (10, 20, 30, 40)


@pytest.fixture
def known(monkeypatch):
    """Sets what the process computes with, until the test ends."""

    def compute_with(**changed):
        monkeypatch.setattr(kernels, "_used", replace(likely(), **changed))

    return compute_with


def rows(*fused: float) -> list[Timed]:
    return [Timed("attention", length, {"explicit": 1.0, "fused": took}) for length, took in zip(LENGTHS, fused, strict=True)]


@pytest.mark.parametrize(
    ("fused", "longest"),
    [
        ((2, 2, 2, 2), 40),
        ((0.5, 0.5, 0.5, 0.5), 0),
        ((2, 2, 0.5, 0.4), 20),
        ((0.9, 3, 3, 0.5), 30),  # a small loss at the shortest is worth it
        ((0.3, 1.1, 1.1, 1.1), 0),
        ((2, 0.98, 1.5, 1.5), 40),
    ],
)
def test_attention_is_written_out_up_to_the_length_with_the_least_time_in_all(fused, longest):
    assert longest_explicit(rows(*fused)) == longest


@pytest.mark.parametrize("prepacked", [True, False])
@pytest.mark.parametrize("bf16", [True, False])
def test_linear_layers_go_by_what_was_quicker(prepacked, bf16):
    fp32 = Timed("linear", 1, {"plain": 2.0, "prepacked": 1.0 if prepacked else 3.0})
    half = Timed("linear", 1, {name: took * (0.5 if bf16 else 2) for name, took in fp32.milliseconds.items()})
    assert decided(rows(2, 2, 2, 2), rows(2, 0.1, 0.1, 0.1), fp32, half) == Kernels(40, 10, prepacked, bf16)


def measured(monkeypatch, *, bf16: bool, packs: tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16)):
    """The kernels, and the measurements, of a machine that is quicker or slower in bf16, and prepacks these types of weights."""
    times = {torch.float32: 2.0, torch.bfloat16: 1.0 if bf16 else 9.0}

    def linear(dtype: torch.dtype) -> Timed:
        ways = {"plain": times[dtype]} | ({"prepacked": times[dtype] / 2} if dtype in packs else {})
        return Timed(f"linear layer, {dtype}", 197, ways)

    monkeypatch.setattr(calibration, "LENGTHS", (5, 9))
    monkeypatch.setattr(calibration, "_linear", linear)
    return calibrate()


def test_a_machine_is_measured_in_every_way_that_there_is(monkeypatch):
    found, measurements = measured(monkeypatch, bf16=True)
    assert [(row.tokens, set(row.milliseconds)) for row in measurements[:4]] == 2 * [
        (5, {"explicit", "fused"}),
        (9, {"explicit", "fused"}),
    ]
    assert all(took > 0 for row in measurements for took in row.milliseconds.values())
    assert found.explicit_learning in (0, 5, 9) and found.explicit_answering in (0, 5, 9)
    assert found.prepacked and found.bf16


def test_where_bf16_is_slower_attention_in_it_is_neither_measured_nor_written_out(monkeypatch):
    found, measurements = measured(monkeypatch, bf16=False, packs=(torch.float32,))
    assert found == Kernels(0, 0, prepacked=True, bf16=False)
    assert [row.what for row in measurements] == ["linear layer, torch.float32", "linear layer, torch.bfloat16"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_linear_layer_is_timed_in_each_way_that_its_type_has(dtype, monkeypatch):
    assert set(calibration._linear(dtype).milliseconds) == ({"plain", "prepacked"} if packs(dtype) else {"plain"})
    monkeypatch.setattr(calibration, "packs", lambda dtype: False)
    assert set(calibration._linear(dtype).milliseconds) == {"plain"}


@pytest.mark.parametrize("learns", [True, False])
def test_attention_goes_by_the_machine_and_is_the_same_either_way(learns, known):
    random = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, 20, 8, generator=random).bfloat16().requires_grad_(learns) for _ in range(3))
    found = []
    for most in (19, 20):
        known(explicit_learning=most if learns else 0, explicit_answering=0 if learns else most)
        assert explicit_is_faster(q, k) == (most == 20)
        found.append(attend(q, k, v).float())
    torch.testing.assert_close(*found, rtol=0.02, atol=0.02)
    known(explicit_learning=10**6, explicit_answering=10**6)
    assert not explicit_is_faster(q.float(), k.float())


@pytest.mark.parametrize(
    ("can", "expected"),
    [
        ({"avx2": True}, Kernels(0, 0, prepacked=True, bf16=False)),
        ({"avx512_bf16": True}, Kernels(1024, 1024, prepacked=True, bf16=True)),
        ({"amx_tile": True, "amx_bf16": True}, Kernels(1024, 40, prepacked=True, bf16=True)),
    ],
    ids=["plain", "bf16", "tiles"],
)
def test_where_nothing_is_measured_the_instructions_of_the_processor_decide(can, expected, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: can)
    assert likely() == expected
