"""What a task contributes to a server: a small object is all it takes. Options of another task are refused by name."""

import inspect
import re
from pathlib import Path

import pytest
from pydantic import Field
from server_running import noise, serving_by, tiny

from small_captioner import small_captioner
from tiny_diffusion import model as tiny_diffusion
from tiny_pose import tiny_pose
from tiny_segmenter import tiny_segmenter
from vitrail import api
from vitrail.deploy.predictor import in_python
from vitrail.deploy.server.http.bodies import Images, Json
from vitrail.deploy.server.http.limits import TEXTS, Limits
from vitrail.deploy.server.http.pages import Page
from vitrail.deploy.server.opening import task_of
from vitrail.deploy.server.operation import Operation, Prepared
from vitrail.deploy.server.schema import Document
from vitrail.errors import ConfigError, DataError
from vitrail.task_registry import TASKS
from vitrail.tasks.captioning.predictor import Writer
from vitrail.tasks.captioning.service import ServedCaptions
from vitrail.tasks.classification.service import ServedLabels
from vitrail.tasks.diffusion.service import ServedSamples
from vitrail.tasks.pose.service import ServedPoses
from vitrail.tasks.segmentation.service import ServedMasks
from vitrail.tasks.translation.predictor import writer_of
from vitrail.tasks.translation.service import ServedTranslations

EXPORTED = Path(__file__).parents[1] / "kept" / "exported"
SAVED = {
    "classification": tiny,
    "pose": tiny_pose,
    "caption": small_captioner,
    "diffusion": tiny_diffusion,
    "segment": tiny_segmenter,
}


@pytest.fixture(scope="module", params=[*SAVED, "translate"])
def task_and_folder(request, tmp_path_factory, translated_run):
    """The name of a task, and the folder of a model of it."""
    if request.param == "translate":
        return request.param, translated_run.folder
    folder = tmp_path_factory.mktemp("served") / request.param
    SAVED[request.param]().save_pretrained(folder)
    return request.param, folder


def test_the_task_of_a_model_is_found_by_its_folder(task_and_folder):
    task, folder = task_and_folder
    assert task_of(folder)[0] is TASKS[task]


def test_the_task_of_a_graph_is_found_by_what_it_says_of_itself():
    assert task_of(EXPORTED) == (TASKS["classification"], EXPORTED)


OPTIONS = {name for row in TASKS.values() if row.has("service") for name in row.module("service").Settings.model_fields}


def test_an_option_of_another_task_is_refused_by_name(task_and_folder, monkeypatch):
    task, folder = task_and_folder
    monkeypatch.setattr("vitrail.deploy.server.running.run", lambda *arguments: 15)
    strange = {*OPTIONS, "beams"} - TASKS[task].module("service").Settings.model_fields.keys()
    assert strange >= {"beams", *({"reject"} if task != "classification" else set())}
    for option in strange:
        with pytest.raises(ConfigError, match=f"the task {task} has no option --{option}") as error:
            api.serve(folder, port=0, **{option: 1})
        assert error.value.where == f"--{option}"


def test_a_slip_in_an_option_is_told_with_the_option_that_is_meant(task_and_folder, monkeypatch):
    monkeypatch.setattr("vitrail.deploy.server.running.run", lambda *arguments: 15)
    with pytest.raises(ConfigError, match="--wrokers") as error:
        api.serve(task_and_folder[1], port=0, wrokers=2)
    assert error.value.hint == "did you mean 'workers'?"


def test_a_server_has_few_parameters_of_its_own():
    parameters = inspect.signature(api.serve).parameters.values()
    assert len([each for each in parameters if each.kind is not each.VAR_KEYWORD]) <= 8


# every task's


@pytest.fixture(scope="module", params=["labels", "poses", "masks", "captions", "translations", "samples"])
def server(request, translator):
    """A server of each task, and the request that it answers first."""
    file = {"files": {"images": ("a.png", noise(1))}}
    task, path, sent = {
        "labels": lambda: (ServedLabels(in_python(tiny()), Limits()), "/predict", file),
        "poses": lambda: (ServedPoses(in_python(tiny_pose()), Limits()), "/predict", file),
        "masks": lambda: (ServedMasks(in_python(tiny_segmenter()), Limits()), "/predict", file),
        "captions": lambda: (ServedCaptions(Writer(small_captioner()), Limits()), "/caption", file),
        "translations": lambda: (ServedTranslations(writer_of(translator), TEXTS), "/translate", {"json": {"text": "one cat"}}),
        "samples": lambda: (ServedSamples(tiny_diffusion(), Limits()), "/sample", {"json": {"class": "bee", "steps": 2}}),
    }[request.param]()
    with serving_by(task, request.param) as found:
        yield found, path, sent


def test_answers_and_descriptions_have_the_fields_of_their_schemas_and_no_others(server):
    found, path, sent = server
    answer, described = found.client.post(path, **sent), found.client.get("/model")
    operation = found.service.task.operations[0]
    for schema, document in ((operation.document, answer.json()), (found.service.task.document, described.json())):
        assert schema.model_validate(document).model_dump(exclude_unset=True, mode="json") == document


