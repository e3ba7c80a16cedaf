"""The house stands as designed: imports run one way, nothing heavy is imported early, nothing runs foreign code."""

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from graphlib import TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

import pytest

import vitrail
import vitrail.study
from vitrail.models.registry import NAMES, ROWS, named
from vitrail.task_registry import TASKS, row_of_kind
from vitrail.tasks.metrics import METRICS

ROOT = Path(vitrail.__file__).parent


def module_name(path: Path) -> str:
    parts = ("vitrail", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, ast.Module]:
    """Return the parsed source of every module of the library, by name."""
    return {module_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(ROOT.rglob("*.py"))}


def every_module(test: Callable[[str], None]) -> Callable[[], None]:
    """Return one test that checks every module and lists all faults."""

    def check_all() -> None:
        faults = []
        for name in modules():
            try:
                test(name)
            except AssertionError as error:
                faults.append(f"{name}: {error}")
        assert not faults, "\n".join(faults)

    return check_all


GROUND = {"errors", "checks", "settings", "plain_text", "plain_yaml", "files", "runtime", "task_registry"}
FRAMEWORKS = {"parts", "models", "data", "weights", "config", "tasks", "training", "study", "deploy"}
ALLOWED = {
    "lazy": set(),
    "": {
        "lazy",
        "runtime",
        "api",
        "result",
        "studies",
        "data",
        "models",
        "weights",
        "tasks",
        "study",
        "deploy",
        "errors",
        "room",
    },
    "__main__": {"cli"},
    "errors": set(),
    "checks": {"errors"},
    "settings": {"errors"},
    "plain_text": set(),
    "plain_yaml": {"errors"},
    "files": {"errors", "plain_text"},
    "task_registry": {"errors"},
    "runtime": {"errors", "files"},
    "parts": {"errors", "checks"},
    "models": GROUND | {"lazy", "parts"},
    "data": GROUND,
    "weights": GROUND | {"parts", "models", "data"},
    "tasks": GROUND | {"parts", "models", "data", "weights"},
    "config": GROUND | {"models", "data", "weights", "tasks"},
    "training": GROUND | {"parts", "models", "data", "weights", "config", "tasks"},
    "study": GROUND | {"lazy", "parts", "models", "data", "weights", "tasks"},
    "deploy": GROUND | {"parts", "models", "data", "weights", "tasks"},
    "room": GROUND | FRAMEWORKS,
    "result": GROUND | FRAMEWORKS,
    "evaluation": GROUND | FRAMEWORKS,
    "studies": GROUND | FRAMEWORKS,
    "api": GROUND | FRAMEWORKS | {"result", "evaluation", "studies"},
    "cli": GROUND | FRAMEWORKS | {"", "api", "room"},
}
"""What each folder or file of the library may import from the others; "" is the library's own page, "room" a task's folder."""
ROOMS = {row.room for row in TASKS.values()}


def room(module: str) -> str | None:
    """The task's room that a module belongs to."""
    parts = module.split(".")
    return parts[2] if parts[1:2] == ["tasks"] and len(parts) > 2 and parts[2] in ROOMS else None


def place(module: str) -> str:
    """The folder or top-level file that a module belongs to."""
    if room(module) or module == "vitrail.study":  # the page of names of the study
        return "room" if room(module) else ""
    return module.split(".")[1] if "." in module else ""


@cache
def imported(name: str) -> frozenset[str]:
    """Return every module that a module of the library imports anywhere, the library's own by their full names."""
    names = set()
    package = name if any(other.startswith(f"{name}.") for other in modules()) else name.rpartition(".")[0]
    for node in ast.walk(modules()[name]):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            source = resolve_name("." * node.level + (node.module or ""), package)
            for alias in node.names:
                inner = f"{source}.{alias.name}"
                names.add(inner if inner in modules() else source)
    return frozenset(names)


def of_ours(name: str) -> set[str]:
    return {module for module in imported(name) if module.split(".")[0] == "vitrail"}


