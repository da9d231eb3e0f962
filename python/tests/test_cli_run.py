"""tenor run: operators on files, options from signatures, results, and every way to get it wrong."""
import os

import ml_dtypes
import numpy as np
import pytest
from command_line import run, spawn
from safetensors.numpy import save_file

import tenor


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.save("x.npy", rng.standard_normal((4, 8), np.float32))
    np.save("y.npy", rng.standard_normal((8, 3), np.float32))
    np.save("image.npy", rng.standard_normal((1, 2, 4, 5), np.float32))
    np.save("i.npy", np.array([[0, 1], [2, 0]]))
    qkv = {name: rng.standard_normal((1, 2, 5, 4)).astype(np.float32) for name in ("query", "key", "value")}
    np.savez("qkv.npz", **qkv)
    save_file(qkv, "qkv.safetensors")
    np.savez("many.npz", a=np.ones(3), b=np.zeros(3))
    np.save("v.npy", np.float32(3))
    np.save("kernel.npy", rng.standard_normal((3, 2, 3, 3), np.float32))
    return tmp_path


def x():
    return np.load("x.npy")


def put(value):
    want = x()
    want[np.load("i.npy")] = value
    return want


def conv(padding):
    return tenor.conv_forward(np.load("image.npy"), np.load("kernel.npy"), padding=padding)


def result(*words):
    """The result in the file that the command wrote."""
    done = run("run", *words, "-o", "out.npy")
    assert done.status == 0, done.err
    return tenor.load("out.npy").numpy()


# ---- what works ---------------------------------------------------------------------------------------------------------


def test_one_result():
    done = spawn("run", "softmax", "x.npy", "--dim=0", "-o", "p.npy")
    assert done.status == 0 and done.out == "result: float32[4, 8] -> p.npy\n" and done.err == ""
    assert np.array_equal(np.load("p.npy"), tenor.softmax(x(), 0))


