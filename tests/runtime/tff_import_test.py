"""TFF and tensorflow-privacy on versions of Python and TensorFlow that they do not know."""

import subprocess
import sys
import types
from importlib import metadata

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp

from dpfl.cli import install_tff
from dpfl.runtime import tff_import
from tests import paths


def _execute(name):
    spec = tff_import.FINDER.find_spec(name)
    spec.loader.exec_module(types.ModuleType(name))


def test_another_version_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(metadata, 'version', {'tensorflow_federated': '0.33.0'}.__getitem__)
    with pytest.raises(ImportError) as caught:
        _execute('tensorflow_federated')
    assert str(caught.value) == 'tensorflow_federated is 0.33.0, and dpfl needs 0.87.0'


def test_an_import_that_failed_before_is_named():
    # Modules below the package are there, as they are after such an import.
    with pytest.raises(ImportError, match='has failed here: start Python again, import dpfl first'):
        _execute('tensorflow_federated')


@pytest.mark.parametrize(
    'call, reason',
    [
        (lambda: tff.jax.computation(lambda: 1), 'jax.computation is not available: needs JAX'),
        (lambda: tff.backends.xla.anything(), 'needs JAX'),
        (
            lambda: tff.aggregators.EncodedSumFactory.quantize_above_threshold(8).create(
                tff.TensorType(np.float32, [99999])
            ),
            'has no release for Keras 3',
        ),
    ],
)
def test_what_is_replaced_says_why_when_it_is_called(call, reason):
    with pytest.raises(ImportError, match=reason):
        call()


def test_a_package_that_is_installed_is_not_replaced(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    assert tff_import.FINDER.find_spec('vizier').loader.exec_module
    (tmp_path / 'vizier.py').touch()
    assert tff_import.FINDER.find_spec('vizier').origin == str(tmp_path / 'vizier.py')
    assert tff_import.FINDER.find_spec('numpy') is None


def test_names_of_tensorflow_privacy_are_loaded_on_demand():
    assert issubclass(tfp.GaussianSumQuery, tfp.DPQuery)
    assert tfp.restart_query.__name__.endswith('.dp_query.restart_query')
    assert not hasattr(tfp, 'no_such_name')


def test_keras_2_is_that_of_tff_and_keras_3_has_its_own_name(monkeypatch):
    assert tf.keras.Model.__module__.startswith('tf_keras.')
    assert issubclass(tff.learning.metrics.NumExamplesCounter, tf.keras.metrics.Metric)
    assert keras.__version__.startswith('3.')
    monkeypatch.setattr(tf, 'keras', types.SimpleNamespace(Model=keras.Model))
    with pytest.warns(UserWarning, match='tf.keras was used before TFF was imported'):
        tff_import._use_keras_2()


def _python(code, *options, cwd=paths.ROOT):
    command = [sys.executable, *options, '-c', code]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True)


def test_the_line_in_site_packages_loads_nothing_before_tff_is_imported():
    code = (
        f'import sys\n{install_tff.PTH_LINE}'
        'import json\n'
        'assert "dpfl" not in sys.modules, "loaded at once"\n'
        'sys.meta_path.insert(0, type("None_", (), {"find_spec": staticmethod(print)}))\n'
        'try:\n    import tensorflow_federated\nexcept ImportError as error:\n'
        '    assert error.name == "dpfl", error\n'
        'else:\n    raise SystemExit("was imported without dpfl")\n'
    )
    # Without site-packages, and not in the folder of dpfl.
    done = _python(code, '-I', '-S', cwd='/')
    assert done.returncode == 0, done.stderr


def test_importing_dpfl_imports_nothing_for_the_finder():
    done = _python('import sys, dpfl; print({"numpy", "tensorflow", "ast"} & set(sys.modules))')
    assert done.stdout == 'set()\n', done.stderr


@pytest.mark.standard
def test_a_program_need_not_import_dpfl():
    done = _python('import tensorflow_federated as tff; print(tff.__version__)')
    assert done.stdout == '0.87.0\n', done.stderr


@pytest.mark.standard
@pytest.mark.parametrize('level, lines', [('3', 0), ('0', 1)])
def test_tensorflow_is_silent_while_it_is_imported_if_asked(level, lines):
    code = f'import os; os.environ["TF_CPP_MIN_LOG_LEVEL"] = "{level}"; import dpfl, tensorflow'
    done = _python(f'{code}; os.write(2, b"end")')
    assert done.stderr.endswith('end'), done.stderr
    assert (done.stderr.count('\n') >= lines) if lines else done.stderr == 'end'
