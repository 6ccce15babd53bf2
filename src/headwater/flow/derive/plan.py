"""Which model does which step: the settings' choice, as a plan that travels to the workers."""

from datetime import datetime

from headwater.flow.derive.registry import STEPS
from headwater.flow.derive.step import Models, Step
from headwater.flow.derive.worker import PlannedStep, Work
from headwater.settings import SETTINGS, Settings


def plan_work(settings: Settings, *, now: datetime) -> Work:
    """Loads no model: a card tells who will have made a row."""
    values = {setting.name: settings[setting.name] for setting in SETTINGS}
    models = Models(values)
    steps = {modality.value: tuple(_planned(step, models) for step in steps) for modality, steps in STEPS.items()}
    return Work(steps, settings, now)


def _planned(step: Step, models: Models) -> PlannedStep:
    card = models.card(step)
    return PlannedStep(step.name, step.table.name, card.label, card.fingerprint, step.model_setting is not None)
