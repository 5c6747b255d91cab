"""Order of the tests: those that start no TFF runtime run first, and in seconds."""

import os

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
os.environ.setdefault('CUDA_VISIBLE_DEVICES', '')
# Optimisers are tested, not their kept results.
os.environ['DPFL_CACHE_DIR'] = ''


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.get_closest_marker('tff') is not None)
