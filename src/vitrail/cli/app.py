"""The command line. Each command is a thin module that imports torch and other slow libraries only when it is called."""

import io
import os
import shlex
import signal
import sys
import threading
import traceback
from types import FrameType
from typing import NoReturn

from cyclopts import App, CycloptsError, Parameter

import vitrail
from vitrail.cli.console import abandon_closed_streams, problem
from vitrail.cli.look.compare import compare
from vitrail.cli.look.data_check import check
from vitrail.cli.look.data_show import show
from vitrail.cli.look.doctor import doctor
from vitrail.cli.look.models import models
from vitrail.cli.look.study import study
from vitrail.cli.look.summary import summary
from vitrail.cli.ship.bench import bench
from vitrail.cli.ship.convert import convert
from vitrail.cli.ship.export import export
from vitrail.cli.ship.serve import serve
from vitrail.cli.training.demo import demo
from vitrail.cli.training.recipes import recipes
from vitrail.cli.training.resume import resume
from vitrail.cli.training.sweep import sweep
from vitrail.cli.training.train import train
from vitrail.cli.use.caption import caption
from vitrail.cli.use.embed import embed
from vitrail.cli.use.evaluate import evaluate
from vitrail.cli.use.predict import predict
from vitrail.cli.use.sample import sample
from vitrail.cli.use.similar import similar
from vitrail.cli.use.translate import translate
from vitrail.errors import VitrailError
from vitrail.runtime.terminal import exit_at_once

app = App(
    name="vitrail",
    help="Vision Transformers: build, train, inspect, deploy.",
    version=vitrail.__version__,
    help_format="plaintext",
    suppress_keyboard_interrupt=False,
    default_parameter=Parameter(negative=()),
)
data = App(name="data", help="Look at images before training on them.", help_format="plaintext")
for _command in (
    demo, train, resume, evaluate, predict, embed, similar, translate, caption, sample, study, export, bench, serve, compare,
    sweep, summary, convert, models, recipes, doctor,
):  # fmt: skip
    app.command(_command)
data.command(check)
data.command(show)
app.command(data)


def _terminated(number: int, frame: FrameType | None) -> None:
    """Convert SIGTERM or SIGHUP to an exception, so that unfinished files are removed."""
    problem("terminated")
    sys.exit(128 + number)


def _leave(code: int) -> NoReturn:
    """Exit; under torch.distributed without Python's shutdown, in which its waiting threads would cause an abort."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        exit_at_once(code)
    sys.exit(code)


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit with 0, or with the error's exit code of `vitrail.errors`; ``--debug`` shows tracebacks."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    sys.stdout, sys.stderr = sys.stdout or open(os.devnull, "w"), sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr does: a file name may not be encodable
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP
                signal.signal(number, _terminated)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        app(words, exit_on_error=False, print_error=False, result_action="return_value")
    except BrokenPipeError:
        abandon_closed_streams()
        _leave(1)
    except (Exception, KeyboardInterrupt) as error:
        if debug and not isinstance(error, CycloptsError | KeyboardInterrupt):
            traceback.print_exc()
        _leave(_explain(error, words))


def _explain(error: BaseException, words: list[str]) -> int:
    """Print an error in three lines, and return the exit code."""
    command = shlex.join(["vitrail", *words])
    match error:
        case CycloptsError():
            problem(str(error), command, shlex.join(["vitrail", *(error.command_chain or ()), "--help"]))
            return 2
        case VitrailError():
            problem(error.what, error.where, error.hint)
            return error.exit_code
        case KeyboardInterrupt():
            problem("interrupted", command, "run it again")
            return 130
        case OSError():
            what, hint = error.strerror or str(error), "check the path, its permissions and the free space"
            problem(what, error.filename or "system", hint, foreseen=False)
        case MemoryError():
            problem("out of memory", command, "take a smaller model, image or batch", foreseen=False)
        case _:
            where, hint = "an unexpected error in Vitrail", "run it again with --debug and report it"
            problem(f"{type(error).__name__}: {error}", where, hint, foreseen=False)
    return 1
