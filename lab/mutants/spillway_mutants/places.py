"""Finds the places where mutants change the program, and puts a mark at each of these places.

A seed runs the same with a mutant if nothing differs at the mutant's place. Then it need not be run. If a mutant
changes one expression, both versions are evaluated each time, and the seed meets the mutant if their values differ.
Otherwise a seed meets the mutant whenever it reaches the place.
"""

import ast
from collections import defaultdict
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Final

from .catalogue import Mutant

MET: Final = "_met_by_seed"
ASKED: Final = "_asked_of_both"
IMPORT: Final = f"from spillway_mutants.meeting import evaluate_both as {ASKED}, count_meeting as {MET}"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NOT_ALONE = (ast.GeneratorExp, ast.Slice, ast.Starred, ast.FormattedValue, ast.Lambda)
"""Expressions that are no value by themselves, or whose values cannot be compared."""
_NOT_TWICE = (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)
_CHANGING = frozenset(("pop", "append", "add", "update", "setdefault", "next", "discard", "remove", "clear", "super"))
"""Calls of these names have effects, so they must be made only once."""


def marked_text_by_file(mutants: Sequence[Mutant], root: Path) -> dict[str, str]:
    """Returns, by file, its text with a mark at each place inside a function that a mutant changes."""
    by_file = defaultdict[str, list[Mutant]](list)
    for mutant in mutants:
        by_file[mutant.file].append(mutant)
    texts = {}
    for file, here in by_file.items():
        text = (root / file).read_text()
        tree = ast.parse(text)
        places, pairs = dict[str, ast.stmt](), dict[str, tuple[ast.expr, ast.expr]]()
        for mutant in here:
            changed = mutant.mutated_text(root)
            place = statement_at_lines(tree, changed_line_range(text, changed))
            pair = differing_expressions(tree, ast.parse(changed))
            if place is not None and pair is None:
                places[mutant.id] = place
            elif place is not None and pair is not None:
                pairs[mutant.id] = pair
        texts[file] = _unparse_with_marks(tree, places, pairs)
    return texts


def mutants_outside_functions(mutants: Sequence[Mutant], root: Path) -> frozenset[str]:
    """Returns the mutants whose place is outside all functions. Every seed meets them."""
    found = set[str]()
    for mutant in mutants:
        text = (root / mutant.file).read_text()
        if statement_at_lines(ast.parse(text), changed_line_range(text, mutant.mutated_text(root))) is None:
            found.add(mutant.id)
    return frozenset(found)


