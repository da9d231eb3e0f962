"""examples/sentence_embedding against the embeddings that PyTorch and transformers computed from the same weights."""
import os
import subprocess
import sys

import numpy as np
import pytest

import tenor as tn

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLE = os.path.join(os.path.dirname(HERE), "examples", "sentence_embedding")
sys.path[:0] = [EXAMPLE, os.path.join(HERE, "data")]
from embedder import Embedder, find_model  # noqa: E402
from make_sentence_embeddings import SENTENCES  # noqa: E402

try:
    find_model()
    import tokenizers  # noqa: F401
except (FileNotFoundError, ImportError) as error:
    pytest.skip(f"{error}", allow_module_level=True)


@pytest.fixture(scope="module")
def embed():
    return Embedder()


@pytest.fixture(scope="module")
def reference():
    return np.load(os.path.join(HERE, "data", "sentence_embeddings.npy"))


def test_the_batch_agrees_with_the_independent_implementation(embed, reference):
    got = embed(SENTENCES)
    assert got.shape == (len(SENTENCES), 384) and got.dtype == tn.float32
    np.testing.assert_allclose(got.numpy(), reference, rtol=0, atol=1e-5)


def test_padding_changes_nothing(embed, reference):
    for sentence, row in zip(SENTENCES, reference):
        np.testing.assert_allclose(embed([sentence]).numpy()[0], row, rtol=0, atol=1e-5)


def test_similar_sentences_are_close(embed):
    cat, kitten, market = embed(SENTENCES[:3]).numpy()
    assert cat @ kitten > 0.6 > 0.2 > cat @ market


def run(*args, **options):
    return subprocess.run([sys.executable, os.path.join(EXAMPLE, "main.py"), *args], capture_output=True, text=True, timeout=120, **options)


def test_the_program_prints_pairs_and_time(tmp_path):
    saved = tmp_path / "rows.npy"
    done = run("--file", "-", "--pairs", "1", "--save", str(saved), input="A cat sleeps.\nShares fell.\nA kitten naps.\n")
    assert done.returncode == 0, done.stderr
    assert "A cat sleeps.\n         A kitten naps." in done.stdout and "ms in one batch" in done.stdout
    assert np.load(saved).shape == (3, 384)


def test_the_program_compares_with_pytorch(monkeypatch, capsys):
    import main

    done = run("--file", "-", "--check", input="A cat sleeps.\nShares fell.\n")
    assert done.returncode == 0 and "agrees with PyTorch" in done.stdout and "allowed 1e-05" in done.stdout, done.stderr
    monkeypatch.setattr(sys, "argv", ["main.py", "--check"])
    monkeypatch.setattr(main, "largest_difference", lambda embed: 2e-5)
    monkeypatch.setattr(main, "time_per_sentence", lambda embed, sentences: (1.0, 1.0))
    assert main.main() == 1 and "DIFFERS" in capsys.readouterr().out


def test_bad_input_is_one_line_and_status_2(tmp_path):
    for args, text in ((("--file", str(tmp_path / "none.txt")), ""), (("--model", str(tmp_path)), ""), (("--file", "-"), "alone\n")):
        done = run(*args, input=text)
        assert done.returncode == 2 and done.stderr.startswith("sentence_embedding: ") and done.stderr.count("\n") == 1, done.stderr
