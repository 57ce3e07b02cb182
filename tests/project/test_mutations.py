"""The list of mutations keeps up with the source; `make test-mutants` tries them."""

import ast

import mutants

MUTATIONS = mutants.listed()


def test_every_mutation_applies_exactly_once_and_gives_another_program():
    for mutation in MUTATIONS:
        mutated = ast.parse(mutation.apply(mutants.PACKAGE))
        original = ast.parse((mutants.PACKAGE / mutation.file).read_text(encoding="utf-8"))
        assert ast.dump(mutated) != ast.dump(original), mutation


def test_every_mutation_names_a_test_that_exists():
    for mutation in MUTATIONS:
        path, name = mutation.test.split("::")
        tree = ast.parse((mutants.ROOT / path).read_text(encoding="utf-8"))
        assert name.partition("[")[0] in {
            node.name for node in tree.body if isinstance(node, ast.FunctionDef)
        }, mutation


def test_no_mutation_is_listed_twice():
    assert len({(one.file, one.before, one.after) for one in MUTATIONS}) == len(MUTATIONS)