def differing_expressions(old: ast.AST, new: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """Returns the smallest differing expression in both; None if there are several, or if it cannot be evaluated
    twice."""
    if type(old) is not type(new) or isinstance(old, (ast.JoinedStr, ast.pattern)):
        return None
    theirs, ours = list(ast.iter_child_nodes(old)), list(ast.iter_child_nodes(new))
    changed = [(a, b) for a, b in zip(theirs, ours, strict=False) if ast.dump(a) != ast.dump(b)]
    if len(theirs) != len(ours) or len(changed) != 1 or not _has_equal_fields(old, new):
        return None
    one, other = changed[0]
    if isinstance(old, ast.Call) and one is old.func:
        return None  # Two function objects are never equal, although their results may be.
    found = differing_expressions(one, other)
    if found is None and isinstance(old, ast.Expr):
        return None  # A statement matters by its effect, not by its value.
    if found is None and isinstance(one, ast.expr) and isinstance(other, ast.expr) and _may_evaluate_twice(one, other):
        return one, other
    return found


def _has_equal_fields(old: ast.AST, new: ast.AST) -> bool:
    """Returns whether their parts that are no nodes are equal: names, operators, constants."""
    pairs = zip(ast.iter_fields(old), ast.iter_fields(new), strict=True)
    return all(a == b for (_, a), (_, b) in pairs if not isinstance(a, (ast.AST, list)))


def _may_evaluate_twice(*both: ast.expr) -> bool:
    nodes = [node for one in both for node in ast.walk(one)]
    names = {node.func.attr for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)}
    names |= {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    is_loaded = all(isinstance(getattr(one, "ctx", ast.Load()), ast.Load) for one in both)
    return (
        is_loaded
        and not any(isinstance(one, _NOT_ALONE) for one in both)
        and not any(isinstance(node, _NOT_TWICE) for node in nodes)
        and not names & _CHANGING
    )


def changed_line_range(before: str, after: str) -> tuple[int, int]:
    """Returns the first and last changed line, from 1 on; both neighbours if the change only adds lines."""
    old, new = before.splitlines(), after.splitlines()
    codes = [code for code in SequenceMatcher(None, old, new, autojunk=False).get_opcodes() if code[0] != "equal"]
    first, last = codes[0][1] + 1, codes[-1][2]
    return (first, last) if first <= last else (max(1, first - 1), min(len(old), first))


def statement_at_lines(tree: ast.Module, lines: tuple[int, int]) -> ast.stmt | None:
    """Returns the first of the fewest statements in a function that contain all these lines; None outside functions."""
    found: ast.stmt | None = None
    block: list[ast.stmt] = tree.body
    inside = False
    while block:
        touched = [one for one in block if _first_line(one) <= lines[1] and _last_line(one) >= lines[0]]
        if not touched:
            return found
        found = touched[0] if inside else None
        if len(touched) > 1:
            return found
        inner = next((one for one in _statement_blocks(touched[0]) if _contains_lines(one, lines)), [])
        inside = inside or (bool(inner) and isinstance(touched[0], _FUNCTIONS))
        if inner and found is None and inside:
            found = inner[0]
        block = inner
    return found


def _unparse_with_marks(
    tree: ast.Module, places: Mapping[str, ast.stmt], pairs: Mapping[str, tuple[ast.expr, ast.expr]]
) -> str:
    names = defaultdict[int, list[str]](list)
    for name, place in places.items():
        names[id(place)].append(name)
    for node in list(ast.walk(tree)):
        for block in _statement_blocks(node):
            for number in reversed(range(len(block))):
                block[number:number] = [_parse_statement(f"{MET}({name!r})") for name in names[id(block[number])]]
    asked = defaultdict[int, list[tuple[str, ast.expr]]](list)
    for name, (one, other) in pairs.items():
        asked[id(one)].append((name, other))
    _Asking(asked).visit(tree)
    first = next(number for number, one in enumerate([*tree.body, ast.Pass()]) if not _is_module_head(one))
    tree.body[first:first] = [_parse_statement(IMPORT)]
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


class _Asking(ast.NodeTransformer):
    """Replaces each of these expressions, by id, with a call that evaluates both versions."""

    def __init__(self, asked: Mapping[int, Sequence[tuple[str, ast.expr]]]) -> None:
        self._asked = asked

    def visit(self, node: ast.AST) -> ast.AST:
        number = id(node)
        found: ast.AST = self.generic_visit(node)
        for name, other in self._asked.get(number, ()) if isinstance(found, ast.expr) else ():
            call = ast.parse(f"{ASKED}({name!r}, lambda: 0, lambda: 0)", mode="eval").body
            for side, value in zip(call.args[1:], (found, other), strict=True):  # type: ignore[attr-defined]
                side.body = value
            found = call
        return found


def _parse_statement(text: str) -> ast.stmt:
    return ast.parse(text).body[0]


def _is_module_head(one: ast.stmt) -> bool:
    """Returns whether the statement must stand first in a module."""
    is_text = isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
    return is_text or (isinstance(one, ast.ImportFrom) and one.module == "__future__")


def _statement_blocks(node: ast.AST) -> list[list[ast.stmt]]:
    """Returns the lists of statements in the node."""
    own = [getattr(node, name, None) for name in ("body", "orelse", "finalbody")]
    parts: list[ast.AST] = [*getattr(node, "handlers", ()), *getattr(node, "cases", ())]
    return [block for block in (*own, *(part.body for part in parts)) if isinstance(block, list) and block]  # type: ignore[attr-defined]


def _contains_lines(block: list[ast.stmt], lines: tuple[int, int]) -> bool:
    return _first_line(block[0]) <= lines[0] and lines[1] <= _last_line(block[-1])


def _first_line(one: ast.stmt) -> int:
    """Returns the first line of the statement, with its decorators."""
    decorators: list[ast.expr] = getattr(one, "decorator_list", [])
    return min([one.lineno, *(decorator.lineno for decorator in decorators)])


def _last_line(one: ast.stmt) -> int:
    return one.end_lineno or one.lineno
