"""A mistake is told at once: before what computes is imported, which takes seconds."""

import json

import pytest

from vitrail.models.registry import NAMES

SECONDS = 0.5
TRAIN = "train --data pictures --out run"
MISTAKES = {
    "a flag": f"{TRAIN} --nonsense 3",
    "a dotted flag": f"{TRAIN} --model.dept 3",
    "a choice": f"{TRAIN} --precision fp8",
    "a number out of range": f"{TRAIN} --epochs 0",
    "a number out of range, from a model": f"{TRAIN} --from weights.safetensors --lr 0",
    "a size that is none": f"{TRAIN} --image-size big",
    "parts that do not fit": f"{TRAIN} --model.dim 30 --model.heads 4",
    "data": "train --data nosuch",
    "data, from a model": "train --data nosuch --from weights.safetensors",
    "an archive": "train --data cifar10:nosuch",
    "no data": "train",
    "a recipe": f"{TRAIN} --recipe nosuch",
    "a model's name": f"{TRAIN} --model ViT-B16",
    "a task": f"{TRAIN} --task nosuch",
    "a folder that is taken": "train --data pictures --out pictures",
    "a configuration that is missing": f"{TRAIN} --config nosuch.yaml",
    "a configuration that is broken": f"{TRAIN} --config broken.yaml",
    "a model to start from": f"{TRAIN} --from nosuch",
    "a pickle to start from": f"{TRAIN} --from weights.pt",
    "a teacher": f"{TRAIN} --teacher nosuch",
    "a run to resume": "resume nosuch",
    "runs to compare": "compare nosuch",
    "a model to predict with": "predict runs/nosuch pictures",
    "a model to evaluate": "evaluate nosuch --data pictures",
    "a model to study": "study nosuch",
    "a model to check with": "data check pictures --model nosuch",
    "a folder to check into that is taken": "data check pictures --out pictures",
    "data to check with a model": "data check nosuch --out out",
    "a model to export": "export nosuch",
    "a model to measure": "bench nosuch",
    "a model to serve": "serve nosuch",
    "a model to convert": "convert nosuch out",
    "a model to sum up": "summary nosuch",
    "a model to list": "models nosuch",
}
SCRIPT = """
import sys
from vitrail.cli.app import main
try:
    main(sys.argv[1:])
except SystemExit as stop:
    slow = {"torch", "sklearn", "matplotlib", "huggingface_hub"} & sys.modules.keys()
    print(stop.code, *slow)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with what the mistakes speak of."""
    folder = tmp_path_factory.mktemp("place")
    (folder / "pictures").mkdir()
    (folder / "pictures" / "note.txt").write_text("no picture")
    (folder / "broken.yaml").write_text("model: [")
    for name in ("weights.safetensors", "weights.pt"):
        (folder / name).write_bytes(b"")
    return folder


@pytest.mark.parametrize("words", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told_before_what_computes_is_imported(words, place, timed):
    done, _ = timed("-c", SCRIPT, *words.split(), cwd=place)
    assert done.stdout.split()[0] in {"2", "3", "4"} and len(done.stdout.split()) == 1, done.stdout + done.stderr
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["error", "where", "what to do"]
    assert not (place / "run").exists()


@pytest.mark.parametrize("words", [f"{TRAIN} --lr 0", "train --data nosuch --from weights.safetensors", "models"])
def test_a_mistake_and_the_list_of_models_take_less_than_half_a_second(words, place, timed):
    assert min(timed("-m", "vitrail", *words.split(), cwd=place)[1] for _ in range(3)) < SECONDS


def test_the_models_are_listed_without_torch(timed):
    script = "import sys; from vitrail.cli.app import main; main(['models', '--json']); assert 'torch' not in sys.modules"
    done, _ = timed("-c", script)
    assert [row["model"] for row in json.loads(done.stdout)] == NAMES and not done.returncode
