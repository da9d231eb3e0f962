"""examples/ocr: the parts that need no network, and the whole where its packages are installed."""
import os
import subprocess
import sys

import numpy as np
import pytest

import tenor as tn

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLE = os.path.join(os.path.dirname(HERE), "examples", "ocr")
sys.path.insert(0, EXAMPLE)
onnx = pytest.importorskip("onnx")
if not all(hasattr(tn, name) for name in ("conv_forward", "max_pool2d", "interpolate", "ctc_greedy_decode")):
    pytest.skip("a build without the operators of the example", allow_module_level=True)
import graph  # noqa: E402
import reader  # noqa: E402


def test_regions_are_the_connected_parts():
    rows = ["#.#.##", "#.#..#", "###..#", ".....#", "##...."]
    mask = np.array([[c == "#" for c in row] for row in rows])
    assert sorted(reader.regions(mask)) == [(0, 0, 3, 3), (0, 4, 2, 5), (4, 0, 6, 4)]
    rng = np.random.default_rng(0)
    for _ in range(30):
        mask = rng.random((9, 11)) < 0.5
        seen, want = np.zeros_like(mask), []
        for y, x in zip(*np.nonzero(mask)):  # a flood fill, corner to corner as well
            if seen[y, x]:
                continue
            stack, ys, xs = [(y, x)], [], []
            while stack:
                a, b = stack.pop()
                if 0 <= a < 9 and 0 <= b < 11 and mask[a, b] and not seen[a, b]:
                    seen[a, b] = True
                    ys.append(a), xs.append(b)
                    stack += [(a + i, b + j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
            want.append((min(xs), min(ys), max(xs) + 1, max(ys) + 1))
        assert sorted(reader.regions(mask)) == sorted(want)


def test_a_graph_with_a_bias_that_joins_its_convolution(tmp_path):
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(1)
    w, b = rng.standard_normal((4, 3, 2, 2)).astype(np.float32), rng.standard_normal((1, 4, 1, 1)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], auto_pad="SAME_UPPER", kernel_shape=[2, 2]), helper.make_node("Identity", ["b"], ["b2"]),
             helper.make_node("Add", ["c", "b2"], ["y"]), helper.make_node("Shape", ["y"], ["s"]),
             helper.make_node("MaxPool", ["y"], ["z"], auto_pad="SAME_UPPER", kernel_shape=[2, 2])]
    made = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 5, 6])],
                             [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)], [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")])
    path = str(tmp_path / "g.onnx")
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 11)]), path)
    g = graph.Graph(path)
    assert [n.kind for n in g.nodes] == ["Conv", "Shape", "MaxPool"]
    x = rng.standard_normal((1, 3, 5, 6)).astype(np.float32)
    padded = np.pad(x, ((0, 0), (0, 0), (0, 1), (0, 1)))
    y = sum(np.einsum("nchw,oc->nohw", padded[:, :, i : i + 5, j : j + 6], w[:, :, i, j]) for i in (0, 1) for j in (0, 1)) + b
    wide = np.pad(y, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=-np.inf)
    want = np.max([wide[:, :, i : i + 5, j : j + 6] for i in (0, 1) for j in (0, 1)], 0)
    np.testing.assert_allclose(g(tn.asarray(x)).numpy(), want, atol=1e-5)


def run(*args):
    return subprocess.run([sys.executable, os.path.join(EXAMPLE, "main.py"), *args], capture_output=True, text=True)


def test_it_reads_what_was_drawn():
    try:
        reader.find_model("rec")
        import PIL  # noqa: F401
    except (FileNotFoundError, ImportError) as error:
        pytest.skip(str(error))
    done = run("--check", "--device", "cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Tenor reads this line." in done.stdout and "the text that was drawn" in done.stdout


def test_what_is_missing_is_one_line(tmp_path):
    done = run("--models", str(tmp_path))
    assert done.returncode == 2 and done.stderr.startswith("ocr: ") and done.stderr.count("\n") == 1
    done = run("--models", str(tmp_path), "--demo")
    assert done.returncode == 0 and done.stdout.startswith("ocr: ") and done.stdout.count("\n") == 1
