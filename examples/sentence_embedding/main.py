#!/usr/bin/env python3
"""Embeds sentences with all-MiniLM-L6-v2, every operator Tenor's, and prints the most similar pairs."""
import argparse
import os
import sys
import time

import tenor as tn
from embedder import Embedder

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(os.path.dirname(os.path.dirname(HERE)), "tests", "data")
TOLERANCE = 1e-5


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", default=os.path.join(HERE, "sentences.txt"), help="text with one sentence a line ('-' for standard input)")
    parser.add_argument("--model", help="folder with model.safetensors, tokenizer.json and config.json (default: the installed package's)")
    parser.add_argument("--pairs", type=int, default=6, help="how many pairs to print (default: 6)")
    parser.add_argument("--device", default="auto", help="cpu, cuda, or auto: a GPU where there is one (default: auto)")
    parser.add_argument("--threads", type=int, help="threads (default: OMP_NUM_THREADS, or all cores)")
    parser.add_argument("--save", metavar="FILE", help="write the embeddings to this .npy or .safetensors file")
    parser.add_argument("--check", action="store_true", help="also compare with the embeddings that PyTorch computed (tests/data)")
    return parser.parse_args()


def read_sentences(path):
    with (sys.stdin if path == "-" else open(path, encoding="utf-8")) as file:
        return [line.strip() for line in file if line.strip()]


def most_similar(embeddings, count):
    """The `count` largest of the cosines between different rows: [(cosine, i, j)], i < j."""
    n = embeddings.shape[0]
    cosines = tn.triu(tn.matmul(embeddings, embeddings.transpose(0, 1)), 1)
    values, places = tn.topk(cosines.reshape(n * n), min(count, n * (n - 1) // 2))
    return [(value, place // n, place % n) for value, place in zip(values.tolist(), places.tolist())]


def time_per_sentence(embed, sentences, seconds=0.5):
    """Milliseconds a sentence when all are one batch, and when each is its own; the best of several runs."""
    def best(run):
        times, end = [], time.perf_counter() + seconds
        while len(times) < 3 or time.perf_counter() < end:
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        return min(times) * 1e3 / len(sentences)

    return best(lambda: embed(sentences).numpy()), best(lambda: [embed([s]).numpy() for s in sentences])


def largest_difference(embed):
    """How far the embeddings of the reference's sentences are from what PyTorch and transformers computed in float64."""
    sys.path.insert(0, DATA)
    from make_sentence_embeddings import SENTENCES

    reference = tn.load(os.path.join(DATA, "sentence_embeddings.npy"))
    return tn.amax(tn.abs(embed(SENTENCES).cpu() - reference)).item()


def main():
    args = parse()
    if args.threads:
        tn.set_num_threads(args.threads)
    device = args.device if args.device != "auto" else "cuda" if tn.cuda_device_count() else "cpu"
    try:
        sentences = read_sentences(args.file)
        embed = Embedder(args.model, device=device)
    except (OSError, UnicodeDecodeError, tn.Error) as error:
        print(f"sentence_embedding: {error}", file=sys.stderr)
        return 2
    if len(sentences) < 2:
        print(f"sentence_embedding: {args.file} holds {len(sentences)} sentences, and pairs need two", file=sys.stderr)
        return 2
    embeddings = embed(sentences)
    print(f"{len(sentences)} sentences, {embeddings.shape[1]} numbers each. Most similar:")
    for cosine, i, j in most_similar(embeddings, args.pairs):
        print(f"  {cosine:.3f}  {sentences[i]}\n         {sentences[j]}")
    batch, single = time_per_sentence(embed, sentences)
    threads = tn.get_num_threads()
    where = f"{threads} thread{'s' * (threads != 1)}" if embed.device == "cpu" else embed.device
    print(f"time a sentence, tokenizer included: {batch:.2f} ms in one batch, {single:.2f} ms one by one, {where}")
    if args.check:
        off = largest_difference(embed)
        agrees = off <= TOLERANCE
        print(f"{'agrees with' if agrees else 'DIFFERS from'} PyTorch's embeddings of the same weights: largest difference {off:.1e}, allowed {TOLERANCE:g}")
        if not agrees:
            return 1
    if args.save:
        tn.save({"embeddings": embeddings} if args.save.endswith((".safetensors", ".npz")) else embeddings, args.save)
    return 0


if __name__ == "__main__":
    sys.exit(main())
