"""What goes wrong around a run: workers that die, images that cannot be read, two processes in one folder, a full disk."""

import json
import multiprocessing
import os
import shutil
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soak_runs
from commands import killed_at_work
from PIL import Image

import vitrail
from vitrail import api
from vitrail.data.images.preparation import Preparation
from vitrail.data.items import ImageData, Item
from vitrail.data.loading.dataset import ImageDataset
from vitrail.data.loading.loader import EpochLoader
from vitrail.errors import ConfigError, DataError, DiskFullError
from vitrail.files import locked
from vitrail.runtime.observer import Observer
from vitrail.runtime.processes import ALONE
from vitrail.training.images import check_images
from vitrail.training.runs.checkpoint import checkpoints

pytestmark = pytest.mark.usefixtures("unreported")


class Recorder(Observer):
    """Keeps the notes it gets."""

    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


class Deadly:
    """An image at which the process that reads it is killed, as for want of memory."""

    name = "deadly.png"

    def open(self):
        os.kill(os.getpid(), signal.SIGKILL)


class Silent:
    """An image that is never read, as on a disk that has gone."""

    name = "silent.png"

    def open(self):
        while True:
            time.sleep(60)


def test_workers_that_give_nothing_are_given_up_and_the_image_is_named(monkeypatch):
    monkeypatch.setattr("vitrail.data.loading.loader.WAIT", 1)
    items = [Item(f"{i}.png", np.zeros((8, 8, 3), np.uint8), 0) for i in range(3)] + [Item("silent.png", Silent(), 0)]
    loader = EpochLoader(ImageDataset(items, Preparation.standard((8, 8), 3)), 1, shuffle=False, workers=1)
    begin = time.monotonic()
    with pytest.raises(DataError, match="nothing was read for 1 seconds") as caught:
        list(loader.epoch())
    assert "silent.png" in caught.value.where and not multiprocessing.active_children()
    assert time.monotonic() - begin < 8


def test_batches_that_nobody_takes_over_any_more_are_not_waited_for(monkeypatch):
    monkeypatch.setattr("vitrail.data.loading.loader.LOOK", 1)
    monkeypatch.setattr("vitrail.data.loading.loader.WAIT", 3)
    items = [Item(f"{i}.png", np.zeros((8, 8, 3), np.uint8), 0) for i in range(3)] + [Item("silent.png", Silent(), 0)]
    loader = EpochLoader(ImageDataset(items, Preparation.standard((8, 8), 3)), 1, shuffle=False, workers=1)
    batches = loader.epoch()
    next(batches)
    monkeypatch.setattr("vitrail.data.loading.loader._pins", lambda iterator: False)
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.2)  # torch waits so long for a worker to end
    begin = time.monotonic()
    with pytest.raises(DataError, match="cannot be received") as caught:
        list(batches)
    assert "ulimit" in caught.value.hint and time.monotonic() - begin < 20


def test_a_worker_that_dies_names_the_image_it_was_at(monkeypatch):
    monkeypatch.setattr("vitrail.data.loading.loader.LOOK", 1)
    good = np.zeros((8, 8, 3), np.uint8)
    items = [Item(f"{i}.png", good, 0) for i in range(6)]
    items[4] = Item("deadly.png", Deadly(), 0)
    loader = EpochLoader(ImageDataset(items, Preparation.standard((8, 8), 3)), 1, shuffle=False, workers=2)
    with pytest.raises(DataError, match="was killed") as caught:
        list(loader.epoch())
    assert "deadly.png" in caught.value.where and "data.workers" in caught.value.hint


def test_workers_leave_a_signal_to_the_process_they_work_for():
    items = [Item(f"{i}.png", np.zeros((8, 8, 3), np.uint8), 0) for i in range(8)]
    loader = EpochLoader(ImageDataset(items, Preparation.standard((8, 8), 3)), 1, shuffle=False, workers=2)
    batches = loader.epoch()
    next(batches)
    for worker in loader._loader._iterator._workers:
        os.kill(worker.pid, signal.SIGTERM)
    assert len(list(batches)) == 7


# images that cannot be read


