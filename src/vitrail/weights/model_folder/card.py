"""The model card: ``README.md`` of a model folder, as the Hugging Face hub reads it.

Names of classes, files and models are escaped, so that they are not read as Markdown, HTML or YAML.
"""

import html
import math
import re
from collections.abc import Mapping, Sequence

import yaml

from vitrail.weights.hub import is_hub_id
from vitrail.weights.published import published

CLASSIFIER, BACKBONE, TRANSLATOR = "image-classification", "image-feature-extraction", "translation"
"""The hub's names of tasks: of a model with labels, without labels, and of a translation model."""
POSES = "keypoint-detection"
"""The hub's name of pose estimation."""
MASKS = "image-segmentation"
"""The hub's name of segmentation."""
MOST_LABELS, MOST_LETTERS = 100, 200


def model_card(
    *,
    name: str,
    labels: Sequence[str],
    data: str = "",
    recipe: str = "",
    metrics: Mapping[str, float | int | str] | None = None,
    intended_use: str = "",
    base_model: str = "",
    multi_label: bool = False,
    license: str = "",
    languages: tuple[str, str] | None = None,
    joints: Sequence[str] = (),
    masks: bool = False,
) -> str:
    """Return a model card as Markdown, after Mitchell et al. 2019 (https://arxiv.org/abs/1810.03993).

    All texts are plain text: Markdown in them is escaped. Sections without content are left out.

    Args:
        name: name of the model, the card's title.
        labels: the names of the classes, in the order of the logits; empty for a model that returns feature vectors.
        data: the training data. If it begins with ``hf:NAME``, the hub lists the results under this data set.
        recipe: how the model was trained; several lines are shown as a code block.
        metrics: results by name: ``{"validation accuracy": 0.98}``. The hub lists only floats.
        intended_use: what the model is for.
        base_model: the model that was fine-tuned; a hub id or the name of a published model becomes a link.
        multi_label: whether an image may have several labels, or none.
        license: an identifier of the hub: ``apache-2.0``.
        languages: source and target language of a translation model.
        joints: names of the keypoints of a pose model.
        masks: whether the labels are of pixels.
    """
    metrics = metrics or {}
    if found := published(base_model):
        base_model = found.repository
    task = MASKS if masks else CLASSIFIER if labels else POSES if joints else TRANSLATOR if languages else BACKBONE
    limits = SENTENCES if languages else _limits(labels, multi_label)
    sections = {
        "Labels": _labels(labels),
        "Joints": _labels(joints),
        "Data": _paragraphs(data),
        "Training": _as_it_stands(recipe) if "\n" in recipe.strip() else _paragraphs(recipe),
        "Results": _table(metrics),
        "Intended use and limits": "\n\n".join(filter(None, [_paragraphs(intended_use), limits])),
        "How to use it": _use(task),
    }
    parts = [
        f"---\n{_front_matter(name, task, data, metrics, base_model, license)}---",
        f"# {_text(_short(name))}",
        _translates(languages, base_model)
        if languages
        else _what_it_is(len(labels), len(joints), base_model, multi_label=multi_label, masks=masks),
        *(f"## {title}\n\n{text}" for title, text in sections.items() if text),
    ]
    return "\n\n".join(parts)


FROM = 'vitrail.from_pretrained("FOLDER")  # the path to this folder, or org/name of the hub'
USES = {
    CLASSIFIER: (
        f"""\
import vitrail

model = {FROM}
for label, score in vitrail.predict(model, "photo.jpg", top=3)[0]:
    print(label, score)""",
        "On the command line",
        ("predict FOLDER photo.jpg --top 3", "evaluate FOLDER --data PHOTOS", "train --from FOLDER --data PHOTOS"),
    ),
    BACKBONE: (
        f"""\
import torch
import vitrail

model = {FROM}
images = torch.zeros(1, model.config.channels, *model.config.image_size)  # prepared as model.preparation says
vectors = model(images)""",
        "On the command line, to make a classifier of it",
        ("train --from FOLDER --data PHOTOS",),
    ),
    POSES: (
        f"""\
import vitrail

model = {FROM}
for person in vitrail.predict_poses(model, "photo.jpg")[0]:  # the whole picture, or boxes=[[left, top, width, height]]
    print(dict(zip(model.skeleton.joints, person.joints)), person.score)""",
        "On the command line",
        (
            "predict FOLDER photo.jpg --pictures DRAWN",
            "evaluate FOLDER --data keypoints.json",
            "train --task pose --from FOLDER --data keypoints.json",
        ),
    ),
    MASKS: (
        f"""\
import vitrail

model = {FROM}
mask = vitrail.predict_masks(model, "photo.jpg")[0].mask  # the index of a class for every pixel
print(model.labels[mask[0, 0]])""",
        "On the command line",
        (
            "predict FOLDER photo.jpg --masks MASKS --pictures DRAWN",
            "evaluate FOLDER --data DATA",
            "train --task segment --from FOLDER --data DATA",
        ),
    ),
    TRANSLATOR: (
        """\
import vitrail

print(vitrail.translate("FOLDER", ["A sentence."]))""",
        "On the command line",
        ("translate FOLDER < sentences.txt > translations.txt", "evaluate FOLDER --data pairs.tsv"),
    ),
}
"""For each task: Python code, the line before the commands, and the commands."""
SENTENCES = "It knows only sentences like those it was trained on."