@pytest.mark.parametrize("words, want", [
    (["matmul", "x.npy", "y.npy"], lambda: tenor.matmul(x(), np.load("y.npy"))),
    (["sum", "x.npy", "--dim=0,1", "--keepdim"], lambda: tenor.sum(x(), (0, 1), True)),
    (["sum", "x.npy", "--dim", "-1"], lambda: tenor.sum(x(), -1)),
    (["sum", "x.npy", "--dim=[0]", "--dtype=float64"], lambda: tenor.sum(x(), 0, dtype="float64")),
    (["sum", "x.npy", "--dim=none"], lambda: tenor.sum(x())),
    (["sum", "x.npy", "-1"], lambda: tenor.sum(x(), -1)),
    (["gather", "x.npy", "0", "i.npy"], lambda: tenor.gather(x(), 0, np.load("i.npy"))),
    (["gather", "x.npy", "i.npy", "--dim=0"], lambda: tenor.gather(x(), 0, np.load("i.npy"))),
    (["gather", "--index=i.npy", "--dim=0", "--x=x.npy"], lambda: tenor.gather(x(), 0, np.load("i.npy"))),
    (["index_select", "x.npy", "0", "--index=[2, 0]"], lambda: tenor.index_select(x(), 0, np.array([2, 0]))),
    (["add", "x.npy", "2"], lambda: tenor.add(x(), 2)),
    (["add", "x.npy", "2.5", "--alpha=2"], lambda: tenor.add(x(), 2.5, alpha=2)),
    (["add", "x.npy", "inf"], lambda: x() + np.float32(np.inf)),
    (["mul", "x.npy", "-nan"], lambda: x() * np.float32(np.nan)),
    (["add", "x.npy", "true"], lambda: tenor.add(x(), True)),
    (["sum", "x.npy", "--dim=0", "--keepdim=1"], lambda: tenor.sum(x(), 0, True)),
    (["clamp", "x.npy", "--min=-0.5"], lambda: tenor.clamp(x(), -0.5)),
    (["reshape", "x.npy", "2,16"], lambda: x().reshape(2, 16)),
    (["permute", "x.npy", "--shape=1,0"], lambda: x().T),
    (["flip", "x.npy", "--dims=0"], lambda: x()[::-1]),
    (["repeat", "x.npy", "2,1"], lambda: np.tile(x(), (2, 1))),
    (["cat", "x.npy", "x.npy", "--dim=1"], lambda: np.concatenate([x(), x()], 1)),
    (["einsum", "ij,jk->ki", "x.npy", "y.npy"], lambda: tenor.einsum("ij,jk->ki", x(), np.load("y.npy"))),
    (["gelu", "x.npy", "--approximate=tanh"], lambda: tenor.gelu(x(), approximate="tanh")),
    (["to", "x.npy", "int32"], lambda: x().astype(np.int32)),
    (["to", "x.npy", "--dtype=float16"], lambda: x().astype(np.float16)),
    (["add_", "x.npy", "1"], lambda: x() + np.float32(1)),
    (["full", "2,3", "7", "--dtype=int8"], lambda: np.full((2, 3), 7, np.int8)),
    (["arange", "5"], lambda: np.arange(5)),
    (["pad", "x.npy", "1,2", "--value=3"], lambda: np.pad(x(), ((0, 0), (1, 2)), constant_values=3)),
    (["attention", "qkv.npz", "--causal"], lambda: tenor.attention(**np.load("qkv.npz"), causal=True)),
    (["attention", "qkv.safetensors", "--causal=top_left", "--scale=0.3"], lambda: tenor.attention(**np.load("qkv.npz"), causal="top_left", scale=0.3)),
    (["attention", "qkv.npz:query", "qkv.npz:key", "qkv.safetensors:value", "--window=2,0"], lambda: tenor.attention(**np.load("qkv.npz"), window=(2, 0))),
    (["attention", "qkv.npz", "--no-causal", "--strategy=fallback"], lambda: tenor.attention(**np.load("qkv.npz"), strategy="fallback")),
    (["neg", "many.npz:a"], lambda: -np.ones(3)),
    (["index_get", "x.npy", "1"], lambda: x()[1]),
    (["index_get", "x.npy", "i.npy"], lambda: x()[np.load("i.npy")]),
    (["index_get", "x.npy", "..."], x),
    (["index_put", "x.npy", "[i.npy]", "--values=7"], lambda: put(7)),
    (["index_put", "x.npy", "i.npy", "v.npy"], lambda: put(3)),
    (["index_put", "x.npy", "--indices=[i.npy, i.npy]", "--values=v.npy", "--accumulate"], lambda: tenor.index_put(x(), [np.load("i.npy")] * 2, np.float32(3), True)),
    (["zeros", "2", "3"], lambda: np.zeros((2, 3), np.float32)),
    (["expand", "v.npy", "2", "3"], lambda: np.full((2, 3), 3, np.float32)),
    (["repeat", "x.npy", "2", "1"], lambda: np.tile(x(), (2, 1))),
    (["conv_forward", "image.npy", "kernel.npy", "--padding=1"], lambda: conv(1)),
    (["conv_forward", "image.npy", "kernel.npy", "--padding=1,2"], lambda: conv((1, 2))),
    (["conv_forward", "image.npy", "kernel.npy", "--padding=[(0, 1), (2, 0)]"], lambda: conv([(0, 1), (2, 0)])),
    (["conv_forward", "image.npy", "kernel.npy", "--padding=same"], lambda: conv("same")),
    *((["im2col", "image.npy", "2", f"--padding={typed}"], lambda value=value: tenor.im2col(np.load("image.npy"), 2, padding=value))
      for typed, value in (("1", 1), ("1,0", (1, 0)), ("(1,0)", (1, 0)), ("((1,2),(0,1))", ((1, 2), (0, 1))), ("same", "same"), ("valid", 0))),
    (["softmax", "x.npy", "--threads=1"], lambda: tenor.softmax(x())),
    (["softmax", "x.npy", "--device=cpu"], lambda: tenor.softmax(x())),
])
def test_operators_and_options(words, want):
    threads = tenor.get_num_threads()
    try:
        got, expected = result(*words), np.asarray(want())
    finally:
        tenor.set_num_threads(threads)
    assert got.dtype == expected.dtype and got.shape == expected.shape and np.array_equal(got, expected, equal_nan=got.dtype.kind == "f")


def test_several_results():
    want = tenor.topk(x(), 3)
    assert run("run", "topk", "x.npy", "3", "-o", "best.npz").status == 0
    found = np.load("best.npz")
    assert set(found) == {"values", "indices"} and np.array_equal(found["values"], want.values) and np.array_equal(found["indices"], want.indices)
    assert run("run", "topk", "x.npy", "3", "--output=v.npy", "-o", "i2.npy").status == 0
    assert np.array_equal(np.load("v.npy"), want.values) and np.array_equal(np.load("i2.npy"), want.indices)
    assert run("run", "attention", "qkv.npz", "--return-lse", "-o", "out.safetensors").status == 0
    assert set(tenor.load("out.safetensors")) == {"out", "lse"}
    assert run("run", "split", "x.npy", "3", "-o", "pieces.npz").status == 0
    assert [np.load("pieces.npz")[k].shape for k in "01"] == [(3, 8), (1, 8)]


