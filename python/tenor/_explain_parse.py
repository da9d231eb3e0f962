"""Text into statements, for tenor.explain: what articles leave out or indent is mended, what is not evaluated has a name."""
import ast
import re
import textwrap

from tenor import _explain_names as names
from tenor import _tenor

REFUSED = {ast.For: "a for loop", ast.While: "a while loop", ast.Import: "an import", ast.ImportFrom: "an import", ast.Lambda: "a lambda",
           ast.ListComp: "a comprehension", ast.SetComp: "a comprehension", ast.DictComp: "a comprehension", ast.GeneratorExp: "a comprehension",
           ast.FunctionDef: "a function definition", ast.ClassDef: "a class definition", ast.Try: "a try block", ast.With: "a with block",
           ast.If: "an if statement", ast.Await: "await", ast.Yield: "yield", ast.Global: "a global statement", ast.Dict: "a dict",
           ast.Set: "a set", ast.JoinedStr: "an f-string", ast.Assert: "an assert", ast.Delete: "a del statement", ast.Raise: "a raise",
           ast.NamedExpr: "an assignment expression", ast.AsyncFunctionDef: "a function definition"}
INSTEAD = {ast.For: ": paste its body, one pass of it", ast.While: ": paste its body, one pass of it",
           ast.FunctionDef: ": pass the function itself, or paste its body"}


def parse(text):
    """The statements of the text. Arguments that an article leaves out as `, ...)` are dropped."""
    body = textwrap.dedent(text).strip()
    if not body:
        raise _tenor.ValueError("explain: the text is empty")
    try:
        return _parsed(body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        for repaired in (_dedented(body), re.sub(r",\s*\.\.\.\s*\)", ")", _dedented(body))):
            try:
                return _parsed(repaired)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                pass
        raise _syntax_error(body, error) from None


def _parsed(body):
    tree = ast.parse(body)
    tree.text = body
    return tree


def _dedented(body):
    """Lines of a loop's body beside what follows it, as they are pasted: every statement from the first column. A block that
    opens here keeps its indent, and is refused by its name."""
    if re.search(r":\s*(#.*)?$", body, re.MULTILINE):
        return body
    return "\n".join(line.strip() for line in body.splitlines())


def _syntax_error(body, error):
    lines = body.splitlines()
    line = (getattr(error, "lineno", None) or 1) - 1
    shown = lines[line] if line < len(lines) else body
    column = getattr(error, "offset", None) or 1
    where = f" of line {line + 1}" if len(lines) > 1 else ""
    return _tenor.ValueError(f"explain: cannot read {shown.strip()!r}: {getattr(error, 'msg', error)}, at column {column}{where}")


def free_names(tree):
    """Names that the text reads and neither sets nor finds in a library, in order."""
    found, bound = [], set()
    nodes = sorted((n for n in ast.walk(tree) if isinstance(n, ast.Name)), key=lambda n: (n.lineno, n.col_offset))
    for node in nodes:
        if isinstance(node.ctx, ast.Store):
            bound.add(node.id)
    for node in nodes:
        known = node.id in names.NAMESPACES or node.id in names.BUILTINS or node.id in names.FOR_NUMBERS or node.id in names.operator_names()
        if isinstance(node.ctx, ast.Load) and node.id not in found and node.id not in bound and not known:
            found.append(node.id)
    return found
