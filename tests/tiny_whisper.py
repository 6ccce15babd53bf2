"""A Whisper of random weights in the format of faster-whisper: the real vocabulary's layout, sixteen dimensions."""

from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
from faster_whisper.tokenizer import _LANGUAGE_CODES
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

WIDTH, INNER, MELS = 16, 32, 80
FRAMES, LENGTH = 1500, 448
WORDS = 50_257
LANGUAGES = [f"<|{code}|>" for code in _LANGUAGE_CODES if code != "yue"]  # the 99 of the first models
SPECIAL = [
    *("<|endoftext|>", "<|startoftranscript|>", *LANGUAGES, "<|translate|>", "<|transcribe|>"),
    *("<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"),
]
TIMES = [f"<|{number * 0.02:.2f}|>" for number in range(1501)]
VOCABULARY = [*(f"w{number}" for number in range(WORDS)), *SPECIAL, *TIMES]


def make_whisper(directory: Path, seed: int = 7) -> Path:
    """Writes model.bin, config.json, vocabulary.json and tokenizer.json, as a converted model has them."""
    chance = np.random.default_rng(seed)
    spec = ctranslate2.specs.WhisperSpec(1, 2, 1, 2)
    _fill_encoder(spec.encoder, chance)
    _fill_decoder(spec.decoder, chance)
    spec.register_vocabulary(VOCABULARY)
    spec.config.lang_ids = [VOCABULARY.index(token) for token in LANGUAGES]
    spec.config.suppress_ids, spec.config.suppress_ids_begin = [], [VOCABULARY.index("<|endoftext|>")]
    spec.config.alignment_heads = [(0, 0)]
    spec.validate()
    directory.mkdir(parents=True, exist_ok=True)
    spec.save(str(directory))
    _tokenizer().save(str(directory / "tokenizer.json"))
    return directory


def _tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel({token: place for place, token in enumerate(VOCABULARY)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    tokenizer.add_special_tokens([*SPECIAL])
    return tokenizer


def _weights(chance: Any, *shape: int) -> Any:
    return chance.normal(scale=0.5, size=shape).astype(np.float32)


def _fill_encoder(spec: Any, chance: Any) -> None:
    spec.conv1.weight, spec.conv1.bias = _weights(chance, WIDTH, MELS, 3), _weights(chance, WIDTH)
    spec.conv2.weight, spec.conv2.bias = _weights(chance, WIDTH, WIDTH, 3), _weights(chance, WIDTH)
    spec.position_encodings.encodings = _weights(chance, FRAMES, WIDTH)
    _norm(spec.layer_norm)
    for layer in spec.layer:
        _attention(layer.self_attention, chance, 3)
        _forward(layer.ffn, chance)


def _fill_decoder(spec: Any, chance: Any) -> None:
    spec.embeddings.weight = _weights(chance, len(VOCABULARY), WIDTH)
    spec.position_encodings.encodings = _weights(chance, LENGTH, WIDTH)
    spec.projection.weight = _weights(chance, len(VOCABULARY), WIDTH)
    _norm(spec.layer_norm)
    for layer in spec.layer:
        _attention(layer.self_attention, chance, 3)
        _attention(layer.attention, chance, 1, 2)
        _forward(layer.ffn, chance)


def _attention(spec: Any, chance: Any, *widths: int) -> None:
    _norm(spec.layer_norm)
    for linear, width in zip(spec.linear, (*widths, 1), strict=True):
        _linear(linear, chance, WIDTH * width, WIDTH)


def _forward(spec: Any, chance: Any) -> None:
    _norm(spec.layer_norm)
    _linear(spec.linear_0, chance, INNER, WIDTH)
    _linear(spec.linear_1, chance, WIDTH, INNER)


def _linear(spec: Any, chance: Any, out: int, into: int) -> None:
    spec.weight, spec.bias = _weights(chance, out, into), _weights(chance, out)


def _norm(spec: Any) -> None:
    spec.gamma, spec.beta = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)
