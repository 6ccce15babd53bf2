"""The model book: which models a lake knows for each step, and which one its readers see.

One model a step is active: search and views show its rows alone. Others may be on standby, kept up with what
arrives, so that flipping forth and back is a change of this book and nothing else.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Self

from headwater.errors import Conflict, InvalidRequest, NotFound


class State(StrEnum):
    ACTIVE = "active"
    STANDBY = "standby"  # complete, and kept up with what arrives; seen by nobody
    BUILDING = "building"  # a replay is under way, or stopped half-way
    PARTIAL = "partial"  # it was tried on some objects: a retry by another model
    RETIRING = "retiring"  # its rows are being removed

    @classmethod
    def _missing_(cls, value: object) -> "State | None":
        """By its name in lakes of before."""
        return {"beside": cls.STANDBY, "some": cls.PARTIAL, "leaving": cls.RETIRING}.get(str(value))


@dataclass(frozen=True, slots=True)
class KnownModel:
    """`name` is how it is loaded, `label` how its rows call it. `replayed` says that it was brought in later, so it has
    a position of its own in each source; the first model of a step has the step's. `code` is what its source
    was when it was first seen, of a model of one's own whose fingerprint is from before code was part of it.
    """

    step: str
    name: str
    label: str
    fingerprint: str
    state: State
    since: str
    replayed: bool = False
    code: str = field(default="", compare=False)

    @property
    def kept(self) -> bool:
        return self.state in {State.ACTIVE, State.STANDBY}

    def position_in(self, source: str) -> str:
        """The name of its position in a table upstream."""
        return f"{source}/{self.step}/{self.fingerprint}" if self.replayed else source


@dataclass(frozen=True, slots=True)
class ModelBook:
    models: tuple[KnownModel, ...] = ()

    @classmethod
    def from_text(cls, text: str | None, codes: Mapping[str, str] | None = None) -> Self:
        """`codes` are by fingerprint: they are kept beside the book."""
        known = codes or {}
        rows = [{**row, "code": known.get(row["fingerprint"], "")} for row in (json.loads(text) if text else [])]
        return cls(tuple(KnownModel(**{**row, "state": State(row["state"])}) for row in rows))

    def to_text(self) -> str:
        rows = [asdict(model) for model in self.models]
        return json.dumps([{name: row[name] for name in row if name != "code"} for row in rows], ensure_ascii=False)

    def of(self, step: str) -> tuple[KnownModel, ...]:
        return tuple(model for model in self.models if model.step == step)

    def kept(self, step: str) -> tuple[KnownModel, ...]:
        """The active one first: it is derived first, too."""
        return tuple(sorted((model for model in self.of(step) if model.kept), key=lambda m: m.state != State.ACTIVE))

    def steps_kept(self) -> frozenset[str]:
        """The steps that have a model."""
        return frozenset(model.step for model in self.models if model.kept)

    def active(self, step: str) -> KnownModel | None:
        return next((model for model in self.of(step) if model.state is State.ACTIVE), None)

    def get(self, step: str, fingerprint: str) -> KnownModel | None:
        return next((model for model in self.of(step) if model.fingerprint == fingerprint), None)

    def find(self, step: str, wanted: str) -> KnownModel:
        """By name, label, the beginning of a fingerprint, or ACTIVE; NotFound tells what there is."""
        known = self.of(step)
        if wanted == "ACTIVE" and (active := self.active(step)):
            return active
        found = [m for m in known if wanted in {m.name, m.label, m.fingerprint}]
        found = found or [m for m in known if len(wanted) >= 4 and m.fingerprint.startswith(wanted)]
        if len(found) == 1:
            return found[0]
        if found:
            prints = ", ".join(model.fingerprint for model in found)
            raise InvalidRequest(f"{wanted} names more than one model of {step}. Say which fingerprint: {prints}.")
        there = ", ".join(f"{model.name} ({model.fingerprint})" for model in known) or "none yet"
        raise NotFound(f"{step} knows no model {wanted}; it knows {there}. See: headwater models")

    def hidden(self) -> frozenset[str]:
        """The fingerprints that nobody is to see. A model serves one step, so a fingerprint is enough."""
        return frozenset(model.fingerprint for model in self.models if model.state is not State.ACTIVE)

    def with_model(self, model: KnownModel) -> Self:
        """Added, or in place of what was known of it. The first of a step may be active; no second one."""
        others = tuple(m for m in self.models if (m.step, m.fingerprint) != (model.step, model.fingerprint))
        if model.state is State.ACTIVE and any(m.step == model.step and m.state is State.ACTIVE for m in others):
            raise Conflict(f"{model.step} has an active model already. Flip with: headwater activate {model.step} …")
        return type(self)((*others, model))

    def with_new(self, model: KnownModel) -> Self:
        """Added, unless it is known."""
        return self if self.get(model.step, model.fingerprint) else self.with_model(model)

    def with_building(self, model: KnownModel) -> Self:
        """A replay begins, or goes on: added, or what was made for some objects is to become whole."""
        found = self.get(model.step, model.fingerprint)
        if found is None:
            return self.with_model(replace(model, state=State.BUILDING, replayed=True))
        if found.state is State.RETIRING:
            raise Conflict(f"{found.label} is being removed. Finish that: headwater retire {found.step} {found.name}")
        return self.with_model(replace(found, state=State.BUILDING)) if found.state is State.PARTIAL else self

    def labels(self) -> dict[str, str]:
        """What each model is called, by the tag of its rows."""
        return {f"{model.step}/{model.fingerprint}": model.label for model in self.models}

    def without(self, model: KnownModel) -> Self:
        return type(self)(tuple(m for m in self.models if m != model))

    def activated(self, model: KnownModel) -> Self:
        """The other steps aside beside it: one value for another, so nobody sees two or none."""
        way = f"headwater replay {model.step} --model {model.name}"
        if model.state is State.RETIRING:
            finish = f"headwater retire {model.step} {model.name}"
            raise Conflict(f"{model.label} is being removed. Finish that: {finish}; then bring it back: {way}")
        if not model.kept:
            raise Conflict(f"{model.label} has not been made for all objects yet. First: {way}")
        return type(self)(tuple(self._flipped(other, model) for other in self.models))

    def retired(self, step: str, fingerprint: str, planned: State | None = None) -> Self:
        """Retiring, unless it has become something else than it was when somebody planned to let it go."""
        model = self.find(step, fingerprint)
        if model.state is State.ACTIVE:
            raise Conflict(
                f"{model.label} is active for {model.step}. Activate another one first: headwater models shows them."
            )
        if planned is not None and model.state is not planned:
            raise Conflict(
                f"{model.label} was {planned.value} when this was planned and is {model.state.value} now. "
                f"Plan again: headwater retire {model.step} {model.fingerprint} --dry-run"
            )
        return self.with_model(replace(model, state=State.RETIRING))

    @staticmethod
    def _flipped(other: KnownModel, model: KnownModel) -> KnownModel:
        if (other.step, other.fingerprint) == (model.step, model.fingerprint):
            return replace(other, state=State.ACTIVE)
        if other.step == model.step and other.state is State.ACTIVE:
            return replace(other, state=State.STANDBY)
        return other
