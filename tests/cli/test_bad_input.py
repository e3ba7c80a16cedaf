"""Bad input: the right exit code, three lines that say what, where and what to do, and nothing left behind."""

import json
import pickle
import shutil

import pytest
from PIL import Image

TRAIN = "train --data pictures --out run"
TINY = "--epochs 1 --image-size 8 --model.dim 16 --model.depth 1 --model.heads 2 --model.mlp-dim 32"

WRONG_USAGE = {
    "no data for a model folder": "evaluate trained/best",
    "unknown flag": f"{TRAIN} --xyzzy 3",
    "unknown dotted flag": f"{TRAIN} --model.dept 3",
    "unknown command": "trian --data pictures",
    "no model to evaluate": "evaluate",
    "unknown split": "evaluate trained --split nonsense",
    "unknown recipe": f"{TRAIN} --recipe nonsense",
    "no data at all": "train --out run",
    "image size 0": f"{TRAIN} --image-size 0",
    "image not divisible by patch": f"{TRAIN} --image-size 9",
    "negative epochs": f"{TRAIN} --epochs -1",
    "epochs that are no number": f"{TRAIN} --epochs abc",
    "batch size 0": f"{TRAIN} --batch-size 0",
    "no labels to show": "predict trained pictures --top 0",
    "learning rate 0": f"{TRAIN} --lr 0",
    "unknown precision": f"{TRAIN} --precision fp8",
    "dim not divisible by heads": f"{TRAIN} --model.dim 30 --model.heads 4",
    "width no rotation fits": f"{TRAIN} --model.dim 12 --model.heads 2 --model.position rotary",
    "a section as a value": f"{TRAIN} --optimizer 3",
    "a model as a mapping": f"{TRAIN} --model.name.x 3",
    "run folder that exists": "train --data pictures --out kept",
    "configuration missing": f"{TRAIN} --config missing.yaml",
    "configuration with an unknown key": f"{TRAIN} --config unknown.yaml",
    "configuration that is no YAML": f"{TRAIN} --config broken.yaml",
    "configuration that would run code": f"{TRAIN} --config code.yaml",
}
WRONG_DATA = {
    "missing folder": "train --data nowhere --out run",
    "empty folder": "train --data empty --out run",
    "one class": "train --data alone --out run",
    "a folder one level too deep": "train --data deep --out run",
    "a folder one level too deep to check": "data check deep",
    "the same classes under several parents": "train --data batches --out run",
    "classes that differ by case": "train --data cases --out run",
    "text named .jpg": f"train --data mixed --out run {TINY}",
    "text named .jpg, with a worker": f"train --data mixed --out run --data.workers 1 {TINY}",
    "text named .jpg among the test images": f"train --data mixed-test --out run {TINY}",
    "text named .jpg to evaluate on": "evaluate trained --data mixed --split train",
    "evaluation data missing": "evaluate trained --data nowhere",
    "classes the model does not know": "evaluate trained --data strangers",
    "a split without images": "evaluate trained --data split --split val",
    "image missing": "predict trained nowhere.jpg",
    "glob that finds nothing": "predict trained nowhere/*.jpg",
    "folder without images": "predict trained empty",
    "only an unreadable image": "predict trained mixed/train/red/text.jpg",
}
WRONG_MODEL = {
    "unknown model to train": (f"{TRAIN} --model ViT-B16", 2),
    "unknown model to evaluate": ("evaluate ViT-B16 --data pictures", 4),
    "an architecture to evaluate": ("evaluate ViT-H/14 --data pictures", 4),
    "missing model": ("evaluate nowhere --data pictures", 4),
    "missing model to start from": (f"{TRAIN} --from nowhere", 4),
    "folder that is no model": ("predict pictures pictures", 4),
    "damaged weights": ("predict damaged pictures", 4),
    "weights missing": ("predict weightless pictures", 4),
    "weights of another shape": ("predict reshaped pictures", 4),
    "damaged configuration": ("predict garbled pictures", 4),
    "pickle": ("predict model.pt pictures", 4),
    "pickle in place of weights": ("predict pickled pictures", 4),
    "text for a model": ("predict notes.txt pictures", 4),
}
TABLE = {
    **{name: (words, 2) for name, words in WRONG_USAGE.items()},
    **{name: (words, 3) for name, words in WRONG_DATA.items()},
    **WRONG_MODEL,
}


