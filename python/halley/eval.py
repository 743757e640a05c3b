"""Measurements of a model: perplexity, divergence from a reference, accuracy on tasks."""
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

from halley import _native
from halley._options import session_options
from halley._progress import progress_bar
from halley._session import TokenIds, token_list

Path: TypeAlias = str | os.PathLike[str]


@dataclass
class PerplexityResult:
    """How well a model predicts a text."""
    text: str
    perplexity: float
    num_tokens: int  # that were scored
    nll: float  # their negative log likelihood, in nats
    window: int
    kv_dtype: str
    window_nll: list[float]  # of each window


@dataclass
class Estimate:
    """A value and its 95 % confidence interval; None: there is a single window."""
    value: float
    low: float | None
    high: float | None


@dataclass
class KlDivergenceResult:
    """A model's predictions of a text versus those of a reference."""
    text: str
    perplexity: float
    reference_perplexity: float
    num_tokens: int
    num_windows: int
    log_perplexity_increase: Estimate
    perplexity_ratio: Estimate
    kl_divergence: Estimate  # of the model from the reference, in nats a token
    kl_p99: float  # 99th percentile over tokens
    kl_max: float
    top1_agreement: Estimate  # share of tokens whose most likely id is the same
    window: int
    kv_dtype: str
    reference: str
    intervals: str  # how the intervals are made
    reference_kv_dtype: str | None = None  # None: the reference is a file


@dataclass
class TaskResult:
    """The accuracy on a multiple-choice task, with standard errors."""
    task: str
    layout: str  # "PIQA", "ARC", "HellaSwag" or "WinoGrande"
    num_items: int
    accuracy: float
    accuracy_stderr: float
    accuracy_norm: float  # by log likelihood per byte
    accuracy_norm_stderr: float
    kv_dtype: str
    log_likelihoods: list[float]  # of each choice of each item


class Logits(Protocol):
    """An array [T, V] of f32 on the CPU, which NumPy and PyTorch take without a copy by
    from_dlpack()."""

    def __dlpack__(self) -> Any: ...

    def __dlpack_device__(self) -> Any: ...


class Model:
    """A loaded model for several measurements. Any number of threads may call it; measurements run
    one after the other, without Python's lock."""

    def __init__(self, model: Path, *, device: str = "auto", dtype: str = "auto",
                 quantization: str | None = None, kv_cache_dtype: str = "auto",
                 precision: str = "full",
                 tensor_parallel_size: int = 1, pipeline_parallel_size: int = 1,
                 enable_expert_parallel: bool = False, threads: int = 0,
                 gpu_memory_utilization: float = 0.45) -> None:
        """Takes the arguments of LLM. A reference takes as much of a GPU's memory as the model.

        Raises InputError, CheckpointError, UnsupportedError or DeviceError.
        """
        self._model = _native.EvalModel(session_options(
            model, device=device, dtype=dtype, quantization=quantization,
            kv_cache_dtype=kv_cache_dtype, precision=precision,
            tensor_parallel_size=tensor_parallel_size,
            pipeline_parallel_size=pipeline_parallel_size,
            enable_expert_parallel=enable_expert_parallel, threads=threads,
            gpu_memory_utilization=gpu_memory_utilization))

    def perplexity(self, text: Path, *, window: int = 1024, num_windows: int = 0,
                   logits: Path | None = None, use_tqdm: bool = True) -> PerplexityResult:
        """The perplexity on the file `text`, UTF-8, in windows of `window` tokens that do not
        overlap; the first token of each is not scored. `num_windows`: that many from the
        beginning; 0: the whole text. `logits`: a file to write, for kl_divergence(). Raises
        InputError or CheckpointError."""
        report = self._model.perplexity(
            os.fspath(text), _native.WindowOptions(window, num_windows),
            "" if logits is None else os.fspath(logits), _share_bar("Evaluating", use_tqdm))
        return PerplexityResult(**json.loads(report))

    def kl_divergence(self, reference: Path, text: Path, *, reference_kv_cache_dtype: str = "auto",
                      window: int = 1024, num_windows: int = 0, use_tqdm: bool = True
                      ) -> KlDivergenceResult:
        """Compares the model's predictions of `text` with those of `reference`, the folder of a
        model with the same tokenizer, or a file that perplexity(logits=) wrote. Raises as
        perplexity(), and what loading the reference raises."""
        report = json.loads(self._model.compare(
            os.fspath(reference), reference_kv_cache_dtype, os.fspath(text),
            _native.WindowOptions(window, num_windows), _share_bar("Comparing", use_tqdm)))
        for name in ("log_perplexity_increase", "perplexity_ratio", "kl_divergence",
                     "top1_agreement"):
            report[name] = Estimate(**report[name])
        return KlDivergenceResult(**report)

    def tasks(self, files: Path | Sequence[Path], *, use_tqdm: bool = True) -> list[TaskResult]:
        """The accuracy on files with one JSON object a line, with the fields of PIQA, ARC,
        HellaSwag or WinoGrande. Raises InputError or CheckpointError."""
        paths = [files] if isinstance(files, (str, os.PathLike)) else files
        return [TaskResult(**json.loads(
            self._model.task(os.fspath(path), _share_bar("Choosing", use_tqdm)))) for path in paths]

    def logits(self, token_ids: TokenIds) -> Logits:
        """Row i holds the logits of the token that follows token_ids[0] to token_ids[i]. Raises
        InputError for unknown ids, none, or more than the model's positions less one."""
        return cast(Logits, self._model.logits(token_list(token_ids)))


def perplexity(model: Path, text: Path, *, window: int = 1024, num_windows: int = 0,
               logits: Path | None = None, use_tqdm: bool = True, **options: Any
               ) -> PerplexityResult:
    """Model(model, **options).perplexity(...)."""
    return Model(model, **options).perplexity(text, window=window, num_windows=num_windows,
                                              logits=logits, use_tqdm=use_tqdm)


def kl_divergence(model: Path, reference: Path, text: Path, *,
                  reference_kv_cache_dtype: str = "auto", window: int = 1024,
                  num_windows: int = 0, use_tqdm: bool = True, **options: Any
                  ) -> KlDivergenceResult:
    """Model(model, **options).kl_divergence(...)."""
    return Model(model, **options).kl_divergence(
        reference, text, reference_kv_cache_dtype=reference_kv_cache_dtype, window=window,
        num_windows=num_windows, use_tqdm=use_tqdm)


def tasks(model: Path, files: Path | Sequence[Path], *, use_tqdm: bool = True, **options: Any
          ) -> list[TaskResult]:
    """Model(model, **options).tasks(...)."""
    return Model(model, **options).tasks(files, use_tqdm=use_tqdm)


def _share_bar(label: str, use_tqdm: bool) -> Any:
    show = progress_bar(None, label, use_tqdm)
    return lambda done, total: show(done / total)