@pytest.fixture
def some_bad(pictures, tmp_path) -> Path:
    """The pictures, in ten copies, and of these 240 two that cannot be read: one has no head, one has lost its end."""
    folder = tmp_path / "pictures"
    for name in ("red", "green", "blue"):
        (folder / name).mkdir(parents=True)
        for file in (pictures / name).iterdir():
            for copy in range(10):
                shutil.copy(file, folder / name / f"{copy}-{file.name}")
    (folder / "red" / "0-0.png").write_text("no picture")
    whole = (folder / "green" / "0-1.png").read_bytes()
    (folder / "green" / "0-1.png").write_bytes(whole[: len(whole) // 2])
    return folder


def test_images_that_cannot_be_read_are_left_out_where_one_says_so_and_listed(some_bad, tmp_path, tiny):
    recorder = Recorder()
    run = vitrail.train(some_bad, tmp_path / "run", observer=recorder, bad_images="skip", **tiny)
    listed = json.loads((run.folder / "bad_images.json").read_text())
    assert set(listed) == {"red/0-0.png", "green/0-1.png"} and all(listed.values())
    assert any("2 of 240 images cannot be read" in note for note in recorder.notes)
    state = json.loads((checkpoints(run.folder)[0] / "state.json").read_text())
    assert sum(state["data"]["images"].values()) == 238


def test_a_run_that_left_images_out_is_evaluated_without_them(some_bad, tmp_path, tiny):
    run = vitrail.train(some_bad, tmp_path / "run", bad_images="skip", **tiny).folder
    notes, observer = [], Observer()
    observer.note = notes.append
    metrics, _ = api.evaluate(run, split="all", observer=observer)
    assert metrics.scores()["images"] == 238 and any("leaves out: 2" in note for note in notes)
    link = tmp_path / "link"
    link.symlink_to(some_bad)
    assert api.evaluate(run, link, split="all")[0].scores()["images"] == 238
    with pytest.raises(DataError):  # other data than the run's is read as it is
        api.evaluate(run, shutil.copytree(some_bad, tmp_path / "copy"), split="all")


def test_a_run_that_leaves_images_out_is_resumed_without_them(some_bad, tmp_path, tiny, monkeypatch):
    class Stopping(Observer):
        def epoch(self, row):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(vitrail.VitrailError, match="interrupted"):
        vitrail.train(some_bad, tmp_path / "run", observer=Stopping(), bad_images="skip", **tiny)
    assert vitrail.resume(tmp_path / "run").scores["images"] > 0


def test_they_stop_a_run_where_one_does_not_say_so(some_bad, tmp_path, tiny):
    with pytest.raises(DataError) as caught:
        vitrail.train(some_bad, tmp_path / "run", **tiny)
    assert "0-0.png" in str(caught.value.where) and "--bad-images skip" in caught.value.hint
    assert not (tmp_path / "run").exists()


def test_a_class_of_bad_images_alone_is_missed(pictures, tmp_path, tiny):
    folder = shutil.copytree(pictures, tmp_path / "pictures")
    (folder / "mauve").mkdir()
    for number in range(2):
        (folder / "mauve" / f"{number}.png").write_text("no picture")
    with pytest.raises(DataError, match="'mauve' have no training images"):
        vitrail.train(folder, tmp_path / "run", bad_images="skip", **tiny)


@pytest.mark.parametrize(("images", "most"), [(4, 0), (29, 2), (240, 3), (400, 4)])
def test_one_bad_image_of_sixty_may_be_left_out_though_it_is_more_than_one_in_a_hundred(images, most):
    settings = SimpleNamespace(
        data=SimpleNamespace(bad_images="skip", source="made up"), task=SimpleNamespace(name="classification")
    )
    for bad, right in ((most, True), (most + 1, False)):
        items = [Item(f"{number}.png", b"no picture" if number < bad else Image.new("L", (1, 1)), 0) for number in range(images)]
        source = ImageData("made up", ["a"], {"train": items})
        if right:
            assert len(check_images(source, settings, Observer(), ALONE)) == most
        else:
            with pytest.raises(DataError, match=f"at most {most} are left out"):
                check_images(source, settings, Observer(), ALONE)


def test_an_image_damaged_past_its_head_stops_a_run_that_goes_on_once_it_is_mended(pictures, tmp_path, tiny):
    folder = shutil.copytree(pictures, tmp_path / "pictures")
    file = folder / "red" / "3.png"
    whole = file.read_bytes()

    class Breaking(Observer):
        def epoch(self, row):
            file.write_bytes(whole[:-30])

    # read again in every epoch, as images are that do not fit into memory
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vitrail.data.loading.dataset.KEPT_BYTES", 0)
        with pytest.raises(DataError) as caught:
            vitrail.train(folder, tmp_path / "run", observer=Breaking(), **tiny)
    assert "3.png" in str(caught.value.where)
    assert caught.value.hint == f"bring it back as it was, then vitrail resume {tmp_path / 'run'}"
    status = json.loads((tmp_path / "run/status.json").read_text())
    assert status["state"] == "failed" and "resume" in status["resume"]
    file.write_bytes(whole)
    assert vitrail.resume(tmp_path / "run").scores["images"] > 0


def test_an_image_that_an_evaluation_cannot_read_leaves_the_epoch_before_it_saved(make_trainer, monkeypatch):
    trainer = make_trainer()
    read, recorder = trainer.val_loader.dataset.batch, Recorder()

    def batch(keys, own):
        if trainer.done == 6:
            raise DataError("cannot read the image", where="a.png")
        return read(keys, own)

    trainer.val_loader.dataset.batch = batch
    with pytest.raises(DataError, match=r"a\.png"):
        trainer.run(recorder)
    resumed = make_trainer.reopen(trainer)
    resumed.restore()
    assert (resumed.done, len(resumed.rows)) == (6, 1)


# one run, one process


def unfinished(folder: Path, copy: Path) -> Path:
    """A copy of a finished run, as it was before its last report."""
    status = json.loads((shutil.copytree(folder, copy) / "status.json").read_text())
    (copy / "status.json").write_text(json.dumps({**status, "state": "running"}))
    return copy


def test_a_lock_goes_with_the_process_that_died(tmp_path):
    process = soak_runs.PROCESSES.Process(target=killed_at_work, args=(tmp_path,))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert (tmp_path / ".lock").exists()
    with locked(tmp_path):
        pass


def test_a_fine_tuned_run_killed_before_its_first_checkpoint_begins_with_the_same_model(run, pictures, tmp_path):
    settings = {"start": str(run.folder), "epochs": 1, "model.patch_dropout": 0, "training.batch_size": 8}
    tuned = vitrail.train(pictures, tmp_path / "tuned", **settings)
    killed = unfinished(tuned.folder, tmp_path / "killed")
    for folder in checkpoints(killed):
        shutil.rmtree(folder)
    shutil.rmtree(killed / "last")
    vitrail.resume(killed)
    assert (killed / "last/model.safetensors").read_bytes() == (tuned.folder / "last/model.safetensors").read_bytes()


# what may be changed when a run goes on


def test_settings_that_do_not_decide_the_weights_may_change_and_others_are_refused(run, tmp_path):
    folder = shutil.copytree(run.folder, tmp_path / "run")
    api.resume(folder, **{"data.workers": 1, "checkpoint_every_steps": 5})
    with pytest.raises(ConfigError) as caught:
        api.resume(folder, lr=0.5, **{"model.dropout": 0.3})
    assert "optimizer.lr was 0.01, now 0.5" in caught.value.what and "model.dropout" in caught.value.what
    with pytest.raises(ConfigError, match="unknown setting"):
        api.resume(folder, **{"training.epoch": 3})


# a full disk


def test_a_disk_that_is_full_while_a_run_saves_leaves_what_was_saved_before_and_the_message(
    pictures, tmp_path, tiny, monkeypatch
):
    usage = shutil.disk_usage

    class Filling(Observer):
        def epoch(self, row):
            full = type("Usage", (), {"free": 12})
            monkeypatch.setattr("vitrail.files.shutil.disk_usage", lambda path: full)

    settings = {**tiny, "training.checkpoint_every_steps": 1}
    with pytest.raises(DiskFullError, match=r"12 are free") as caught:
        vitrail.train(pictures, tmp_path / "run", observer=Filling(), **settings)
    assert caught.value.exit_code == 1 and "resume" in caught.value.hint
    monkeypatch.setattr("vitrail.files.shutil.disk_usage", usage)
    assert checkpoints(tmp_path / "run")
    assert json.loads((tmp_path / "run/status.json").read_text())["state"] == "failed"
    assert vitrail.resume(tmp_path / "run").scores["images"] > 0
