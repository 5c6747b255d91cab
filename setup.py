"""Packages dpfl for environments that already have TensorFlow Federated, or can do without it."""

import pathlib
import re

import setuptools

ROOT = pathlib.Path(__file__).parent
VERSION = re.search(r"^__version__ = '([^']+)'$", (ROOT / 'dpfl/__init__.py').read_text(), re.M)
# Presets, studies and the lock, which a checkout has in a folder of their own.
CONFIGS = {'dpfl.configs': 'configs', 'dpfl.configs.studies': 'configs/studies'}

setuptools.setup(
    name='dpfl',
    version=VERSION.group(1),
    description='Federated learning with user-level differential privacy, simulated on TFF',
    license='Apache-2.0',
    python_requires='>=3.10',
    # What mechanisms, guarantees and every command import before they do anything. Neither
    # TensorFlow nor TFF: no resolver can satisfy TFF (see requirements.in), so there is no extra
    # for it, and naming it would make pip replace what is installed (docs/package.md).
    install_requires=[
        'absl-py',
        'dp-accounting>=0.4.3',
        'numpy',
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
    packages=[*setuptools.find_packages(include=['dpfl', 'dpfl.*']), *CONFIGS],
    package_dir=CONFIGS,
    package_data={
        '': ['*.json', '*.npz', 'py.typed'],
        'dpfl.configs': ['*.flags', 'requirements.lock'],
        'dpfl.configs.studies': ['*.flags'],
    },
)