def test_without_an_output_results_are_printed():
    done = run("run", "topk", "x.npy", "1")
    assert done.status == 0 and done.out.startswith("values: tensor(") and "indices: tensor(" in done.out
    assert run("run", "sum", "x.npy").out == f"{tenor.sum(tenor.asarray(x()))}\n"
    facts = run("run", "sum", "x.npy", "--dim=1", "--json").json
    assert facts["op"] == "sum" and facts["results"][0]["values"] == tenor.sum(x(), 1).tolist() and facts["ms"] > 0
    facts = run("run", "matmul", "x.npy", "y.npy", "--json", "-o", "z.npy").json
    assert facts["strategy"] in tenor.strategies("matmul") and facts["results"] == [{"name": "result", "shape": [4, 3], "dtype": "float32", "file": "z.npy"}]


def test_json_of_what_json_lacks():
    np.save("odd.npy", np.array([np.nan, np.inf, 1.0]))
    assert run("run", "neg", "odd.npy", "--json").json["results"][0]["values"] == [None, None, -1.0]


def test_bfloat16_files():
    tenor.save(np.ones((2, 2), ml_dtypes.bfloat16), "b.npy")
    got = result("add", "b.npy", "1")
    assert got.dtype == ml_dtypes.bfloat16 and np.all(got.astype(float) == 2)


def test_an_output_may_be_the_input():
    want = tenor.neg(x())
    assert run("run", "neg", "x.npy", "-o", "x.npy").status == 0
    assert np.array_equal(x(), want) and not any(name.endswith(".part") for name in os.listdir())


