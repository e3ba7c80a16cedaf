"""Rules that turn a piece of Python source into faulty ones: each fault changes one expression or statement."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

OPPOSITE: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,), ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt), ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Div,), ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,), ast.Mod: (ast.Mult,), ast.Pow: (ast.Mult,), ast.BitAnd: (ast.BitOr,), ast.BitOr: (ast.BitAnd,),
    ast.And: (ast.Or,), ast.Or: (ast.And,),
}  # fmt: skip
"""Operators and what takes their place. A comparison of sizes is flipped, and its boundary is moved."""
IGNORED = (ast.Import, ast.ImportFrom, ast.Raise, ast.JoinedStr, ast.Global, ast.Nonlocal)
"""Nodes without a fault inside. Messages are prose; Python 3.11 does not know the places of what an f-string holds."""

HARMLESS = {"capture_output", "encoding", "strict", "timeout"}
"""Arguments of calls that no test misses."""


@dataclass(frozen=True)
class Fault:
    """A span of bytes of a source, and the text that takes its place."""

    line: int
    start: int
    end: int
    new: str

    def apply(self, source: str) -> str:
        """Return the source with this fault."""
        content = source.encode()
        return (content[: self.start] + self.new.encode() + content[self.end :]).decode()

    def describe(self, source: str) -> str:
        """Return what stands in the source, and what takes its place, in one line."""
        old = source.encode()[self.start : self.end].decode()
        return f"{' '.join(old.split())} → {' '.join(self.new.split())}"


def faults(source: str) -> Iterator[Fault]:
    """Yield every fault that the rules make of a source."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in _walk(ast.parse(source)):
        for place, new in _changes(node):
            text = ast.unparse(ast.fix_missing_locations(new))
            yield Fault(
                place.lineno,
                starts[place.lineno - 1] + place.col_offset,
                starts[place.end_lineno - 1] + place.end_col_offset,
                f"({text})" if isinstance(new, ast.BinOp | ast.BoolOp | ast.Compare | ast.UnaryOp) else text,
            )


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and those below it, without annotations, decorators, docstrings and what is `IGNORED`."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            is_docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
            is_for_types = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
            if isinstance(child, ast.Raise):
                yield child
            elif isinstance(child, ast.AST) and not isinstance(child, IGNORED) and not is_docstring and not is_for_types:
                yield from _walk(child)


def _changes(node: ast.AST) -> Iterator[tuple[Any, ast.AST]]:
    """Yield the nodes to be replaced, each with what takes its place."""
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        yield node.test, ast.UnaryOp(ast.Not(), node.test)
    match node:
        case ast.comprehension(ifs=conditions):
            yield from ((condition, ast.UnaryOp(ast.Not(), condition)) for condition in conditions)
        case ast.Compare(left, operators, others):
            for number, operator in enumerate(operators):
                for new in OPPOSITE[type(operator)]:
                    yield node, ast.Compare(left, [*operators[:number], new(), *operators[number + 1 :]], others)
        case ast.BinOp(left, operator, right) if type(operator) in OPPOSITE:
            yield node, ast.BinOp(left, OPPOSITE[type(operator)][0](), right)
        case ast.AugAssign(target, operator, value) if type(operator) in OPPOSITE:
            yield node, ast.AugAssign(target, OPPOSITE[type(operator)][0](), value)
        case ast.BoolOp(operator, values):
            yield node, ast.BoolOp(OPPOSITE[type(operator)][0](), values)
            for value in values:
                rest = [other for other in values if other is not value]
                yield node, ast.BoolOp(operator, rest) if len(rest) > 1 else rest[0]
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield node, operand
        case ast.Constant(value) if new := _other(value):
            yield node, ast.Constant(*new)
        case ast.Return(value) if value is not None and not (isinstance(value, ast.Constant) and value.value is None):
            yield node, ast.Return(ast.Constant(None))
        case ast.Call(function, arguments, keywords):
            for keyword in keywords:
                if keyword.arg not in HARMLESS:
                    yield node, ast.Call(function, arguments, [other for other in keywords if other is not keyword])
            if arguments:
                yield node, ast.Call(function, arguments[:-1], keywords)
            if len(arguments) > 1:
                yield node, ast.Call(function, [arguments[1], arguments[0], *arguments[2:]], keywords)
        case ast.Expr(ast.Call() | ast.Await()) | ast.Raise() | ast.Break():
            yield node, ast.Pass()
        case ast.Continue():
            yield node, ast.Break()


def _other(value: object) -> tuple[object] | None:
    """Return another constant, in a tuple. Text with blanks is prose and stays."""
    match value:
        case bool():
            return (not value,)
        case int():
            return (value + 1,)
        case float():
            return (2 * value or 1.0,)
        case str() if value and not any(character.isspace() for character in value):
            return (value + "x",)
    return None
