"""Which function does a step of a modality: the one of the step's name, in the file of the modality's name."""

import importlib

from headwater.domain.modality import Modality
from headwater.domain.steps import Step
from headwater.errors import InternalError
from headwater.flow.derive.step import StepFunction


def function_of(modality: Modality, step: Step) -> StepFunction:
    place = f"headwater.flow.derive.{modality}"
    function: StepFunction | None = getattr(importlib.import_module(place), step.name, None)
    if function is None:
        raise InternalError(f"{modality} has the step {step.name}, but {place} has no function of that name.")
    return function
