"""The usual mend of an operator's error, from the shapes that met and how they came about."""
from tenor import _tenor
from tenor._explain_words import flat, short
from tenor._tenor import Tensor


def mended(evaluator, error, node, operands):
    """The error with the text it comes from, and what would help."""
    tensors = [x for x in flat(operands) if isinstance(x, Tensor)]
    lines = [str(error), f"  in {short(node)}"]
    lines += ["  " + hint for hint in hints(evaluator, str(error), tensors)]
    return type(error)("\n".join(lines))


def bad_call(error, op, text):
    """A call that Python itself refuses."""
    return _tenor.ValueError(f"explain: {text}: {str(error).splitlines()[0]}")


def hints(evaluator, text, tensors):
    if "do not broadcast" in text and len(tensors) >= 2:
        yield from broadcast_hints(evaluator, *_pair(tensors))
    if "inner sizes differ" in text and len(tensors) == 2:
        yield from product_hints(*tensors)
    if "too many indices" in text or ("out of range" in text and "dim" in text):
        yield from dropped_hints(evaluator, tensors)
    if "cannot be seen as" in text:
        yield "reshape copies where a view is not possible"
    if "columns, weight" in text and len(tensors) >= 2 and tensors[0].shape[-1:] == tensors[1].shape[:1]:
        yield f"linear takes the weight as [out, in]; the weight's transpose {tensors[1].shape[::-1]} would fit"
    if "index must have x's" in text and len(tensors) >= 2:
        yield f"gather and scatter index element by element: give the index {tensors[0].ndim} dims (None adds one), or use index_select"


def fits(a, b):
    return all(m == n or 1 in (m, n) for m, n in zip(reversed(a), reversed(b)))


def _pair(tensors):
    """The two that do not meet."""
    for i, a in enumerate(tensors):
        for b in tensors[i + 1:]:
            if not fits(a.shape, b.shape):
                return a, b
    return tensors[0], tensors[1]


def _named(evaluator, x):
    """What the tensor was written as."""
    for text, held in evaluator.origin.values():
        if held is x:
            return text
    return "it"


def broadcast_hints(evaluator, a, b):
    found = False
    for x, other in ((b, a), (a, b)):
        for hint in _history(evaluator, x, other.shape):
            found = True
            yield hint
    for x, other in ((b, a), (a, b)):
        if found:
            return
        for hint in _reshaped(_named(evaluator, x), x.shape, other.shape):
            found = True
            yield hint


def _history(evaluator, x, other):
    """A dim that the step behind x dropped, which would have to be there."""
    made = evaluator.recorder.step_of(x)
    if made is None:
        return
    op, op_class, inputs, out, reduced = made
    name = _named(evaluator, x)
    if op_class == 3 and reduced and len(out) < len(inputs[0]):
        kept = tuple(1 if i in reduced else n for i, n in enumerate(inputs[0]))
        if fits(kept, other):
            yield f"{op} dropped dim {', '.join(map(str, reduced))} of {inputs[0]}; keepdim=True keeps it as 1: {kept} meets {tuple(other)}"
    if op == "select" and len(out) + 1 == len(inputs[0]):
        at = next((i for i in range(len(out)) if inputs[0][i] != out[i]), len(out))
        for i in range(at, -1, -1):
            kept = (*out[:i], 1, *out[i:])
            if inputs[0][:i] == out[:i] and inputs[0][i + 1:] == out[i:] and fits(kept, other):
                yield f"the integer index in {name} dropped dim {i} of {inputs[0]}; i:i+1 keeps it as 1, or None in its place: {kept} meets {tuple(other)}"
                return


def _key(rank, at):
    """The subscript that puts a None at that place."""
    if at == rank:
        return "[..., None]"
    return "[" + ", ".join([":"] * at + ["None"] + ([":"] * (rank - at) if rank - at < 3 else ["..."])) + "]"


def _reshaped(name, shape, other):
    """The view of fewest changes that would fit."""
    if len(shape) == len(other) > 1 and fits((*shape[:-2], shape[-1], shape[-2]), other):
        yield f"transposed it would fit: {name}.transpose(-1, -2) has shape {(*shape[:-2], shape[-1], shape[-2])}"
        return
    for at in range(len(shape), 0, -1) if len(shape) < len(other) else ():
        if fits((*shape[:at], 1, *shape[at:]), other):
            yield f"None adds a dim of 1 there: {name}{_key(len(shape), at)} has shape {(*shape[:at], 1, *shape[at:])}, which meets {tuple(other)}"
            return
    count = len(other) - len(shape)
    if count > 1 and fits((*shape, *[1] * count), other):
        yield f"None adds dims of 1 at the end: {name}[..., {', '.join(['None'] * count)}] has shape {(*shape, *[1] * count)}, which meets {tuple(other)}"


def product_hints(a, b):
    if b.ndim > 1 and a.shape[-1] == b.shape[-1]:
        yield f"the last dims agree: transpose the second, .transpose(-1, -2) (a view), {(*b.shape[:-2], b.shape[-1], b.shape[-2])}; linear takes it as it is"
    elif a.ndim > 1 and b.ndim > 1 and a.shape[-2] == b.shape[-2]:
        yield f"the rows agree: transpose the first, .transpose(-1, -2) (a view), {(*a.shape[:-2], a.shape[-1], a.shape[-2])}"


def dropped_hints(evaluator, tensors):
    for x in tensors:
        made = evaluator.recorder.step_of(x)
        if made and made[0] == "select":
            yield f"an integer index dropped a dim of {made[2][0]} before, so {_named(evaluator, x)} has {x.ndim} dims; i:i+1 keeps it"
