"""Packages dpfl for environments that already have TensorFlow Federated, or can do without it."""

import pathlib
import re

import setuptools

ROOT = pathlib.Path(__file__).parent
VERSION = re.search(r"^__version__ = '([^']+)'$", (ROOT / 'dpfl/__init__.py').read_text(), re.M)

setuptools.setup(
    name='dpfl',
    version=VERSION.group(1),
    description='Federated learning with user-level differential privacy, simulated on TFF',
    license='Apache-2.0',
    python_requires='>=3.10',
    # What mechanisms, accounting and plots import. Neither TensorFlow nor TFF: no resolver can
    # satisfy TFF (see requirements.in), and naming them would make pip replace what is installed.
    install_requires=[
        'absl-py',
        'cryptography',
        'dp-accounting>=0.4.3',
        'markdown',
        'matplotlib',
        'numpy',
        'scipy',
        'tqdm',
    ],
    packages=setuptools.find_packages(include=['dpfl', 'dpfl.*']),
    package_data={'': ['*.json', '*.npz', 'py.typed']},
)