@pytest.fixture(scope="module")
def furnished(pictures, run, tmp_path_factory):
    """A folder with everything that can be wrong in it."""
    room = tmp_path_factory.mktemp("furnished")
    shutil.copytree(pictures, room / "pictures")
    shutil.copytree(run.folder, room / "trained")
    (room / "notes.txt").write_text("some notes")
    (room / "kept").mkdir()
    (room / "kept" / "work.txt").write_text("of years")
    (room / "empty").mkdir()
    shutil.copytree(pictures / "red", room / "alone" / "red")
    shutil.copytree(pictures, room / "deep" / "photos")
    for batch in ("batch1", "batch2"):
        shutil.copytree(pictures, room / "batches" / batch)
    for name in ("Red", "red", "green"):
        shutil.copytree(pictures / name.lower(), room / "cases" / name)
    for name, bad in {"mixed": "train", "mixed-test": "test"}.items():
        for split in ("train", "val", "test"):
            shutil.copytree(pictures, room / name / split)
        (room / name / bad / "red" / "text.jpg").write_text("no picture")
    for name in ("mauve", "ochre"):
        (room / "strangers" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(room / "strangers" / name / "a.png")
    shutil.copytree(pictures, room / "split" / "test")
    (room / "unknown.yaml").write_text("training:\n  epoch: 3\n")
    (room / "broken.yaml").write_text("training:\n  epochs: [3\nmodel: }\n")
    (room / "code.yaml").write_text("about: !!python/object/apply:os.mkdir [made-by-configuration]\n")
    _spoil_models(room, run.folder / "best")
    return room


@pytest.fixture
def room(furnished, monkeypatch):
    """That folder, to work in; no command here may change it."""
    monkeypatch.chdir(furnished)
    return furnished


def _spoil_models(room, best):
    for name in ("damaged", "weightless", "reshaped", "garbled", "pickled"):
        shutil.copytree(best, room / name)
    weights = (best / "model.safetensors").read_bytes()
    (room / "damaged" / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    (room / "weightless" / "model.safetensors").unlink()
    config = json.loads((best / "config.json").read_text())
    (room / "reshaped" / "config.json").write_text(json.dumps({**config, "intermediate_size": 48}))
    (room / "garbled" / "config.json").write_text('{"model_type": ')
    (room / "model.pt").write_bytes(pickle.dumps({"weights": [1.0]}))
    (room / "pickled" / "model.safetensors").write_bytes(pickle.dumps({"weights": [1.0]}))


def everything(folder) -> dict:
    """All files below a folder with their content, and all folders."""
    return {str(p): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


@pytest.mark.parametrize("case", TABLE)
def test_bad_input_is_refused_in_three_lines_and_leaves_nothing_behind(vitrail, room, case):
    (words, code), before = TABLE[case], everything(room)
    answer = vitrail(*words.split())
    assert answer.code == code, answer.err
    starts = [line.split(" ")[0] for line in answer.err.splitlines()]
    assert starts == ["error:", "where:", "what"], answer.err
    assert answer.err.splitlines()[2].startswith("what to do: ")
    assert "Traceback" not in answer.err
    assert answer.out == ""
    assert everything(room) == before
    missing = [words for words in SAYS.get(case, ()) if words not in answer.err]
    assert not missing, answer.err


SAYS = {
    "unknown model to train": ["'ViT-B16'", "did you mean 'ViT-B/16'?"],
    "unknown model to evaluate": ["'ViT-B16'", "did you mean 'ViT-B/16'?"],
    "unknown flag": ["'xyzzy'", "training"],
    "unknown dotted flag": ["'dept'", "where: model.dept", "did you mean 'depth'?"],
    "unknown command": ["trian"],
    "unknown recipe": ["'nonsense'", "where: --recipe", "did you mean"],
    "no data at all": ["data", "--data"],
    "image not divisible by patch": ["9", "8"],
    "dim not divisible by heads": ["30", "4", "28 or 32", "3 or 5"],
    "image size 0": ["image_size", "0"],
    "negative epochs": ["epochs", "-1"],
    "epochs that are no number": ["epochs", "abc"],
    "learning rate 0": ["optimizer.lr"],
    "unknown precision": ["'fp8'", "'fp32'"],
    "run folder that exists": ["kept", "--out"],
    "configuration missing": ["missing.yaml"],
    "configuration with an unknown key": ["training.epoch", "did you mean 'epochs'?", "unknown.yaml"],
    "configuration that is no YAML": ["broken.yaml, line 3"],
    "configuration that would run code": ["code.yaml"],
    "missing folder": ["'nowhere'"],
    "one class": ["'red'", "at least two"],
    "a folder one level too deep": ["did you mean --data deep/photos?"],
    "the same classes under several parents": ["'batch1' and 'batch2'", "'blue', 'green' and 'red'", "batches/classes.txt"],
    "classes that differ by case": ["'Red' and 'red'"],
    "text named .jpg": ["text.jpg"],
    "text named .jpg, with a worker": ["text.jpg"],
    "text named .jpg among the test images": ["text.jpg"],
    "text named .jpg to evaluate on": ["text.jpg"],
    "classes the model does not know": ["'mauve', 'ochre'", "'blue', 'green', 'red'"],
    "a split without images": ["'val'", "test"],
    "damaged weights": ["damaged/model.safetensors"],
    "weights of another shape": ["mlp_dim is 32, not 48", "reshaped/model.safetensors"],
    "pickle": ["model.pt", "pickle"],
}


def test_an_unforeseen_error_is_one_of_three_lines_too(vitrail, monkeypatch):
    def broken(*_):
        raise RuntimeError("out of ideas")

    monkeypatch.setattr("vitrail.weights.reference.config_of", broken)
    answer = vitrail("summary", "ViT-B/16")
    assert (answer.code, answer.out) == (1, "")
    assert [line.split(":")[0] for line in answer.err.splitlines()] == ["error", "where", "what to do"]
    assert "RuntimeError: out of ideas" in answer.err
    assert "Traceback" in vitrail("summary", "ViT-B/16", "--debug").err


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize(
    ("words", "where"),
    [
        ("export trained --precision int8 --calibrate nope", "--calibrate"),
        ("recipes nonsense", "NAME"),
        ("recipes --full", "--full"),
        ("translate trained --beam 100000", "--beam"),
    ],
)
def test_an_error_names_the_flag_or_the_word_that_was_given(vitrail, words, where):
    answer = vitrail(*words.split())
    assert answer.code in (2, 3) and f"where: {where}\n" in answer.err
