"""Models of a few numbers in the layout of fastembed: a text embedder, and a CLIP whose towers agree on colours."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers

WORDS = ["[PAD]", "[UNK]", "red", "green", "blue", "refund", "order", "invoice", "weather", "sunny"]
DIMENSION = 6
COLOURS = 4


def make_text_model(directory: Path, file: str = "model.onnx") -> Path:
    """Token vectors of random numbers, to be pooled by the caller."""
    table = np.random.default_rng(3).normal(size=(len(WORDS), DIMENSION)).astype(np.float32)
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])]
    _write(
        directory / file, nodes, {"table": table}, _ids(), _floats("last_hidden_state", "batch", "length", DIMENSION)
    )
    _write_tokenizer(directory)
    return directory


def make_clip_text(directory: Path) -> Path:
    """One vector a text: the mean of its words, where red, green and blue are the axes."""
    table = np.full((len(WORDS), COLOURS), 0.01, np.float32)
    for axis, word in enumerate(("red", "green", "blue")):
        table[WORDS.index(word), axis] = 5
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["tokens"]),
        helper.make_node("ReduceMean", ["tokens"], ["text_embeds"], axes=[1], keepdims=0),
    ]
    _write(directory / "model.onnx", nodes, {"table": table}, _ids(), _floats("text_embeds", "batch", COLOURS))
    _write_tokenizer(directory)
    return directory


def make_clip_vision(directory: Path) -> Path:
    """One vector a picture: its mean colour, on the same axes."""
    axes = np.eye(3, COLOURS, dtype=np.float32)
    nodes = [
        helper.make_node("GlobalAveragePool", ["pixel_values"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["flat"], axis=1),
        helper.make_node("MatMul", ["flat", "axes"], ["image_embeds"]),
    ]
    pixels = [_floats("pixel_values", "batch", 3, 32, 32)]
    _write(directory / "model.onnx", nodes, {"axes": axes}, pixels, _floats("image_embeds", "batch", COLOURS))
    preprocessing = {
        "feature_extractor_type": "CLIPFeatureExtractor", "do_resize": True, "resample": 3,
        "size": {"shortest_edge": 32},
        "do_center_crop": True, "crop_size": {"height": 32, "width": 32}, "do_normalize": True,
        "image_mean": [0.4, 0.4, 0.4], "image_std": [0.3, 0.3, 0.3],
    }  # fmt: skip
    (directory / "preprocessor_config.json").write_text(json.dumps(preprocessing))
    return directory


def _write(file: Path, nodes: Any, weights: dict[str, Any], inputs: Any, output: Any) -> None:
    named = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "tiny", inputs, [output], named)
    file.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)


def _ids() -> list[Any]:
    return [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"])]


def _floats(name: str, *shape: int | str) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))


def _write_tokenizer(directory: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "config.json").write_text(json.dumps({"pad_token_id": 0}))
    (directory / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 77, "pad_token": "[PAD]"}))
    (directory / "special_tokens_map.json").write_text(json.dumps({"pad_token": "[PAD]", "unk_token": "[UNK]"}))
