"""Faults are what the rules say, nothing else, and always Python."""

from pathlib import Path

import pytest

from mutants import ROOT, find_tests
from mutation_rules import faults


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b", ["(a <= b)", "(a >= b)"]),
        ("a is not b", ["(a is b)"]),
        ("x = a + b", ["(a - b)"]),
        ("x -= y", ["x += y"]),
        ("a and b and c", ["(a or b or c)", "(b and c)", "(a and c)", "(a and b)"]),
        ("a or b", ["(a and b)", "b", "a"]),
        ("x = not a", ["a"]),
        ("if a: x", ["(not a)"]),
        ("x = [i for i in a if i]", ["(not i)"]),
        ("def f(a: int = 1) -> 'text': 'Return.'", ["2"]),
        ("x = True, 0.5, 0.0, 'word', 'two words', f'{1}'", ["False", "1.0", "1.0", "'wordx'"]),
        ("def f(): return a", ["return None"]),
        ("x = f(a, b, c=d, encoding=e)", ["f(a, b, encoding=e)", "f(a, c=d, encoding=e)", "f(b, a, c=d, encoding=e)"]),
        ("for a in b:\n continue", ["break"]),
        ("raise ValueError(f(1))", ["pass"]),
        ("import a.b\nif TYPE_CHECKING: x = 1", []),
    ],
)
def test_each_rule_changes_what_it_names(source, expected):
    assert [fault.new for fault in faults(source)] == expected


def test_a_fault_has_its_line_and_changes_nothing_else():
    (fault,) = faults("é = 'ü ü'\nx = (a +\n  b)  # why\n")
    assert (fault.line, fault.describe("é = 'ü ü'\nx = (a +\n  b)  # why\n")) == (2, "a + b → (a - b)")
    assert fault.apply("é = 'ü ü'\nx = (a +\n  b)  # why\n") == "é = 'ü ü'\nx = ((a - b))  # why\n"


def test_every_fault_of_a_file_is_python():
    source = (ROOT / "src/vitrail/plain_text.py").read_text(encoding="utf-8")
    for fault in faults(source):
        compile(fault.apply(source), "faulty", "exec")


def test_the_mirror_of_a_file_tries_its_faults_first():
    assert find_tests(Path("src/vitrail/files.py"))[0] == "tests/test_files.py"
