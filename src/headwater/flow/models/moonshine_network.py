"""Moonshine's two networks and its tokens, run by onnxruntime on one thread: samples go in, tokens come out, each with
how probable it was to the network.

The package's own code is not used: its library begins a recording with what it remembers of the one before, tells no
probabilities, and its import needs a sound card's driver. Its weights are ordinary files for onnxruntime.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from headwater.flow.models.port import SAMPLE_RATE, Samples

ENCODER: Final = "encoder_model.ort"
DECODER: Final = "decoder_model_merged.ort"
TOKENS: Final = "tokenizer.bin"
START, END = 1, 2
TOKENS_PER_SECOND_MAX: Final = 8.0  # nobody speaks faster; without an end, a network that is lost goes on for ever
TOKENS_MORE: Final = 4
SAMPLES_MIN: Final = 2_048  # below, the encoder's first layers have nothing to look at
PAST: Final = "past_key_values."


@dataclass(frozen=True, slots=True)
class Heard:
    """The tokens of one stretch of sound, its end included, and the logarithm of each one's probability."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]


class Network:
    """Tells its state to nobody: the same samples give the same tokens, whatever was heard before."""

    def __init__(self, directory: Path) -> None:
        from onnxruntime import OrtValue

        self._value = OrtValue.ortvalue_from_numpy
        self._encoder, self._decoder = (_session(directory / name) for name in (ENCODER, DECODER))
        self._spellings = read_tokens((directory / TOKENS).read_bytes())
        inputs = {part.name: part.shape for part in self._decoder.get_inputs()}
        # Of each attention, keys and values: heads and their width stand in the file, the length grows token by token.
        self._empty = {
            name: self._value(np.zeros((1, shape[1], 1, shape[3]), np.float32))
            for name, shape in inputs.items()
            if name.startswith(PAST)
        }
        self._wants_mask = "encoder_attention_mask" in inputs
        self._outputs = [part.name for part in self._decoder.get_outputs()]
        self._carried = [name.replace("present.", PAST) for name in self._outputs[1:]]

    def hear(self, samples: Samples) -> Heard:
        feed = self._encoded(samples)
        tokens: list[int] = []
        logprobs: list[float] = []
        token = START
        for _ in range(int(len(samples) / SAMPLE_RATE * TOKENS_PER_SECOND_MAX) + TOKENS_MORE):
            feed["input_ids"] = self._value(np.array([[token]], np.int64))
            logits, *present = self._decoder.run_with_ort_values(self._outputs, feed)
            token, logprob = _likeliest(logits.numpy()[0, -1])
            tokens.append(token)
            logprobs.append(logprob)
            if token == END:
                break
            self._carry(feed, present, is_first=len(tokens) == 1)
        return Heard(tuple(tokens), tuple(logprobs))

    def text(self, tokens: tuple[int, ...]) -> str:
        spelt = b"".join(self._spellings[token] for token in tokens if token not in (START, END))
        return " ".join(spelt.decode(errors="replace").replace("▁", " ").split())

    def _encoded(self, samples: Samples) -> dict[str, Any]:
        padded = np.pad(samples, (0, max(0, SAMPLES_MIN - len(samples)))).astype(np.float32)[None] / 32768
        mask = self._value(np.ones(padded.shape, np.int64))
        sound = {"input_values": self._value(padded), "attention_mask": mask}
        wanted = {part.name: sound[part.name] for part in self._encoder.get_inputs()}
        (states,) = self._encoder.run_with_ort_values([self._encoder.get_outputs()[0].name], wanted)
        feed = {**self._empty, "encoder_hidden_states": states, "use_cache_branch": self._value(np.array([False]))}
        return {**feed, "encoder_attention_mask": mask} if self._wants_mask else feed

    def _carry(self, feed: dict[str, Any], present: list[Any], *, is_first: bool) -> None:
        """What the decoder remembers of the tokens so far; of the sound, it says so with the first one only."""
        carried = zip(self._carried, present, strict=True)
        feed.update({name: value for name, value in carried if is_first or ".decoder." in name})
        if is_first:
            feed["use_cache_branch"] = self._value(np.array([True]))


def _likeliest(logits: npt.NDArray[np.float32]) -> tuple[int, float]:
    token = int(logits.argmax())
    return token, -float(np.log(np.exp(logits - logits[token]).sum()))


def _session(path: Path) -> Any:
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # workers are many already
    options.log_severity_level = 4
    return InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def read_tokens(data: bytes) -> list[bytes]:
    """How each token is spelt: one after the other, each after its length in one byte, or in two from 128 on."""
    spellings, at = [], 0
    while at < len(data):
        length, at = data[at], at + 1
        if length >= 128:
            length, at = data[at] * 128 + length - 128, at + 1
        spellings.append(data[at : at + length])
        at += length
    return spellings
