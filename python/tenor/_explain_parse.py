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


def parse(text, given=()):
    """The statements of the text, as a tree whose body is what there is to evaluate. Arguments that an article leaves out as
    `, ...)` are dropped. `given`: the inputs' names, which take the place of a function's defaults."""
    body = without_prompts(textwrap.dedent(text.removeprefix("\ufeff")).strip())  # a byte order mark, as some editors write it
    if not body:
        raise _tenor.ValueError("explain: the text is empty")
    tree = _tree(body)
    tree.body = list(_plain(_opened(tree.body, given), _Aliases(tree)))
    if not tree.body:
        raise _tenor.ValueError("explain: the text has nothing to evaluate: only imports, assertions or strings")
    return tree


def without_prompts(body):
    """What stands behind the prompts of a copied session; its output is left out."""
    lines = body.splitlines()
    if not lines or not lines[0].startswith(">>>"):
        return body
    kept = [line[4:] if line[3:4] == " " else line[3:] for line in lines if line.startswith((">>>", "..."))]
    return textwrap.dedent("\n".join(kept)).strip()


def _opened(body, given):
    """The statements of a text that is one function: its parameters are the inputs, or their defaults."""
    rest = [s for s in body if not isinstance(s, (ast.Import, ast.ImportFrom)) and not _is_text(s)]
    if len(rest) != 1 or not isinstance(rest[0], ast.FunctionDef):
        return body
    a = rest[0].args
    positional = a.posonlyargs + a.args
    defaults = list(zip(positional[len(positional) - len(a.defaults):], a.defaults)) + [(p, d) for p, d in zip(a.kwonlyargs, a.kw_defaults) if d]
    return [_assigned(p.arg, d) for p, d in defaults if p.arg not in given] + rest[0].body


def _assigned(name, value):
    return ast.copy_location(ast.Assign(targets=[ast.copy_location(ast.Name(name, ast.Store()), value)], value=value), value)


def _is_text(statement):
    """A docstring, or a string that stands for a comment."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)


_NO_GRADIENTS = {"torch.no_grad", "torch.inference_mode", "torch.enable_grad", "no_grad", "inference_mode"}


def _plain(body, aliases):
    """The statements without what changes neither shapes nor cost: imports of known libraries, assertions, docstrings, and
    the blocks that only turn gradients off."""
    for s in map(aliases.visit, body):
        if isinstance(s, (ast.Import, ast.ImportFrom)) and _is_known(s) or isinstance(s, ast.Assert) or _is_text(s):
            continue
        if isinstance(s, ast.With) and all(_called(item.context_expr) in _NO_GRADIENTS for item in s.items):
            yield from _plain(s.body, aliases)
        else:
            yield s


def _called(node):
    return ast.unparse(node.func if isinstance(node, ast.Call) else node)


def _is_known(statement):
    """Whether every module named is one whose functions text may use."""
    modules = [statement.module or ""] if isinstance(statement, ast.ImportFrom) else [a.name for a in statement.names]
    return all(m.split(".")[0] in _LIBRARIES for m in modules)


_LIBRARIES = {"torch", "numpy", "tenor", "math", "jax", "typing", "__future__"}


class _Aliases(ast.NodeTransformer):
    """Gives libraries the names that are known, where the text's imports named them otherwise."""

    def __init__(self, tree):
        self.meant = {}
        for s in tree.body:
            for a in s.names if isinstance(s, (ast.Import, ast.ImportFrom)) and _is_known(s) else ():
                last = a.name.split(".")[-1]
                name = a.asname or (last if isinstance(s, ast.ImportFrom) else "")
                known = "F" if last == "functional" else last
                if name and name != known and name not in names.NAMESPACES:
                    self.meant[name] = known

    def visit_Name(self, node):
        return ast.copy_location(ast.Name(self.meant[node.id], node.ctx), node) if node.id in self.meant else node


def _tree(body):
    try:
        return _parsed(body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        for repaired in (_dedented(body), re.sub(r",\s*\.\.\.\s*\)", ")", _dedented(body))):
            try:
                return _parsed(repaired)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                pass
        raise _syntax_error(body, error) from None


def read_names(tree):
    """Every name that the text reads: of variables, of attributes, and dotted ones with all that leads to them."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found |= {node.attr, ast.unparse(node)}
    return found


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
    what = "it is nested too deeply" if isinstance(error, (RecursionError, MemoryError)) else getattr(error, "msg", error)
    return _tenor.ValueError(f"explain: cannot read {around(shown, column)!r}: {what}, at column {column}{where}")


def around(line, column, width=90):
    """The line, of a long one what stands around that column."""
    if len(line) <= width:
        return line.strip()
    start = min(max(column - width // 2, 0), len(line) - width)
    return ("..." if start else "") + line[start:start + width].strip() + ("..." if start + width < len(line) else "")


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