@cache
def calls(name: str) -> list[tuple[str, ast.Call]]:
    """Return every call in a module, with the source of the called function."""
    return [(ast.unparse(node.func), node) for node in ast.walk(modules()[name]) if isinstance(node, ast.Call)]


# imports run one way


@every_module
def test_imports_run_one_way(name):
    here = place(name)
    assert here in ALLOWED, f"{here} has no row in ALLOWED"
    there = {place(module) for module in of_ours(name)} - {here}
    assert there <= ALLOWED[here], f"{name} imports {sorted(there - ALLOWED[here])}"


@every_module
def test_no_task_imports_another(name):
    assert {room(module) for module in of_ours(name)} <= {None, room(name)} or not room(name)


def test_no_modules_import_each_other_in_a_circle_nor_do_the_rows():
    TopologicalSorter({place: others - {""} for place, others in ALLOWED.items()}).prepare()
    TopologicalSorter({name: of_ours(name) - {name} for name in modules()}).prepare()


@every_module
def test_only_modules_that_exist_are_imported(name):
    assert of_ours(name) <= modules().keys()


@every_module
def test_parts_and_models_know_no_file(name):
    if place(name) not in ("parts", "models"):
        return
    files = {"pathlib", "os", "io", "shutil", "tempfile", "glob", "safetensors", "PIL"}
    assert not {module.split(".")[0] for module in imported(name)} & files
    assert "open" not in {called for called, _ in calls(name)}


@every_module
def test_no_module_is_a_drawer_for_everything(name):
    assert not {"utils", "util", "common", "helpers", "misc"} & set(name.split("."))


# no file but its own knows an architecture


def test_no_other_file_names_an_architecture():
    names = {name for row in ROWS for name in (row.name, row.config.__name__, *row.presets)}
    files = {f"vitrail.models.{row.module}" for row in ROWS} | {f"vitrail.models.configs.{row.module}" for row in ROWS}
    own = ("vitrail.models.", "vitrail.weights.layouts.", "vitrail.weights.published", "vitrail.data.images.processors")
    found = {}
    for module, tree in modules().items():
        words = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        words |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        if module != "vitrail" and not module.startswith(own) and (words & names or of_ours(module) & files):
            found[module] = words & names | of_ours(module) & files
    assert not found, "vitrail/__init__.py lists the public names, two tables others' names; nothing else may name any"


def test_a_model_that_a_hint_or_the_help_gives_as_an_example_is_one():
    """Hints take the registry's; the help of a command, which is its docstring, cannot."""
    yardstick = ("vitrail.study.page.images", {"ResNet-50"})  # of a figure
    examples, spelt = set(), []
    for module, tree in modules().items():
        if module.startswith(("vitrail.models.", "vitrail.weights.layouts.", "vitrail.weights.published")):
            continue
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            words = set(re.split(r"[\s,.:;()`'=]+", node.value))
            if id(node) not in docstrings and words & set(NAMES) and (module, words & set(NAMES)) != yardstick:
                spelt.append((module, words & set(NAMES)))
            examples |= {word for word in words if place(module) == "cli" and re.fullmatch(r"\w+-\w+/\d+", word)}
    assert not spelt and len(examples) > 3
    for name in examples:
        named(name)  # which raises for any other


# no file but its own knows a metric


def test_no_other_file_names_a_metric():
    names = METRICS.keys() - {"loss"}  # which every task has
    names |= {f"{split}_{name}" for name in names for split in ("train", "val")} | {m.short for m in METRICS.values()} - {"loss"}
    own = ("vitrail.tasks.", "vitrail.weights.layouts.")  # the last knows timm's pooling "map"
    found = {}
    for module, tree in modules().items():
        texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
        strings = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str) and n not in texts]
        words = {*strings, *(word for text in strings for word in text.split() if word != "map")}
        if not module.startswith(own) and words & names:
            found[module] = words & names
    assert not found


# nothing heavy is imported early