def _use(task: str) -> str:
    code, title, commands = USES[task]
    shell = "\n".join(f"vitrail {command}" for command in commands)
    return f"In Python:\n\n```python\n{code}\n```\n\n{title}:\n\n```bash\n{shell}\n```\n"


def _front_matter(
    name: str, task: str, data: str, metrics: Mapping[str, float | int | str], base_model: str, license: str
) -> str:
    values: dict[str, object] = {
        "library_name": "vitrail",
        "pipeline_tag": task,
        "tags": [task] if task == TRANSLATOR else ["vision-transformer", "vit", task],
    }
    if license:
        values["license"] = _line(license)
    if is_hub_id(base_model):
        values["base_model"] = base_model.partition("@")[0]
    measured = [
        {"type": _kind(metric), "name": _line(metric), "value": value}
        for metric, value in metrics.items()
        if isinstance(value, float) and math.isfinite(value)
    ]
    if measured:
        own = re.match(r"hf:([\w.-]+(?:/[\w.-]+)?)", data)
        kind, things = ("text", "sentences") if task == TRANSLATOR else ("imagefolder", "images")
        dataset = {"type": own[1] if own else kind, "name": _short(data.strip().partition("\n")[0]) or things}
        result = {"task": {"type": task}, "dataset": dataset, "metrics": measured}
        values["model-index"] = [{"name": _short(name), "results": [result]}]
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def _kind(metric: str) -> str:
    word = re.sub(r"\W+", "_", metric.lower()).strip("_")
    return re.sub(r"^(validation|val|test|training|train)_", "", word) or "metric"


def _what_it_is(classes: int, joints: int, base_model: str, *, multi_label: bool, masks: bool) -> str:
    sentence = "A Vision Transformer, made with Vitrail, that "
    if joints:
        sentence += f"finds {joints:,} joints of a person"
    elif masks:
        sentence += f"gives every pixel of an image one of {classes:,} classes"
    elif not classes:
        sentence += "gives an image a vector"
    elif multi_label:
        sentence += f"says which of {classes:,} classes an image shows"
    else:
        sentence += f"tells {classes:,} classes apart"
    return _with_origin(sentence, base_model)


def _translates(languages: tuple[str, str], base_model: str) -> str:
    source, target = map(_text, languages)
    return _with_origin(f"A translator from {source} to {target}, made with Vitrail", base_model)


def _with_origin(sentence: str, base_model: str) -> str:
    if not base_model:
        return f"{sentence}."
    repository = base_model.partition("@")[0]
    link = f"[{_text(base_model)}](https://huggingface.co/{repository})" if is_hub_id(base_model) else _code(base_model)
    return f"{sentence}. It was fine-tuned from {link}."


def _limits(labels: Sequence[str], multi_label: bool) -> str:
    known = "It knows only images like those it was trained on."
    if not labels:
        return known
    if multi_label:
        return f"It gives each of its classes a probability of its own; an image may have several labels, or none. {known}"
    return f"It answers with one of its classes whatever the image shows. {known}"


def _labels(labels: Sequence[str]) -> str:
    named = ", ".join(_code(label) for label in labels[:MOST_LABELS])
    more = len(labels) - MOST_LABELS
    return f"{named}, and {more:,} more, all in `config.json`." if more > 0 else named


def _table(metrics: Mapping[str, float | int | str]) -> str:
    rows = [f"| {_text(metric)} | {_text(_number(value))} |" for metric, value in metrics.items()]
    return "\n".join(["| metric | value |", "|---|---:|", *rows]) if rows else ""


def _number(value: float | int | str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4f}" if abs(value) >= 0.001 or value == 0 else f"{value:.2e}"


# -- escaping


def _line(text: str) -> str:
    """Return a text on one line, without control characters (line ends, writing direction, zero width)."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def _short(text: str) -> str:
    line = _line(text)
    return line if len(line) <= MOST_LETTERS else f"{line[: MOST_LETTERS - 1]}…"


def _text(text: str) -> str:
    return re.sub(r"^[-+=]|[\\`*_\[\]#|~$]", r"\\\g<0>", html.escape(_line(text), quote=False))


def _paragraphs(text: str) -> str:
    return "\n\n".join(_text(paragraph) for paragraph in re.split(r"\n\s*\n", text.strip()))


def _code(text: str) -> str:
    name = _short(text) or "?"
    fence = "`" * (_longest_fence(name) + 1)
    space = " " if "`" in (name[0], name[-1]) else ""
    return f"{fence}{space}{name}{space}{fence}"


def _as_it_stands(text: str) -> str:
    lines = [
        "".join(letter if letter.isprintable() else " " for letter in line).rstrip() for line in text.strip("\n").splitlines()
    ]
    fence = "`" * max(3, _longest_fence(text) + 1)
    return "\n".join([fence, *lines, fence])


def _longest_fence(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
