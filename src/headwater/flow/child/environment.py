"""What a child is told of this process's environment: little, because it reads what strangers send.

It starts with variables that say where things are, none of which is a secret. What a model or the raw store needs
besides, a key above all, goes to it through the pipe with the first job that needs it, and to nobody else.
"""

import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from headwater.domain.steps import STEPS
from headwater.setting import Value
from headwater.settings import BY_NAME, SETTINGS, Settings
from headwater.storage.io.s3 import is_s3

# Where programs, libraries, weights, certificates and temporary files are; language and time.
PASSED: Final = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TMP", "TEMP",
    "LD_LIBRARY_PATH", "LD_PRELOAD", "VIRTUAL_ENV", "PYTHONHOME", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE",
    "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HUGGINGFACE_HUB_CACHE", "FASTEMBED_CACHE_PATH",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE",
    "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
)  # fmt: skip
PASSED_PREFIX: Final = "LC_"
# A child works on one thing at a time, beside others like it.
THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
# A proxy's address may hold a password: only who talks to another machine gets it.
PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_PROXIES: Final = {*PROXIES, *(name.lower() for name in PROXIES)}
S3_CHAIN: Final = "AWS_"
# An option of a model whose name ends so names a variable that the model reads, as `key_env` does.
VARIABLE_OPTION: Final = "_env"
# The settings that a child may know; a password of the catalog or of the ledger is none of its business.
SETTINGS_KNOWN: Final = ("limits.", "models.", "raw.", "s3.")
_HELPERS: Final = {step.setting: step.helper_setting for step in STEPS.values() if step.helper_setting}


def child_environment(named: str) -> dict[str, str]:
    """What a child starts with; `named` are more variables, by the operator's choice."""
    wanted = {*PASSED, *named.replace(",", " ").split()}
    passed = {name: text for name, text in os.environ.items() if name in wanted or name.startswith(PASSED_PREFIX)}
    return {**passed, **dict.fromkeys(THREADS, "1"), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def child_settings(settings: Settings) -> dict[str, Value]:
    names = [setting.name for setting in SETTINGS if setting.name.startswith(SETTINGS_KNOWN)]
    on_s3 = is_s3(settings.text("raw.uri"))
    return {name: settings.chosen[name].value for name in names if on_s3 or not BY_NAME[name].secret}


def needed_variables(config: Mapping[str, Any], jobs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What these jobs need of the environment: the keys of their models, and of the raw store where it is elsewhere."""
    settings, sections = config.get("settings", {}), config.get("models", {})
    used = [sections.get(name, {}) for name in sorted(set(_models(settings, jobs)))]
    found = {name: text for options in used for name, text in model_variables(options).items()}
    if is_s3(str(settings.get("raw.uri", ""))):
        found |= _passed(_PROXIES)
        if not settings.get("s3.access_key"):
            found |= {name: text for name, text in os.environ.items() if name.startswith(S3_CHAIN)}
    return found


def model_variables(options: Mapping[str, Any]) -> dict[str, str]:
    """What a model needs of the environment by the options of its section: its keys, and proxies where it has a URL."""
    names = {str(value) for key, value in options.items() if key.endswith(VARIABLE_OPTION)}
    return _passed(names | _PROXIES if "url" in options else names)


def _passed(names: Collection[str]) -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if name in names}


def _models(settings: Mapping[str, Any], jobs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for step in (step for job in jobs for step in job["steps"] if step["setting"]):
        yield step["model"]
        if (other := _HELPERS.get(step["setting"])) is not None:
            yield str(settings.get(other, BY_NAME[other].default))
