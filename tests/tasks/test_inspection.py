"""What `vitrail data check` and `data show` ask the room of every task, and which task a file is for."""

import json
from dataclasses import fields

import pytest

from captioned import write_captions
from masked import write_masks
from stick_figures import write_people
from vitrail.data.checks.found import Found
from vitrail.errors import ConfigError
from vitrail.task_registry import TASKS
from vitrail.tasks.inspection import LANGUAGES, Inspection, InspectionRequest, inspection_of, row_for
from words import write_pairs


@pytest.fixture
def data(tmp_path, pictures):
    """Sound data for every task, with the options that its check needs."""
    (tmp_path / "people").mkdir()
    (tmp_path / "captions").mkdir()
    languages = {"source": "en", "target": "de"}
    return {
        "classification": InspectionRequest(str(pictures)),
        "ordinal": InspectionRequest(str(pictures)),
        **{name: InspectionRequest(str(pictures)) for name in ("mae", "dino", "distill")},
        "diffusion": InspectionRequest(str(pictures)),
        "translate": InspectionRequest(str(write_pairs(tmp_path / "pairs.tsv")), **languages),
        "pose": InspectionRequest(str(write_people(tmp_path / "people", 2))),
        "caption": InspectionRequest(str(write_captions(tmp_path / "captions"))),
        "segment": InspectionRequest(str(write_masks(tmp_path / "masks"))),
    }


@pytest.mark.parametrize("name", TASKS)
def test_every_task_checks_its_data_and_says_what_it_found_to_people_and_to_programs(data, name):
    inspection = inspection_of(TASKS[name])
    assert isinstance(inspection, Inspection)
    assert inspection.options <= {field.name for field in fields(InspectionRequest)}
    found = inspection.check(data[name])
    assert isinstance(found, Found) and not found.issues
    document = json.loads(json.dumps(found.to_json()))
    assert document["source"] == data[name].data and (document["faults"], document["notices"]) == (
        [],
        [vars(notice) for notice in found.notices],
    )
    first, *_ = found.lines()
    assert first.split() == ["source", data[name].data]


def test_a_file_is_for_the_task_that_tells_it_by_itself_or_that_is_named(data, tmp_path):
    told = {
        name: row_for(request.data).name
        for name, request in data.items()
        if name not in ("ordinal", "mae", "dino", "distill", "diffusion", "translate")
    }
    assert told == {name: name for name in told}
    assert row_for(data["translate"].data, languages=True).name == "translate"
    assert row_for(data["pose"].data, "mae").name == "mae"
    named = tmp_path / "captions_val.json"  # by its name, though any other JSON is people
    named.write_text("{}")
    assert row_for(str(named)).name == "caption"
    assert row_for(str(tmp_path / "nowhere")).name == "classification"


@pytest.mark.parametrize("name", [name for name in TASKS if not inspection_of(TASKS[name]).options >= LANGUAGES])
def test_a_task_without_languages_refuses_them(name):
    with pytest.raises(ConfigError, match=f"{name} has no languages"):
        row_for("anything", name, languages=True)
