"""The backend that a configuration asks for, and the part of the user's cache where its units lie."""

from __future__ import annotations

from aot.backends.aoti.backend import AotiBackend
from aot.backends.aoti.toolchain import check_folders, torch_folder
from aot.backends.protocol import BuildBackend
from aot.build.plan import Models
from aot.cache import Cache, cache_root
from aot.config import BuildConfig, NeuronBackend
from aot.graphs.geometry import geometry
from runtime.bundle.errors import ConfigError


def backend_and_cache(config: BuildConfig, models: Models) -> tuple[BuildBackend, Cache]:
    """The backend for `config` on this machine, and its cache of units.

    Raises:
        ConfigError: this version has no such backend.
        HostError: this machine lacks what it needs.
    """
    chosen = config.backend
    check_folders({"the build cache (EAGLE3_CACHE)": cache_root()})
    backend: BuildBackend
    if isinstance(chosen, NeuronBackend):
        backend = _neuron(config, chosen, models)
    elif chosen.device == "cpu":
        check_folders({"torch (the environment)": torch_folder()})
        backend = AotiBackend.detect(chosen.gemm, config.dtype, chosen.cpu_level)
    else:
        raise ConfigError(
            "this version builds for the CPU and for Neuron",
            expected="backend.name aoti with backend.device cpu, or backend.name neuron",
            found=f"{chosen.name} with {chosen.device}",
            repair="set backend: {name: aoti, device: cpu}",
        )
    return backend, Cache(cache_root(), needed=backend.files)


def _neuron(config: BuildConfig, chosen: NeuronBackend, models: Models) -> BuildBackend:
    from aot.backends.neuron import backend, compiler, environment

    return backend.NeuronBackend(
        python=environment.find_python(chosen.python, config.base),
        target=chosen.target,
        lnc=chosen.lnc,
        ranks=config.tensor_parallel_size,
        sizes=geometry(config, models.target, models.draft),
        compiler=compiler.find(),
        extra=chosen.compiler_args,
    )