# ---- what is wrong ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words, said", [
    (["softmx", "x.npy"], ["no operator is called 'softmx'", "'softmax'"]),
    (["--json"], ["operator's name comes first"]),
    (["softmax"], ["x is missing", "softmax(x: array"]),
    (["softmax", "z.npy"], ["z.npy: no such file"]),
    (["softmax", "xx.npy"], ["xx.npy: no such file", "'x.npy'"]),
    (["softmax", "x.txt"], ["'x.txt'", ".npy, .npz or .safetensors"]),
    (["softmax", "x.npy", "y.npy"], ["what is y.npy for", "it takes x"]),
    (["zeros", "x.npy"], ["what is x.npy for", "no arrays"]),
    (["softmax", "x.npy", "1", "2"], ["what is '2' for"]),
    (["softmax", "x.npy", "--dmi=1"], ["no option --dmi", "'dim'"]),
    (["softmax", "x.npy", "--q=1"], ["no option --q", "--dim"]),
    (["softmax", "x.npy", "--out=y.npy"], ["no option --out", "-o FILE"]),
    (["softmax", "x.npy", "--dim"], ["--dim needs a value"]),
    (["softmax", "x.npy", "--dim=a"], ["--dim", "an integer", "'a'"]),
    (["softmax", "x.npy", "--dim=1.5"], ["--dim", "an integer", "'1.5'"]),
    (["softmax", "x.npy", "--dim=none"], ["--dim", "an integer"]),
    (["softmax", "x.npy", "--dim=1", "--dim=0"], ["dim is given twice"]),
    (["softmax", "x.npy", "--dim=7"], ["softmax: dim", "7"]),
    (["sum", "x.npy", "--keepdim=maybe"], ["--keepdim", "true or false", "'maybe'"]),
    (["sum", "x.npy", "--dim=0,b"], ["--dim", "integers", "'0,b'"]),
    (["sum", "x.npy", "--dtype=float31"], ["float31"]),
    (["rms_norm", "x.npy", "y.npy", "--epsilon=small"], ["--epsilon", "a number", "'small'"]),
    (["gather", "x.npy", "0", "--index=1"], ["--index", "a file", "'1'"]),
    (["index_select", "x.npy", "0", "--index=[[1], 2]"], ["--index"]),
    (["matmul", "x.npy", "x.npy"], ["matmul:", "(4, 8)"]),
    (["matmul", "--x=[x.npy, y.npy]"], ["x is given twice"]),
    (["conv_forward", "image.npy", "kernel.npy", "--padding=some"], ["padding", "'some'"]),
    (["matmul", "many.npz"], ["many.npz holds a, b", "many.npz:a"]),
    (["neg", "many.npz:c"], ["no array 'c'", "a, b"]),
    (["attention", "qkv.npz", "qkv.npz:query"], ["mask"]),
    (["attention", "qkv.npz", "--query=x.npy"], ["query is given twice"]),
    (["attention", "qkv.npz", "--strategy=best"], ["'best'", "fallback"]),
    (["attention", "qkv.npz", "--strategy=flash_tensorcore"], ["flash_tensorcore"]),
    (["topk", "x.npy", "2", "-o", "a.npy"], ["2 results (values, indices)", "-o once for each"]),
    (["softmax", "x.npy", "-o", "a.npy", "-o", "b.npy"], ["1 result (result)", "give -o once"]),
    (["softmax", "x.npy", "-o", "a.txt"], ["a.txt", ".npy, .npz or .safetensors"]),
    (["softmax", "x.npy", "-o", "no/a.npy"], ["no folder no"]),
    (["softmax", "x.npy", "-o"], ["-o"]),
    (["softmax", "x.npy", "--threads=0"], ["--threads", ">= 1"]),
    (["softmax", "x.npy", "--device=gpu"], ["--device gpu", "'gpu'"]),
    (["zeros", "-3"], ["zeros"]),
    (["einsum", "ij,jk", "x.npy"], ["einsum"]),
    (["softmax", "x.npy", "-d", "1"], ["no option is called -d", "--name=value"]),
    (["softmax", "x.npy", "--dim=99999999999999999999"], ["--dim", "64 bits"]),
    (["sum", "x.npy", "99999999999999999999"], ["--dim", "64 bits"]),
    (["softmax", ""], ["what is '' for"]),
    (["im2col", "image.npy", "2", "--padding="], ["padding", "got ''"]),
    (["im2col", "image.npy", "2", "--padding=((1,2),(0,1)"], ["padding", "got '((1,2),(0,1)'"]),
    (["sample", "x.npy"], ["seed is missing", "--seed=..."]),
    (["set_num_threads", "3"], ["no operator is called 'set_num_threads'"]),
    (["load", "x.npy"], ["no operator is called 'load'"]),
    (["softmax", "a\x1b[31mb.npy"], ["a\\x1b[31mb.npy"]),
    (["softmax", "\udcff.npy"], ["no such file"]),
])
def test_mistakes(words, said):
    before = sorted(os.listdir())
    run("run", *words).refused(*said)
    assert sorted(os.listdir()) == before


def test_memory_that_is_not_there():
    for shape in ("1000000,1000000,100", "99999999999,99999999999"):
        done = run("run", "zeros", shape)
        assert done.status == 1 and "out of memory" in done.err and done.err.count("\n") == 1


def test_a_file_that_cannot_be_read_or_written(folder):
    os.mkdir("d.npy")
    run("run", "neg", "d.npy").refused("d.npy")
    run("run", "neg", "x.npy", "-o", "d.npy").refused("-o d.npy")


def test_a_full_disk_leaves_no_half_file(monkeypatch):
    def fails(_value, path):
        with open(path, "wb") as file:
            file.write(b"half")
        raise OSError(28, "No space left on device", path)

    np.save("p.npy", np.arange(3))
    monkeypatch.setattr(tenor, "save", fails)
    run("run", "neg", "x.npy", "-o", "p.npy").refused("No space left")
    assert np.array_equal(np.load("p.npy"), np.arange(3)) and not [f for f in os.listdir() if "part" in f]


def test_options_of_a_help_for_an_operator():
    assert "dim: int = -1" in spawn("run", "softmax", "--help").out
    run("run", "nothing", "--help").refused("'nothing'")


def test_without_arguments():
    run("run").refused("an operator's name is missing")


def test_a_list_of_files(tmp_path):
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", np.full((1, 2), ord(name), np.float32))
    run("run", "cat", f"[{tmp_path}/a.npy, {tmp_path}/b.npy]", "-o", str(tmp_path / "c.npy"))
    assert np.array_equal(np.load(tmp_path / "c.npy"), [[97, 97], [98, 98]])


def test_a_method_of_an_object_that_files_do_not_hold():
    run("run", "paged.attention").refused("paged.attention is called on an object that Python code makes")
