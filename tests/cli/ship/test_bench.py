"""``vitrail bench``: its table, whose numbers `tests/deploy/bench` measures."""


def test_a_row_for_each_engine_is_printed_and_the_recommended_one_last(vitrail, monkeypatch):
    numbers = {"batch": 4, "threads": 2, "latency_ms": 8.0, "latency_p90_ms": 9.5, "latency_p99_ms": 11.0, "memory_mb": 60.4}
    slow = {"name": "torch fp32", "engine": "torch", "precision": "fp32", "images_per_second": 250.0, "top1": 0.875, **numbers}
    quick = {**slow, "name": "openvino int8", "engine": "openvino", "precision": "int8", "images_per_second": 500.0}
    measured = {"rows": [slow, quick], "recommended": {**quick, "times": 2.0, "beside": "torch fp32"}}
    monkeypatch.setattr("vitrail.api.bench", lambda *inputs, **options: measured)
    head, _, *rows, last = vitrail("bench", "org/name").out.splitlines()
    assert head.split()[-2:] == ["MB", "top-1"]
    assert [row.split() for row in rows] == [
        ["torch", "fp32", "4", "2", "250.0", "8.0", "9.5", "11.0", "60", "87.5", "%"],
        ["openvino", "int8", "4", "2", "500.0", "8.0", "9.5", "11.0", "60", "87.5", "%"],
    ]
    assert last == "recommended: openvino int8, 4 at a time: 500 images/s, 2.0 times torch fp32, top-1 87.5 %"
