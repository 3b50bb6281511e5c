"""All tests have eight host devices, compile quickly and forbid silent broadcasting."""

import gc
import importlib.metadata
import os
import tempfile

# Tiny programs take longer to compile than to run: compile them the quick way.
FLAGS = (
    "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
    " --xla_cpu_parallel_codegen_split_count=1"
)
# An unknown flag ends the process; jaxlib 0.11 and later do not know this one.
if importlib.metadata.version("jaxlib").startswith(("0.8.", "0.9.", "0.10.")):
    FLAGS += " --xla_cpu_use_fusion_emitters=false"
os.environ.setdefault("XLA_FLAGS", FLAGS)
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Tests of whole runs compile the same programs again and again, in processes too. The
# processes of pytest-xdist inherit the directory; it goes away with the first one.
CACHE = tempfile.TemporaryDirectory(prefix="bert_jax_tests", ignore_cleanup_errors=True)
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", CACHE.name)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax  # noqa: E402
import orbax.checkpoint as ocp  # noqa: E402
import psutil  # noqa: E402
import pytest  # noqa: E402

from bert_jax.views import plots  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
# Eight devices on few cores: programs in flight together wait for each other for ever.
jax.config.update("jax_cpu_enable_async_dispatch", False)
# Cutting each array in one part a device takes a program for each of the parts.
ocp.type_handlers.register_type_handler(
    jax.Array, ocp.type_handlers.ArrayHandler(use_replica_parallel=False), override=True
)


# Compiled programs are dropped beyond this much memory of the process, in bytes.
MEMORY = 3e9

# Tracing makes many objects and little garbage: with the thresholds of Python, looking
# for it took a sixth of the time of all tests.
gc.set_threshold(200_000, 50, 100)


@pytest.fixture(autouse=True)
def _collections_skip_objects_of_earlier_tests():
    # The end of each run asks for a collection of all that is not frozen.
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _compiled_programs_fit_in_memory():
    yield
    if psutil.Process().memory_info().rss > MEMORY:
        jax.clear_caches()
        gc.unfreeze()
        gc.collect()


@pytest.fixture(scope="module", autouse=True)
def _curves_are_drawn_where_a_module_asks(request):
    """Skips drawing learning curves, which takes as long as a short run.

    A module with `DRAWS_CURVES = True` tests them.
    """
    with pytest.MonkeyPatch.context() as patched:
        if not getattr(request.module, "DRAWS_CURVES", False):
            patched.setattr(plots, "curves", lambda workdir: None)
        yield


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """Rows of Python's own language reference."""
    import soak

    folder = tmp_path_factory.mktemp("corpus")
    return soak.rows([str(soak.language_reference(folder))], folder)
