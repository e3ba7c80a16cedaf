"""A mistake is told at once: before what computes is imported, which takes seconds."""

import json
import subprocess
import sys

import pytest

from vitrail.config.configuration import nested, resolve
from vitrail.models.registry import NAMES
from vitrail.training.runs.run_folder import RunFolder

TRAIN = "train --data pictures --out run"
TRANSLATE = "train --task translate --out run --data pairs.tsv"
EN_DE = f"{TRANSLATE} --source en --target de"
MISTAKES = {
    "a flag": f"{TRAIN} --nonsense 3",
    "a dotted flag": f"{TRAIN} --model.dept 3",
    "a choice": f"{TRAIN} --precision fp8",
    "a number out of range": f"{TRAIN} --epochs 0",
    "a size that is none": f"{TRAIN} --image-size big",
    "parts that do not fit": f"{TRAIN} --model.dim 30 --model.heads 4",
    "data": "train --data nosuch",
    "an archive": "train --data cifar10:nosuch",
    "no data": "train",
    "a model's name": f"{TRAIN} --model ViT-B16",
    "a configuration that is broken": f"{TRAIN} --config broken.yaml",
    "a model to start from": f"{TRAIN} --from nosuch",
    "a teacher": f"{TRAIN} --teacher nosuch",
    "no languages": TRANSLATE,
    "a language that no column has": f"{TRANSLATE} --source en --target fr",
    "a folder without training sentences": "train --task translate --data pictures --source en --target de",
    "a model of images for sentences": f"{EN_DE} --model ViT-Ti/16",
    "a size of images for sentences": f"{EN_DE} --image-size 32",
    "an augmentation of sentences": f"{EN_DE} --augmentation.mixup 0.2",
    "a language of images": f"{TRAIN} --source en",
    "no translations at a time": "translate weights.safetensors --beam 0",
    "a map of attention that is none": "translate weights.safetensors --attention map.txt",
    "a run to resume": "resume nosuch",
    "a run whose data is gone": "resume stopped",
    "a place where a run's data is not": "resume stopped --data nosuch",
    "runs to compare": "compare nosuch",
    "a model to predict with": "predict runs/nosuch pictures",
    "a template without labels": "predict weights.safetensors pictures --template a",
    "labels for an engine": "predict weights.safetensors pictures --labels a,b --engine onnxruntime",
    "a file of vectors": "embed weights.safetensors pictures --out x.txt",
    "a model to evaluate": "evaluate nosuch --data pictures",
    "a model to study": "study nosuch",
    "a model to check with": "data check pictures --model nosuch",
    "a folder to check into that is taken": "data check pictures --out pictures",
    "data to check with a model": "data check nosuch --out out",
    "a model to export": "export nosuch",
    "a model to convert": "convert nosuch out",
    "a graph to study": "study graph",
    "an exported translator to study": "study translator",
    "a graph to sum up": "summary graph",
    "a graph to start from": f"{TRAIN} --from graph",
    "a model to list": "models nosuch",
}
SCRIPT = """
import contextlib, io, json, sys
from vitrail.cli.app import main
found = {}
for name, words in json.load(sys.stdin).items():
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(io.StringIO()):
        try:
            main(words.split())
        except SystemExit as stop:
            code = stop.code
    slow = {"torch", "sklearn", "matplotlib", "huggingface_hub"} & sys.modules.keys()
    found[name] = [code, said.getvalue(), sorted(slow)]
print(json.dumps(found))
"""
"""Makes all mistakes in one process, and says after each what is imported by then."""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with what the mistakes speak of."""
    folder = tmp_path_factory.mktemp("place")
    (folder / "pictures").mkdir()
    (folder / "pictures" / "note.txt").write_text("no picture")
    (folder / "broken.yaml").write_text("model: [")
    (folder / "pairs.tsv").write_text("en\tde\none\teins\n")
    (folder / "text.en").write_text("one\n")
    for name in ("weights.safetensors", "weights.pt"):
        (folder / name).write_bytes(b"")
    for name in ("graph/model.xml", "graph/model.bin", "translator/translator.json", "translator/model.bin"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"")
    settings = resolve({}, {}, nested({"data": "gone", "model": "ViT-Ti/16"}))
    RunFolder.create(folder / "stopped", settings, None)
    return folder


@pytest.fixture(scope="module")
def told(place) -> dict[str, list]:
    """The exit code, stderr and the slow imports of every mistake."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=place, input=json.dumps(MISTAKES), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_before_what_computes_is_imported(mistake, told, place):
    code, said, slow = told[mistake]
    assert code in (2, 3, 4) and slow == []
    assert [line.split(":")[0] for line in said.splitlines()] == ["error", "where", "what to do"]
    assert not (place / "run").exists()


@pytest.mark.parametrize("mistake", [name for name in MISTAKES if "graph" in name or "exported" in name])
def test_what_is_exported_is_called_so_where_a_model_in_python_is_needed(mistake, told):
    code, said, _ = told[mistake]
    assert code == 4 and "this is an exported" in said and "returns" in said and "give the run or the" in said


@pytest.mark.parametrize(
    ("mistake", "missing", "where"),
    [
        ("a run whose data is gone", "no data at 'gone'", "stopped/config.yaml"),
        ("a place where a run's data is not", "no data at 'nosuch'", "--data"),
    ],
)
def test_a_run_whose_data_was_moved_is_told_how_to_say_where_it_is(mistake, missing, where, told, place):
    code, said, _ = told[mistake]
    assert code == 3 and said.splitlines()[:2] == [f"error: {missing}", f"where: {where}"]
    assert "vitrail resume stopped --data PATH" in said
    assert RunFolder(place / "stopped").standing["state"] == "running"


def test_the_models_are_listed_without_torch(timed):
    script = "import sys; from vitrail.cli.app import main; main(['models', '--json']); assert 'torch' not in sys.modules"
    done, _ = timed("-c", script)
    assert [row["model"] for row in json.loads(done.stdout)] == NAMES and not done.returncode
