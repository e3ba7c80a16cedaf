"""What a person sees while a run goes on."""

import io
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from vitrail import api
from vitrail.runtime.notebook import in_notebook
from vitrail.runtime.observer import Observer, Sums
from vitrail.training.runs import progress as shown

pytestmark = pytest.mark.usefixtures("unreported")

WIDTH = 80
ROW = {
    "epoch": 100, "train_loss": 7.123, "train_top1": 0.981, "val_loss": 7.456, "val_top1": 0.975, "images_per_second": 12345.0,
}  # fmt: skip


@pytest.fixture
def terminal(monkeypatch):
    """A training's progress on a terminal of 80 columns, and what is written there."""
    monkeypatch.setattr(shown, "interactive", lambda: True)
    written = io.StringIO()
    monkeypatch.setattr(
        shown, "stderr_console", lambda: Console(file=written, force_terminal=True, width=WIDTH, color_system=None)
    )
    progress = shown.TrainingProgress()
    yield progress, written
    progress.bar.stop()


def bar_of(progress) -> list[str]:
    """The lines of the bar as it is drawn now."""
    console = Console(width=WIDTH, file=io.StringIO(), color_system=None)
    console.print(progress.bar.get_renderable())
    return console.file.getvalue().splitlines()


def test_a_resumed_run_shows_the_epoch_that_it_is_in(terminal):
    progress, _ = terminal
    progress.start(10, 80, 24)
    assert bar_of(progress)[0].startswith("epoch 4/10 ")
    progress.start(10, 80, 29)
    assert bar_of(progress)[0].startswith("epoch 4/10 ")
    progress.start(10, 80, 80)
    assert bar_of(progress)[0].startswith("epoch 10/10 ")


def test_nothing_is_wider_than_80_columns(terminal):
    progress, _ = terminal
    progress.start(100, 8000, 7920)
    progress.step(99, Sums(loss=7.123 * 100, counts={"top1": 98}, units=100, seconds=100 / 12345))
    (line,) = bar_of(progress)
    for part in ("epoch 100/100", "loss 7.123", "top-1 98.0 %", "12,345 img/s", "left"):
        assert part in line
    progress.began -= 5000
    progress.kept(100)
    progress.epoch(ROW)
    line = next(line for line in terminal[1].getvalue().splitlines() if "val loss" in line).rstrip()
    assert line.split("\r")[-1].endswith("1h23m  kept")


def test_the_time_so_far_and_the_kept_epoch_are_told_on_every_line(monkeypatch, capsys):
    monkeypatch.setattr(shown, "interactive", lambda: False)
    progress = shown.TrainingProgress()
    progress.start(10, 80, 0)
    for number in (1, 2):
        if number == 1:
            progress.kept(1)
        progress.began -= 60
        progress.epoch({**ROW, "epoch": number, "train_loss": 0.5, "val_loss": 0.6})
    first, second = capsys.readouterr().err.splitlines()
    assert first == "epoch  1/10  loss 0.500 top-1 98.1 %  val loss 0.600 top-1 97.5 %  1:00  kept"
    assert second == "epoch  2/10  loss 0.500 top-1 98.1 %  val loss 0.600 top-1 97.5 %  2:00"
    assert len(first) <= WIDTH


# who is looking


def test_python_shows_progress_where_somebody_looks_and_not_in_a_script(monkeypatch):
    for looking, asked, kind in (
        (False, None, Observer),
        (False, True, shown.TrainingProgress),
        (True, None, shown.TrainingProgress),
        (True, False, Observer),
    ):
        monkeypatch.setattr(shown, "interactive", lambda looking=looking: looking)
        with shown.watching(None, asked) as observer:
            assert type(observer) is kind
    own = Observer()
    with shown.watching(own, True) as observer:
        assert observer is own


def test_training_in_python_can_be_asked_to_say_how_it_goes(pictures, tiny, tmp_path, capsys):
    api.train(pictures, tmp_path / "silent", fast_dev_run=True, **tiny)
    assert not capsys.readouterr().err
    api.train(pictures, tmp_path / "told", fast_dev_run=True, progress=True, **tiny)
    assert "epoch 1/1  loss" in capsys.readouterr().err


@pytest.fixture
def cell(monkeypatch):
    """What the cell of a notebook shows, drawing after drawing: IPython's part is played."""
    drawn = []
    handle = SimpleNamespace(update=drawn.append)
    display = SimpleNamespace(HTML=lambda text: text, display=lambda first, display_id: drawn.append(first) or handle)
    kernel = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()), display=display)
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return drawn


def test_a_notebook_has_a_table_that_grows_with_every_epoch(cell, pictures, tiny, tmp_path, capsys):
    api.train(pictures, tmp_path / "run", **tiny)
    assert cell[-1].count("<tr>") == 1 + 2 and "<td>2/2</td>" in cell[-1] and "top-1" in cell[-1] and "kept" in cell[-1]
    assert any("checking images" in drawing or "evaluating" in drawing for drawing in cell) and not capsys.readouterr().err


def test_what_a_notebook_shows_is_escaped_and_drawn_a_few_times_a_second(cell):
    with shown.watching(None, None) as progress:
        progress.start(3, 30, 0)
        progress.note("left out: <script>alert(1)</script>")
        before = len(cell)
        for _ in range(100):
            progress.step(0, Sums(loss=1.0, units=1, seconds=1.0))
        assert len(cell) <= before + 1
    assert "<script>" not in cell[-1] and "&lt;script&gt;" in cell[-1]


def test_a_terminal_with_ipython_is_no_notebook(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace()))
    assert not in_notebook()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert not in_notebook()
