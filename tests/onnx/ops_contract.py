import tenor as tn
from graph import op


@op("MatMul")
def matmul(node, a, b):
    return tn.matmul(a, b)


@op("Gemm")
def gemm(node, a, b, c=None):
    a = tn.transpose(a, 0, 1) if node.transA else a
    b = tn.transpose(b, 0, 1) if node.transB else b
    y = tn.matmul(a, b)
    if node.get("alpha", 1.0) != 1:
        y = tn.mul(y, node.alpha)
    if c is None:
        return y
    return tn.add(y, c if node.get("beta", 1.0) == 1 else tn.mul(c, node.beta))


@op("Einsum")
def einsum(node, *xs):
    return tn.einsum(node.equation, *xs)


@op("MatMulInteger")
def matmul_integer(node, a, b, a_zero=None, b_zero=None):
    def centred(x, zero, dim):
        x = tn.asarray(x).to("int32")
        if zero is None:
            return x
        zero = tn.asarray(zero).to("int32")
        return tn.sub(x, tn.unsqueeze(zero, dim) if zero.ndim == 1 and dim == 1 else zero)

    return tn.matmul(centred(a, a_zero, 1), centred(b, b_zero, 0)).numpy()
