"""Lists the operators; of one, its signature, formula, class, dtypes, strategies and cost.

The cost is what the operator states of itself when it is called: tenor explain shows it for your shapes."""
from tenor._cli.arguments import UsageError, add_json, operator_info
from tenor._cli.output import paint, print_json, prose, readable, table, wrapped
from tenor._cli.signature import signature

EXAMPLES = [
    "tenor ops                       every operator, by family",
    "tenor ops --family=norm         those of a family",
    "tenor ops attention             everything about one",
    "tenor ops softmax --json",
]
CLASSES = {1: "view", 2: "elementwise", 3: "reduction", 4: "index", 5: "contraction"}
_DEPENDS = {
    1: "no data is touched: shape, strides and offset change",
    2: "each output element depends on the elements at its own place",
    3: "each output element depends on a row",
    4: "each output element depends on places that data names",
    5: "each output element depends on a row and a column",
}
_COST = {
    1: "no bytes, no FLOPs",
    2: "bytes: inputs and output once; 1 FLOP an output element",
    3: "bytes: input and output once; 1 FLOP an input element (sorts and scans of indices 0)",
    4: "bytes: what is picked or placed, the indices once; no FLOPs",
    5: "bytes: operands and output once; 2 FLOPs a multiply-add",
}


def configure(parser):
    parser.add_argument("name", nargs="?", metavar="NAME", help="one operator")
    parser.add_argument("--family", metavar="F", help="only those of this family")
    add_json(parser)


def execute(args):
    if args.name is not None:
        facts = describe(args.name)
        return print_json(facts) if args.json else show(facts)
    listed = everything(args.family)
    if args.json:
        return print_json(listed)
    table([(o["name"], o["family"], o["class"], o["formula"]) for o in listed], ("operator", "family", "class", "formula"), wrap=True)


def everything(family=None):
    """Every operator as {name, family, class, formula, strategies}, by family and name."""
    from tenor._cli.arguments import nearest
    from tenor._tenor import _operators

    rows = [dict(zip(("name", "family", "class", "formula", "strategies"), o)) for o in _operators()]
    families = sorted({r["family"] for r in rows})
    if family and family not in families:
        raise UsageError(f"no family is called {family!r}{nearest(family, families)}; known: {', '.join(families)}")
    kept = [dict(r, **{"class": CLASSES[r["class"]]}) for r in rows if family in (None, r["family"])]
    return sorted(kept, key=lambda r: (r["family"], r["name"]))


def describe(name):
    """What there is to say of an operator, as a dict."""
    sig = signature(name)
    plain = name.rstrip("_") if name.endswith("_") else name
    found, family, op_class, formula, strategies = operator_info(plain)
    return {
        "name": name, "family": family, "class": CLASSES[op_class], "formula": formula, "signature": sig.full(), "doc": sig.doc.strip(),
        "parameters": [{"name": p.name, "type": p.annotation, "required": p.required, "default": _plain(None if p.required else p.default)}
                       for p in sig.parameters if p.kind not in ("*", "**")],
        "dtypes": dtypes(found), "depends": _DEPENDS[op_class], "cost": _COST[op_class], "strategies": list(strategies),
        "strategy_argument": "strategy" in sig.by_name, "not_on_cpu": refused(name, sig, strategies),
        "source": f"src/ops/{family}/", "header": f"include/tenor/{family}.h",
    }


def _plain(value):
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def dtypes(name):
    """The dtypes of the first array that the operator takes with a small problem; None where none was found."""
    from tenor._cli.probe import accepted_dtypes

    return accepted_dtypes(name)


def refused(name, sig, strategies):
    """{strategy: why} of those that can be asked for and that the CPU does not have."""
    from tenor._cli.probe import refused_strategies

    return refused_strategies(name, strategies) if "strategy" in sig.by_name else {}


def _strategies(facts):
    """Which ways there are, and who chooses."""
    if not facts["strategies"]:
        return "one way only"
    if not facts["strategy_argument"]:
        return f"{', '.join(facts['strategies'])}: chosen by the operator (tenor tune measures them), not by an argument"
    missing = facts["not_on_cpu"]
    here = ", ".join(s for s in facts["strategies"] if s not in missing)
    return f"strategy={here}" + (f"; not on the CPU: {', '.join(missing)}" if missing else "")


def show(facts):
    """The description as text."""
    room = readable()
    print(paint(_wrapped(facts["signature"], room), "1"))
    print(f"\n{prose(facts['doc'], room)}\n")
    rows = [("formula", facts["formula"]), ("class", f"{facts['class']}: {facts['depends']}"), ("cost", facts["cost"])]
    rows += [("dtypes", ", ".join(facts["dtypes"]))] if facts["dtypes"] else []
    rows += [("strategies", _strategies(facts))]
    rows += [("source", f"{facts['source']} (declared in {facts['header']})")]
    for head, text in rows:
        print(wrapped(f"{head:11} {text}", room, 12))
    return 0


def _wrapped(text, room):
    """A long signature with its parameters on lines of their own."""
    if len(text) <= room:
        return text
    name, _, inside = text.partition("(")
    parts, depth, start = [], 0, 0
    for i, c in enumerate(inside):
        depth += (c in "([{") - (c in ")]}")
        if (c == "," and depth == 0) or depth < 0:
            parts.append(inside[start:i].strip())
            start = i + 1
    return name + "(\n" + "".join(f"    {p},\n" for p in parts) + ")"
