"""Why a test of the suite is not run. Every skip has its reason here, or is raised as Cannot by a map."""

_TRAINING = "training: optimisers and dropout are not operators of Tenor"
_STRINGS = "strings are no tensors of Tenor"
_CONTAINERS = "sequences, optionals and maps are the host language's"
_CONTROL = "control flow is the host language's"
_QUANT = "no quantised types or arithmetic"
_SIGNAL = "no Fourier transforms or windows"
_RECURRENT = "no recurrent layers"
_RANDOM = "a draw without a seed: Tenor's operators that draw need one, so bits cannot be compared"
_TREES = "no classical machine-learning operators"
_GATED = "no map to gated_delta_rule and causal_conv1d, whose layouts are others"

OPERATORS = {
    "Adagrad": _TRAINING, "Adam": _TRAINING, "Momentum": _TRAINING,
    "ConvInteger": _QUANT, "QLinearConv": _QUANT, "LRN": "no normalisation across channels", "RoiAlign": "no pooling of regions",
    "NonMaxSuppression": "no box suppression", "ImageDecoder": "no image files", "Det": "no linear algebra beyond contraction",
    "RegexFullMatch": _STRINGS, "StringConcat": _STRINGS, "StringNormalizer": _STRINGS, "StringSplit": _STRINGS,
    "TfIdfVectorizer": _STRINGS, "LabelEncoder": _STRINGS,
    "OptionalGetElement": _CONTAINERS, "OptionalHasElement": _CONTAINERS, "Optional": _CONTAINERS, "SequenceInsert": _CONTAINERS,
    "SequenceMap": _CONTAINERS, "SplitToSequence": _CONTAINERS, "SequenceEmpty": _CONTAINERS, "SequenceAt": _CONTAINERS,
    "SequenceLength": _CONTAINERS, "ConcatFromSequence": _CONTAINERS, "SequenceConstruct": _CONTAINERS,
    "If": _CONTROL, "Loop": _CONTROL, "Scan": _CONTROL, "FlexAttention": _CONTROL + " (score and mask functions as subgraphs)",
    "DequantizeLinear": _QUANT, "DynamicQuantizeLinear": _QUANT, "QLinearMatMul": _QUANT, "QuantizeLinear": _QUANT,
    "BlackmanWindow": _SIGNAL, "HammingWindow": _SIGNAL, "HannWindow": _SIGNAL, "DFT": _SIGNAL, "STFT": _SIGNAL, "MelWeightMatrix": _SIGNAL,
    "GRU": _RECURRENT, "LSTM": _RECURRENT, "RNN": _RECURRENT,
    "Bernoulli": _RANDOM, "RandomUniformLike": _RANDOM, "RandomUniform": _RANDOM, "RandomNormal": _RANDOM, "RandomNormalLike": _RANDOM,
    "ArrayFeatureExtractor": _TREES, "Binarizer": _TREES, "TreeEnsemble": _TREES,
    "NegativeLogLikelihoodLoss": "losses are compositions of the host's", "SoftmaxCrossEntropyLoss": "losses are compositions of the host's",
    "CausalConvWithState": _GATED, "LinearAttention": _GATED,
}

# Single tests that ask for what Tenor deliberately does otherwise.
_EMPTY = "max and min over an empty dim are a ShapeError of the contract; ONNX gives the identity"
TESTS = {
    "test_reduce_max_empty_set": _EMPTY, "test_reduce_max_empty_set_bool": _EMPTY, "test_reduce_min_empty_set": _EMPTY,
}
