"""The list of mutants stays true to the sources; `make mutants` tries them."""

from mutants import mutants


def test_every_mutant_still_changes_one_place_and_names_tests_that_exist():
    assert [fault for mutant in mutants() for fault in mutant.faults()] == []


def test_no_mutant_stands_in_the_list_twice():
    names = [(mutant.file, mutant.old, mutant.new) for mutant in mutants()]
    assert len(names) == len(set(names))
