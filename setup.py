"""Packages dpfl. TensorFlow Federated comes by `dpfl install_tff`, if it is needed."""

import pathlib
import re

import setuptools

ROOT = pathlib.Path(__file__).parent
VERSION = re.search(r"^__version__ = '([^']+)'$", (ROOT / 'dpfl/__init__.py').read_text(), re.M)
# Folders of a checkout beside `dpfl`: the commands, presets and locks. In a checkout
# and an editable installation they are found there (dpfl/cli/catalogue.py, dpfl/presets.py).
BESIDE = {'dpfl.experiments': 'experiments', 'dpfl.configs': 'configs'}

setuptools.setup(
    name='dpfl',
    version=VERSION.group(1),
    description='Federated learning with user-level differential privacy, simulated on TFF',
    license='Apache-2.0',
    python_requires='>=3.11',
    classifiers=[
        'Development Status :: 4 - Beta',
        'Intended Audience :: Science/Research',
        'License :: OSI Approved :: Apache Software License',
        'Operating System :: POSIX :: Linux',
        'Programming Language :: Python :: 3.11',
        'Programming Language :: Python :: 3.12',
        'Programming Language :: Python :: 3.13',
        'Topic :: Scientific/Engineering :: Artificial Intelligence',
        'Topic :: Security',
    ],
    # What mechanisms, guarantees and every command import before they do anything. Neither
    # TensorFlow nor TFF: no resolver can satisfy TFF (see requirements.in), so there is no extra
    # for it; `dpfl install_tff` installs it (docs/install.md).
    install_requires=[
        'absl-py',
        'dp-accounting>=0.6',
        'numpy>=2',
        'scipy',
        'tqdm',
    ],
    extras_require={
        # What commands without TensorFlow need besides: plots, HTML pages, signed reports.
        'accounting': [
            'cryptography',
            'markdown',
            'matplotlib',
        ],
        # --ray: shards in other processes and on other machines.
        'ray': ['ray>=2.60'],
    },
    entry_points={'console_scripts': ['dpfl = dpfl.cli.main:main']},
    packages=[*setuptools.find_packages(include=['dpfl', 'dpfl.*']), *BESIDE],
    package_dir=BESIDE,
    package_data={
        '': ['*.json', '*.npz', 'py.typed'],
        'dpfl.configs': ['*.flags', 'requirements.lock', 'requirements-gpu.lock'],
    },
)