@pytest.mark.parametrize("module", ["vitrail", "vitrail.cli.app", "vitrail.models.configs.vit", "vitrail.models.registry"])
def test_importing_does_not_import_what_computes(module):
    program = f"import sys, {module}; print([m for m in ('torch', 'sklearn', 'matplotlib', 'transformers') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_can_be_imported_and_no_other():
    assert {name for name in vitrail.__all__ if getattr(vitrail, name, None) is None} == set()
    assert dir(vitrail) == sorted(vitrail.__all__) and all(getattr(vitrail, name).__doc__ for name in vitrail.__all__)
    for name in ("os", "api.Run", "nothing"):
        with pytest.raises(AttributeError, match=name):
            getattr(vitrail, name)


@every_module
def test_optional_libraries_are_not_imported_by_the_core(name):
    optional = {"transformers", "timm", "torchvision", "lightning", "accelerate"}
    assert not {module.split(".")[0] for module in imported(name)} & optional


# nothing runs foreign code


@every_module
def test_nothing_evaluates_text_or_unpickles(name):
    assert not {called for called, _ in calls(name)} & {"eval", "exec", "compile", "__import__", "builtins.eval"}
    unsafe = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "runpy", "code"}
    allowed = {"pickle"} if name == "vitrail.data.readers.safe_unpickle" else set()  # reads CIFAR-10's, running nothing
    assert not {module.split(".")[0] for module in imported(name)} & (unsafe - allowed)


@every_module
def test_torch_loads_weights_only(name):
    for called, call in calls(name):
        if called in ("torch.load", "torch.serialization.load"):
            assert {k.arg: ast.unparse(k.value) for k in call.keywords}.get("weights_only") == "True", f"{name}:{call.lineno}"
        assert called not in ("torch.jit.load", "torch.hub.load", "torch.package.PackageImporter"), f"{name}:{call.lineno}"


@every_module
def test_yaml_and_arrays_are_read_safely(name):
    for called, call in calls(name):
        assert called not in ("yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load"), f"{name}:{call.lineno}"
        assert "allow_pickle" not in {k.arg for k in call.keywords}, f"{name}:{call.lineno}"


IMPORTED_BY_NAME = {
    "vitrail.lazy": "f'{package}.{homes[name]}'",
    "vitrail.task_registry": "f'vitrail.tasks.{self.room}.{name}'",  # of which mypy knows the few names
}


@every_module
def test_modules_are_imported_by_name_only_from_our_own_table(name):
    for called, call in calls(name):
        if called.split(".")[-1] in ("import_module", "find_spec", "spec_from_file_location", "SourceFileLoader"):
            assert name in IMPORTED_BY_NAME, f"{name}:{call.lineno} imports a name that it is given"
            assert ast.unparse(call.args[0]) == IMPORTED_BY_NAME[name]
        if called == "lazily":
            package = "vitrail" if name == "vitrail.study" else name.removesuffix(".registry")
            assert ast.unparse(call.args[0]) == repr(package), f"{name}:{call.lineno} finds names in another package"


def test_the_tables_of_public_names_hold_only_our_own_modules():
    assert {
        f"vitrail.tasks.{row.room}.{part}"
        for row in TASKS.values()
        for part in ("settings", "data", "task", "report", "inspection")
    } <= modules().keys()
    kinds = {row_of_kind(row.reads, row.answers) for row in TASKS.values()}
    assert {f"vitrail.tasks.{row.room}.weights" for row in kinds} <= modules().keys()
    assert {
        f"vitrail.tasks.{row.room}.study.sections" for row in kinds if row.answers not in ("text", "noise")
    } <= modules().keys()
    assert {f"vitrail.models.{row.module}" for row in ROWS} <= modules().keys()
    assert {f"vitrail.{home}" for home in vitrail._NAMES} <= modules().keys()
    assert {f"vitrail.{home}" for home in vitrail.study._NAMES} <= modules().keys()
    assert {name for names in vitrail.study._NAMES.values() for name in names} == set(vitrail.study.__all__)
    assert all(callable(getattr(vitrail.study, name)) for name in vitrail.study.__all__)