def test_the_page_is_the_shell_with_the_tasks_part_and_all_that_it_names_is_there(server):
    found, path, _ = server
    page = found.client.get("/").text
    assert page.count("<main>") == page.count('id="says"') == page.count('id="entry"') == 1 and "$" not in page
    named = set(re.findall(r'(?:href|src)="([^"]+)"', page))
    assert len(named) >= 4 and all(found.client.get(f"/{name}").status_code == 200 for name in named)
    assert f"ADDRESS{path}" in page and f"this address{path}" in page


# a task of its own


class Sizes(Document):
    """The sizes of the files of a request."""

    sizes: dict[str, int]


class Ratio(Document):
    """What a request may hold."""

    times: int = Field(1, ge=1)


class ServedSizes:
    """A task that says how large files, or the words of a document, are."""

    summary, items, document, tensors = "Sizes.", "files", Sizes, None

    def __init__(self, folder, limits):
        self.limits, self.page = limits, Page(folder, "sizes", "-F images=@a ADDRESS/size")
        self.operations = (
            Operation(
                path="/size",
                summary="Weigh files",
                description="The size of each file.",
                body=Images(limits.items, len, {}, form_fields=("times",)),
                fields=Ratio,
                document=Sizes,
                understand=lambda fields: fields.times,
                prepare=self.prepare,
                run=lambda rows: [len(content) * times for content, times in rows],
                answer=lambda times, files: {"sizes": {file.name: file.outputs[0] for file in files}},
            ),
            Operation(
                path="/again",
                summary="Weigh a document",
                description="The size of a document, in as many rows as are wanted.",
                body=Json(Ratio, '{"times": 1}'),
                document=Sizes,
                prepare=lambda content, fields: Prepared([(content, 1)] * fields.times),
                rows=None,
                run=lambda rows: [len(content) for content, _ in rows],
                answer=lambda fields, files: {"sizes": {file.name: sum(file.outputs) for file in files}},
            ),
            Operation(
                path="/unseen",
                summary="See nothing",
                description="Nothing.",
                body=Images(1, len, {}),
                document=Sizes,
                prepare=self.prepare,
                run=list,
                answer=lambda fields, files: {},
                looks=True,
                unseen="it is a test",
            ),
        )

    def prepare(self, content, times):
        if content == b"bad":
            raise DataError("the file is bad", hint="send a good one")
        return Prepared([(content, times)])

    def blank(self):
        return b"", 1

    def described(self):
        return {"sizes": {}}


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    (folder / "sizes.html").write_text("<p>Sizes</p>\n")
    (folder / "sizes.js").write_text("")
    with serving_by(ServedSizes(folder, Limits(items=3, waiting=4)), "sizes") as found:
        yield found


def files(*contents):
    return [("images", (f"{number}.png", content)) for number, content in enumerate(contents)]


def test_a_task_needs_nothing_but_its_object(own):
    assert own.client.post("/size", files=files(b"12", b"123")).json() == {"sizes": {"0.png": 2, "1.png": 3}}
    assert own.client.post("/size", content=b"1234", params={"times": 2}).json() == {"sizes": {"image": 8}}
    assert own.client.post("/again", json={"times": 3}).json() == {"sizes": {"body": 3 * len(b'{"times":3}')}}
    assert own.client.get("/model").json() == {"name": "sizes", "sizes": {}} and "<p>Sizes</p>" in own.client.get("/").text
    assert {"/size", "/again", "/unseen"} < set(own.client.get("/openapi.json").json()["paths"])


def test_a_field_stands_in_the_address_or_in_the_form_where_that_may_have_it_and_not_in_both(own):
    assert own.client.post("/size", files=files(b"12"), data={"times": "3"}).json() == {"sizes": {"0.png": 6}}
    answer = own.client.post("/size", files=files(b"12"), data={"times": "3"}, params={"times": 3})
    assert answer.status_code == 422 and "times comes twice" in answer.json()["detail"]
    answer = own.client.post("/size", files=files(b"12"), data={"times": "0"})
    assert answer.status_code == 422 and "form.times" in answer.json()["detail"]


def test_all_files_that_cannot_be_prepared_are_named_and_none_is_answered(own):
    answer = own.client.post("/size", files=files(b"bad", b"good", b"bad"))
    assert answer.status_code == 422 and "2 of 3 images cannot be read: 0.png, 2.png" in answer.json()["detail"]
    assert [each["image"] for each in answer.json()["errors"]] == ["0.png", "2.png"]


def test_rows_that_only_preparing_tells_take_places_as_well(own):
    assert own.client.post("/again", json={"times": 4}).status_code == 200
    assert own.client.post("/again", json={"times": 5}).status_code == 429
    assert own.service.queues["/again"].taken == own.service.queues["/size"].taken == 0


def test_what_cannot_be_seen_is_refused_before_the_body_is_looked_at(own):
    answer = own.client.post("/unseen", content=b"", headers={"Content-Type": "text/plain"})
    assert answer.status_code == 501 and "it is a test" in answer.json()["detail"]
